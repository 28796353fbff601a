/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of small problems whose answer one can see, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan_check.h"

static struct ferry_planner *planner;
static struct ferry_plan plan;

static const enum ferry_plan_rule rules[] = {
	FERRY_RULE_PORTFOLIO, FERRY_RULE_SORTED, FERRY_RULE_RESELECT};

/* n_experts over n_ranks, the first ranks one more. */
static struct ferry_placement *plain(int32_t n_experts, int32_t n_ranks)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;

	c.n_experts = n_experts;
	c.n_ranks = n_ranks;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	return p;
}

static struct ferry_placement *mapped(const int32_t *slot_expert,
                                      const int32_t *expert_slots,
                                      int32_t n_experts, int32_t n_ranks,
                                      enum ferry_split split)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;

	c.n_experts = n_experts;
	c.n_ranks = n_ranks;
	c.expert_slots = expert_slots;
	c.slot_expert = slot_expert;
	c.split = split;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	return p;
}

/* Plans by all rules; the last is the portfolio's. */
static void plan_all(const struct ferry_plan_in *in)
{
	struct ferry_plan_in own = *in;

	for (int i = 2; i >= 0; i--) {
		own.rule = rules[i];
		plan_and_check(planner, &own, &plan);
	}
}

static void one_swap(void **state)
{
	struct ferry_placement *const p = plain(4, 2);
	static const int64_t loads[] = {70, 50, 30, 10};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	in.layer = 7;
	for (int i = 0; i < 3; i++) {
		in.rule = rules[i];
		plan_and_check(planner, &in, &plan);
		assert_int_equal(plan.n_moves, 1);
		assert_int_equal(plan.load_before, 120);
		assert_int_equal(plan.load_after, 80);
		assert_int_equal(plan.bound, 80);
		assert_int_equal(plan.total, 160);
		assert_int_equal(plan.layer, 7);
		assert_int_equal(plan.moves[0].gain, 40);
		assert_int_equal(plan.moves[0].from_rank, 0);
		assert_int_equal(plan.moves[0].to_rank, 1);
	}
	ferry_placement_destroy(p);
}

/* Lowering one of two equal stragglers gains nothing by itself. */
static void two_stragglers(void **state)
{
	struct ferry_placement *const p = plain(8, 4);
	static const int64_t loads[] = {60, 40, 60, 40, 10, 10, 10, 10};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	in.gamma_milli = -1;
	in.rule = FERRY_RULE_RESELECT;
	plan_and_check(planner, &in, &plan);
	assert_int_equal(plan.n_moves, 0);
	in.rule = FERRY_RULE_PORTFOLIO;
	plan_and_check(planner, &in, &plan);
	assert_int_equal(plan.n_moves, 2);
	assert_int_equal(plan.load_after, 70);
	assert_int_equal(plan.moves[0].gain, 0);
	assert_int_equal(plan.moves[1].gain, 30);
	ferry_placement_destroy(p);
}

static void all_zero(void **state)
{
	struct ferry_placement *const p = plain(16, 4);
	static const int64_t loads[16];
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	plan_all(&in);
	assert_int_equal(plan.n_moves, 0);
	assert_int_equal(plan.load_after, 0);
	assert_int_equal(plan.bound, 0);
	ferry_placement_destroy(p);
}

static void one_expert_has_all(void **state)
{
	struct ferry_placement *const p = plain(16, 4);
	static const int64_t loads[16] = {[5] = FERRY_MAX_LOAD};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	plan_all(&in);
	assert_int_equal(plan.n_moves, 0);
	assert_int_equal(plan.load_after, FERRY_MAX_LOAD);
	assert_int_equal(plan.bound, FERRY_MAX_LOAD);
	ferry_placement_destroy(p);
}

static void one_expert_each(void **state)
{
	struct ferry_placement *const p = plain(6, 6);
	static const int64_t loads[] = {5, 1, 9, 2, 2, 0};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	plan_all(&in);
	assert_int_equal(plan.n_moves, 0);
	assert_int_equal(plan.bound, 9);
	ferry_placement_destroy(p);
}

static void one_rank(void **state)
{
	struct ferry_placement *const p = plain(8, 1);
	static const int64_t loads[] = {5, 1, 9, 2, 2, 0, 7, 7};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	in.max_copies = 3;
	plan_all(&in);
	assert_int_equal(plan.n_moves, 0);
	assert_int_equal(plan.load_after, 33);
	ferry_placement_destroy(p);
}

static void ties_everywhere(void **state)
{
	struct ferry_placement *const p = plain(64, 8);
	int64_t loads[64];
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	for (int e = 0; e < 64; e++)
		loads[e] = 17;
	in.placement = p;
	in.loads = loads;
	plan_all(&in);
	assert_int_equal(plan.n_moves, 0);
	for (int e = 0; e < 64; e++)
		loads[e] = e < 32 ? 20 : 10;
	plan_all(&in);
	assert_int_equal(plan.load_after, 120);
	assert_int_equal(plan.n_moves, 16);
	/* The lowest ranks and slots first. */
	assert_int_equal(plan.moves[0].from_slot, 0);
	ferry_placement_destroy(p);
}

static void largest_loads(void **state)
{
	struct ferry_placement *const p = plain(512, 64);
	static int64_t loads[512];
	int32_t speed[64];
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	for (int e = 0; e < 512; e++)
		loads[e] = ((int64_t)1 << 31) - 1 - (e % 8 ? e : 0) * 2000000;
	for (int r = 0; r < 64; r++)
		speed[r] = 1000 - r;
	in.placement = p;
	in.loads = loads;
	in.max_swaps = 16;
	plan_all(&in);
	assert_true(plan.load_after < plan.load_before);
	in.speed = speed;
	plan_all(&in);
	assert_true(plan.load_after < plan.load_before);
	ferry_placement_destroy(p);
}

static void uneven_ranks(void **state)
{
	struct ferry_placement *const p = plain(10, 3);
	static const int64_t loads[] = {90, 80, 70, 60, 5, 5, 5, 5, 5, 5};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	in.max_swaps = 2;
	plan_all(&in);
	assert_int_equal(plan.load_before, 300);
	assert_int_equal(plan.load_after, 140);
	assert_int_equal(plan.n_moves, 2);
	ferry_placement_destroy(p);
}

static void slow_rank(void **state)
{
	struct ferry_placement *const p = plain(8, 2);
	static const int64_t loads[] = {10, 10, 10, 10, 10, 10, 10, 6};
	static const int32_t speed[] = {500, 1000};
	static const int64_t skewed[] = {10, 10, 10, 10, 1, 1, 1, 1};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	in.speed = speed;
	plan_all(&in);
	/* 76 tokens for 1.5 ranks, and each keeps 4 experts. */
	assert_int_equal(plan.load_before, 80);
	assert_int_equal(plan.load_after, 72);
	in.loads = skewed;
	plan_all(&in);
	/* 11 + 1 + 1 + 1 for the slow one would be best: 13 and 31. */
	assert_int_equal(plan.load_before, 80);
	assert_int_equal(plan.load_after, 31);
	ferry_placement_destroy(p);
}

static void replicas_are_kept_apart(void **state)
{
	/* Expert 0 is on both ranks and cannot be swapped to the other. */
	static const int32_t map[] = {0, 1, 2, 0, 3, 4};
	static const int32_t slots[] = {3, 3};
	static const int64_t loads[] = {100, 60, 50, 10, 20};
	struct ferry_placement *const p =
		mapped(map, slots, 5, 2, FERRY_SPLIT_EVEN);
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	plan_all(&in);
	assert_int_equal(plan.load_before, 160);
	assert_int_equal(plan.load_after, 120);
	ferry_placement_destroy(p);
}

static void copy_shares(void **state)
{
	static const int32_t map[] = {0, 1, -1, 2, 3, -1, 4, 5, -1};
	static const int32_t slots[] = {3, 3, 3};
	static const int64_t loads[] = {120, 0, 0, 0, 0, 0};
	static const enum ferry_split splits[] = {FERRY_SPLIT_EVEN,
	                                          FERRY_SPLIT_EXACT};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct ferry_placement *const p =
			mapped(map, slots, 6, 3, splits[i]);

		in.placement = p;
		in.loads = loads;
		in.max_copies = 1;
		plan_and_check(planner, &in, &plan);
		assert_int_equal(plan.n_moves, 2);
		assert_int_equal(plan.load_after, 40);
		assert_int_equal(plan.bound, 40);
		assert_int_equal(plan.moves[0].kind, FERRY_MOVE_COPY);
		assert_int_equal(plan.moves[0].gain, 60);
		assert_int_equal(plan.moves[1].gain, 20);
		ferry_placement_destroy(p);
	}
}

/* Copies of a plan for even loads, whose empty slots may be filled. */
static int32_t n_spare(const struct ferry_plan_in *in)
{
	struct ferry_plan_in own = *in;

	own.spare_copies = false;
	plan_and_check(planner, &own, &plan);
	assert_int_equal(plan.n_moves, 0);
	const uint64_t hash = plan.hash;

	own.spare_copies = true;
	plan_and_check(planner, &own, &plan);
	assert_false(plan.hash == hash);
	for (int32_t i = 0; i < plan.n_moves; i++) {
		assert_int_equal(plan.moves[i].kind, FERRY_MOVE_COPY);
		assert_int_equal(plan.moves[i].gain, 0);
	}
	return plan.n_moves;
}

/* Of the experts with most tokens a slot, as far as all limits let them come.
 */
static void spare_copies(void **state)
{
	static const int32_t map[] = {0, 1, -1, -1, 2, 3, -1, -1};
	static const int32_t slots[] = {4, 4};
	static const int64_t loads[] = {60, 31, 50, 41};
	static const int64_t alpha[] = {10, 10, 10, 10}, ps[4];
	struct ferry_placement *const p =
		mapped(map, slots, 4, 2, FERRY_SPLIT_EXACT);
	struct ferry_placement *const even =
		mapped(map, slots, 4, 2, FERRY_SPLIT_EVEN);
	struct ferry_cost cost = FERRY_COST_INIT;
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	in.max_copies = 2;
	assert_int_equal(n_spare(&in), 4);
	in.max_copies = 1;
	assert_int_equal(n_spare(&in), 2);
	assert_int_equal(plan.moves[0].expert, 0);
	assert_int_equal(plan.moves[1].expert, 2);
	in.placement = even;
	assert_int_equal(n_spare(&in), 0);
	in.placement = p;
	in.max_copies = 0;
	assert_int_equal(n_spare(&in), 0);
	in.max_copies = 2;
	in.threshold_ppm = 1000001;
	assert_int_equal(n_spare(&in), 0);
	in.threshold_ppm = 0;
	cost.n_ranks = 2;
	cost.alpha_ns = alpha;
	cost.ps_per_byte = ps;
	in.cost = &cost;
	in.window_ns = 9;
	assert_int_equal(n_spare(&in), 0);
	in.window_ns = 19; /* one out of each rank, and one into it */
	assert_int_equal(n_spare(&in), 2);
	ferry_placement_destroy(p);
	ferry_placement_destroy(even);
}

/* Swaps after as many copies as a plan may have. */
static void most_moves(void **state)
{
	static const enum ferry_split splits[] = {FERRY_SPLIT_EVEN,
	                                          FERRY_SPLIT_EXACT};
	static int32_t map[64 * 16], slots[64];
	static int64_t loads[64 * 8];
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	for (int s = 0; s < 64 * 16; s++)
		map[s] = s % 16 < 8 ? s / 16 * 8 + s % 16 : -1;
	for (int r = 0; r < 64; r++)
		slots[r] = 16;
	for (int e = 0; e < 64 * 8; e++)
		loads[e] = 1000 + e * 37 % 101 + (e % 64 ? 0 : 40000 + e * 97);
	for (int i = 0; i < 2; i++) {
		struct ferry_placement *const p =
			mapped(map, slots, 64 * 8, 64, splits[i]);

		in.placement = p;
		in.loads = loads;
		in.max_copies = 8;
		plan_and_check(planner, &in, &plan);
		assert_true(plan.n_moves > 0);
		in.spare_copies = splits[i] == FERRY_SPLIT_EXACT;
		plan_and_check(planner, &in, &plan);
		if (in.spare_copies)
			assert_int_equal(plan.n_moves, FERRY_PLAN_MOVES);
		ferry_placement_destroy(p);
	}
}

static void threshold(void **state)
{
	struct ferry_placement *const p = plain(4, 2);
	static const int64_t loads[] = {60, 50, 50, 40};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	in.threshold_ppm = 1100001;
	plan_and_check(planner, &in, &plan);
	assert_int_equal(plan.n_moves, 0);
	in.threshold_ppm = 1100000;
	plan_and_check(planner, &in, &plan);
	assert_int_equal(plan.n_moves, 1);
	assert_int_equal(plan.load_after, 100);
	ferry_placement_destroy(p);
}

static void hash_tells_inputs(void **state)
{
	struct ferry_placement *const p = plain(4, 2);
	int64_t loads[] = {70, 50, 30, 10};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	plan_and_check(planner, &in, &plan);
	const uint64_t hash = plan.hash;

	plan_and_check(planner, &in, &plan);
	assert_true(plan.hash == hash);
	in.layer = 1;
	plan_and_check(planner, &in, &plan);
	assert_false(plan.hash == hash);
	in.layer = 0;
	loads[3]++;
	plan_and_check(planner, &in, &plan);
	assert_false(plan.hash == hash);
	ferry_placement_destroy(p);
}

static void refused(const struct ferry_plan_in *in, enum ferry_status status,
                    const char *text)
{
	plan.size = sizeof(plan);
	assert_int_equal(ferry_plan_make(planner, in, &plan), status);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
}

static void bad_values(void **state)
{
	struct ferry_placement *const p = plain(4, 2);
	int64_t loads[] = {1, 2, 3, 4};
	int32_t speed[] = {1, 0};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	refused(&in, FERRY_INVAL, "placement is NULL");
	in.placement = p;
	refused(&in, FERRY_INVAL, "loads is NULL");
	in.loads = loads;
	loads[2] = -1;
	refused(&in, FERRY_RANGE,
	        "loads[2] is -1, allowed are 0..1099511627776");
	loads[2] = FERRY_MAX_LOAD + 1;
	refused(&in, FERRY_RANGE, "loads[2] is 1099511627777");
	loads[2] = FERRY_MAX_LOAD;
	refused(&in, FERRY_RANGE, "the sum of loads[0..3] is 1099511627783");
	loads[2] = 3;
	in.speed = speed;
	refused(&in, FERRY_RANGE, "speed[1] is 0, allowed are 1..1000000");
	in.speed = NULL;
	in.max_swaps = 257;
	refused(&in, FERRY_RANGE, "max_swaps is 257, allowed are -1..256");
	in.max_swaps = 0;
	in.rule = (enum ferry_plan_rule)3;
	refused(&in, FERRY_RANGE, "rule is 3, allowed are 0..2");
	in.rule = FERRY_RULE_PORTFOLIO;
	in.gamma_milli = -2;
	refused(&in, FERRY_RANGE, "gamma_milli is -2");
	ferry_placement_destroy(p);
}

static void bad_costs(void **state)
{
	struct ferry_placement *const p = plain(4, 2);
	static const int64_t loads[] = {1, 2, 3, 4};
	int64_t alpha[] = {0, 1, 1, 0}, beta[] = {0, 1, 1, 0};
	struct ferry_cost cost = FERRY_COST_INIT;
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	in.placement = p;
	in.loads = loads;
	in.cost = &cost;
	refused(&in, FERRY_INVAL, "cost.n_ranks is 0, the placement has 2");
	cost.n_ranks = 2;
	refused(&in, FERRY_INVAL, "cost.alpha_ns is NULL");
	cost.alpha_ns = alpha;
	cost.ps_per_byte = beta;
	beta[2] = -5;
	refused(&in, FERRY_RANGE, "cost.ps_per_byte[2] is -5");
	beta[2] = 1;
	cost.all_bytes = -1;
	refused(&in, FERRY_RANGE, "cost.all_bytes is -1");
	ferry_placement_destroy(p);
}

static void bad_calls(void **state)
{
	struct ferry_planner *small = NULL;
	struct ferry_placement *const p = plain(4, 2);
	static const int64_t loads[] = {1, 2, 3, 4};
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	(void)state;
	assert_int_equal(ferry_planner_create(0, 1, 1, &small), FERRY_INVAL);
	assert_int_equal(ferry_planner_create(4, 4, 2, NULL), FERRY_INVAL);
	assert_int_equal(ferry_planner_create(3, 4, 2, &small), FERRY_OK);
	in.placement = p;
	in.loads = loads;
	plan.size = sizeof(plan);
	assert_int_equal(ferry_plan_make(small, &in, &plan), FERRY_INVAL);
	assert_int_equal(ferry_plan_make(NULL, &in, &plan), FERRY_INVAL);
	assert_int_equal(ferry_plan_make(planner, &in, NULL), FERRY_INVAL);
	assert_string_equal(ferry_last_error(), "plan: plan is NULL");
	plan.size = 8;
	assert_int_equal(ferry_plan_make(planner, &in, &plan), FERRY_INVAL);
	assert_non_null(strstr(ferry_last_error(), "plan: plan->size is 8, "
	                                           "allowed is sizeof"));
	plan.size = sizeof(plan) + 8;
	assert_int_equal(ferry_plan_make(planner, &in, &plan), FERRY_OK);
	ferry_planner_destroy(small);
	ferry_planner_destroy(NULL);
	ferry_placement_destroy(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_swap),
		cmocka_unit_test(two_stragglers),
		cmocka_unit_test(all_zero),
		cmocka_unit_test(one_expert_has_all),
		cmocka_unit_test(one_expert_each),
		cmocka_unit_test(one_rank),
		cmocka_unit_test(ties_everywhere),
		cmocka_unit_test(largest_loads),
		cmocka_unit_test(uneven_ranks),
		cmocka_unit_test(slow_rank),
		cmocka_unit_test(replicas_are_kept_apart),
		cmocka_unit_test(copy_shares),
		cmocka_unit_test(spare_copies),
		cmocka_unit_test(most_moves),
		cmocka_unit_test(threshold),
		cmocka_unit_test(hash_tells_inputs),
		cmocka_unit_test(bad_values),
		cmocka_unit_test(bad_costs),
		cmocka_unit_test(bad_calls),
	};

	if (ferry_planner_create(4096, 8192, 128, &planner))
		return 1;
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);

	ferry_planner_destroy(planner);
	return failed;
}
