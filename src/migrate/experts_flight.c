/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a plan to transfers: checks that it fits the layer's newest placement,
 * lists who sends what to whom, and makes the version that it leads to.
 */
#include <stdlib.h>

#include "../fabric/gpu.h"
#include "experts_inner.h"

/* A plan on its way to a flight. */
struct making {
	struct ferry_experts *x;
	int32_t layer;
	const struct ferry_plan *plan;
	const struct ferry_placement *placement;
	uint8_t *changed; /* [n_slots] by an earlier move */
};

static enum ferry_status refuse(const struct making *m, int32_t i,
                                const char *what, int32_t value,
                                int32_t expected)
{
	return ferry_fail(&m->x->world->ctx, FERRY_RANGE,
	                  "experts_start: layer %d: moves[%d].%s is %d, by the "
	                  "placement (version %llu) it is %d",
	                  m->layer, i, what, value,
	                  (unsigned long long)m->placement->version, expected);
}

static enum ferry_status check_slot(const struct making *m, int32_t i,
                                    const char *what, int32_t slot)
{
	const int32_t n_slots = m->placement->map.n_slots;

	if (slot < 0 || slot >= n_slots)
		return ferry_fail(&m->x->world->ctx, FERRY_RANGE,
		                  "experts_start: layer %d: moves[%d].%s is "
		                  "%d, slots are 0..%d",
		                  m->layer, i, what, slot, n_slots - 1);
	if (m->changed[slot])
		return ferry_fail(&m->x->world->ctx, FERRY_INVAL,
		                  "experts_start: layer %d: moves[%d].%s, %d, "
		                  "is changed by an earlier move",
		                  m->layer, i, what, slot);
	return FERRY_OK;
}

static enum ferry_status check_move(const struct making *m, int32_t i)
{
	const struct ferry_move *v = &m->plan->moves[i];
	const int32_t other = v->kind == FERRY_MOVE_SWAP ? v->other : -1;
	const struct ferry_slot_map *map = &m->placement->map;
	const int32_t *held = m->placement->slot_expert;

	if (v->kind != FERRY_MOVE_SWAP && v->kind != FERRY_MOVE_COPY)
		return ferry_fail(&m->x->world->ctx, FERRY_INVAL,
		                  "experts_start: layer %d: moves[%d].kind is "
		                  "%d, allowed are 0 (swap), 1 (copy)",
		                  m->layer, i, (int)v->kind);
	FERRY_TRY(check_slot(m, i, "from_slot", v->from_slot));
	FERRY_TRY(check_slot(m, i, "to_slot", v->to_slot));
	if (v->expert < 0 || v->expert != held[v->from_slot])
		return refuse(m, i, "expert", v->expert, held[v->from_slot]);
	if (other != held[v->to_slot])
		return refuse(m, i, "other", other, held[v->to_slot]);
	if (v->from_rank != map->slot_rank[v->from_slot])
		return refuse(m, i, "from_rank", v->from_rank,
		              map->slot_rank[v->from_slot]);
	if (v->to_rank != map->slot_rank[v->to_slot])
		return refuse(m, i, "to_rank", v->to_rank,
		              map->slot_rank[v->to_slot]);
	/* A slot changes once; one may be copied from several times. */
	m->changed[v->from_slot] = v->kind == FERRY_MOVE_SWAP;
	m->changed[v->to_slot] = 1;
	return FERRY_OK;
}

static enum ferry_status check_plan(const struct making *m)
{
	const struct ferry_plan *plan = m->plan;

	if (plan->size < sizeof(*plan))
		return ferry_fail(&m->x->world->ctx, FERRY_INVAL,
		                  "experts_start: plan: size is %zu, it must "
		                  "be sizeof of the struct",
		                  plan->size);
	if (plan->n_moves < 0 || plan->n_moves > FERRY_PLAN_MOVES)
		return ferry_fail(&m->x->world->ctx, FERRY_RANGE,
		                  "experts_start: plan: n_moves is %d, allowed "
		                  "are 0..%d",
		                  plan->n_moves, FERRY_PLAN_MOVES);
	if (plan->n_moves && plan->layer != m->layer)
		return ferry_fail(&m->x->world->ctx, FERRY_INVAL,
		                  "experts_start: layer is %d, the plan is for "
		                  "layer %d",
		                  m->layer, plan->layer);
	for (int32_t i = 0; i < plan->n_moves; i++)
		FERRY_TRY(check_move(m, i));
	return FERRY_OK;
}

static void list_transfers(const struct making *m,
                           struct experts_flight *flight)
{
	for (int32_t i = 0; i < m->plan->n_moves; i++) {
		const struct ferry_move *v = &m->plan->moves[i];

		flight->transfers[flight->n_transfers++] =
			(struct experts_transfer){v->expert,    v->from_rank,
		                                  v->from_slot, v->to_rank,
		                                  v->to_slot,   -1};
		if (v->kind == FERRY_MOVE_SWAP)
			flight->transfers[flight->n_transfers++] =
				(struct experts_transfer){
					v->other,     v->to_rank,   v->to_slot,
					v->from_rank, v->from_slot, -1};
	}
}

/* A plan without moves changes nothing, but quotas where there are loads. */
static bool changes(const struct making *m, const int64_t *loads)
{
	return m->plan->n_moves ||
	       (loads && m->placement->split == FERRY_SPLIT_QUOTA);
}

static enum ferry_status make_target(const struct making *m,
                                     const int64_t *loads,
                                     struct experts_flight *flight)
{
	struct ferry_placement *next;

	if (!changes(m, loads))
		return FERRY_OK;
	FERRY_TRY(ferry_plan_apply(m->placement, m->plan, loads, &next));
	return ferry_experts_flight_aim(m->x, m->layer, next, flight);
}

static enum ferry_status make(struct making *m,
                              const struct experts_asked *asked,
                              struct experts_flight *flight)
{
	FERRY_TRY(check_plan(m));
	if (asked->held_back)
		return FERRY_OK;
	list_transfers(m, flight);
	return make_target(m, asked->loads, flight);
}

static enum ferry_status make_by_plan(struct ferry_experts *x,
                                      const struct experts_asked *asked,
                                      struct experts_flight *flight)
{
	struct making m = {
		.x = x,
		.layer = asked->layer,
		.plan = asked->plan,
		.placement = x->layers[asked->layer].newest->placement,
	};

	m.changed = calloc((size_t)m.placement->map.n_slots, 1);
	if (!m.changed)
		return ferry_fail(&x->world->ctx, FERRY_NOMEM,
		                  "experts_start: %d slots",
		                  m.placement->map.n_slots);
	const enum ferry_status status = make(&m, asked, flight);

	free(m.changed);
	flight->plan_hash = asked->plan->hash;
	return status;
}

/* How many transfers there may be, whatever a plan says. */
static size_t most_transfers(const struct ferry_experts *x,
                             const struct experts_asked *asked)
{
	const struct ferry_plan *plan = asked->plan;

	if (asked->to)
		return (size_t)x->layers[asked->layer]
		        .newest->placement->map.n_slots;
	if (plan->n_moves < 0 || plan->n_moves > FERRY_PLAN_MOVES)
		return 0;
	return 2 * (size_t)plan->n_moves;
}

enum ferry_status ferry_experts_flight_make(struct ferry_experts *x,
                                            const struct experts_asked *asked,
                                            struct experts_flight **flight)
{
	const size_t most = most_transfers(x, asked);
	struct experts_flight *const f =
		calloc(1, sizeof(*f) + most * sizeof(f->transfers[0]));

	if (!f)
		return ferry_fail(&x->world->ctx, FERRY_NOMEM,
		                  "experts_start: %zu transfers", most);
	f->freed = calloc((size_t)x->n_ranks, sizeof(*f->freed));
	if (!f->freed) {
		free(f);
		return ferry_fail(&x->world->ctx, FERRY_NOMEM,
		                  "experts_start: %d ranks", x->n_ranks);
	}
	f->layer = asked->layer;
	f->held_back = asked->held_back;
	const enum ferry_status status =
		asked->to ? ferry_experts_flight_to(x, asked, f)
			  : make_by_plan(x, asked, f);

	if (status != FERRY_OK) {
		ferry_experts_flight_free(x, f);
		return status;
	}
	*flight = f;
	return FERRY_OK;
}

enum ferry_status ferry_experts_flight_aim(struct ferry_experts *x,
                                           int32_t layer,
                                           struct ferry_placement *next,
                                           struct experts_flight *flight)
{
	flight->target = ferry_experts_version_make(x, &x->layers[layer], next);
	if (!flight->target) {
		ferry_placement_destroy(next);
		return ferry_fail(&x->world->ctx, FERRY_NOMEM,
		                  "experts_start: version of layer %d", layer);
	}
	flight->target->made = next;
	return FERRY_OK;
}

void ferry_experts_flight_free(const struct ferry_experts *x,
                               struct experts_flight *flight)
{
	if (!flight)
		return;
	if (flight->over)
		ferry_gpu_mark_free(x->world->gpu, flight->over);
	ferry_experts_version_free(flight->target);
	free(flight->freed);
	free(flight);
}
