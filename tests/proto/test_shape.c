/* SPDX-License-Identifier: Apache-2.0 */
/* The shape: defaults, derived numbers, and a refusal of every field. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/ctx.h"
#include "proto/table.h"
#include "proto/window.h"

enum { RANKS = 4 };

static struct ferry_moe_config base(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 128;
	c.hidden = 7168;
	c.topk = 8;
	c.n_experts = 64;
	return c;
}

static struct ferry_shape shape_of(const struct ferry_moe_config *c,
                                   int32_t n_ranks)
{
	struct ferry_shape s = {.n_ranks = 0};

	if (ferry_shape_init(&s, c, n_ranks, n_ranks - 1))
		fail_msg("%s", ferry_last_error());
	return s;
}

static void refused(struct ferry_moe_config c, enum ferry_status status,
                    const char *text)
{
	struct ferry_shape s = {.n_ranks = -7};

	assert_int_equal(ferry_shape_init(&s, &c, RANKS, 0), status);
	assert_int_equal(s.n_ranks, -7);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
}

static void defaults(void **state)
{
	const struct ferry_moe_config c = base();
	struct ferry_shape s = shape_of(&c, RANKS);

	(void)state;
	assert_int_equal(s.n_slots, 1);
	assert_int_equal(s.group_size, 1);
	assert_int_equal(s.n_groups, RANKS);
	assert_int_equal(s.cap, 128);
	assert_int_equal(s.own_expert_slots, 16);
	assert_int_equal(s.first_slot[3], 48);
	assert_int_equal(s.slot_rank[47], 2);
	assert_int_equal(s.dtype, FERRY_BF16);
	assert_int_equal(s.in_dtype, FERRY_BF16);
	assert_int_equal(s.combine_dtype, FERRY_BF16);
	assert_int_equal(s.out_dtype, FERRY_BF16);
	assert_false(s.quantize);
	assert_int_equal(s.n_scales, 0);
	assert_int_equal(s.row_bytes, 14336);
	assert_int_equal(s.row_stride, 14336);
	assert_int_equal(s.back_stride, 14336);
	assert_int_equal(s.back_rows, 8);
	assert_int_equal(s.row_sources, 3);
	assert_int_equal(s.padded_rows, 512);
	assert_int_equal(s.recv_rows, 512 * 16);
	assert_false(s.send_weights);
	assert_true(s.routed_scale == 1);
	assert_int_equal(s.table_bytes, 128 + 128 * 8 * 4);
	ferry_shape_destroy(&s);
}

static void quantising(void **state)
{
	struct ferry_moe_config c = base();

	(void)state;
	c.hidden = 7100; /* the last block is short */
	c.dtype = FERRY_FP8_E4M3;
	c.in_dtype = FERRY_BF16;
	c.scale_type = FERRY_SCALE_FP32;
	c.combine = FERRY_REDUCED;
	c.combine_dtype = FERRY_FP32;
	struct ferry_shape s = shape_of(&c, RANKS);

	assert_true(s.quantize);
	assert_true(s.send_weights);
	assert_int_equal(s.scale_block, 128);
	assert_int_equal(s.n_scales, 56);
	assert_int_equal(s.row_bytes, 7100);
	assert_int_equal(s.scale_row_bytes, 224);
	assert_int_equal(s.scale_offset, 7104);
	assert_int_equal(s.row_stride, 7360);
	assert_int_equal(s.back_stride, 28416);
	assert_int_equal(s.back_rows, 3);
	assert_int_equal(s.out_dtype, FERRY_FP32);
	assert_int_equal(s.table_bytes, 128 + 128 * 8 * 8);
	ferry_shape_destroy(&s);
	c.scale_type = FERRY_SCALE_UE8M0;
	s = shape_of(&c, RANKS);
	assert_int_equal(s.scale_row_bytes, 56);
	ferry_shape_destroy(&s);
}

static void opaque_bytes(void **state)
{
	struct ferry_moe_config c = base();

	(void)state;
	c.hidden = 17;
	c.dtype = FERRY_BYTES;
	c.scale_type = FERRY_SCALE_BYTES;
	c.scale_bytes = 5;
	struct ferry_shape s = shape_of(&c, RANKS);

	assert_int_equal(s.row_bytes, 17);
	assert_int_equal(s.scale_offset, 32);
	assert_int_equal(s.scale_row_bytes, 5);
	assert_int_equal(s.n_scales, 1);
	assert_int_equal(s.row_stride, 64);
	ferry_shape_destroy(&s);
}

static void groups(void **state)
{
	static const int32_t slots[] = {3, 0, 9, 1, 0, 7};
	struct ferry_moe_config c = base();

	(void)state;
	c.max_tokens = 100;
	c.n_experts = 20;
	c.expert_slots = slots;
	c.group_size = 3;
	c.layout = FERRY_EXPERT_PACKED;
	c.alignment = 16;
	struct ferry_shape s = shape_of(&c, 6);

	assert_int_equal(s.n_groups, 2);
	assert_int_equal(s.cap, 34);
	assert_int_equal(s.row_sources, 3);
	assert_int_equal(s.n_expert_slots, 20);
	assert_int_equal(s.own_expert_slots, 7);
	assert_int_equal(s.max_expert_slots, 9);
	assert_int_equal(s.padded_rows, 200);
	assert_int_equal(s.recv_rows, (200 * 8 + 9 * 15) / 16 * 16);
	assert_false(s.bounded);
	ferry_shape_destroy(&s);
	c.group_size = 6;
	s = shape_of(&c, 6);
	assert_int_equal(s.row_sources, 0);
	ferry_shape_destroy(&s);
	c.layout = FERRY_TOKEN;
	s = shape_of(&c, 6);
	assert_int_equal(s.row_sources, 6);
	assert_int_equal(s.recv_rows, (100 * 8 + 9 * 15) / 16 * 16);
	ferry_shape_destroy(&s);
}

/* What a given capacity means in each layout, and when it binds. */
static void capacities(void **state)
{
	struct ferry_moe_config c = base();

	(void)state;
	struct ferry_shape s = shape_of(&c, RANKS);

	assert_true(s.bounded); /* a token may name an expert 8 times */
	ferry_shape_destroy(&s);
	c.topk = 1;
	s = shape_of(&c, RANKS);
	assert_false(s.bounded);
	ferry_shape_destroy(&s);
	c.topk = 8;
	c.max_recv_rows = 40;
	s = shape_of(&c, RANKS);
	assert_int_equal(s.padded_rows, 40);
	assert_int_equal(s.recv_rows, 40 * 16);
	ferry_shape_destroy(&s);
	c.max_recv_rows = 1 << 30; /* room for any duplicates */
	s = shape_of(&c, RANKS);
	assert_int_equal(s.padded_rows, 512 * 8);
	assert_false(s.bounded);
	ferry_shape_destroy(&s);
	c.layout = FERRY_EXPERT_PACKED;
	c.alignment = 64;
	c.max_recv_rows = 1000;
	s = shape_of(&c, RANKS);
	assert_int_equal(s.recv_rows, 960);
	assert_int_equal(s.padded_rows, 512);
	assert_true(s.bounded);
	ferry_shape_destroy(&s);
	c.max_recv_rows = 1 << 30;
	s = shape_of(&c, RANKS);
	assert_int_equal(s.recv_rows, (512 * 8 + 16 * 63) / 64 * 64);
	assert_false(s.bounded);
	ferry_shape_destroy(&s);
}

static void bad_counts(void **state)
{
	static const int32_t negative[RANKS] = {1, 1, -2, 1};
	struct ferry_moe_config c;

	(void)state;
	c = base();
	c.max_tokens = 0;
	refused(c, FERRY_RANGE, "max_tokens is 0, allowed are 1..2147483647");
	c = base();
	c.hidden = -1;
	refused(c, FERRY_RANGE, "hidden is -1, allowed are 1..2147483647");
	c = base();
	c.topk = 65;
	refused(c, FERRY_RANGE, "topk is 65, allowed are 1..64");
	c = base();
	c.topk = 0;
	refused(c, FERRY_RANGE, "topk is 0");
	c = base();
	c.n_experts = 0;
	refused(c, FERRY_RANGE, "n_experts is 0, allowed are 1..16777216");
	c = base();
	c.n_slots = 257;
	refused(c, FERRY_RANGE, "n_slots is 257, allowed are 0..256");
	c = base();
	c.n_slots = -1;
	refused(c, FERRY_RANGE, "n_slots is -1");
	c = base();
	c.group_size = 5;
	refused(c, FERRY_RANGE, "group_size is 5, allowed are 0..4");
	c = base();
	c.group_size = 3;
	refused(c, FERRY_INVAL,
	        "group_size is 3, allowed are the divisors of "
	        "n_ranks, 4");
	c = base();
	c.expert_slots = negative;
	refused(c, FERRY_RANGE, "expert_slots[2] is -2");
}

static void bad_ranks(void **state)
{
	const struct ferry_moe_config c = base();
	struct ferry_shape s;

	(void)state;
	assert_int_equal(ferry_shape_init(&s, &c, 0, 0), FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "n_ranks is 0"));
	assert_int_equal(ferry_shape_init(&s, &c, 65537, 0), FERRY_RANGE);
	assert_int_equal(ferry_shape_init(&s, &c, 4, 4), FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "rank is 4"));
	assert_int_equal(ferry_shape_init(&s, NULL, 4, 0), FERRY_INVAL);
	assert_non_null(strstr(ferry_last_error(), "moe_config is NULL"));
}

static void bad_types(void **state)
{
	struct ferry_moe_config c;

	(void)state;
	c = base();
	c.dtype = (enum ferry_dtype)7;
	refused(c, FERRY_INVAL, "dtype is 7, allowed are 1 (BF16)");
	c = base();
	c.in_dtype = (enum ferry_dtype) - 1;
	refused(c, FERRY_INVAL, "in_dtype is -1");
	c = base();
	c.in_dtype = FERRY_FP16;
	refused(c, FERRY_INVAL, "in_dtype is FP16 with dtype BF16");
	c = base();
	c.combine_dtype = FERRY_FP8_E4M3;
	refused(c, FERRY_INVAL, "combine_dtype is 4");
	c = base();
	c.out_dtype = FERRY_BYTES;
	refused(c, FERRY_INVAL, "out_dtype is 6");
}

static void bad_scales(void **state)
{
	struct ferry_moe_config c;

	(void)state;
	c = base();
	c.scale_type = (enum ferry_scale_type)4;
	refused(c, FERRY_INVAL,
	        "scale_type is 4, allowed are 0 (NONE), 1 "
	        "(FP32), 2 (UE8M0), 3 (BYTES)");
	c = base();
	c.scale_block = 128;
	refused(c, FERRY_RANGE, "scale_block without scales per block is 128");
	c = base();
	c.scale_bytes = 4;
	refused(c, FERRY_RANGE, "scale_bytes without scale_type BYTES is 4");
	c = base();
	c.scale_type = FERRY_SCALE_BYTES;
	refused(c, FERRY_RANGE, "scale_bytes is 0, allowed are 1..");
	c = base();
	c.scale_type = FERRY_SCALE_FP32;
	c.scale_block = -128;
	refused(c, FERRY_RANGE, "scale_block is -128");
	c = base();
	c.dtype = FERRY_FP8_E4M3;
	c.in_dtype = FERRY_BF16;
	refused(c, FERRY_INVAL, "scale_type is 0, quantising allows");
	c.scale_type = FERRY_SCALE_FP32;
	c.scale_block = 64;
	refused(c, FERRY_INVAL, "scale_block is 64, quantising allows 128");
}

static void bad_receive(void **state)
{
	struct ferry_moe_config c;

	(void)state;
	c = base();
	c.layout = (enum ferry_layout)3;
	refused(c, FERRY_INVAL,
	        "layout is 3, allowed are 0 (EXPERT_PADDED), "
	        "1 (EXPERT_PACKED), 2 (TOKEN)");
	c = base();
	c.alignment = 12;
	refused(c, FERRY_INVAL, "alignment is 12, allowed are the powers");
	c = base();
	c.alignment = INT32_MIN;
	refused(c, FERRY_INVAL, "alignment is -2147483648");
	c = base();
	c.max_recv_rows = -1;
	refused(c, FERRY_RANGE, "max_recv_rows is -1");
	c = base();
	c.layout = FERRY_EXPERT_PACKED;
	c.alignment = 64;
	c.max_recv_rows = 63;
	refused(c, FERRY_RANGE,
	        "max_recv_rows is 63, allowed are 0 (the "
	        "default) and from the alignment, 64, up");
	c = base();
	c.overflow = (enum ferry_overflow)2;
	refused(c, FERRY_INVAL, "overflow is 2");
	c = base();
	c.bad_id = (enum ferry_bad_id) - 3;
	refused(c, FERRY_INVAL, "bad_id is -3");
}

static void bad_combine(void **state)
{
	struct ferry_moe_config c;

	(void)state;
	c = base();
	c.combine = (enum ferry_combine_mode)3;
	refused(c, FERRY_INVAL, "combine is 3");
	c = base();
	c.weight_use = (enum ferry_weight_use)2;
	refused(c, FERRY_INVAL, "weight_use is 2");
	c = base();
	c.weight_use = FERRY_WEIGHT_INPUT;
	c.layout = FERRY_TOKEN;
	refused(c, FERRY_INVAL, "weight_use is 1 (INPUT) with layout TOKEN");
	c = base();
	c.weight_use = FERRY_WEIGHT_INPUT;
	c.dtype = FERRY_FP8_E5M2;
	refused(c, FERRY_INVAL, "weight_use is 1 (INPUT) with dtype FP8_E5M2");
	c = base();
	c.routed_scale = (float)NAN;
	refused(c, FERRY_INVAL, "routed_scale is nan");
	c = base();
	c.routed_scale = (float)INFINITY;
	refused(c, FERRY_INVAL, "routed_scale is inf");
}

/* What would not fit 32 or 64 bits is refused, or is right. */
static void large(void **state)
{
	struct ferry_moe_config c = base();
	struct ferry_window w;

	(void)state;
	c.max_tokens = 65537;
	c.hidden = 16;
	c.n_experts = 100000;
	struct ferry_shape s = shape_of(&c, RANKS);

	assert_int_equal(s.n_expert_slots, 100000);
	assert_int_equal(s.slot_rank[99999], 3);
	assert_int_equal(s.padded_rows, 65537 * 4);
	assert_int_equal(s.recv_rows, (int64_t)65537 * 4 * 25000);
	assert_int_equal(ferry_window_init(&w, &s, true), FERRY_OK);
	ferry_shape_destroy(&s);
	c.max_tokens = 1 << 30;
	refused(c, FERRY_RANGE,
	        "an expert slot may get 4294967296 rows, "
	        "allowed are 2147483647; max_recv_rows");
	/* As many slots as there may be: the product fits in no 64 bits. */
	static int32_t all_on_one[FERRY_MAX_RANKS] = {FERRY_MAX_EXPERTS};

	c.expert_slots = all_on_one;
	c.max_tokens = INT32_MAX;
	assert_int_equal(ferry_shape_init(&s, &c, FERRY_MAX_RANKS, 0),
	                 FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "140737488289792 rows"));
	c.expert_slots = NULL;
	c.max_tokens = 1 << 30;
	c.max_recv_rows = 1 << 20;
	c.hidden = 1 << 30;
	s = shape_of(&c, RANKS);
	/* table, rows and back: 4 GiB, 2^63 bytes and more */
	assert_int_equal(ferry_window_init(&w, &s, false), FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "max_tokens 1073741824"));
	ferry_shape_destroy(&s);
	c.max_tokens = 1 << 20;
	s = shape_of(&c, RANKS);
	assert_int_equal(ferry_window_init(&w, &s, false), FERRY_OK);
	assert_true(ferry_window_back(&w, &s, 0, 1 << 19, 7) > 1ull << 52);
	ferry_shape_destroy(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),     cmocka_unit_test(quantising),
		cmocka_unit_test(opaque_bytes), cmocka_unit_test(groups),
		cmocka_unit_test(capacities),   cmocka_unit_test(bad_counts),
		cmocka_unit_test(bad_ranks),    cmocka_unit_test(bad_types),
		cmocka_unit_test(bad_scales),   cmocka_unit_test(bad_receive),
		cmocka_unit_test(bad_combine),  cmocka_unit_test(large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
