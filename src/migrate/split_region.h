/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the counts of an exact split travel: one segment for all slots, so that
 * a failure of one ends all; two halves a slot, as in gather.h, whose argument
 * holds here for each slot alone. A message may be shorter than an entry: it
 * takes as many puts all the same, the last ones of no bytes, so that everyone
 * knows what to wait for.
 */
#ifndef FERRY_SPLIT_REGION_H
#define FERRY_SPLIT_REGION_H

#include "../fabric/segment.h"

struct ferry_split_region {
	struct ferry_world *world;
	struct ferry_segment *segment;
	struct ferry_wait_item *items; /* [n_ranks], the owner's */
	size_t stride;                 /* bytes from entry to entry */
	size_t piece_bytes;
	uint64_t pieces; /* puts of a message */
};

/* A slot's round: numbers from 0, one behind the other. */
struct ferry_split_round {
	int32_t slot;
	uint64_t number;
};

/*
 * Collective; entries of `bytes` (>= 1). Errors: those of ferry_segment_open.
 */
enum ferry_status ferry_split_region_open(struct ferry_split_region *region,
                                          struct ferry_world *world,
                                          int32_t n_slots, size_t bytes);
void ferry_split_region_close(struct ferry_split_region *region);

/* The own entry of a round: write the message there, then send it. */
void *ferry_split_region_own(const struct ferry_split_region *region,
                             struct ferry_split_round round);

/* Sends the first `bytes` of the own entry to all. Never waits for a peer. */
enum ferry_status ferry_split_region_send(struct ferry_split_region *region,
                                          struct ferry_split_round round,
                                          size_t bytes);

/* Waits for the messages of all ranks. */
enum ferry_status ferry_split_region_recv(struct ferry_split_region *region,
                                          struct ferry_split_round round);

/* A rank's message, from recv until the slot's next send. */
const void *ferry_split_region_entry(const struct ferry_split_region *region,
                                     struct ferry_split_round round,
                                     int32_t rank);

#endif
