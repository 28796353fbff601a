/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a channel on a GPU would take, asked without one: paths, blocks that
 * must be resident together, refusals.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/cuda_placement.h"
#include "cuda/cuda_plan.h"
#include "proto/channel.h"

static int32_t ctas(int32_t n_ranks, int32_t n_slots, int32_t ctas_per_sm,
                    int32_t max_sms)
{
	const struct ferry_cuda_room room = {
		.n_sms = 132,
		.n_ranks = n_ranks,
		.n_slots = n_slots,
		.max_sms = max_sms,
		.ctas_per_sm = ctas_per_sm,
	};

	return ferry_cuda_plan_ctas(&room);
}

static void test_blocks(void **state)
{
	(void)state;
	assert_int_equal(ctas(1, 1, 1, 0), 132);
	assert_int_equal(ctas(1, 1, 2, 0), 264);
	assert_int_equal(ctas(1, 2, 2, 0), 132);
	assert_int_equal(ctas(4, 2, 1, 0), 16);
	assert_int_equal(ctas(1, 1, 2, 32), 32);
	assert_int_equal(ctas(8, 1, 1, 32), 16);
	assert_int_equal(ctas(1, 256, 1, 0), 0);
}

/* However blocks are spread, all kernels find room. */
static void test_blocks_fit(void **state)
{
	(void)state;
	for (int32_t ranks = 1; ranks <= 8; ranks++)
		for (int32_t slots = 1; slots <= 16; slots++)
			for (int32_t k = 1; k <= 4; k++)
				assert_true(ranks * slots *
				                    ctas(ranks, slots, k, 0) <=
				            132 * k);
}

static struct ferry_moe_config config(int32_t n_ranks, int32_t max_tokens)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.n_ranks = n_ranks;
	c.max_tokens = max_tokens;
	c.hidden = 7168;
	c.topk = 8;
	c.n_experts = 256;
	c.device = FERRY_DEVICE_CUDA;
	return c;
}

static void test_query(void **state)
{
	struct ferry_moe_config c = config(8, 4096);
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;

	(void)state;
	c.max_sms = 24;
	c.n_slots = 2;
	if (ferry_moe_query(&c, &need))
		fail_msg("%s", ferry_last_error());
	assert_string_equal(need.path, "chunks");
	assert_int_equal(need.n_sms, 24);
	assert_int_equal(need.resident_ctas, 48);
	assert_true(need.heap_bytes > 0);
	c = config(2, 256);
	c.path = FERRY_PATH_CHUNKS;
	if (ferry_moe_query(&c, &need))
		fail_msg("%s", ferry_last_error());
	assert_string_equal(need.path, "chunks");
}

/* Between hosts rows go by chunks, whatever one host would take. */
static void test_mirror(void **state)
{
	struct ferry_moe_config c = config(2, 128);
	struct ferry_moe_need lines = FERRY_MOE_NEED_INIT;
	struct ferry_moe_need chunks = FERRY_MOE_NEED_INIT;
	/* Two halves of the own rows, and a row for each choice of both. */
	const size_t out = (size_t)(2 * 128 + 2 * 128 * 8) * 7168 * 2;

	(void)state;
	if (ferry_moe_query(&c, &lines))
		fail_msg("%s", ferry_last_error());
	c.path = FERRY_PATH_CHUNKS;
	if (ferry_moe_query(&c, &chunks))
		fail_msg("%s", ferry_last_error());
	assert_string_equal(lines.path, "lines");
	assert_int_equal(lines.mirror_bytes, chunks.mirror_bytes);
	assert_true(chunks.mirror_bytes > chunks.window_bytes + out);
	assert_true(chunks.mirror_bytes < chunks.window_bytes + out + 65536);
}

static void test_paths(void **state)
{
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	struct ferry_moe_config c = config(2, 128);

	(void)state;
	if (ferry_moe_query(&c, &need))
		fail_msg("%s", ferry_last_error());
	assert_string_equal(need.path, "lines");
	c = config(2, 2048);
	if (ferry_moe_query(&c, &need))
		fail_msg("%s", ferry_last_error());
	assert_string_equal(need.path, "chunks");
}

static void takes(const struct ferry_moe_config *c, const char *path)
{
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;

	if (ferry_moe_query(c, &need))
		fail_msg("%s", ferry_last_error());
	assert_string_equal(need.path, path);
}

/* Where lines end: sooner for TOKEN, where chunks have less to wait for. */
static void test_where_lines_end(void **state)
{
	struct ferry_moe_config c = config(2, 512);

	(void)state;
	c.layout = FERRY_EXPERT_PADDED;
	takes(&c, "lines");
	c.max_tokens = 513;
	takes(&c, "chunks");
	c.layout = FERRY_TOKEN;
	c.max_tokens = 384;
	takes(&c, "lines");
	c.max_tokens = 385;
	takes(&c, "chunks");
	c.in_dtype = FERRY_BF16;
	c.dtype = FERRY_FP8_E4M3;
	c.scale_type = FERRY_SCALE_FP32;
	takes(&c, "lines");
}

static void test_refusals(void **state)
{
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	struct ferry_moe_config c = config(129, 128);

	(void)state;
	assert_int_equal(ferry_moe_query(&c, &need), FERRY_UNSUPPORTED);
	assert_non_null(strstr(ferry_last_error(), "n_ranks is 129"));
	c = config(2, 128);
	c.path = FERRY_PATH_COUNTS;
	assert_int_equal(ferry_moe_query(&c, &need), FERRY_INVAL);
	assert_non_null(strstr(ferry_last_error(), "path is COUNTS"));
}

/* Asked for, lines refuse; left to choose, the library takes chunks. */
static void refused_by_lines(struct ferry_moe_config *c, const char *why)
{
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;

	c->path = FERRY_PATH_LINES;
	assert_int_equal(ferry_moe_query(c, &need), FERRY_UNSUPPORTED);
	assert_non_null(strstr(ferry_last_error(), why));
	c->path = FERRY_PATH_AUTO;
	if (ferry_moe_query(c, &need))
		fail_msg("%s", ferry_last_error());
	assert_string_equal(need.path, "chunks");
}

static void test_limits_of_lines(void **state)
{
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	struct ferry_moe_config c = config(2, 8);

	(void)state;
	c.n_experts = 8192;
	if (ferry_moe_query(&c, &need))
		fail_msg("%s", ferry_last_error());
	assert_string_equal(need.path, "lines");
	c.n_experts = 8193;
	refused_by_lines(&c, "lines serve at most 8192 expert slots");
	/* 2 bytes for each of 131072 choices: more than 212 KiB. */
	c = config(8, 2048);
	refused_by_lines(&c, "the tables of all ranks do not fit");
}

/* Of each the newest 512, or as many as 4 MiB hold, and two at least. */
static void test_placements_kept(void **state)
{
	struct ferry_shape shape = {.n_experts = 256, .n_expert_slots = 288};

	(void)state;
	assert_int_equal(ferry_cuda_placements_kept(&shape), 512);
	assert_int_equal(ferry_cuda_placements_bytes(&shape), 512 * 3584);
	shape.n_experts = 4096;
	shape.n_expert_slots = 4224;
	assert_int_equal(ferry_cuda_placements_kept(&shape), (4 << 20) / 50432);
	shape.n_experts = shape.n_expert_slots = 1 << 24;
	assert_int_equal(ferry_cuda_placements_kept(&shape), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_blocks_fit),
		cmocka_unit_test(test_query),
		cmocka_unit_test(test_mirror),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_where_lines_end),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_limits_of_lines),
		cmocka_unit_test(test_placements_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
