/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thorough plans against proven optima, against plans in a hurry, and against
 * FreeBalance's rule, than which they are never worse.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "golden.h"
#include "plan_check.h"

static struct ferry_planner *planner;
static struct ferry_plan plan = {.size = sizeof(plan)};

struct sums {
	int n;
	double gap;
	double worst;
	char name[GOLDEN_NAME];
};

static int64_t make(const struct ferry_plan_in *in)
{
	if (ferry_plan_make(planner, in, &plan))
		fail_msg("%s", ferry_last_error());
	return plan.load_after;
}

static void never_worse(const struct golden *g, struct ferry_plan_in in)
{
	static const int32_t gammas[] = {-1, 0, 2000};

	for (int i = 0; i < 6; i++) {
		in.gamma_milli = gammas[i / 2];
		in.rule = FERRY_RULE_PORTFOLIO;
		const int64_t ours = make(&in);

		in.rule = i % 2 ? FERRY_RULE_SORTED : FERRY_RULE_RESELECT;
		if (make(&in) < ours)
			fail_msg("%s: %lld by rule %d with gamma %d, ours %lld",
			         g->name, (long long)plan.load_after,
			         (int)in.rule, in.gamma_milli, (long long)ours);
	}
}

static void hold(const struct golden *g, void *arg)
{
	struct ferry_placement *const placement = golden_placement(g);
	struct ferry_plan_in in = golden_plan_in(g, placement);
	struct sums *const s = arg;
	const int64_t quick = make(&in);

	in.thorough = true;
	plan_and_check(planner, &in, &plan);
	assert_true(plan.load_after <= quick);
	const double gap = (double)plan.load_after / (double)g->optimum - 1;

	if (g->copies == 0) {
		s->n++;
		s->gap += gap;
		never_worse(g, in);
	}
	if (g->copies == 0 && gap > s->worst) {
		s->worst = gap;
		snprintf(s->name, sizeof(s->name), "%s", g->name);
	}
	ferry_placement_destroy(placement);
}

static void almost_optimal(void **state)
{
	struct sums s = {0};

	(void)state;
	golden_each(hold, &s);
	printf("%d plans, %.3f %% above the optimum, at worst %.2f %% (%s)\n",
	       s.n, 100 * s.gap / s.n, 100 * s.worst, s.name);
	assert_true(s.n >= 60);
	assert_true(s.gap / s.n < 0.002);
	assert_true(s.worst < 0.02);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(almost_optimal),
	};

	if (ferry_planner_create(4096, 8192, 128, &planner))
		return 1;
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);

	ferry_planner_destroy(planner);
	return failed;
}
