/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a splitter, and what ranks send each other. */
#ifndef FERRY_SPLIT_INNER_H
#define FERRY_SPLIT_INNER_H

#include <ferry/split.h>

#include "../balance/exact.h"
#include "split_region.h"

/*
 * A message: this, then int32 fixed[n_ranks], the choices that go to each rank
 * without a choice of replica, and int32 choice[], those of each expert that
 * has several, in ascending order.
 */
struct ferry_split_head {
	uint64_t number;    /* splits of the slot before this one */
	uint64_t placement; /* hash */
	uint64_t speed;     /* hash, 0: all equal */
	int64_t mark_value;
	int32_t mark_token;
	int32_t mark_choice;
	int32_t mark_status; /* enum ferry_status; OK: no mark */
	int32_t n_words;     /* behind this; 0 in a mark */
};

struct ferry_split_slot {
	bool sent;
	uint64_t n_splits; /* that are over */
	int32_t n_tokens;
	int32_t topk;
	const struct ferry_placement *placement;
	const int32_t *speed;
	struct ferry_exact_codes codes; /* of max_tokens * topk choices */
};

struct ferry_splitter {
	struct ferry_world *world;
	struct ferry_splitter_config config; /* with defaults filled in */
	int32_t n_sources;
	int32_t source; /* of this rank */
	struct ferry_split_region region;
	struct ferry_split_slot *slots; /* [n_slots] */
	/* Of the split at hand. */
	struct ferry_sharing sharing;
	struct ferry_exact_runs runs;
	int32_t *code_of;      /* [max_experts] */
	int32_t *counts;       /* [max_experts] */
	int32_t *source_count; /* [n_sources] */
};

/* Most words of a message: half of the slots can be those of copies. */
static inline size_t split_max_words(const struct ferry_splitter *s)
{
	const int32_t half = s->config.max_expert_slots / 2;

	return (size_t)s->world->n_ranks +
	       (size_t)(half < s->config.max_experts ? half
	                                             : s->config.max_experts);
}

static inline struct ferry_split_round
split_round(const struct ferry_splitter *s, int32_t slot)
{
	return (struct ferry_split_round){slot, s->slots[slot].n_splits};
}

static inline const struct ferry_split_head *
split_head_of(const struct ferry_splitter *s, int32_t slot, int32_t rank)
{
	return ferry_split_region_entry(&s->region, split_round(s, slot), rank);
}

static inline const int32_t *split_words(const struct ferry_split_head *head)
{
	return (const int32_t *)(const void *)(head + 1);
}

/*
 * Looks at the messages of all ranks, in an order that is the same everywhere:
 * form and marks; placements and speeds; counts, and equality in groups. What
 * is wrong breaks the splitter. Errors: RANGE, MISMATCH, PROTO.
 */
enum ferry_status ferry_split_check(struct ferry_splitter *splitter,
                                    int32_t slot);

#endif
