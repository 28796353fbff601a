/* SPDX-License-Identifier: Apache-2.0 */
/* Says in words why a move was chosen. */
#include <string.h>

#include "../core/bits.h"
#include "../core/sized.h"
#include "../core/text.h"
#include "plan_inner.h"

/* What is known where a move is about to be made. */
struct scene {
	struct ferry_planner *pl;
	const struct ferry_plan *plan;
	const struct ferry_move *m;
	int32_t number; /* of the move */
	int64_t from_load;
	int64_t to_load;
	int64_t max_before;
	int64_t max_after;
	int64_t from_after;
	int64_t to_after;
};

/* "412 tokens, 1.65 times the mean" */
static void add_load(struct ferry_text *t, const struct scene *s, int32_t rank,
                     int64_t tokens)
{
	const struct ferry_problem *const p = &s->pl->problem;
	const int64_t load = ferry_normal_load(tokens, p->speed[rank]);
	const __int128_t hundredths =
		s->plan->total
			? (__int128_t)load * 100 * p->n_ranks / s->plan->total
			: 100;

	ferry_text_add(t, "%lld tokens", (long long)tokens);
	if (p->has_speed)
		ferry_text_add(t, " at speed %d", p->speed[rank]);
	ferry_text_add(t, ", %lld.%02d times the mean",
	               (long long)(hundredths / 100), (int)(hundredths % 100));
}

static void add_what(struct ferry_text *t, const struct scene *s)
{
	const struct ferry_move *const m = s->m;

	ferry_text_add(t, "Layer %d, move %d of %d: ", s->plan->layer,
	               s->number + 1, s->plan->n_moves);
	if (m->kind == FERRY_MOVE_COPY)
		ferry_text_add(t,
		               "copy expert %d from rank %d (slot %d) to rank "
		               "%d (empty "
		               "slot %d).\n",
		               m->expert, m->from_rank, m->from_slot,
		               m->to_rank, m->to_slot);
	else
		ferry_text_add(
			t,
			"swap expert %d of rank %d (slot %d) with expert %d of "
			"rank %d (slot %d).\n",
			m->expert, m->from_rank, m->from_slot, m->other,
			m->to_rank, m->to_slot);
}

static void add_why(struct ferry_text *t, const struct scene *s)
{
	const struct ferry_problem *const p = &s->pl->problem;
	const struct ferry_move *const m = s->m;

	ferry_text_add(t, "Why: rank %d has ", m->from_rank);
	add_load(t, s, m->from_rank, s->from_load);
	ferry_text_add(t, "; rank %d has ", m->to_rank);
	add_load(t, s, m->to_rank, s->to_load);
	if (m->kind == FERRY_MOVE_COPY)
		ferry_text_add(
			t,
			". Expert %d has %lld tokens, which the replicas then "
			"share: the ranks have %lld and %lld after the move.\n",
			m->expert, (long long)p->loads[m->expert],
			(long long)s->from_after, (long long)s->to_after);
	else
		ferry_text_add(t,
		               ". Expert %d brings %lld tokens, expert %d "
		               "brings %lld: "
		               "the ranks have %lld and %lld after the move.\n",
		               m->expert, (long long)p->slot_load[m->from_slot],
		               m->other, (long long)p->slot_load[m->to_slot],
		               (long long)s->from_after,
		               (long long)s->to_after);
}

static void add_window(struct ferry_text *t, const struct ferry_problem *p,
                       int32_t a, int32_t b)
{
	const int32_t r = p->window[b] < p->window[a] ? b : a;

	ferry_text_add(t, "; the window of rank %d is %lld ns.\n", r,
	               (long long)p->window[r]);
}

static void add_cost(struct ferry_text *t, const struct scene *s)
{
	const struct ferry_problem *const p = &s->pl->problem;
	const struct ferry_move *const m = s->m;
	const struct plan_move move = {m->from_slot, m->to_slot};
	const struct plan_cost cost = ferry_plan_move_cost(p, move);
	const int32_t a = m->from_rank, b = m->to_rank;

	if (!p->has_cost) {
		ferry_text_add(t, "Cost: not given.\n");
		return;
	}
	ferry_text_add(t, "Cost: %lld bytes from rank %d to rank %d",
	               (long long)ferry_problem_bytes(p, m->expert), a, b);
	if (m->kind == FERRY_MOVE_SWAP)
		ferry_text_add(t, " and %lld bytes back",
		               (long long)ferry_problem_bytes(p, m->other));
	if (p->cost.half_duplex || m->kind == FERRY_MOVE_COPY)
		ferry_text_add(t, " take %lld ns", (long long)cost.there_ns);
	else
		ferry_text_add(t,
		               " take %lld and %lld ns at the same time, the "
		               "link from "
		               "rank %d to rank %d the longer",
		               (long long)cost.there_ns,
		               (long long)cost.back_ns,
		               cost.there_ns < cost.back_ns ? b : a,
		               cost.there_ns < cost.back_ns ? a : b);
	add_window(t, p, a, b);
}

static void add_gain(struct ferry_text *t, const struct scene *s)
{
	ferry_text_add(
		t,
		"Gain: the fullest rank has %lld before this move and %lld "
		"after it",
		(long long)s->max_before, (long long)s->max_after);
	ferry_text_add(
		t, "; %lld before the plan, %lld after it, %lld at least.\n",
		(long long)s->plan->load_before, (long long)s->plan->load_after,
		(long long)s->plan->bound);
}

/* Whether a move of somebody's plan is one of this placement. */
static bool is_sane(const struct ferry_problem *p, const struct ferry_move *m)
{
	return m->from_slot >= 0 && m->from_slot < p->n_slots &&
	       m->to_slot >= 0 && m->to_slot < p->n_slots && m->expert >= 0 &&
	       p->slot_expert[m->from_slot] == m->expert &&
	       p->slot_expert[m->to_slot] == m->other &&
	       (m->kind == FERRY_MOVE_COPY) == (m->other < 0) &&
	       p->slot_rank[m->from_slot] == m->from_rank &&
	       p->slot_rank[m->to_slot] == m->to_rank;
}

static bool make_one(struct ferry_planner *pl, const struct ferry_move *m)
{
	const struct plan_move move = {m->from_slot, m->to_slot};

	if (!is_sane(&pl->problem, m))
		return false;
	ferry_plan_add(pl, move);
	return true;
}

static void settle(struct ferry_planner *pl)
{
	if (ferry_plan_must_settle(pl))
		ferry_plan_settle(pl);
}

/*
 * Makes the moves up to the one to be explained. Loads are settled where they
 * are looked at only: that is what takes time.
 */
static bool set_scene(struct scene *s)
{
	struct ferry_planner *const pl = s->pl;

	ferry_plan_reset(pl);
	for (int32_t i = 0; i < s->number; i++)
		if (!make_one(pl, &s->plan->moves[i]))
			return false;
	settle(pl);
	s->m = &s->plan->moves[s->number];
	if (!is_sane(&pl->problem, s->m))
		return false;
	s->from_load = pl->load[s->m->from_rank];
	s->to_load = pl->load[s->m->to_rank];
	s->max_before = ferry_problem_max_load(&pl->problem, pl->load);
	if (!make_one(pl, s->m))
		return false;
	settle(pl);
	s->from_after = pl->load[s->m->from_rank];
	s->to_after = pl->load[s->m->to_rank];
	s->max_after = ferry_problem_max_load(&pl->problem, pl->load);
	return true;
}

static size_t explain(struct ferry_planner *pl, const struct ferry_plan *plan,
                      int32_t move, struct ferry_text *t)
{
	struct scene s = {.pl = pl, .plan = plan, .number = move};

	if (!set_scene(&s))
		return 0;
	add_what(t, &s);
	add_why(t, &s);
	add_cost(t, &s);
	add_gain(t, &s);
	return t->length;
}

size_t ferry_plan_explain(const struct ferry_plan_in *in,
                          const struct ferry_plan *plan, int32_t move,
                          char *buffer, size_t bytes)
{
	struct ferry_text t = {buffer, buffer ? bytes : 0, 0};
	struct ferry_planner *pl = NULL;
	struct ferry_plan_in own;
	size_t length = 0;

	if (t.bytes)
		buffer[0] = 0;
	if (!plan || move < 0 || move >= plan->n_moves ||
	    plan->n_moves > FERRY_PLAN_MOVES ||
	    ferry_sized_copy(&own, sizeof(own), in, "plan input") ||
	    !own.placement)
		return 0;
	if (ferry_planner_create(ferry_placement_n_experts(own.placement),
	                         ferry_placement_n_slots(own.placement),
	                         ferry_placement_n_ranks(own.placement), &pl))
		return 0;
	if (!ferry_problem_fill(&pl->problem, &own))
		length = explain(pl, plan, move, &t);
	ferry_planner_destroy(pl);
	return length;
}
