/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements: built once, checked whole, then only read. Experts find their
 * slots through one sorted list (first_replica, replicas), so that a choice
 * is resolved in a few instructions.
 */
#include "placement_inner.h"

#include <stdlib.h>

#include "bits.h"
#include "ctx.h"
#include "quota.h"
#include "sized.h"

static enum ferry_status allocate(struct ferry_placement *p)
{
	const size_t n_slots = (size_t)p->map.n_slots;
	const size_t n_experts = (size_t)p->n_experts;

	p->slot_expert = malloc(n_slots * sizeof(int32_t));
	p->replicas = malloc(n_slots * sizeof(int32_t));
	p->first_replica = calloc(n_experts + 1, sizeof(int32_t));
	p->usage = ferry_usage_create();
	if (p->split == FERRY_SPLIT_QUOTA) {
		p->quota = calloc(n_slots, sizeof(int64_t));
		p->start = calloc(n_slots, sizeof(uint32_t));
	}
	if (!p->slot_expert || !p->replicas || !p->first_replica || !p->usage ||
	    (p->split == FERRY_SPLIT_QUOTA && (!p->quota || !p->start)))
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

/* Quotas of slots that hold an expert; those of empty ones do not count. */
static enum ferry_status take_quotas(struct ferry_placement *p,
                                     const int64_t *quota)
{
	for (int32_t s = 0; s < p->map.n_slots; s++) {
		if (quota[s] < 0)
			return ferry_fail(NULL, FERRY_RANGE,
			                  "placement: quota[%d] is %lld, "
			                  "allowed are 0..2^63-1",
			                  s, (long long)quota[s]);
		if (p->slot_expert[s] >= 0)
			p->quota[s] = quota[s];
	}
	for (int32_t e = 0; e < p->n_experts; e++) {
		const int32_t first = p->first_replica[e];

		ferry_quota_starts(p->quota, p->replicas + first,
		                   placement_n_replicas(p, e),
		                   p->start + first);
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
	for (int32_t s = 0; p->quota && s < p->map.n_slots; s++)
		h = hash_u64(h, (uint64_t)p->quota[s]);
	return h;
}

static enum ferry_status check_split(const struct ferry_placement_config *c)
{
	const int split = (int)c->split;

	if (split < FERRY_SPLIT_EVEN || split > FERRY_SPLIT_EXACT)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement: split is %d, allowed are 0 "
		                  "(even), 1 (quota), 2 (exact)",
		                  split);
	if ((split == FERRY_SPLIT_QUOTA) == (c->quota != NULL))
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_INVAL,
	                  "placement: quota is %s, but split is %d; quotas go "
	                  "with split 1 (quota)",
	                  c->quota ? "not NULL" : "NULL", split);
}

static enum ferry_status build(struct ferry_placement *p,
                               const struct ferry_placement_config *config)
{
	FERRY_TRY(ferry_slot_map_init(&p->map, "placement",
	                              config->expert_slots, config->n_experts,
	                              config->n_ranks));
	FERRY_TRY(check_split(config));
	p->n_experts = config->n_experts;
	p->split = config->split;
	p->version = config->version;
	FERRY_TRY(allocate(p));
	FERRY_TRY(take_slots(p, config->slot_expert));
	sort_replicas(p);
	FERRY_TRY(check_replicas(p));
	if (p->split == FERRY_SPLIT_QUOTA)
		FERRY_TRY(take_quotas(p, config->quota));
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
	free(placement->quota);
	free(placement->start);
	if (placement->usage)
		ferry_usage_abandon(placement->usage);
	free(placement);
}
