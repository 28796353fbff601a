/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds against proven optima of problems that are too large to try all
 * plans: never above, and how near. The optima of few swaps are themselves
 * checked by trying all that could be better.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "balance/bound.h"
#include "core/bits.h"
#include "golden.h"

static struct ferry_problem problem;
static struct ferry_bound bound;

struct sums {
	int n;
	double simple;
	double budget;
	double worst;
	char name[GOLDEN_NAME];
};

static void hold(const struct golden *g, void *arg)
{
	struct ferry_placement *const placement = golden_placement(g);
	const struct ferry_plan_in in = golden_plan_in(g, placement);
	struct sums *const s = arg;

	if (ferry_problem_fill(&problem, &in))
		fail_msg("%s: %s", g->name, ferry_last_error());
	const int64_t before =
		ferry_problem_max_load(&problem, problem.rank_load);
	const int64_t simple = ferry_bound_simple(&bound, &problem);
	const int64_t budget =
		ferry_bound_budget(&bound, &problem, simple, before);

	ferry_placement_destroy(placement);
	if (before != g->before || simple > g->optimum || budget > g->optimum)
		fail_msg("%s: before %lld, simple %lld, budgeted %lld", g->name,
		         (long long)before, (long long)simple,
		         (long long)budget);
	const double optimum = (double)g->optimum;
	const double gap = optimum / (double)budget - 1;

	s->n++;
	s->simple += optimum / (double)simple - 1;
	s->budget += gap;
	if (gap > s->worst) {
		s->worst = gap;
		snprintf(s->name, sizeof(s->name), "%s", g->name);
	}
}

static void bounds_are_below(void **state)
{
	struct sums s = {0};

	(void)state;
	golden_each(hold, &s);
	printf("%d optima: %.2f %% above the simple bound, %.2f %% above the "
	       "budgeted one, at worst %.2f %% (%s)\n",
	       s.n, 100 * s.simple / s.n, 100 * s.budget / s.n, 100 * s.worst,
	       s.name);
	assert_true(s.n >= 60);
	assert_true(s.budget / s.n < 0.02);
}

/* Which rank an expert is on, and what the ranks carry. */
struct ground {
	const struct golden *g;
	int32_t rank[GOLDEN_EXPERTS];
	int64_t load[GOLDEN_RANKS];
};

static int32_t fullest(const struct ground *a)
{
	int32_t best = 0;

	for (int32_t r = 1; r < a->g->n_ranks; r++)
		if (a->load[r] > a->load[best])
			best = r;
	return best;
}

static void move(struct ground *a, int32_t e, int32_t f, int64_t sign)
{
	const int64_t by = sign * (a->g->loads[e] - a->g->loads[f]);

	a->load[a->rank[e]] -= by;
	a->load[a->rank[f]] += by;
}

/*
 * Whether `swaps` more get all ranks below `limit`. One of them lowers the
 * fullest rank, since that has to be lowered.
 */
static bool gets_below(struct ground *a, int32_t swaps, int64_t limit,
                       uint64_t *used)
{
	const int32_t r = fullest(a);
	bool found = a->load[r] < limit;

	for (int32_t e = 0; swaps && !found && e < a->g->n_experts; e++) {
		if (a->rank[e] != r || used[e / 64] >> e % 64 & 1)
			continue;
		for (int32_t f = 0; !found && f < a->g->n_experts; f++) {
			if (a->rank[f] == r || used[f / 64] >> f % 64 & 1 ||
			    a->g->loads[f] >= a->g->loads[e])
				continue;
			move(a, e, f, 1);
			used[e / 64] |= UINT64_C(1) << e % 64;
			used[f / 64] |= UINT64_C(1) << f % 64;
			found = gets_below(a, swaps - 1, limit, used);
			used[e / 64] &= ~(UINT64_C(1) << e % 64);
			used[f / 64] &= ~(UINT64_C(1) << f % 64);
			move(a, e, f, -1);
		}
	}
	return found;
}

static void try_all(const struct golden *g, void *arg)
{
	struct ground a = {.g = g};
	uint64_t used[GOLDEN_EXPERTS / 64] = {0};
	int32_t e = 0;

	if (g->copies || g->swaps > 2 || g->n_experts > 128)
		return;
	for (int32_t r = 0; r < g->n_ranks; r++)
		for (int32_t i = 0; i < g->experts[r]; i++, e++) {
			a.rank[e] = r;
			a.load[r] += g->loads[e];
		}
	if (gets_below(&a, g->swaps, g->optimum, used))
		fail_msg("%s: below %lld is possible", g->name,
		         (long long)g->optimum);
	if (!gets_below(&a, g->swaps, g->optimum + 1, used))
		fail_msg("%s: %lld is not possible", g->name,
		         (long long)g->optimum);
	++*(int *)arg;
}

static void optima_are_right(void **state)
{
	int n = 0;

	(void)state;
	golden_each(try_all, &n);
	printf("%d optima of one or two swaps checked\n", n);
	assert_true(n >= 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bounds_are_below),
		cmocka_unit_test(optima_are_right),
	};

	if (ferry_problem_init(&problem, GOLDEN_EXPERTS, 2 * GOLDEN_EXPERTS,
	                       GOLDEN_RANKS) ||
	    ferry_bound_init(&bound, 2 * GOLDEN_EXPERTS, GOLDEN_RANKS))
		return 1;
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);

	ferry_problem_destroy(&problem);
	ferry_bound_destroy(&bound);
	return failed;
}
