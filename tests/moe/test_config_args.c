/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input of every field of configurations and placements. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bad_input.h"

/* One bad assignment to a good configuration `c`. */
#define CONFIG(assignment, want, ...)                                          \
	do {                                                                   \
		struct ferry_moe_config c = good_config();                     \
		struct ferry_moe_need need = FERRY_MOE_NEED_INIT;              \
                                                                               \
		assignment;                                                    \
		CHECK_FAILS(ferry_moe_query(&c, &need), want, __VA_ARGS__);    \
	} while (0)

static void config_numbers(struct rank *rank)
{
	static const int32_t negative[4] = {1, 2, -3, 4};
	static const int32_t none[4] = {0, 0, 0, 0};
	static const int32_t many[4] = {INT32_MAX, 1, 1, 1};

	(void)rank;
	CONFIG(c.n_ranks = 0, FERRY_RANGE, "n_ranks", "0", "1..65536");
	CONFIG(c.n_ranks = -1, FERRY_RANGE, "n_ranks", "-1", "1..65536");
	CONFIG(c.n_ranks = 65537, FERRY_RANGE, "n_ranks", "65537", "1..65536");
	CONFIG(c.max_tokens = 0, FERRY_RANGE, "max_tokens is 0", "1..");
	CONFIG(c.max_tokens = -7, FERRY_RANGE, "max_tokens is -7", "1..");
	CONFIG(c.hidden = 0, FERRY_RANGE, "hidden is 0", "1..");
	CONFIG(c.hidden = INT32_MIN, FERRY_RANGE, "hidden is -2147483648",
	       "1..");
	CONFIG(c.topk = 0, FERRY_RANGE, "topk is 0", "1..64");
	CONFIG(c.topk = 65, FERRY_RANGE, "topk is 65", "1..64");
	CONFIG(c.n_experts = 0, FERRY_RANGE, "n_experts is 0", "1..");
	CONFIG(c.n_experts = -5, FERRY_RANGE, "n_experts is -5", "1..");
	CONFIG(c.expert_slots = negative, FERRY_RANGE, "expert_slots[2] is -3",
	       "0..");
	CONFIG(c.expert_slots = none, FERRY_RANGE, "expert_slots is 0", "1..");
	CONFIG(c.expert_slots = many, FERRY_RANGE, "expert_slots", "2147483650",
	       "1..");
	CONFIG(c.n_slots = -1, FERRY_RANGE, "n_slots is -1", "0..256");
	CONFIG(c.n_slots = 257, FERRY_RANGE, "n_slots is 257", "0..256");
	CONFIG(c.group_size = -1, FERRY_RANGE, "group_size is -1", "0..4");
	CONFIG(c.group_size = 5, FERRY_RANGE, "group_size is 5", "0..4");
	CONFIG(c.group_size = 3, FERRY_INVAL, "group_size is 3", "divisors",
	       "4");
	/* A window that fits in 63 bits, with a heap that does not. */
	CONFIG((c.n_ranks = 65536, c.max_tokens = 805306368, c.hidden = 1,
	        c.topk = 64, c.n_slots = 256, c.max_recv_rows = 1),
	       FERRY_RANGE, "heap exceeds 2^63 bytes", "n_slots 256");
}

static void config_types(struct rank *rank)
{
	(void)rank;
	CONFIG(c.dtype = (enum ferry_dtype)7, FERRY_INVAL, "dtype is 7",
	       "6 (BYTES)");
	CONFIG(c.dtype = (enum ferry_dtype) - 1, FERRY_INVAL, "dtype is -1",
	       "1 (BF16)");
	CONFIG(c.in_dtype = (enum ferry_dtype)9, FERRY_INVAL, "in_dtype is 9",
	       "1 (BF16)");
	CONFIG(c.in_dtype = FERRY_FP16, FERRY_INVAL, "in_dtype is FP16", "BF16",
	       "FP8_E4M3");
	CONFIG((c.in_dtype = FERRY_BF16, c.dtype = FERRY_FP8_E5M2), FERRY_INVAL,
	       "in_dtype is BF16", "FP8_E5M2", "FP8_E4M3");
	CONFIG(c.combine_dtype = FERRY_FP8_E4M3, FERRY_INVAL,
	       "combine_dtype is 4", "3 (FP32)");
	CONFIG(c.out_dtype = FERRY_BYTES, FERRY_INVAL, "out_dtype is 6",
	       "3 (FP32)");
	CONFIG(c.scale_type = (enum ferry_scale_type)4, FERRY_INVAL,
	       "scale_type is 4", "3 (BYTES)");
	CONFIG(c.scale_type = (enum ferry_scale_type) - 1, FERRY_INVAL,
	       "scale_type is -1", "0 (NONE)");
	CONFIG((c.in_dtype = FERRY_BF16, c.dtype = FERRY_FP8_E4M3), FERRY_INVAL,
	       "scale_type is 0", "1 (FP32)", "2 (UE8M0)");
	CONFIG((c.in_dtype = FERRY_BF16, c.dtype = FERRY_FP8_E4M3,
	        c.scale_type = FERRY_SCALE_FP32, c.scale_block = 64),
	       FERRY_INVAL, "scale_block is 64", "128");
	CONFIG((c.scale_type = FERRY_SCALE_FP32, c.scale_block = -4),
	       FERRY_RANGE, "scale_block is -4", "0..");
	CONFIG(c.scale_block = 32, FERRY_RANGE, "scale_block", "32", "0..0");
	CONFIG(c.scale_type = FERRY_SCALE_BYTES, FERRY_RANGE,
	       "scale_bytes is 0", "1..");
	CONFIG(c.scale_bytes = 4, FERRY_RANGE, "scale_bytes", "4", "0..0");
}

static void config_rules(struct rank *rank)
{
	(void)rank;
	CONFIG(c.layout = (enum ferry_layout)3, FERRY_INVAL, "layout is 3",
	       "2 (TOKEN)");
	CONFIG(c.alignment = 3, FERRY_INVAL, "alignment is 3", "powers of two");
	CONFIG(c.alignment = -2, FERRY_INVAL, "alignment is -2",
	       "powers of two");
	CONFIG(c.max_recv_rows = -1, FERRY_RANGE, "max_recv_rows is -1", "0..");
	CONFIG((c.layout = FERRY_EXPERT_PACKED, c.alignment = 16,
	        c.max_recv_rows = 15),
	       FERRY_RANGE, "max_recv_rows is 15", "16");
	CONFIG(c.overflow = (enum ferry_overflow)2, FERRY_INVAL,
	       "overflow is 2", "1 (DROP)");
	CONFIG(c.bad_id = (enum ferry_bad_id)2, FERRY_INVAL, "bad_id is 2",
	       "1 (SKIP)");
	CONFIG(c.combine = (enum ferry_combine_mode)3, FERRY_INVAL,
	       "combine is 3", "2 (PER_HOST)");
	CONFIG(c.weight_use = (enum ferry_weight_use) - 1, FERRY_INVAL,
	       "weight_use is -1", "1 (INPUT)");
	CONFIG((c.weight_use = FERRY_WEIGHT_INPUT, c.dtype = FERRY_FP8_E4M3),
	       FERRY_INVAL, "weight_use", "FP8_E4M3", "BF16, FP16, FP32");
	CONFIG((c.weight_use = FERRY_WEIGHT_INPUT, c.layout = FERRY_TOKEN),
	       FERRY_INVAL, "weight_use", "TOKEN", "EXPERT_PACKED");
	CONFIG(c.routed_scale = NAN, FERRY_INVAL, "routed_scale", "nan",
	       "finite");
	CONFIG(c.routed_scale = -INFINITY, FERRY_INVAL, "routed_scale", "inf",
	       "finite");
	/* More than can be addressed or counted; refused, never wrapped. */
	CONFIG((c.n_ranks = 65536, c.max_tokens = INT32_MAX,
	        c.hidden = INT32_MAX, c.topk = 64, c.n_slots = 256,
	        c.dtype = FERRY_FP32, c.max_recv_rows = 1000),
	       FERRY_RANGE, "window", "2147483647");
	CONFIG((c.n_ranks = 65536, c.max_tokens = INT32_MAX), FERRY_RANGE,
	       "max_tokens is 2147483647", "max_recv_rows");
}

static void config_structs(struct rank *rank)
{
	struct ferry_moe_config config = good_config();
	struct ferry_moe_need found = FERRY_MOE_NEED_INIT;
	struct {
		struct ferry_moe_config known;
		char tail[8];
	} newer;

	(void)rank;
	CHECK_FAILS(ferry_moe_query(NULL, &found), FERRY_INVAL, "config",
	            "NULL");
	CHECK_FAILS(ferry_moe_query(&config, NULL), FERRY_INVAL, "need",
	            "NULL");
	CONFIG(c.size = 0, FERRY_INVAL, "config", "size is 0", "INIT");
	CONFIG(c.size = 7, FERRY_INVAL, "config", "size is 7", "INIT");
	CONFIG(c.size = SIZE_MAX, FERRY_INVAL, "config",
	       "size is 18446744073709551615", "INIT");
	found.size = 3;
	CHECK_FAILS(ferry_moe_query(&config, &found), FERRY_INVAL, "need",
	            "size is 3");
	/* A newer caller: its tail must be zero. */
	memset(&newer, 0, sizeof(newer));
	newer.known = good_config();
	newer.known.size = sizeof(newer);
	found = (struct ferry_moe_need)FERRY_MOE_NEED_INIT;
	RANKS_OK(ferry_moe_query(&newer.known, &found));
	newer.tail[2] = 1;
	CHECK_FAILS(ferry_moe_query(&newer.known, &found), FERRY_INVAL,
	            "not zero", "size is");
	/* An older caller: what it does not know is default. */
	config.size = offsetof(struct ferry_moe_config, dtype);
	config.dtype = (enum ferry_dtype)77;
	RANKS_OK(ferry_moe_query(&config, &found));
	RANKS_EQ(found.row_bytes, 2 * 8);
	found.size = offsetof(struct ferry_moe_need, recv_rows);
	found.recv_rows = -5;
	RANKS_OK(ferry_moe_query(&config, &found));
	RANKS_EQ(found.recv_rows, -5);
}

static struct ferry_placement_config good_placement(void)
{
	struct ferry_placement_config p = FERRY_PLACEMENT_CONFIG_INIT;

	p.n_experts = 3;
	p.n_ranks = 2;
	return p;
}

#define PLACEMENT(assignment, want, ...)                                       \
	do {                                                                   \
		struct ferry_placement_config p = good_placement();            \
		struct ferry_placement *made = NULL;                           \
                                                                               \
		assignment;                                                    \
		CHECK_FAILS(ferry_placement_create(&p, &made), want,           \
		            __VA_ARGS__);                                      \
		RANKS_CHECK(made == NULL);                                     \
	} while (0)

static void placements(struct rank *rank)
{
	static const int32_t two_each[2] = {2, 2};
	static const int32_t negative[2] = {4, -1};
	static const int32_t none[2] = {0, 0};
	static const int32_t unknown[4] = {0, 1, 2, 3};
	static const int32_t bad[4] = {0, 1, 2, -2};
	static const int32_t missing[4] = {0, 1, 0, -1};
	static const int32_t twice[4] = {1, 1, 0, 2};
	const struct ferry_placement_config good = good_placement();
	struct ferry_placement *kept;
	const int32_t *slots;
	int32_t n;

	(void)rank;
	PLACEMENT(p.n_experts = 0, FERRY_RANGE, "n_experts is 0", "1..");
	PLACEMENT(p.n_ranks = 0, FERRY_RANGE, "n_ranks is 0", "1..65536");
	PLACEMENT(p.n_ranks = 70000, FERRY_RANGE, "n_ranks is 70000",
	          "1..65536");
	PLACEMENT(p.expert_slots = negative, FERRY_RANGE,
	          "expert_slots[1] is -1", "0..");
	PLACEMENT(p.expert_slots = none, FERRY_RANGE, "expert_slots", "0",
	          "1..");
	PLACEMENT(p.split = (enum ferry_split)5, FERRY_INVAL, "split is 5",
	          "0 (even)");
	PLACEMENT((p.expert_slots = two_each, p.slot_expert = unknown),
	          FERRY_RANGE, "slot_expert[3]", "rank 1", "is 3", "0..2");
	PLACEMENT((p.expert_slots = two_each, p.slot_expert = bad), FERRY_RANGE,
	          "slot_expert[3]", "is -2", "0..2", "-1");
	PLACEMENT((p.expert_slots = two_each, p.slot_expert = missing),
	          FERRY_INVAL, "expert 2", "none of the 4 slots");
	PLACEMENT((p.expert_slots = two_each, p.slot_expert = twice),
	          FERRY_INVAL, "expert 1", "slots 0 and 1", "rank 0");
	PLACEMENT(p.size = 1, FERRY_INVAL, "config", "size is 1", "INIT");
	CHECK_FAILS(ferry_placement_create(NULL, &kept), FERRY_INVAL, "config",
	            "NULL");
	CHECK_FAILS(ferry_placement_create(&good, NULL), FERRY_INVAL,
	            "placement", "NULL");
	RANKS_OK(ferry_placement_create(&good, &kept));
	CHECK_FAILS(ferry_placement_replicas(kept, 3, &slots, &n), FERRY_RANGE,
	            "expert is 3", "0..2");
	CHECK_FAILS(ferry_placement_replicas(kept, -1, &slots, &n), FERRY_RANGE,
	            "expert is -1", "0..2");
	RANKS_EQ(ferry_placement_expert(kept, 3), -1);
	RANKS_EQ(ferry_placement_expert(kept, -1), -1);
	RANKS_EQ(ferry_placement_rank(kept, 3), -1);
	RANKS_EQ(ferry_placement_rank(kept, -1), -1);
	RANKS_EQ(ferry_placement_resolve(kept, 3, 0, 0, 0), -1);
	RANKS_EQ(ferry_placement_resolve(kept, -1, 0, 0, 0), -1);
	ferry_placement_destroy(kept);
}

CASE(config_numbers)
CASE(config_types)
CASE(config_rules)
CASE(config_structs)
CASE(placements)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config_numbers),
		cmocka_unit_test(test_config_types),
		cmocka_unit_test(test_config_rules),
		cmocka_unit_test(test_config_structs),
		cmocka_unit_test(test_placements),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
