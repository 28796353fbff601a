/* SPDX-License-Identifier: Apache-2.0 */
/* Checks plans with plain loops and ferry_plan_apply. */
#include "plan_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_RANKS = 128, MAX_EXPERTS = 4096, MAX_SLOTS = 8192 };

static int32_t n_ranks_of(const struct ferry_plan_in *in)
{
	return ferry_placement_n_ranks(in->placement);
}

static int64_t level(const struct ferry_plan_in *in, int32_t rank, int64_t load)
{
	const int64_t speed = in->speed ? in->speed[rank] : 1000;

	return (load * 1000 + speed - 1) / speed;
}

/* The fullest rank of a placement, by the public functions alone. */
static int64_t fullest(const struct ferry_plan_in *in,
                       const struct ferry_placement *p)
{
	int64_t loads[MAX_RANKS], most = 0;
	int64_t quota[MAX_SLOTS];

	if (ferry_placement_split(p) == FERRY_SPLIT_EXACT) {
		assert_int_equal(ferry_split_quotas(p, in->loads, in->speed,
		                                    quota, &most),
		                 FERRY_OK);
		return most;
	}
	assert_int_equal(ferry_rank_loads(p, in->loads, loads), FERRY_OK);
	for (int32_t r = 0; r < n_ranks_of(in); r++)
		if (level(in, r, loads[r]) > most)
			most = level(in, r, loads[r]);
	return most;
}

static void check_disjoint(const struct ferry_plan_in *in,
                           const struct ferry_plan *plan)
{
	static uint8_t slot[MAX_SLOTS], swapped[MAX_EXPERTS],
		copied[MAX_EXPERTS];
	int32_t swaps = 0, copies[MAX_RANKS] = {0};

	memset(slot, 0, sizeof(slot));
	memset(swapped, 0, sizeof(swapped));
	memset(copied, 0, sizeof(copied));
	for (int32_t i = 0; i < plan->n_moves; i++) {
		const struct ferry_move *const m = &plan->moves[i];

		assert_int_equal(slot[m->to_slot]++, 0);
		assert_int_not_equal(m->from_rank, m->to_rank);
		assert_int_equal(
			ferry_placement_rank(in->placement, m->from_slot),
			m->from_rank);
		assert_int_equal(
			ferry_placement_rank(in->placement, m->to_slot),
			m->to_rank);
		if (m->kind == FERRY_MOVE_COPY) {
			copied[m->expert] = 1;
			assert_true(++copies[m->to_rank] <= in->max_copies);
			continue;
		}
		swaps++;
		assert_int_equal(slot[m->from_slot]++, 0);
		assert_int_equal(swapped[m->expert]++, 0);
		assert_int_equal(swapped[m->other]++, 0);
	}
	for (int32_t e = 0; e < MAX_EXPERTS; e++)
		assert_false(swapped[e] && copied[e]);
	assert_true(swaps <= (in->max_swaps < 0    ? 0
	                      : in->max_swaps == 0 ? FERRY_PLAN_MOVES
	                                           : in->max_swaps));
}

static int64_t transfer(const struct ferry_cost *c, int32_t a, int32_t b,
                        int32_t expert, bool with_alpha)
{
	const int64_t link = (int64_t)a * c->n_ranks + b;
	const int64_t bytes =
		c->expert_bytes ? c->expert_bytes[expert] : c->all_bytes;

	return (with_alpha ? c->alpha_ns[link] : 0) +
	       (bytes * c->ps_per_byte[link] + 999) / 1000;
}

static void check_budget(const struct ferry_plan_in *in,
                         const struct ferry_plan *plan)
{
	const struct ferry_cost *const c = in->cost;
	int64_t out[MAX_RANKS] = {0}, into[MAX_RANKS] = {0};

	for (int32_t i = 0; c && i < plan->n_moves; i++) {
		const struct ferry_move *const m = &plan->moves[i];
		const int32_t a = m->from_rank, b = m->to_rank;
		const int64_t there = transfer(c, a, b, m->expert, true);
		const int64_t back = m->other < 0 ? 0
		                                  : transfer(c, b, a, m->other,
		                                             !c->half_duplex);

		out[a] += there;
		into[b] += there;
		out[b] += back;
		into[a] += back;
		assert_int_equal(m->cost_ns, c->half_duplex ? there + back
		                             : there > back ? there
		                                            : back);
	}
	for (int32_t r = 0; c && r < n_ranks_of(in); r++) {
		int64_t window = in->rank_window_ns ? in->rank_window_ns[r]
		                                    : in->window_ns;

		window = window < 0 ? 0 : window;
		if (c->half_duplex)
			assert_true(out[r] + into[r] <= window);
		assert_true(out[r] <= window && into[r] <= window);
	}
}

/* Applies the first n moves, for n = 0, 1 and so on. */
static void check_prefixes(const struct ferry_plan_in *in,
                           const struct ferry_plan *plan)
{
	static struct ferry_plan part;
	int64_t before = plan->load_before;

	assert_int_equal(fullest(in, in->placement), before);
	part = *plan;
	for (int32_t n = 0; n <= plan->n_moves; n++) {
		struct ferry_placement *next = NULL;

		part.n_moves = n;
		if (ferry_plan_apply(in->placement, &part, in->loads, &next))
			fail_msg("%d moves: %s", n, ferry_last_error());
		const int64_t after = fullest(in, next);

		/* Quotas are computed anew, also for no move at all. */
		if (n > 0 || ferry_placement_split(next) != FERRY_SPLIT_QUOTA)
			assert_int_equal(before - after,
			                 n ? plan->moves[n - 1].gain : 0);
		assert_int_equal(ferry_placement_version(next),
		                 ferry_placement_version(in->placement) + 1);
		ferry_placement_destroy(next);
		before = n ? after : before;
	}
	assert_int_equal(before, plan->load_after);
}

static void check_numbers(const struct ferry_plan_in *in,
                          const struct ferry_plan *plan)
{
	__int128_t total = 0, speeds = 0;
	const int32_t n = n_ranks_of(in);

	for (int32_t e = 0; e < ferry_placement_n_experts(in->placement); e++)
		total += in->loads[e];
	for (int32_t r = 0; r < n; r++)
		speeds += in->speed ? in->speed[r] : 1000;
	assert_int_equal(plan->layer, in->layer);
	assert_int_equal(plan->total, (int64_t)(total * 1000 * n / speeds));
	assert_true(plan->load_after <= plan->load_before);
	assert_true(plan->bound <= plan->load_after);
	if (plan->load_before * speeds * 1000000 <
	    in->threshold_ppm * total * 1000)
		assert_int_equal(plan->n_moves, 0);
}

void plan_check(const struct ferry_plan_in *in, const struct ferry_plan *plan)
{
	check_numbers(in, plan);
	check_disjoint(in, plan);
	check_budget(in, plan);
	check_prefixes(in, plan);
}

void plan_and_check(struct ferry_planner *planner,
                    const struct ferry_plan_in *in, struct ferry_plan *plan)
{
	plan->size = sizeof(*plan);
	if (ferry_plan_make(planner, in, plan))
		fail_msg("%s", ferry_last_error());
	plan_check(in, plan);
}
