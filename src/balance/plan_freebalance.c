/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FreeBalance's own rule (arXiv:2608.14205, formulas 6 to 9 and Algorithm 1),
 * both readings of its text. A candidate swaps an expert of a full rank with
 * one of a less full rank; its key is benefit over cost. SORTED takes the
 * candidates of all ranks above the mean with all below, in the order that they
 * had before any move. RESELECT takes the best candidate of the fullest rank
 * with the emptiest, again and again. Both skip what no longer helps, holds an
 * expert that was chosen before, or does not fit.
 *
 * Under SORTED what was skipped once is skipped for ever: a source only gets
 * lighter, a destination fuller, windows smaller. So the next candidate of the
 * sorted list is the best of those that may still be taken, and no list is
 * needed.
 */
#include <string.h>

#include "../core/bits.h"
#include "plan_inner.h"

/* Times around one pair of ranks. */
struct pair {
	int32_t source;
	int32_t target;
	int64_t source_time;
	int64_t target_time;
	int64_t others; /* fullest of the other ranks */
};

/* The fullest ranks; two of them may be in a pair. */
struct objective {
	int32_t top_rank[3]; /* -1: there are fewer */
	int64_t top_time[3]; /* falling */
	int64_t total;       /* of times */
	int32_t gamma_milli;
};

/* benefit / cost, compared exactly: whole part, then the rest. */
struct key {
	__int128_t whole;
	int64_t rest;
	int64_t cost;
};

struct choice {
	bool found;
	struct key key;
	struct plan_move move;
};

static struct objective objective_of(const struct ferry_problem *p,
                                     const int64_t *load, int32_t gamma_milli)
{
	struct objective o = {{-1, -1, -1}, {0, 0, 0}, 0, gamma_milli};

	for (int32_t r = 0; r < p->n_ranks; r++) {
		const int64_t t = load[r] * p->weight[r];
		int32_t i = 3;

		o.total += t;
		for (;
		     i > 0 && (o.top_rank[i - 1] < 0 || t > o.top_time[i - 1]);
		     i--) {
			if (i == 3)
				continue;
			o.top_rank[i] = o.top_rank[i - 1];
			o.top_time[i] = o.top_time[i - 1];
		}
		if (i == 3)
			continue;
		o.top_rank[i] = r;
		o.top_time[i] = t;
	}
	return o;
}

static struct pair pair_of(const struct ferry_problem *p,
                           const struct objective *o, const int64_t *load,
                           int32_t source, int32_t target)
{
	struct pair pair = {source, target, load[source] * p->weight[source],
	                    load[target] * p->weight[target], 0};

	for (int32_t i = 2; i >= 0; i--)
		if (o->top_rank[i] != source && o->top_rank[i] != target)
			pair.others = o->top_time[i];
	return pair;
}

/*
 * By how much (8) falls, times 1000 * total: max + gamma * variance with gamma
 * in thousandths of 1/mean.
 */
static __int128_t benefit(const struct ferry_problem *p,
                          const struct objective *o, const struct pair *pair,
                          int64_t tokens)
{
	const int64_t x = tokens * p->weight[pair->source];
	const int64_t y = tokens * p->weight[pair->target];
	const int64_t new_max =
		max_i64(pair->others,
	                max_i64(pair->source_time - x, pair->target_time + y));
	const __int128_t by_max =
		(__int128_t)1000 * o->total * (o->top_time[0] - new_max);
	const __int128_t by_variance =
		p->n_ranks * ((__int128_t)x * (2 * pair->source_time - x) -
	                      (__int128_t)y * (2 * pair->target_time + y)) -
		(__int128_t)2 * o->total * (x - y);

	return by_max + o->gamma_milli * by_variance;
}

static struct key key_of(__int128_t gain, struct plan_cost cost)
{
	const int64_t ns = max_i64(1, max_i64(cost.there_ns, cost.back_ns));
	const struct key key = {gain / ns, (int64_t)(gain % ns), ns};

	return key;
}

static bool key_above(const struct key *a, const struct key *b)
{
	if (a->whole != b->whole)
		return a->whole > b->whole;
	return (__int128_t)a->rest * b->cost > (__int128_t)b->rest * a->cost;
}

/* Ties: source rank, target rank, then the experts' ids. */
static bool comes_first(const struct ferry_problem *p, const struct choice *a,
                        const struct choice *b)
{
	if (key_above(&a->key, &b->key) || key_above(&b->key, &a->key))
		return key_above(&a->key, &b->key);
	const int32_t a_source = p->slot_rank[a->move.from_slot];
	const int32_t b_source = p->slot_rank[b->move.from_slot];
	const int32_t a_target = p->slot_rank[a->move.to_slot];
	const int32_t b_target = p->slot_rank[b->move.to_slot];
	const int32_t a_expert = p->slot_expert[a->move.from_slot];
	const int32_t b_expert = p->slot_expert[b->move.from_slot];

	if (a_source != b_source)
		return a_source < b_source;
	if (a_target != b_target)
		return a_target < b_target;
	if (a_expert != b_expert)
		return a_expert < b_expert;
	return p->slot_expert[a->move.to_slot] <
	       p->slot_expert[b->move.to_slot];
}

/* Loads that candidates are valued by. */
struct view {
	const int64_t *load;
	struct objective o;
};

/*
 * The best candidate of one pair of ranks. Its key is of the view `then`: the
 * loads before all moves (SORTED) or the present ones (RESELECT); it must help
 * now.
 */
static void choose_in_pair(struct ferry_planner *pl, const struct view *then,
                           const struct view *now, struct pair ranks,
                           struct choice *best)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t a = ranks.source, b = ranks.target;
	const struct pair was = pair_of(p, &then->o, then->load, a, b);
	const struct pair is = pair_of(p, &now->o, now->load, a, b);

	for (int32_t s = p->first_slot[a]; s < p->first_slot[a + 1]; s++) {
		for (int32_t t = p->first_slot[b]; t < p->first_slot[b + 1];
		     t++) {
			const struct plan_move move = {s, t};
			const int64_t tokens =
				p->slot_load[s] - p->slot_load[t];

			if (tokens <= 0 || p->slot_expert[t] < 0)
				continue;
			const __int128_t gain =
				benefit(p, &then->o, &was, tokens);

			if (gain <= 0 ||
			    benefit(p, &now->o, &is, tokens) <= 0 ||
			    !ferry_plan_may_move(pl, move))
				continue;
			const struct choice c = {
				true,
				key_of(gain, ferry_plan_move_cost(p, move)),
				move};

			if (!best->found || comes_first(p, &c, best))
				*best = c;
		}
	}
}

/*
 * Whether a pair may hold a better candidate: without costs and at one speed a
 * benefit is greatest where it makes both ranks equally full.
 */
static bool may_be_better(const struct ferry_problem *p,
                          const struct view *then, struct pair ranks,
                          const struct choice *best)
{
	if (!best->found || p->has_cost || p->has_speed)
		return true;
	const struct pair was =
		pair_of(p, &then->o, then->load, ranks.source, ranks.target);
	const int64_t half = (was.source_time - was.target_time) / 2;

	return benefit(p, &then->o, &was, half) >= best->key.whole;
}

/* SORTED: all ranks above the mean with all below. */
static void choose_anywhere(struct ferry_planner *pl, const struct view *then,
                            const struct view *now, struct choice *best)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t n = p->n_ranks;

	for (int32_t a = 0; a < n; a++) {
		if (then->load[a] * p->weight[a] * n <= then->o.total)
			continue;
		for (int32_t b = 0; b < n; b++) {
			const struct pair ranks = {.source = a, .target = b};

			if (then->load[b] * p->weight[b] * n < then->o.total &&
			    may_be_better(p, then, ranks, best))
				choose_in_pair(pl, then, now, ranks, best);
		}
	}
}

static int32_t emptiest_rank(const struct ferry_planner *pl)
{
	int32_t least = 0;

	for (int32_t r = 1; r < pl->problem.n_ranks; r++)
		if (plan_time(pl, r) < plan_time(pl, least))
			least = r;
	return least;
}

static struct choice choose(struct ferry_planner *pl, bool sorted,
                            int32_t gamma_milli)
{
	const struct ferry_problem *const p = &pl->problem;
	const struct view now = {pl->load,
	                         objective_of(p, pl->load, gamma_milli)};
	struct choice best = {.found = false};

	if (sorted) {
		const struct view then = {
			p->rank_load,
			objective_of(p, p->rank_load, gamma_milli)};

		choose_anywhere(pl, &then, &now, &best);
	} else {
		const struct pair ranks = {.source = now.o.top_rank[0],
		                           .target = emptiest_rank(pl)};

		choose_in_pair(pl, &now, &now, ranks, &best);
	}
	return best;
}

void ferry_plan_freebalance(struct ferry_planner *pl, bool sorted,
                            int32_t gamma_milli)
{
	ferry_plan_reset(pl);
	while (pl->n_moves < pl->problem.max_swaps) {
		const struct choice c = choose(pl, sorted, gamma_milli);

		if (!c.found)
			return;
		ferry_plan_add_swap(pl, c.move);
	}
}
