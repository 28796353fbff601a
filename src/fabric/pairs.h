/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that meet two at a time: who meets whom in which step, and the signals
 * between the two. Signal r of the segment is raised by rank r, so that a wait
 * knows whom it misses.
 */
#ifndef FERRY_PAIRS_H
#define FERRY_PAIRS_H

#include "segment.h"

/* Steps of a tournament in which everybody meets everybody else once. */
static inline int32_t ferry_pairs_steps(int32_t n_ranks)
{
	return n_ranks > 1 ? n_ranks + n_ranks % 2 - 1 : 0;
}

/* Whom a rank meets in a step: another one each time; itself: nobody. */
int32_t ferry_pairs_partner(int32_t rank, int32_t n_ranks, int32_t step);

struct ferry_pairs {
	struct ferry_segment *segment; /* has a signal for each rank */
	uint64_t *seen;                /* [n_ranks] of each signal so far */
};

/* The signal that this rank raises. */
uint32_t ferry_pairs_signal(const struct ferry_pairs *pairs);

/* Raises it at the peer, and kicks. */
enum ferry_status ferry_pairs_say(const struct ferry_pairs *pairs,
                                  int32_t peer);

/* Waits for the next n signals of the peer. */
enum ferry_status ferry_pairs_await(struct ferry_pairs *pairs, int32_t peer,
                                    uint64_t n);

#endif
