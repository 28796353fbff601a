/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds against the best of all plans of tiny problems: never above it, and
 * equal where theory says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "balance/bound_inner.h"
#include "brute.h"
#include "test_seed.h"

enum { LARGE = 3000 };

static uint64_t seed;
static struct ferry_problem problem;
static struct ferry_bound bound;

static int64_t below(int64_t n)
{
	return (int64_t)(rng_next(&seed) % (uint64_t)n);
}

static void fill(const struct ferry_plan_in *in)
{
	if (ferry_problem_fill(&problem, in))
		fail_msg("%s", ferry_last_error());
}

/* Both bounds of one problem; `exact`: the budgeted one is the optimum. */
static void hold(const struct plan_case *b, bool exact)
{
	const int64_t best = brute_best(b);

	fill(&b->in);
	const int64_t most =
		ferry_problem_max_load(&problem, problem.rank_load);
	const int64_t simple = ferry_bound_simple(&bound, &problem);
	const int64_t tight =
		ferry_bound_budget(&bound, &problem, simple, most);
	const int64_t known =
		ferry_bound_budget(&bound, &problem, simple, best);

	if (simple > best || tight > best || tight < simple || known > best ||
	    (exact && (tight != best || known != best)))
		fail_msg("simple %lld, budgeted %lld, %lld, best %lld: %s",
		         (long long)simple, (long long)tight, (long long)known,
		         (long long)best, plan_case_text(b));
}

static void hold_all(const struct plan_kind *kind, int n, bool exact)
{
	for (int i = 0; i < n; i++) {
		struct plan_case b;

		plan_case_make(&b, kind, &seed);
		if (!exact || b.in.max_swaps == 1)
			hold(&b, exact);
		plan_case_free(&b);
	}
}

static const struct plan_kind plain = {
	.min_ranks = 2, .max_ranks = 4, .max_slots = 10, .max_swaps = 3};

static void swaps(void **state)
{
	struct plan_kind k = plain;

	(void)state;
	hold_all(&k, 2000, false);
	k.uneven = true;
	hold_all(&k, 2000, false);
	k.speeds = true;
	hold_all(&k, 2000, false);
}

/* Few heavy experts, and many that weigh little: what a swap gives back counts.
 */
static void heavy_experts(void **state)
{
	struct plan_kind k = plain;

	(void)state;
	k.min_ranks = 3;
	k.max_slots = BRUTE_SLOTS;
	k.spread = true;
	hold_all(&k, 1500, false);
	k.uneven = true;
	hold_all(&k, 1500, false);
	k.speeds = true;
	hold_all(&k, 500, false);
}

static void one_swap_is_exact(void **state)
{
	struct plan_kind k = plain;

	(void)state;
	k.max_swaps = 1;
	k.max_slots = 12;
	hold_all(&k, 1000, true);
	k.uneven = true;
	hold_all(&k, 1000, true);
	k.speeds = true;
	hold_all(&k, 1000, true);
}

static void within_windows(void **state)
{
	struct plan_kind k = plain;

	(void)state;
	k.costs = true;
	hold_all(&k, 2000, false);
	k.uneven = k.speeds = k.empty = k.replicas = true;
	k.max_swaps = 2;
	k.max_slots = 8;
	hold_all(&k, 2000, false);
}

static void replicas(void **state)
{
	struct plan_kind k = plain;

	(void)state;
	k.replicas = k.uneven = true;
	hold_all(&k, 2000, false);
	k.split = FERRY_SPLIT_EXACT;
	k.max_slots = 8;
	hold_all(&k, 150, false);
}

static void copies(void **state)
{
	struct plan_kind k = plain;

	(void)state;
	k.empty = true;
	k.max_swaps = 2;
	k.max_slots = 8;
	hold_all(&k, 1500, false);
	k.replicas = k.uneven = k.speeds = true;
	hold_all(&k, 1500, false);
	k.split = FERRY_SPLIT_EXACT;
	hold_all(&k, 150, false);
}

/* n_ranks * k experts of a fresh random spread, k on every rank. */
static struct ferry_placement *make_even(int32_t n_ranks, int32_t k,
                                         int64_t *loads, int64_t range)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *placement = NULL;

	c.n_experts = n_ranks * k;
	c.n_ranks = n_ranks;
	for (int32_t e = 0; e < c.n_experts; e++)
		loads[e] = below(range);
	assert_int_equal(ferry_placement_create(&c, &placement), FERRY_OK);
	return placement;
}

static int64_t simple_of(struct ferry_placement *placement,
                         const int64_t *loads)
{
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	in.placement = placement;
	in.loads = loads;
	fill(&in);
	return ferry_bound_simple(&bound, &problem);
}

static int falling(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a;
	const int64_t y = *(const int64_t *)b;

	return (x < y) - (x > y);
}

/* Of two experts a rank, heaviest with lightest is best. */
static void two_each_is_exact(void **state)
{
	int64_t loads[2 * 40];

	(void)state;
	for (int i = 0; i < 200; i++) {
		const int32_t n_ranks = 1 + (int32_t)below(40);
		struct ferry_placement *const p = make_even(
			n_ranks, 2, loads, 1 + below((int64_t)1 << (i % 34)));
		const int64_t got = simple_of(p, loads);
		int64_t want = n_ranks == 1 ? loads[0] + loads[1] : 0;

		qsort(loads, 2 * (size_t)n_ranks, sizeof(*loads), falling);
		for (int32_t r = 0; r < n_ranks; r++)
			want = max_i64(want,
			               loads[r] + loads[2 * n_ranks - 1 - r]);
		assert_int_equal(got, want);
		ferry_placement_destroy(p);
	}
}

/* One expert has all: it is alone at best. Copies halve it. */
static void one_expert_has_all(void **state)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
	struct ferry_placement *p = NULL;
	static const int32_t slots[] = {3, 3, 3, 3};
	static const int32_t map[] = {0, 1, -1, 2, 3, -1, 4, 5, -1, 6, 7, -1};
	static const int64_t loads[8] = {0, 0, 1000};

	(void)state;
	c.n_experts = 8;
	c.n_ranks = 4;
	c.expert_slots = slots;
	c.slot_expert = map;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	in.placement = p;
	in.loads = loads;
	fill(&in);
	assert_int_equal(ferry_bound_simple(&bound, &problem), 1000);
	in.max_copies = 1;
	fill(&in);
	assert_int_equal(ferry_bound_simple(&bound, &problem), 250);
	in.max_copies = 0;
	in.max_swaps = -1;
	fill(&in);
	assert_int_equal(ferry_bound_simple(&bound, &problem), 1000);
	ferry_placement_destroy(p);
}

static void largest_loads(void **state)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
	struct ferry_placement *p = NULL;
	static int64_t loads[512];
	int32_t speed[64];

	(void)state;
	c.n_experts = 512;
	c.n_ranks = 64;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	for (int e = 0; e < 512; e++)
		loads[e] = FERRY_MAX_LOAD / 512;
	for (int r = 0; r < 64; r++)
		speed[r] = r ? 1000000 : 1;
	in.placement = p;
	in.loads = loads;
	fill(&in);
	assert_int_equal(ferry_bound_simple(&bound, &problem),
	                 FERRY_MAX_LOAD / 64);
	in.speed = speed;
	in.max_swaps = 4;
	fill(&in);
	const int64_t most = FERRY_MAX_LOAD / 64 * 1000;

	assert_int_equal(ferry_bound_simple(&bound, &problem), most);
	assert_int_equal(ferry_bound_budget(&bound, &problem, 0, most), most);
	ferry_placement_destroy(p);
}

static int rising(const void *a, const void *b)
{
	return falling(b, a);
}

/* Every kind of spread, also those that leave all in one bucket. */
static void sorts(void **state)
{
	static int64_t key[LARGE], to[LARGE], want[LARGE];

	(void)state;
	for (int i = 0; i < 200; i++) {
		const int32_t n = (int32_t)below(LARGE);
		const int64_t base = i % 3 ? below((int64_t)1 << (i % 62)) : 0;
		const int64_t range = 1 + below((int64_t)1 << (i % 60));

		for (int32_t k = 0; k < n; k++)
			want[k] = key[k] = base + below(range);
		qsort(want, (size_t)n, sizeof(*want), rising);
		ferry_bound_sort(key, n, to);
		assert_memory_equal(to, want, (size_t)n * sizeof(*to));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(swaps),
		cmocka_unit_test(heavy_experts),
		cmocka_unit_test(one_swap_is_exact),
		cmocka_unit_test(within_windows),
		cmocka_unit_test(replicas),
		cmocka_unit_test(copies),
		cmocka_unit_test(two_each_is_exact),
		cmocka_unit_test(one_expert_has_all),
		cmocka_unit_test(largest_loads),
		cmocka_unit_test(sorts),
	};

	seed = test_seed(argc, argv);
	if (ferry_problem_init(&problem, 512, 512, 64) ||
	    ferry_bound_init(&bound, 512, 64))
		return 1;
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);

	ferry_problem_destroy(&problem);
	ferry_bound_destroy(&bound);
	return failed;
}
