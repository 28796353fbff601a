/* SPDX-License-Identifier: Apache-2.0 */
/* The placement after a plan. */
#include <stdlib.h>
#include <string.h>

#include "../core/ctx.h"
#include "../core/placement_inner.h"
#include "plan_inner.h"

static enum ferry_status move_misfit(int32_t i, const char *name, int32_t slot,
                                     int32_t expert, int32_t found)
{
	return ferry_fail(NULL, FERRY_INVAL,
	                  "plan_apply: moves[%d].%s is %d and holds expert "
	                  "%d, by the plan it is %d",
	                  i, name, slot, found, expert);
}

static enum ferry_status other_misfit(int32_t i, const char *name,
                                      int32_t given, int32_t wanted)
{
	return ferry_fail(NULL, FERRY_INVAL,
	                  "plan_apply: moves[%d].%s is %d, by its slot and "
	                  "kind it is %d",
	                  i, name, given, wanted);
}

/* What a move says twice: nobody may act on either alone. */
static enum ferry_status check_rest(const struct ferry_placement *p,
                                    const struct ferry_move *m, int32_t i)
{
	const int32_t from = p->map.slot_rank[m->from_slot];
	const int32_t to = p->map.slot_rank[m->to_slot];

	if (m->kind == FERRY_MOVE_COPY && m->other != -1)
		return other_misfit(i, "other", m->other, -1);
	if (m->from_rank != from)
		return other_misfit(i, "from_rank", m->from_rank, from);
	if (m->to_rank != to)
		return other_misfit(i, "to_rank", m->to_rank, to);
	return FERRY_OK;
}

static enum ferry_status apply_move(const struct ferry_placement *p,
                                    const struct ferry_move *m, int32_t i,
                                    int32_t *slot_expert)
{
	const int32_t n = p->map.n_slots;

	if (m->kind != FERRY_MOVE_SWAP && m->kind != FERRY_MOVE_COPY)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "plan_apply: moves[%d].kind is %d, allowed "
		                  "are 0 and 1",
		                  i, (int)m->kind);
	if (m->from_slot < 0 || m->from_slot >= n || m->to_slot < 0 ||
	    m->to_slot >= n)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "plan_apply: moves[%d] is from slot %d to "
		                  "%d, slots are 0..%d",
		                  i, m->from_slot, m->to_slot, n - 1);
	FERRY_TRY(check_rest(p, m, i));
	int32_t *const from = &slot_expert[m->from_slot];
	int32_t *const to = &slot_expert[m->to_slot];

	if (*from != m->expert || *from < 0)
		return move_misfit(i, "from_slot", m->from_slot, m->expert,
		                   *from);
	const int32_t other = m->kind == FERRY_MOVE_COPY ? -1 : m->other;

	if (*to != other || (m->kind == FERRY_MOVE_SWAP && *to < 0))
		return move_misfit(i, "to_slot", m->to_slot, other, *to);
	*to = m->expert;
	if (m->kind == FERRY_MOVE_SWAP)
		*from = other;
	return FERRY_OK;
}

static enum ferry_status apply_moves(const struct ferry_placement *p,
                                     const struct ferry_plan *plan,
                                     int32_t *slot_expert)
{
	if (plan->n_moves < 0 || plan->n_moves > FERRY_PLAN_MOVES)
		return ferry_fail(
			NULL, FERRY_RANGE,
			"plan_apply: n_moves is %d, allowed are 0..%d",
			plan->n_moves, FERRY_PLAN_MOVES);
	memcpy(slot_expert, p->slot_expert,
	       (size_t)p->map.n_slots * sizeof(*slot_expert));
	for (int32_t i = 0; i < plan->n_moves; i++)
		FERRY_TRY(apply_move(p, &plan->moves[i], i, slot_expert));
	return FERRY_OK;
}

static enum ferry_status build(const struct ferry_placement *p,
                               const int32_t *expert_slots,
                               const int32_t *slot_expert, const int64_t *quota,
                               struct ferry_placement **next)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	c.n_experts = p->n_experts;
	c.n_ranks = p->map.n_ranks;
	c.expert_slots = expert_slots;
	c.slot_expert = slot_expert;
	c.split = p->split;
	c.version = p->version + 1;
	c.quota = quota;
	return ferry_placement_create(&c, next);
}

/* Quotas need the new map first: it is built twice. */
static enum ferry_status build_quota(const struct ferry_placement *p,
                                     const int64_t *loads,
                                     const int32_t *expert_slots,
                                     const int32_t *slot_expert,
                                     struct ferry_placement **next)
{
	struct ferry_placement *plain = NULL;
	int64_t *const quota = calloc((size_t)p->map.n_slots, sizeof(*quota));

	if (!quota)
		return ferry_fail(NULL, FERRY_NOMEM, "plan_apply: %d slots",
		                  p->map.n_slots);
	enum ferry_status status =
		build(p, expert_slots, slot_expert, quota, &plain);

	if (!status)
		status = ferry_split_quotas(plain, loads, NULL, quota, NULL);
	if (!status)
		status = build(p, expert_slots, slot_expert, quota, next);
	ferry_placement_destroy(plain);
	free(quota);
	return status;
}

enum ferry_status ferry_plan_apply(const struct ferry_placement *placement,
                                   const struct ferry_plan *plan,
                                   const int64_t *loads,
                                   struct ferry_placement **next)
{
	const struct ferry_placement *const p = placement;

	if (!p || !plan || !next)
		return ferry_fail(NULL, FERRY_INVAL, "plan_apply: %s is NULL",
		                  !p      ? "placement"
		                  : !plan ? "plan"
		                          : "next");
	if (p->split == FERRY_SPLIT_QUOTA && !loads)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "plan_apply: loads is NULL, and split is "
		                  "QUOTA");
	const size_t n_slots = (size_t)p->map.n_slots;
	const size_t n_ranks = (size_t)p->map.n_ranks;
	int32_t *const slot_expert =
		malloc((n_slots + n_ranks) * sizeof(*slot_expert));

	if (!slot_expert)
		return ferry_fail(NULL, FERRY_NOMEM, "plan_apply: %zu slots",
		                  n_slots);
	int32_t *const expert_slots = slot_expert + n_slots;

	for (size_t r = 0; r < n_ranks; r++)
		expert_slots[r] =
			p->map.first_slot[r + 1] - p->map.first_slot[r];
	enum ferry_status status = apply_moves(p, plan, slot_expert);

	if (!status && p->split == FERRY_SPLIT_QUOTA)
		status = build_quota(p, loads, expert_slots, slot_expert, next);
	else if (!status)
		status = build(p, expert_slots, slot_expert, NULL, next);
	free(slot_expert);
	return status;
}
