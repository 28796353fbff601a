/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of tiny problems against the best of all plans: bound, optimum and plan
 * stand in this order, and most plans are optimal.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "brute.h"
#include "test_seed.h"

static uint64_t seed;
static struct ferry_planner *planner;
static struct ferry_plan plan = {.size = sizeof(plan)};

static void hold(const struct plan_case *c, int *n_optimal)
{
	const int64_t best = brute_best(c);

	if (ferry_plan_make(planner, &c->in, &plan))
		fail_msg("%s", ferry_last_error());
	if (plan.bound > best || plan.load_after < best ||
	    plan.load_after > plan.load_before)
		fail_msg("bound %lld, best %lld, after %lld, before %lld: %s",
		         (long long)plan.bound, (long long)best,
		         (long long)plan.load_after,
		         (long long)plan.load_before, plan_case_text(c));
	*n_optimal += plan.load_after == best;
}

/* n problems, of which `share` in a hundred plans have to be optimal. */
static void hold_all(const struct plan_kind *kind, int n, int share)
{
	int n_optimal = 0;

	for (int i = 0; i < n; i++) {
		struct plan_case c;

		plan_case_make(&c, kind, &seed);
		c.in.tight_bound = i & 1;
		hold(&c, &n_optimal);
		plan_case_free(&c);
	}
	printf("%d of %d plans are optimal\n", n_optimal, n);
	assert_true(n_optimal * 100 >= share * n);
}

static const struct plan_kind plain = {
	.min_ranks = 1, .max_ranks = 4, .max_slots = 10, .max_swaps = 3};

static void swaps(void **state)
{
	struct plan_kind k = plain;

	(void)state;
	hold_all(&k, 1000, 90);
	k.uneven = true;
	hold_all(&k, 1000, 90);
	k.speeds = true;
	hold_all(&k, 1000, 90);
	k.costs = true;
	hold_all(&k, 1000, 90);
}

static void replicas(void **state)
{
	struct plan_kind k = plain;

	(void)state;
	k.replicas = true;
	hold_all(&k, 1000, 90);
	k.uneven = k.speeds = true;
	hold_all(&k, 1000, 90);
}

static void copies(void **state)
{
	struct plan_kind k = plain;

	(void)state;
	k.max_slots = 8;
	k.max_swaps = 2;
	k.empty = true;
	hold_all(&k, 1000, 85);
	k.replicas = k.uneven = k.speeds = k.costs = true;
	hold_all(&k, 1000, 92);
}

static void exact(void **state)
{
	struct plan_kind k = plain;

	(void)state;
	k.max_slots = 8;
	k.max_swaps = 2;
	k.replicas = k.empty = true;
	k.split = FERRY_SPLIT_EXACT;
	hold_all(&k, 200, 80);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(swaps),
		cmocka_unit_test(replicas),
		cmocka_unit_test(copies),
		cmocka_unit_test(exact),
	};

	seed = test_seed(argc, argv);
	if (ferry_planner_create(BRUTE_SLOTS, BRUTE_SLOTS, BRUTE_RANKS,
	                         &planner))
		return 1;
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);

	ferry_planner_destroy(planner);
	return failed;
}
