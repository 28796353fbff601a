/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of problems whose optimum is proven: how far they are from it, and
 * never worse than FreeBalance's rule, in both readings of the paper.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "golden.h"

static struct ferry_planner *planner;
static struct ferry_plan plan = {.size = sizeof(plan)};

/* Gaps to the optimum of a group of problems. */
struct gaps {
	bool copies; /* those with copies, or those without */
	int n;
	int n_optimal;
	double sum;
	double worst;
	char name[GOLDEN_NAME];
};

static const struct ferry_plan *make_plan(const struct golden *g,
                                          const struct ferry_plan_in *in)
{
	if (ferry_plan_make(planner, in, &plan))
		fail_msg("%s: %s", g->name, ferry_last_error());
	return &plan;
}

/* Bound, optimum and plan stand in this order. */
static int64_t plan_load(const struct golden *g, const struct ferry_plan_in *in)
{
	const struct ferry_plan *const p = make_plan(g, in);

	if (p->load_before != g->before || p->bound > g->optimum ||
	    p->load_after < g->optimum || p->load_after > p->load_before)
		fail_msg("%s: before %lld, bound %lld, after %lld, optimum "
		         "%lld of %lld",
		         g->name, (long long)p->load_before,
		         (long long)p->bound, (long long)p->load_after,
		         (long long)g->optimum, (long long)g->before);
	return p->load_after;
}

static void add_gap(struct gaps *s, const struct golden *g, int64_t load)
{
	const double gap = (double)load / (double)g->optimum - 1;

	s->n++;
	s->n_optimal += load == g->optimum;
	s->sum += gap;
	if (gap > 0.01)
		printf("%s: %.2f %% above the optimum\n", g->name, 100 * gap);
	if (gap > s->worst) {
		s->worst = gap;
		snprintf(s->name, sizeof(s->name), "%s", g->name);
	}
}

static void hold(const struct golden *g, void *arg)
{
	struct ferry_placement *const placement = golden_placement(g);
	struct ferry_plan_in in = golden_plan_in(g, placement);
	struct gaps *const s = arg;

	if (s->copies == (g->copies > 0)) {
		const int64_t load = plan_load(g, &in);

		in.tight_bound = true;
		assert_int_equal(plan_load(g, &in), load);
		add_gap(s, g, load);
	}
	ferry_placement_destroy(placement);
}

/* Plans have to be so near, on average and each. */
static void hold_group(bool copies, double mean, double worst)
{
	struct gaps s = {.copies = copies};

	golden_each(hold, &s);
	printf("%d plans, %d of them optimal, %.3f %% above the optimum, at "
	       "worst %.2f %% (%s)\n",
	       s.n, s.n_optimal, 100 * s.sum / s.n, 100 * s.worst, s.name);
	assert_true(s.n > 0);
	assert_true(s.sum / s.n <= mean);
	assert_true(s.worst <= worst);
}

static void swaps_are_near_the_optimum(void **state)
{
	(void)state;
	hold_group(false, 0.005, 0.06);
}

static void copies_are_near_the_optimum(void **state)
{
	(void)state;
	hold_group(true, 0.03, 0.15);
}

static void compare(const struct golden *g, void *arg)
{
	static const enum ferry_plan_rule rules[] = {FERRY_RULE_SORTED,
	                                             FERRY_RULE_RESELECT};
	static const int32_t gammas[] = {-1, 0, 2000};
	struct ferry_placement *const placement = golden_placement(g);
	struct ferry_plan_in in = golden_plan_in(g, placement);
	double *const ours_and_theirs = arg;
	const int64_t ours = make_plan(g, &in)->load_after;

	ours_and_theirs[0] += (double)ours / (double)g->before;
	for (int i = 0; i < 6; i++) {
		in.rule = rules[i % 2];
		in.gamma_milli = gammas[i / 2];
		const int64_t theirs = make_plan(g, &in)->load_after;

		/* Without a variance a rule that errs may err well. */
		if (theirs < ours)
			printf("%s: %lld, but by rule %d with gamma %d %lld\n",
			       g->name, (long long)ours, (int)in.rule,
			       in.gamma_milli, (long long)theirs);
		if (theirs + (in.gamma_milli < 0 ? theirs / 200 : 0) < ours)
			fail_msg("%s: %lld, by rule %d with gamma %d %lld",
			         g->name, (long long)ours, (int)in.rule,
			         in.gamma_milli, (long long)theirs);
		ours_and_theirs[1 + i] += (double)theirs / (double)g->before;
	}
	ferry_placement_destroy(placement);
}

static void never_worse_than_freebalance(void **state)
{
	double sums[7] = {0};

	(void)state;
	golden_each(compare, sums);
	printf("sum of after/before: ours %.2f; sorted, reselect with gamma 0: "
	       "%.2f %.2f, 0.5: %.2f %.2f, 2: %.2f %.2f\n",
	       sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(swaps_are_near_the_optimum),
		cmocka_unit_test(copies_are_near_the_optimum),
		cmocka_unit_test(never_worse_than_freebalance),
	};

	if (ferry_planner_create(GOLDEN_EXPERTS, 2 * GOLDEN_EXPERTS,
	                         GOLDEN_RANKS, &planner))
		return 1;
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);

	ferry_planner_destroy(planner);
	return failed;
}
