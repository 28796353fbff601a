/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The question of quotas.h for a placement: which experts have a choice, and
 * what the ranks hold besides. With the memory to ask and to answer it again
 * and again.
 */
#ifndef FERRY_SHARING_H
#define FERRY_SHARING_H

#include "quotas.h"

struct ferry_sharing {
	struct ferry_quota_in in; /* points to what follows */
	struct ferry_quota_room room;
	int32_t *expert; /* [in.n_experts] which ones they are, rising */
	int32_t *first;
	int32_t *rank;
	int64_t *load;
	int64_t *fixed;
	void *memory;
};

/* For placements up to these sizes. Errors: NOMEM. */
enum ferry_status ferry_sharing_init(struct ferry_sharing *sharing,
                                     int32_t max_experts, int32_t max_slots,
                                     int32_t max_ranks);
void ferry_sharing_destroy(struct ferry_sharing *sharing);

/*
 * Writes the question down, all but load and fixed. The placement is within
 * what there is memory for; speeds have been checked and must stay, or are
 * NULL.
 */
void ferry_sharing_map(struct ferry_sharing *sharing,
                       const struct ferry_placement *placement,
                       const int32_t *speed);

/* The whole question, from loads that have been checked. */
void ferry_sharing_ask(struct ferry_sharing *sharing,
                       const struct ferry_placement *placement,
                       const int64_t *loads, const int32_t *speed);

/*
 * Answers it: shares and rank loads in room, the fullest rank's level as the
 * result.
 */
int64_t ferry_sharing_answer(struct ferry_sharing *sharing);

#endif
