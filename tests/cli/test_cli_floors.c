/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a shape must move between GPUs and through their memory, counted by
 * hand; and checks by several threads.
 */
#include <stdlib.h>

#include "bench_shares.h"
#include "cli_cmocka.h"
#include "gpu_bytes.h"

/*
 * Every token takes experts 0, 1 of rank 0 and 2 of rank 1: with 5 tokens of
 * each rank, 5 rows and 10 choices from anyone to rank 0, 5 and 5 to rank 1.
 * A row has 20 bytes.
 */
static const struct bench_case shape = {
	.n_ranks = 2,
	.tokens = 5,
	.hidden = 10,
	.topk = 3,
	.experts = 4,
	.layout = FERRY_EXPERT_PACKED,
	.routing = BENCH_ONE,
};

static void test_expert_major_dispatch(void **state)
{
	struct gpu_bytes b;

	(void)state;
	gpu_count_bytes(&shape, 2, &b);
	assert_int_equal(b.wire[BENCH_DISPATCH], 2 * 5 * 20);
	assert_int_equal(b.link[BENCH_DISPATCH], 5 * 20);
	/* Rank 0: 5 tokens, 5 foreign rows twice, 20 rows of experts. */
	assert_int_equal(b.memory[BENCH_DISPATCH], (5 + 2 * 5 + 20) * 20);
}

static void test_token_dispatch(void **state)
{
	struct bench_case c = shape;
	struct gpu_bytes b;

	(void)state;
	c.layout = FERRY_TOKEN;
	gpu_count_bytes(&c, 2, &b);
	assert_int_equal(b.wire[BENCH_DISPATCH], 2 * 5 * 20);
	assert_int_equal(b.memory[BENCH_DISPATCH], (5 + 5 + 5) * 20);
}

static void test_combine(void **state)
{
	struct bench_case c = shape;
	struct gpu_bytes b;

	(void)state;
	gpu_count_bytes(&c, 2, &b);
	assert_int_equal(b.wire[BENCH_COMBINE], (5 + 10) * 20);
	assert_int_equal(b.link[BENCH_COMBINE], 10 * 20);
	/* Rank 1: 10 rows of experts, 10 foreign rows twice, 5 sums. */
	assert_int_equal(b.memory[BENCH_COMBINE], (10 + 2 * 10 + 5) * 20);
	assert_int_equal(b.wire[BENCH_PAIR],
	                 b.wire[BENCH_DISPATCH] + b.wire[BENCH_COMBINE]);

	c.combine = FERRY_REDUCED;
	gpu_count_bytes(&c, 2, &b);
	assert_int_equal(b.wire[BENCH_COMBINE], (5 + 5) * 20);
	/* Rank 0: 20 rows of experts, 5 foreign rows twice, 5 sums. */
	assert_int_equal(b.memory[BENCH_COMBINE], (20 + 2 * 5 + 5) * 20);

	c.layout = FERRY_TOKEN; /* summed by the caller: 10 rows */
	gpu_count_bytes(&c, 2, &b);
	assert_int_equal(b.memory[BENCH_COMBINE], (10 + 2 * 5 + 5) * 20);
}

/* Ranks on one GPU have no link between them, and share its memory. */
static void test_one_gpu(void **state)
{
	struct gpu_bytes one, two;

	(void)state;
	gpu_count_bytes(&shape, 1, &one);
	gpu_count_bytes(&shape, 2, &two);
	assert_int_equal(one.link[BENCH_PAIR], 0);
	assert_int_equal(one.wire[BENCH_PAIR], two.wire[BENCH_PAIR]);
	assert_int_equal(one.memory[BENCH_DISPATCH], (10 + 2 * 10 + 30) * 20);
}

static void test_scales_travel(void **state)
{
	struct bench_case c = shape;
	struct gpu_bytes b;

	(void)state;
	c.fp8 = true;
	c.hidden = 256; /* 256 bytes and two scales */
	gpu_count_bytes(&c, 2, &b);
	assert_int_equal(b.wire[BENCH_DISPATCH], 2 * 5 * (256 + 8));
	assert_int_equal(b.wire[BENCH_COMBINE], (5 + 10) * 512);
}

static void test_exchange(void **state)
{
	struct gpu_bytes b = {0};

	(void)state;
	gpu_count_exchange(&shape, false, &b);
	assert_int_equal(b.wire[BENCH_DISPATCH], (5 + 10) * 20);
	gpu_count_exchange(&shape, true, &b);
	assert_int_equal(b.wire[BENCH_DISPATCH], 2 * 2 * 5 * 20);
}

static void test_the_larger_floor_counts(void **state)
{
	const struct gpu_bytes b = {.link = {1000}, .memory = {5000}};

	(void)state;
	assert_float_equal(gpu_floor_us(&b, 0, 1e9, 10e9), 1, 1e-9);
	assert_float_equal(gpu_floor_us(&b, 0, 1e9, 1e9), 5, 1e-9);
	assert_float_equal(gpu_floor_us(&b, 0, 0, 10e9), 0.5, 1e-9);
}

/* Against sums that are all 0. */
static int64_t check(void *arg, struct bench_share share)
{
	return bench_check_sums(&shape, 1, BENCH_TIMED_STEP, arg, share);
}

static void test_shares_add_up(void **state)
{
	uint16_t out[5 * 10] = {0};

	(void)state;
	const int64_t wrong = bench_share_out(1, check, out);

	assert_true(wrong > 0);
	for (int32_t n = 2; n < 8; n++)
		assert_int_equal(bench_share_out(n, check, out), wrong);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_expert_major_dispatch),
		cmocka_unit_test(test_token_dispatch),
		cmocka_unit_test(test_combine),
		cmocka_unit_test(test_one_gpu),
		cmocka_unit_test(test_scales_travel),
		cmocka_unit_test(test_exchange),
		cmocka_unit_test(test_the_larger_floor_counts),
		cmocka_unit_test(test_shares_add_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
