/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of ranks, experts and slots are only names: where nothing is tied,
 * other names give the same plan under these.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/bits.h"
#include "plan_case.h"
#include "test_seed.h"

static uint64_t seed;
static struct ferry_planner *planner;
static struct plan_case before;
static struct plan_case after;
static int n_differ; /* plans that hung on a name */
static struct ferry_plan plan = {.size = sizeof(plan)};
static struct ferry_plan permuted = {.size = sizeof(permuted)};

static int32_t below(int32_t n)
{
	return (int32_t)(rng_next(&seed) % (uint64_t)n);
}

static void shuffle(int32_t *v, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		v[i] = i;
	for (int32_t i = n - 1; i > 0; i--) {
		const int32_t k = below(i + 1);
		const int32_t t = v[i];

		v[i] = v[k];
		v[k] = t;
	}
}

/* Loads without ties, not even in their sums of two, and costs without. */
static void untie(struct plan_case *c)
{
	for (int32_t e = 0; e < c->n_experts; e++)
		c->loads[e] = (int64_t)(rng_next(&seed) >> 34 >> below(10));
	for (int32_t i = 0; i < c->n_ranks * c->n_ranks; i++) {
		c->alpha[i] = 1 + below(1 << 20);
		c->ps[i] = below(1 << 20);
	}
	for (int32_t r = 0; r < c->n_ranks; r++)
		c->window[r] = below(1 << 22);
}

/*
 * Two ranks of two experts each: exchanging the one pair or the other leaves
 * the same two loads, a tie.
 */
static bool has_tied_ranks(const struct plan_case *c)
{
	int n = 0;

	for (int32_t r = 0; r < c->n_ranks; r++)
		n += c->slots_of[r] == 2;
	return n > 1;
}

/* Rank r is called rank[r], its slots come in another order. */
static void rename_slots(const int32_t *rank, const int32_t *expert)
{
	int32_t first[PLAN_CASE_RANKS + 1] = {0};
	int32_t order[PLAN_CASE_SLOTS];
	int32_t s = 0;

	for (int32_t r = 0; r < before.n_ranks; r++)
		after.slots_of[rank[r]] = before.slots_of[r];
	for (int32_t r = 0; r < before.n_ranks; r++)
		first[r + 1] = first[r] + after.slots_of[r];
	for (int32_t r = 0; r < before.n_ranks; r++) {
		shuffle(order, before.slots_of[r]);
		for (int32_t i = 0; i < before.slots_of[r]; i++, s++) {
			const int32_t at = first[rank[r]] + order[i];

			after.rank_of[at] = rank[r];
			after.slot_expert[at] = expert[before.slot_expert[s]];
		}
	}
}

static void rename_all(const int32_t *rank, const int32_t *expert)
{
	const int32_t n = before.n_ranks;

	after = before;
	rename_slots(rank, expert);
	for (int32_t e = 0; e < before.n_experts; e++) {
		after.loads[expert[e]] = before.loads[e];
		after.bytes[expert[e]] = before.bytes[e];
	}
	for (int32_t a = 0; a < n; a++) {
		after.speed[rank[a]] = before.speed[a];
		after.window[rank[a]] = before.window[a];
		for (int32_t b = 0; b < n; b++) {
			const int32_t from = a * n + b;
			const int32_t to = rank[a] * n + rank[b];

			after.alpha[to] = before.alpha[from];
			after.ps[to] = before.ps[from];
		}
	}
	after.in.speed = before.in.speed ? after.speed : NULL;
	after.in.cost = before.in.cost ? &after.cost : NULL;
	after.in.rank_window_ns = before.in.cost ? after.window : NULL;
	after.cost.alpha_ns = after.alpha;
	after.cost.ps_per_byte = after.ps;
	if (before.cost.expert_bytes)
		after.cost.expert_bytes = after.bytes;
	plan_case_bind(&after);
}

static bool same_move(const struct ferry_move *m, const struct ferry_move *q,
                      const int32_t *rank, const int32_t *expert)
{
	return q->expert == expert[m->expert] && q->other == expert[m->other] &&
	       q->from_rank == rank[m->from_rank] &&
	       q->to_rank == rank[m->to_rank] && q->gain == m->gain &&
	       q->cost_ns == m->cost_ns;
}

/* Plans both; true when the plans are the same but for the names. */
static bool same_plan(const int32_t *rank, const int32_t *expert)
{
	assert_int_equal(ferry_plan_make(planner, &before.in, &plan), FERRY_OK);
	assert_int_equal(ferry_plan_make(planner, &after.in, &permuted),
	                 FERRY_OK);
	assert_int_equal(permuted.load_before, plan.load_before);
	assert_int_equal(permuted.bound, plan.bound);
	if (permuted.n_moves != plan.n_moves ||
	    permuted.load_after != plan.load_after)
		return false;
	for (int32_t i = 0; i < plan.n_moves; i++)
		if (!same_move(&plan.moves[i], &permuted.moves[i], rank,
		               expert))
			return false;
	return true;
}

/* n problems; returns how many moves there were. */
static int permute(struct plan_kind kind, enum ferry_plan_rule rule, int n)
{
	int32_t rank[PLAN_CASE_RANKS];
	int32_t expert[PLAN_CASE_SLOTS];
	int n_moves = 0;

	for (int i = 0; i < n; i++) {
		plan_case_make(&before, &kind, &seed);
		while (has_tied_ranks(&before)) {
			plan_case_free(&before);
			plan_case_make(&before, &kind, &seed);
		}
		untie(&before);
		before.in.rule = rule;
		before.in.tight_bound = true;
		shuffle(rank, before.n_ranks);
		shuffle(expert, before.n_experts);
		rename_all(rank, expert);
		n_differ += !same_plan(rank, expert);
		n_moves += plan.n_moves;
		plan_case_free(&before);
		plan_case_free(&after);
	}
	return n_moves;
}

/* The numbers of moves only say that this is not about empty plans. */
static void permute_all(enum ferry_plan_rule rule)
{
	struct plan_kind kind = {.min_ranks = 2,
	                         .max_ranks = 12,
	                         .max_slots = 128,
	                         .max_swaps = 6};

	assert_in_range(permute(kind, rule, 200), 200, 1200);
	kind.uneven = true;
	assert_in_range(permute(kind, rule, 200), 200, 1200);
	kind.speeds = true;
	assert_in_range(permute(kind, rule, 200), 200, 1200);
	kind.costs = true;
	assert_in_range(permute(kind, rule, 400), 200, 2400);
}

/*
 * The portfolio compares loads of 14 bits, so that two choices are tied now
 * and then that are not: in one of some 60000 problems.
 */
static void ours(void **state)
{
	(void)state;
	n_differ = 0;
	permute_all(FERRY_RULE_PORTFOLIO);
	assert_in_range(n_differ, 0, 2);
}

static void freebalance(void **state)
{
	(void)state;
	n_differ = 0;
	permute_all(FERRY_RULE_SORTED);
	permute_all(FERRY_RULE_RESELECT);
	assert_int_equal(n_differ, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ours),
		cmocka_unit_test(freebalance),
	};

	seed = test_seed(argc, argv);
	if (ferry_planner_create(PLAN_CASE_SLOTS, PLAN_CASE_SLOTS,
	                         PLAN_CASE_RANKS, &planner))
		return 1;
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);

	ferry_planner_destroy(planner);
	return failed;
}
