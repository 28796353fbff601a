/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle against numbers worked out by hand: what every other test of
 * dispatch and combine leans on.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "oracle.h"
#include "oracle_float.h"

static uint16_t stored(enum ferry_dtype dtype, float value)
{
	uint16_t bits;

	oracle_store(&bits, 0, dtype, value);
	return bits;
}

static void every_half_survives(void **state)
{
	(void)state;
	for (uint32_t u = 0; u < 65536; u++) {
		const uint16_t bits = (uint16_t)u;
		const float bf16 = oracle_load(&bits, 0, FERRY_BF16);
		const float fp16 = oracle_load(&bits, 0, FERRY_FP16);

		assert_int_equal(stored(FERRY_BF16, bf16),
		                 isnan(bf16) ? 0x7fff : bits);
		assert_int_equal(stored(FERRY_FP16, fp16),
		                 isnan(fp16) ? 0x7fff : bits);
	}
	for (uint32_t u = 0; u < 256; u++) {
		const uint8_t bits = (uint8_t)u;
		const float value = oracle_load(&bits, 0, FERRY_FP8_E4M3);

		assert_int_equal(oracle_e4m3(value),
		                 isnan(value) ? 0x7f : bits);
	}
}

static void rounding_is_to_nearest_even(void **state)
{
	(void)state;
	assert_int_equal(stored(FERRY_BF16, 1 + 0x1p-8f), 0x3f80);
	assert_int_equal(stored(FERRY_BF16, 1 + 0x1p-8f + 0x1p-20f), 0x3f81);
	assert_int_equal(stored(FERRY_BF16, 1 + 3 * 0x1p-8f), 0x3f82);
	assert_int_equal(stored(FERRY_BF16, 3.4e38f), 0x7f80);
	assert_int_equal(stored(FERRY_BF16, 1e-39f), 0x000b);
	assert_int_equal(stored(FERRY_FP16, 1 + 0x1p-11f), 0x3c00);
	assert_int_equal(stored(FERRY_FP16, 1 + 3 * 0x1p-11f), 0x3c02);
	assert_int_equal(stored(FERRY_FP16, 65519), 0x7bff);
	assert_int_equal(stored(FERRY_FP16, 65520), 0x7c00);
	assert_int_equal(stored(FERRY_FP16, -0x1p-25f), 0x8000);
	assert_int_equal(stored(FERRY_FP16, 0x1.8p-25f), 0x0001);
	assert_int_equal(stored(FERRY_FP16, 0x1p-14f - 0x1p-26f), 0x0400);
	assert_int_equal(oracle_e4m3(17), 0x58);    /* tie to 16 */
	assert_int_equal(oracle_e4m3(19), 0x5a);    /* tie to 20 */
	assert_int_equal(oracle_e4m3(-1e9f), 0xfe); /* saturates */
	assert_int_equal(oracle_e4m3(INFINITY), 0x7e);
	assert_int_equal(oracle_e4m3(0x1p-10f), 0); /* tie to 0 */
	assert_int_equal(oracle_e4m3(-0.0f), 0x80);
}

static void quantising_follows_the_formula(void **state)
{
	uint16_t x[130] = {0x3f80, 0xbf80, 0x8000, 0x7fc1}; /* 1 -1 -0 NaN */
	uint8_t q[130];
	float scales[2];
	uint8_t exponents[2];

	(void)state;
	x[129] = 0x7f80; /* infinity, in the short last block */
	oracle_quantize(q, scales, FERRY_SCALE_FP32, x, 130);
	assert_true(scales[0] == 1.0f / 448.0f);
	assert_int_equal(q[0], 0x7e);
	assert_int_equal(q[1], 0xfe);
	assert_int_equal(q[2], 0x80);
	assert_int_equal(q[3], 0x7f);
	assert_int_equal(q[4], 0);
	assert_true(isinf(scales[1]));
	assert_int_equal(q[128], 0);
	assert_int_equal(q[129], 0x7f); /* infinity * 0 */

	oracle_quantize(q, exponents, FERRY_SCALE_UE8M0, x, 130);
	assert_int_equal(exponents[0], 119); /* 2^-8 >= 1/448 > 2^-9 */
	assert_int_equal(q[0], 0x78);        /* 256 */
	assert_int_equal(exponents[1], 255);

	memset(x, 0, sizeof(x));
	oracle_quantize(q, scales, FERRY_SCALE_FP32, x, 128);
	assert_true(scales[0] == 0x1p-126f);
	oracle_quantize(q, exponents, FERRY_SCALE_UE8M0, x, 128);
	assert_int_equal(exponents[0], 1);
}

/* Two ranks, three experts (two on rank 0), top-2, hidden 2 of bf16. */
struct small {
	struct ferry_moe_config config;
	struct ferry_moe_need need;
	struct ferry_dispatch_in in[2];
	uint16_t x[2][3][2];
};

static const int32_t small_ids[2][3][2] = {
	{{2, 0}, {-1, 1}, {0, 0}},
	{{1, 2}, {-1, -1}, {0, 0}},
};
static const float small_weights[2][3][2] = {
	{{0.5f, 2}, {NAN, 3}, {1, -1}},
	{{0.25f, 4}, {NAN, NAN}, {1, 1}},
};

static void make_small(struct small *s, enum ferry_layout layout)
{
	s->config = (struct ferry_moe_config)FERRY_MOE_CONFIG_INIT;
	s->need = (struct ferry_moe_need)FERRY_MOE_NEED_INIT;
	s->config.n_ranks = 2;
	s->config.max_tokens = 3;
	s->config.hidden = 2;
	s->config.topk = 2;
	s->config.n_experts = 3;
	s->config.layout = layout;
	s->config.alignment = layout == FERRY_EXPERT_PACKED ? 4 : 0;
	s->need.recv_rows_slot = 6;
	s->need.recv_rows = 12;
	for (uint16_t r = 0; r < 2; r++) {
		s->in[r] = (struct ferry_dispatch_in)FERRY_DISPATCH_IN_INIT;
		s->in[r].n_tokens = r == 0 ? 3 : 2;
		s->in[r].x = s->x[r];
		s->in[r].topk_ids = small_ids[r];
		s->in[r].topk_weights = &small_weights[r][0][0];
		for (uint16_t t = 0; t < 3; t++)
			for (uint16_t i = 0; i < 2; i++)
				s->x[r][t][i] =
					(uint16_t)(1000 * r + 10 * t + i);
	}
}

static struct oracle *small_oracle(struct small *s)
{
	return oracle_create(&(struct oracle_case){
		.config = &s->config,
		.need = &s->need,
		.in = s->in,
	});
}

static void rows_lie_in_receive_order(void **state)
{
	/* rank 0, packed by 4: slot 0 has (0,0,1) (0,2,0) (0,2,1), slot 1 has
	 * (0,1,1) (1,0,0). */
	static const int32_t source[12] = {0,  0,  0,  -1, 0,  1,
	                                   -1, -1, -1, -1, -1, -1};
	static const int32_t token[12] = {0,  2,  2,  -1, 1,  0,
	                                  -1, -1, -1, -1, -1, -1};
	struct small s;
	int32_t counts[2];
	int64_t offsets[3];
	int64_t n_rows;
	int32_t row_source[12];
	int32_t row_token[12];
	uint16_t rows[12][2];
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct oracle *o;

	(void)state;
	make_small(&s, FERRY_EXPERT_PACKED);
	o = small_oracle(&s);
	memset(rows, 0xa5, sizeof(rows));
	out.counts = counts;
	out.offsets = offsets;
	out.n_rows = &n_rows;
	out.row_source = row_source;
	out.row_token = row_token;
	out.rows = rows;
	oracle_dispatch(o, 0, &out);
	assert_int_equal(counts[0], 3);
	assert_int_equal(counts[1], 2);
	assert_int_equal(offsets[1], 4);
	assert_int_equal(offsets[2], 8);
	assert_int_equal(n_rows, 5);
	assert_memory_equal(row_source, source, sizeof(source));
	assert_memory_equal(row_token, token, sizeof(token));
	assert_int_equal(rows[1][1], 21);
	assert_int_equal(rows[5][0], 1000);
	assert_int_equal(rows[3][0], 0xa5a5);
	oracle_destroy(o);
}

static void a_bound_drops_the_last_rows(void **state)
{
	struct small s;
	int32_t counts[2];
	int64_t n_dropped;
	int32_t root;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct oracle *o;

	(void)state;
	make_small(&s, FERRY_EXPERT_PACKED);
	s.need.recv_rows = 7; /* slot 1 would end at 8 */
	s.config.max_recv_rows = 7;
	s.config.overflow = FERRY_OVERFLOW_DROP;
	o = small_oracle(&s);
	out.counts = counts;
	out.n_dropped = &n_dropped;
	oracle_dispatch(o, 0, &out);
	assert_int_equal(counts[0], 3);
	assert_int_equal(counts[1], 0);
	assert_int_equal(n_dropped, 2);
	assert_int_equal(oracle_status(o, &root), FERRY_OK);
	oracle_destroy(o);

	s.config.overflow = FERRY_OVERFLOW_ERROR;
	o = small_oracle(&s);
	assert_int_equal(oracle_status(o, &root), FERRY_OVERFLOW);
	assert_int_equal(root, 0);
	oracle_destroy(o);
}

/* What expert e answers to token t of rank r, element 0, of `small`. */
static float answer(const struct small *s, int32_t e, int r, int t)
{
	uint16_t y[2];

	oracle_expert(y, FERRY_BF16, 2, s->x[r][t], 4, NULL, 0, e,
	              ORACLE_PLAIN);
	return oracle_load(y, 0, FERRY_BF16);
}

static void sums_follow_the_formula(void **state)
{
	const struct oracle_combine_how how = {.values = ORACLE_PLAIN};
	struct ferry_combine_out out = FERRY_COMBINE_OUT_INIT;
	struct small s;
	float sum[3][2];
	float want;
	float mine;
	float other;
	struct oracle *o;

	(void)state;
	make_small(&s, FERRY_EXPERT_PADDED);
	s.config.out_dtype = FERRY_FP32;
	out.out = sum;
	o = small_oracle(&s);
	oracle_combine(o, 0, &how, &out);
	want = fmaf(2, answer(&s, 0, 0, 0), 0.5f * answer(&s, 2, 0, 0));
	assert_true(sum[0][0] == want);
	want = 3 * answer(&s, 1, 0, 1);
	assert_true(sum[1][0] == want);
	assert_true(sum[2][0] == 0); /* 1 - 1 */
	oracle_combine(o, 1, &how, &out);
	assert_true(sum[1][0] == 0 && !signbit(sum[1][0])); /* masked NaN */
	oracle_destroy(o);

	/* REDUCED: the parts of ranks 0 and 1, rounded to bf16, then added. */
	s.config.combine = FERRY_REDUCED;
	o = small_oracle(&s);
	oracle_combine(o, 0, &how, &out);
	mine = 2 * answer(&s, 0, 0, 0);
	other = 0.5f * answer(&s, 2, 0, 0);
	assert_true(sum[0][0] == mine + other);
	oracle_destroy(o);
}

static void replicas_take_turns(void **state)
{
	/* Expert 1 is in slots 1 (rank 0) and 3 (rank 1). */
	static const int32_t slots[2] = {2, 2};
	static const int32_t experts[4] = {0, 1, 2, 1};
	struct ferry_placement_config p = FERRY_PLACEMENT_CONFIG_INIT;
	const struct oracle_row *rows;
	struct small s;
	struct oracle *o;

	(void)state;
	make_small(&s, FERRY_EXPERT_PADDED);
	s.config.expert_slots = slots;
	p.n_experts = 3;
	p.n_ranks = 2;
	p.expert_slots = slots;
	p.slot_expert = experts;
	o = oracle_create(&(struct oracle_case){.config = &s.config,
	                                        .need = &s.need,
	                                        .placement = &p,
	                                        .in = s.in});
	/* (rank 0, token 1, choice 1): (0+1+1) mod 2 = 0, slot 1, rank 0;
	 * (rank 1, token 0, choice 0): 1 mod 2 = 1, slot 3, rank 1. */
	assert_int_equal(oracle_rows(o, 0, &rows), 4);
	assert_int_equal(rows[3].slot, 1);
	assert_int_equal(rows[3].source, 0);
	assert_int_equal(oracle_rows(o, 1, &rows), 3);
	assert_int_equal(rows[2].slot, 1);
	assert_int_equal(rows[2].expert, 1);
	assert_int_equal(rows[2].source, 1);
	oracle_destroy(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_half_survives),
		cmocka_unit_test(rounding_is_to_nearest_even),
		cmocka_unit_test(quantising_follows_the_formula),
		cmocka_unit_test(rows_lie_in_receive_order),
		cmocka_unit_test(a_bound_drops_the_last_rows),
		cmocka_unit_test(sums_follow_the_formula),
		cmocka_unit_test(replicas_take_turns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
