/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the bounds share. */
#ifndef FERRY_BOUND_INNER_H
#define FERRY_BOUND_INNER_H

#include "../core/bits.h"
#include "bound.h"

/* Sorts the items of a problem into sorted and light_sum, and counts. */
void ferry_bound_items(struct ferry_bound *b, const struct ferry_problem *p);

/* After that: light, light_rank and heavy, from sorted. */
void ferry_bound_spread(struct ferry_bound *b, int32_t n_ranks);

/* Sorts key[n], none negative, ascending into to[n]. key is lost. */
void ferry_bound_sort(int64_t *key, int32_t n, int64_t *to);

/* A load and the rank that it is on, as a key of sorting. */
enum { BOUND_RANK_BITS = 17 };

static inline int64_t bound_key(int64_t load, int32_t rank)
{
	return load << BOUND_RANK_BITS | rank;
}

static inline int32_t bound_key_rank(int64_t key)
{
	return (int32_t)(key & (((int64_t)1 << BOUND_RANK_BITS) - 1));
}

/* How many moves the windows let through: most_moves and n_moves. */
void ferry_bound_moves(struct ferry_bound *b, const struct ferry_problem *p);

/* After that: whether two ranks' windows let any swap of theirs through. */
bool ferry_bound_may_swap(const struct ferry_bound *b,
                          const struct ferry_problem *p, int32_t r,
                          int32_t other);

/*
 * Whether rank r can get down to load z at all, where `spare` moves are left
 * beyond those that every rank needs; needed[] is of z. Adds to demand[] what
 * has one rank only to go to.
 */
bool ferry_bound_reach(struct ferry_bound *b, const struct ferry_problem *p,
                       int32_t r, int64_t z, int32_t spare);

static inline int32_t bound_n_items(const struct ferry_bound *b, int32_t r)
{
	return b->first[r + 1] - b->first[r];
}

/* Most tokens with which rank r is at most as full as z. */
static inline int64_t bound_capacity(const struct ferry_problem *p, int32_t r,
                                     int64_t z)
{
	const int64_t speed = p->speed[r];

	if (speed == FERRY_SPEED_NORMAL)
		return z;
	return z > INT64_MAX / speed
	               ? p->total
	               : min_i64(p->total, z * speed / FERRY_SPEED_NORMAL);
}

/* What n moves save rank r at most. */
static inline int64_t bound_gain(const struct ferry_bound *b, int32_t r,
                                 int32_t n)
{
	const int32_t most = b->n_gain[r];

	return b->gain[b->first[r] + r + (n < most ? n : most)];
}

#endif
