/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of small problems, what plans say of themselves, how to apply. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "plan_check.h"

static struct ferry_planner *planner;
static struct ferry_plan plan;

/* Two ranks with two experts each; a swap of 0 and 2 or 3 is wanted. */
static const int64_t loads[] = {70, 50, 30, 10};
static const int64_t alpha[] = {0, 100, 100, 0};
static const int64_t beta[] = {0, 1000, 1000, 0}; /* 1 ns a byte */

static struct ferry_placement *make_two(enum ferry_split split)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;
	static const int64_t quota[4];

	c.n_experts = 4;
	c.n_ranks = 2;
	c.split = split;
	c.version = 41;
	c.quota = split == FERRY_SPLIT_QUOTA ? quota : NULL;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	return p;
}

static struct ferry_cost make_cost(void)
{
	struct ferry_cost cost = FERRY_COST_INIT;

	cost.n_ranks = 2;
	cost.alpha_ns = alpha;
	cost.ps_per_byte = beta;
	cost.all_bytes = 1000;
	return cost;
}

static struct ferry_plan_in make_in(const struct ferry_placement *p,
                                    const struct ferry_cost *cost,
                                    int64_t window_ns)
{
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	in.placement = p;
	in.loads = loads;
	in.cost = cost;
	in.window_ns = window_ns;
	return in;
}

/* Moves under a window by every rule. */
static void moves_are(const struct ferry_plan_in *in, int32_t n)
{
	static const enum ferry_plan_rule rules[] = {
		FERRY_RULE_SORTED, FERRY_RULE_RESELECT, FERRY_RULE_PORTFOLIO};
	struct ferry_plan_in own = *in;

	for (int i = 0; i < 3; i++) {
		own.rule = rules[i];
		plan_and_check(planner, &own, &plan);
		assert_int_equal(plan.n_moves, n);
	}
}

static void no_window(void **state)
{
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	const struct ferry_cost cost = make_cost();
	const int64_t windows[] = {0, -5, INT64_MIN};

	(void)state;
	for (int i = 0; i < 3; i++) {
		const struct ferry_plan_in in = make_in(p, &cost, windows[i]);

		moves_are(&in, 0);
	}
	ferry_placement_destroy(p);
}

/* Not even what takes no time. */
static void no_window_and_no_time(void **state)
{
	static const int64_t none[4];
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	struct ferry_cost cost = make_cost();
	struct ferry_plan_in in = make_in(p, &cost, 0);

	(void)state;
	cost.alpha_ns = cost.ps_per_byte = none;
	moves_are(&in, 0);
	in.window_ns = 1;
	moves_are(&in, 1);
	ferry_placement_destroy(p);
}

static void window_needs_cost(void **state)
{
	static const int64_t windows[2] = {1, 1};
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	struct ferry_plan_in in = make_in(p, NULL, 7);

	(void)state;
	plan.size = sizeof(plan);
	assert_int_equal(ferry_plan_make(planner, &in, &plan), FERRY_INVAL);
	assert_non_null(
		strstr(ferry_last_error(), "window_ns is 7 and cost is NULL"));
	in.window_ns = 0;
	in.rank_window_ns = windows;
	assert_int_equal(ferry_plan_make(planner, &in, &plan), FERRY_INVAL);
	assert_non_null(strstr(ferry_last_error(),
	                       "rank_window_ns is set and cost is NULL"));
	ferry_placement_destroy(p);
}

static void directions_overlap(void **state)
{
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	const struct ferry_cost cost = make_cost();
	struct ferry_plan_in in = make_in(p, &cost, 1099);

	(void)state;
	moves_are(&in, 0);
	in.window_ns = 1100;
	moves_are(&in, 1);
	assert_int_equal(plan.moves[0].cost_ns, 1100);
	ferry_placement_destroy(p);
}

/* The paper adds both directions: the window above is half a swap. */
static void half_duplex(void **state)
{
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	struct ferry_cost cost = make_cost();
	struct ferry_plan_in in = make_in(p, &cost, 2099);

	(void)state;
	cost.half_duplex = true;
	moves_are(&in, 0);
	in.window_ns = 2100;
	moves_are(&in, 1);
	assert_int_equal(plan.moves[0].cost_ns, 2100);
	ferry_placement_destroy(p);
}

static void asymmetric_links(void **state)
{
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	static const int64_t slow_back[] = {0, 1000, 5000, 0};
	struct ferry_cost cost = make_cost();
	struct ferry_plan_in in = make_in(p, &cost, 5099);

	(void)state;
	cost.ps_per_byte = slow_back;
	moves_are(&in, 0);
	in.window_ns = 5100;
	moves_are(&in, 1);
	assert_int_equal(plan.moves[0].cost_ns, 5100);
	ferry_placement_destroy(p);
}

static void window_of_a_rank(void **state)
{
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	const struct ferry_cost cost = make_cost();
	int64_t windows[] = {5000, 1099};
	struct ferry_plan_in in = make_in(p, &cost, 1);

	(void)state;
	in.rank_window_ns = windows;
	moves_are(&in, 0);
	windows[1] = 1100;
	moves_are(&in, 1);
	ferry_placement_destroy(p);
}

/* A transfer that would take longer than 64 bits of ns never fits. */
static void endless_transfer(void **state)
{
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	static const int64_t slow[] = {0, ((int64_t)1 << 40) - 1, 1, 0};
	struct ferry_cost cost = make_cost();
	const struct ferry_plan_in in = make_in(p, &cost, INT64_MAX);

	(void)state;
	cost.ps_per_byte = slow;
	cost.all_bytes = ((int64_t)1 << 50) - 1;
	moves_are(&in, 0);
	ferry_placement_destroy(p);
}

static void explains(void **state)
{
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	const struct ferry_cost cost = make_cost();
	const struct ferry_plan_in in = make_in(p, &cost, 2000);
	char text[1024], small[8];

	(void)state;
	moves_are(&in, 1);
	const size_t n = ferry_plan_explain(&in, &plan, 0, text, sizeof(text));

	assert_string_equal(
		text,
		"Layer 0, move 1 of 1: swap expert 0 of rank 0 (slot 0) with "
		"expert 2 of rank 1 (slot 2).\n"
		"Why: rank 0 has 120 tokens, 1.50 times the mean; rank 1 has "
		"40 tokens, 0.50 times the mean. Expert 0 brings 70 tokens, "
		"expert 2 brings 30: the ranks have 80 and 80 after the "
		"move.\n"
		"Cost: 1000 bytes from rank 0 to rank 1 and 1000 bytes back "
		"take 1100 and 1100 ns at the same time, the link from rank 0 "
		"to rank 1 the longer; the window of rank 0 is 2000 ns.\n"
		"Gain: the fullest rank has 120 before this move and 80 after "
		"it; 120 before the plan, 80 after it, 80 at least.\n");
	assert_int_equal(n, strlen(text));
	assert_int_equal(ferry_plan_explain(&in, &plan, 0, small, 8), n);
	assert_string_equal(small, "Layer 0");
	assert_int_equal(ferry_plan_explain(&in, &plan, 0, NULL, 0), n);
	assert_int_equal(ferry_plan_explain(&in, &plan, 1, text, 9), 0);
	assert_string_equal(text, "");
	assert_int_equal(ferry_plan_explain(&in, &plan, -1, text, 9), 0);
	assert_int_equal(ferry_plan_explain(&in, NULL, 0, text, 9), 0);
	assert_int_equal(ferry_plan_explain(NULL, &plan, 0, text, 9), 0);
	plan.moves[0].expert = 1; /* of some other placement */
	assert_int_equal(ferry_plan_explain(&in, &plan, 0, text, 9), 0);
	ferry_placement_destroy(p);
}

static void explains_copies(void **state)
{
	static const int32_t map[] = {0, 1, -1, 2, 3, -1};
	static const int32_t slots[] = {3, 3};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
	struct ferry_placement *p = NULL;
	char text[1024];

	(void)state;
	c.n_experts = 4;
	c.n_ranks = 2;
	c.expert_slots = slots;
	c.slot_expert = map;
	c.split = FERRY_SPLIT_EXACT;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	in.placement = p;
	in.loads = loads;
	in.max_swaps = -1;
	in.max_copies = 1;
	plan_and_check(planner, &in, &plan);
	assert_int_equal(plan.n_moves, 1);
	ferry_plan_explain(&in, &plan, 0, text, sizeof(text));
	assert_string_equal(
		text,
		"Layer 0, move 1 of 1: copy expert 0 from rank 0 (slot 0) to "
		"rank 1 (empty slot 5).\n"
		"Why: rank 0 has 120 tokens, 1.50 times the mean; rank 1 has "
		"40 tokens, 0.50 times the mean. Expert 0 has 70 tokens, which "
		"the replicas then share: the ranks have 80 and 80 after the "
		"move.\n"
		"Cost: not given.\n"
		"Gain: the fullest rank has 120 before this move and 80 after "
		"it; 120 before the plan, 80 after it, 80 at least.\n");
	ferry_placement_destroy(p);
}

static void applies(void **state)
{
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	const struct ferry_plan_in in = make_in(p, NULL, 0);
	struct ferry_placement *next = NULL;

	(void)state;
	moves_are(&in, 1);
	assert_int_equal(ferry_plan_apply(p, &plan, NULL, &next), FERRY_OK);
	assert_int_equal(ferry_placement_version(next), 42);
	assert_int_equal(ferry_placement_expert(next, 0), 2);
	assert_int_equal(ferry_placement_expert(next, 2), 0);
	assert_int_equal(ferry_placement_expert(next, 1), 1);
	ferry_placement_destroy(next);
	ferry_placement_destroy(p);
}

static void refuses(const struct ferry_placement *p, enum ferry_status status,
                    const char *text)
{
	struct ferry_placement *next = NULL;

	assert_int_equal(ferry_plan_apply(p, &plan, loads, &next), status);
	assert_null(next);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
}

static void refuses_other_plans(void **state)
{
	struct ferry_placement *const p = make_two(FERRY_SPLIT_EVEN);
	struct ferry_placement *const q = make_two(FERRY_SPLIT_QUOTA);
	const struct ferry_plan_in in = make_in(p, NULL, 0);
	struct ferry_placement *next = NULL;

	(void)state;
	moves_are(&in, 1);
	assert_int_equal(ferry_plan_apply(NULL, &plan, loads, &next),
	                 FERRY_INVAL);
	assert_int_equal(ferry_plan_apply(p, NULL, loads, &next), FERRY_INVAL);
	assert_int_equal(ferry_plan_apply(p, &plan, loads, NULL), FERRY_INVAL);
	assert_int_equal(ferry_plan_apply(q, &plan, NULL, &next), FERRY_INVAL);
	plan.moves[0].from_rank = INT32_MAX;
	refuses(p, FERRY_INVAL,
	        "moves[0].from_rank is 2147483647, by its slot and kind it is "
	        "0");
	plan.moves[0].from_rank = 0;
	plan.moves[0].to_rank = -1;
	refuses(p, FERRY_INVAL,
	        "moves[0].to_rank is -1, by its slot and kind it is 1");
	plan.moves[0].to_rank = 1;
	plan.moves[0].kind = FERRY_MOVE_COPY;
	refuses(p, FERRY_INVAL,
	        "moves[0].other is 2, by its slot and kind it is -1");
	plan.moves[0].kind = FERRY_MOVE_SWAP;
	plan.moves[0].expert = 3;
	refuses(p, FERRY_INVAL,
	        "moves[0].from_slot is 0 and holds expert 0, by the plan it "
	        "is 3");
	plan.moves[0].to_slot = 4;
	refuses(p, FERRY_RANGE, "moves[0] is from slot 0 to 4, slots are 0..3");
	plan.moves[0].kind = (enum ferry_move_kind)2;
	refuses(p, FERRY_INVAL, "moves[0].kind is 2");
	plan.n_moves = 257;
	refuses(p, FERRY_RANGE, "n_moves is 257, allowed are 0..256");
	ferry_placement_destroy(p);
	ferry_placement_destroy(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_window),
		cmocka_unit_test(no_window_and_no_time),
		cmocka_unit_test(window_needs_cost),
		cmocka_unit_test(directions_overlap),
		cmocka_unit_test(half_duplex),
		cmocka_unit_test(asymmetric_links),
		cmocka_unit_test(window_of_a_rank),
		cmocka_unit_test(endless_transfer),
		cmocka_unit_test(explains),
		cmocka_unit_test(explains_copies),
		cmocka_unit_test(applies),
		cmocka_unit_test(refuses_other_plans),
	};

	if (ferry_planner_create(64, 64, 8, &planner))
		return 1;
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);

	ferry_planner_destroy(planner);
	return failed;
}
