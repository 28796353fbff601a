/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a shape must move between GPUs and through their memory, counted by
 * hand; the rows of a bench of GPUs; and checks by several threads.
 */
#include <stdlib.h>

#include "bench_shares.h"
#include "cli_cmocka.h"
#include "gpu_bench.h"

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

static void make_rows(struct gpu_bench *b, struct bench_run *run,
                      struct bench_options *o, int figures, int64_t n_ranks)
{
	*o = (struct bench_options){
		.ranks = n_ranks,
		.tokens = {1, {128}},
		.hidden = 7168,
		.topk = 8,
		.experts = 256,
		.baseline = BENCH_BASELINE_NCCL,
		.device = FERRY_DEVICE_CUDA,
		.figures = figures,
	};
	*run = (struct bench_run){.options = o};
	*b = (struct gpu_bench){.run = run,
	                        .n_rounds = 1,
	                        .facts = {.n_devices = (int32_t)n_ranks}};
	gpu_rows_make(b);
}

/* The target of a row of the figures, 0: there is no such row. */
static double target(const struct gpu_bench *b, int32_t tokens, bool fp8,
                     enum ferry_layout layout, int phase, int32_t max_sms,
                     int32_t split_us)
{
	for (int i = 0; i < b->n_rows; i++) {
		const struct gpu_row *row = &b->rows[i];
		const struct bench_case *c = &row->shape;

		if (c->tokens == tokens && c->ready == fp8 && c->fp8 == fp8 &&
		    c->layout == layout && c->max_sms == max_sms &&
		    row->split_us == split_us && row->impl == GPU_FERRY)
			return row->target_us[phase];
	}
	return 0;
}

static void test_figures_have_their_targets(void **state)
{
	struct bench_options o;
	struct bench_run run;
	struct gpu_bench b;

	(void)state;
	make_rows(&b, &run, &o, BENCH_FIGURES_TARGETS, 2);
	assert_float_equal(target(&b, 1, true, FERRY_EXPERT_PACKED, 0, 0, 0),
	                   5.5, 1e-9);
	assert_float_equal(target(&b, 128, true, FERRY_EXPERT_PADDED, 0, 0, 0),
	                   9.5, 1e-9);
	assert_float_equal(target(&b, 128, false, FERRY_TOKEN, 1, 0, 0), 9,
	                   1e-9);
	assert_float_equal(target(&b, 4096, true, FERRY_TOKEN, 0, 32, 0),
	                   109.25, 1e-9);
	assert_float_equal(
		target(&b, 4096, false, FERRY_EXPERT_PADDED, 1, 0, 0), 720,
		1e-9);
	assert_float_equal(
		target(&b, 128, false, FERRY_EXPERT_PACKED, 0, 0, 20), 9, 1e-9);
	assert_float_equal(target(&b, 8, false, FERRY_TOKEN, 0, 0, 0), 0, 1e-9);
	gpu_rows_free(&b);
}

/* Of eight ranks, too, and of no other number. */
static void test_targets_go_by_ranks(void **state)
{
	struct bench_options o;
	struct bench_run run;
	struct gpu_bench b;

	(void)state;
	make_rows(&b, &run, &o, BENCH_FIGURES_TARGETS, 8);
	assert_float_equal(target(&b, 128, true, FERRY_EXPERT_PACKED, 0, 0, 0),
	                   20, 1e-9);
	assert_float_equal(target(&b, 128, false, FERRY_EXPERT_PACKED, 1, 0, 0),
	                   32, 1e-9);
	assert_float_equal(target(&b, 4096, true, FERRY_TOKEN, 0, 32, 0), 450,
	                   1e-9);
	assert_float_equal(target(&b, 4096, false, FERRY_TOKEN, 1, 32, 0), 875,
	                   1e-9);
	gpu_rows_free(&b);
	make_rows(&b, &run, &o, BENCH_FIGURES_ALL, 4);
	assert_true(b.n_rows > 0);
	for (int i = 0; i < b.n_rows; i++)
		assert_false(gpu_row_has_target(&b.rows[i]));
	gpu_rows_free(&b);
}

static void test_rows_of_figures_and_options(void **state)
{
	struct bench_options o;
	struct bench_run run;
	struct gpu_bench b;
	int n_dense = 0;

	(void)state;
	make_rows(&b, &run, &o, BENCH_FIGURES_ALL, 2);
	for (int i = 0; i < b.n_rows; i++) {
		assert_in_range(b.rows[i].chain, 1, 48);
		assert_true(b.rows[i].bytes.wire[BENCH_PAIR] > 0);
		n_dense += b.rows[i].impl == GPU_NCCL_DENSE;
	}
	assert_in_range(b.n_rows, 100, 200);
	assert_true(n_dense > 4);
	gpu_rows_free(&b);
	make_rows(&b, &run, &o, BENCH_FIGURES_NONE, 2);
	assert_int_equal(b.n_rows, 3); /* Ferry, an exchange, a dense one */
	assert_true(b.rows[2].bytes.wire[0] > 10 * b.rows[1].bytes.wire[0]);
	gpu_rows_free(&b);
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
		cmocka_unit_test(test_figures_have_their_targets),
		cmocka_unit_test(test_targets_go_by_ranks),
		cmocka_unit_test(test_rows_of_figures_and_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
