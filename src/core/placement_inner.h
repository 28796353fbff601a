/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a placement, for planners that walk through its arrays, and
 * how operations count it as in use.
 */
#ifndef FERRY_PLACEMENT_INNER_H
#define FERRY_PLACEMENT_INNER_H

#include <ferry/placement.h>

#include "slot_map.h"

/* A count that outlives the placement where an operation still holds it. */
struct ferry_usage;

struct ferry_placement {
	struct ferry_slot_map map;
	int32_t n_experts;
	enum ferry_split split;
	uint64_t version;
	uint64_t hash;
	int32_t *slot_expert;   /* [n_slots], -1: empty */
	int32_t *first_replica; /* [n_experts + 1], into replicas */
	int32_t *replicas;      /* slots by (expert, slot) */
	int64_t *quota;         /* [n_slots], 0 if empty; NULL: not QUOTA */
	uint32_t *start;        /* as replicas: see quota.h; NULL: likewise */
	struct ferry_usage *usage; /* written through const placements */
};

/* How many replicas an expert has; the expert is in range. */
static inline int32_t placement_n_replicas(const struct ferry_placement *p,
                                           int32_t expert)
{
	return p->first_replica[expert + 1] - p->first_replica[expert];
}

/* NULL: no memory. */
struct ferry_usage *ferry_usage_create(void);

/* The placement goes; the count goes with its last operation. */
void ferry_usage_abandon(struct ferry_usage *usage);

/*
 * An operation begins to use a placement; NULL for NULL. Give the result to
 * ferry_usage_leave when it is over; the placement may be gone by then.
 */
struct ferry_usage *
ferry_placement_enter(const struct ferry_placement *placement);

/* NULL is accepted. */
void ferry_usage_leave(struct ferry_usage *usage);

#endif
