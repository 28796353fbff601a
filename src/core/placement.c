/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements: built once, checked whole, then only read. Experts find their
 * slots through one sorted list (first_replica, replicas), so that a choice
 * is resolved in a few instructions.
 */
#include <ferry/placement.h>

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "ctx.h"
#include "sized.h"
#include "slot_map.h"

struct ferry_placement {
	struct ferry_slot_map map;
	int32_t n_experts;
	enum ferry_split split;
	uint64_t version;
	uint64_t hash;
	int32_t *slot_expert;   /* [n_slots], -1: empty */
	int32_t *first_replica; /* [n_experts + 1], into replicas */
	int32_t *replicas;      /* slots by (expert, slot) */
};

static enum ferry_status allocate(struct ferry_placement *p)
{
	const size_t n_slots = (size_t)p->map.n_slots;
	const size_t n_experts = (size_t)p->n_experts;

	p->slot_expert = malloc(n_slots * sizeof(int32_t));
	p->replicas = malloc(n_slots * sizeof(int32_t));
	p->first_replica = calloc(n_experts + 1, sizeof(int32_t));
	if (!p->slot_expert || !p->replicas || !p->first_replica)
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "placement: %d experts in %d slots",
		                  p->n_experts, p->map.n_slots);
	return FERRY_OK;
}

/* Takes over the caller's map, or puts expert e into slot e. */
static enum ferry_status take_slots(struct ferry_placement *p,
                                    const int32_t *slot_expert)
{
	for (int32_t s = 0; s < p->map.n_slots; s++) {
		const int32_t e = slot_expert        ? slot_expert[s]
		                  : s < p->n_experts ? s
		                                     : -1;

		if (e < -1 || e >= p->n_experts)
			return ferry_fail(NULL, FERRY_RANGE,
			                  "placement: slot_expert[%d] of rank "
			                  "%d is %d, experts are 0..%d, -1 is "
			                  "an empty slot",
			                  s, p->map.slot_rank[s], e,
			                  p->n_experts - 1);
		p->slot_expert[s] = e;
	}
	return FERRY_OK;
}

/* Counting sort of the slots by expert. */
static void sort_replicas(struct ferry_placement *p)
{
	int32_t *const first = p->first_replica;

	for (int32_t s = 0; s < p->map.n_slots; s++)
		if (p->slot_expert[s] >= 0)
			first[p->slot_expert[s] + 1]++;
	for (int32_t e = 0; e < p->n_experts; e++)
		first[e + 1] += first[e];
	/* Placing moves each start to its end: to the start of the next. */
	for (int32_t s = 0; s < p->map.n_slots; s++)
		if (p->slot_expert[s] >= 0)
			p->replicas[first[p->slot_expert[s]]++] = s;
	for (int32_t e = p->n_experts; e > 0; e--)
		first[e] = first[e - 1];
	first[0] = 0;
}

/* Every expert is somewhere, and nowhere twice on one rank. */
static enum ferry_status check_replicas(const struct ferry_placement *p)
{
	for (int32_t e = 0; e < p->n_experts; e++) {
		const int32_t begin = p->first_replica[e];
		const int32_t end = p->first_replica[e + 1];

		if (begin == end)
			return ferry_fail(NULL, FERRY_INVAL,
			                  "placement: expert %d of %d is in "
			                  "none of the %d slots",
			                  e, p->n_experts, p->map.n_slots);
		for (int32_t i = begin + 1; i < end; i++) {
			const int32_t a = p->replicas[i - 1];
			const int32_t b = p->replicas[i];

			if (p->map.slot_rank[a] == p->map.slot_rank[b])
				return ferry_fail(NULL, FERRY_INVAL,
				                  "placement: expert %d is in "
				                  "slots %d and %d of rank %d, "
				                  "once on a rank is allowed",
				                  e, a, b, p->map.slot_rank[a]);
		}
	}
	return FERRY_OK;
}

static uint64_t content_hash(const struct ferry_placement *p)
{
	uint64_t h = hash_u64(0, (uint64_t)p->n_experts);

	h = hash_u64(h, (uint64_t)p->map.n_ranks);
	h = hash_u64(h, (uint64_t)p->split);
	for (int32_t r = 0; r < p->map.n_ranks; r++)
		h = hash_u64(h, (uint64_t)p->map.first_slot[r + 1]);
	for (int32_t s = 0; s < p->map.n_slots; s++)
		h = hash_u64(h, (uint64_t)p->slot_expert[s]);
	return h;
}

static enum ferry_status build(struct ferry_placement *p,
                               const struct ferry_placement_config *config)
{
	FERRY_TRY(ferry_slot_map_init(&p->map, "placement",
	                              config->expert_slots, config->n_experts,
	                              config->n_ranks));
	if (config->split != FERRY_SPLIT_EVEN)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement: split is %d, allowed is 0 (even)",
		                  (int)config->split);
	p->n_experts = config->n_experts;
	p->split = config->split;
	p->version = config->version;
	FERRY_TRY(allocate(p));
	FERRY_TRY(take_slots(p, config->slot_expert));
	sort_replicas(p);
	FERRY_TRY(check_replicas(p));
	p->hash = content_hash(p);
	return FERRY_OK;
}

enum ferry_status
ferry_placement_create(const struct ferry_placement_config *config,
                       struct ferry_placement **placement)
{
	struct ferry_placement_config own;

	FERRY_TRY(ferry_sized_copy(&own, sizeof(own), config,
	                           "placement config"));
	if (!placement)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement_create: placement is NULL");
	struct ferry_placement *const p = calloc(1, sizeof(*p));

	if (!p)
		return ferry_fail(NULL, FERRY_NOMEM, "placement: %zu bytes",
		                  sizeof(*p));
	const enum ferry_status status = build(p, &own);

	if (status) {
		ferry_placement_destroy(p);
		return status;
	}
	*placement = p;
	return FERRY_OK;
}

void ferry_placement_destroy(struct ferry_placement *placement)
{
	if (!placement)
		return;
	ferry_slot_map_destroy(&placement->map);
	free(placement->slot_expert);
	free(placement->first_replica);
	free(placement->replicas);
	free(placement);
}

uint64_t ferry_placement_hash(const struct ferry_placement *placement)
{
	return placement ? placement->hash : 0;
}

uint64_t ferry_placement_version(const struct ferry_placement *placement)
{
	return placement ? placement->version : 0;
}

int32_t ferry_placement_n_experts(const struct ferry_placement *placement)
{
	return placement ? placement->n_experts : 0;
}

int32_t ferry_placement_n_slots(const struct ferry_placement *placement)
{
	return placement ? placement->map.n_slots : 0;
}

enum ferry_status
ferry_placement_replicas(const struct ferry_placement *placement,
                         int32_t expert, const int32_t **slots, int32_t *n)
{
	if (!placement || !slots || !n)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement_replicas: %s is NULL",
		                  !placement ? "placement"
		                  : !slots   ? "slots"
		                             : "n");
	if (expert < 0 || expert >= placement->n_experts)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "placement_replicas: expert is %d, experts "
		                  "are 0..%d",
		                  expert, placement->n_experts - 1);
	const int32_t first = placement->first_replica[expert];

	*slots = placement->replicas + first;
	*n = placement->first_replica[expert + 1] - first;
	return FERRY_OK;
}

int32_t ferry_placement_expert(const struct ferry_placement *placement,
                               int32_t slot)
{
	if (!placement || slot < 0 || slot >= placement->map.n_slots)
		return -1;
	return placement->slot_expert[slot];
}

int32_t ferry_placement_rank(const struct ferry_placement *placement,
                             int32_t slot)
{
	if (!placement || slot < 0 || slot >= placement->map.n_slots)
		return -1;
	return placement->map.slot_rank[slot];
}

int32_t ferry_placement_resolve(const struct ferry_placement *placement,
                                int32_t expert, int32_t rank, int32_t token,
                                int32_t choice)
{
	if (!placement || expert < 0 || expert >= placement->n_experts)
		return -1;
	const int32_t first = placement->first_replica[expert];
	const uint32_t n =
		(uint32_t)(placement->first_replica[expert + 1] - first);

	if (n == 1) /* most experts: no division */
		return placement->replicas[first];
	const uint32_t turn =
		(uint32_t)rank + (uint32_t)token + (uint32_t)choice;

	return placement->replicas[first + (int32_t)(turn % n)];
}
