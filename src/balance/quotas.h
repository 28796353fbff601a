/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many tokens of an expert each of its replicas serves, so that the
 * fullest rank is least full: the inside of ferry_split_quotas, for planners
 * that try out many placements and for the exact split. Nothing allocates;
 * the arrays are the caller's.
 *
 * Experts with one replica are not seen here: their tokens are part of
 * fixed[]. A level is a load divided by the speed of its rank: tokens that a
 * rank of speed FERRY_SPEED_NORMAL serves in the same time, rounded up.
 */
#ifndef FERRY_QUOTAS_H
#define FERRY_QUOTAS_H

#include <ferry/plan.h>

/* The question. All loads together are at most FERRY_MAX_LOAD. */
struct ferry_quota_in {
	int32_t n_ranks;
	int32_t n_experts;    /* that have two replicas or more; may be 0 */
	const int32_t *first; /* [n_experts + 1], into rank; [0] is 0 */
	const int32_t *rank;  /* of each replica, rising within an expert */
	const int64_t *load;  /* [n_experts] */
	const int64_t *fixed; /* [n_ranks] tokens that have no choice */
	const int32_t *speed; /* [n_ranks]; NULL: all FERRY_SPEED_NORMAL */
};

/* Answer and working memory. No array need be set before. */
struct ferry_quota_room {
	int64_t *share;        /* [n_replicas] tokens of each: the answer */
	int64_t *load;         /* [n_ranks] of each rank: the answer */
	int64_t *cap;          /* [n_ranks] */
	int32_t *rank_level;   /* [n_ranks] */
	int32_t *expert_level; /* [n_experts] */
};

/*
 * The least possible level of the fullest rank, with shares that reach it.
 * Gives up where it is above at_most: then the result is some proven bound
 * above at_most, not above the optimum, and the shares are of no use.
 * INT64_MAX: never.
 */
int64_t ferry_quota_level(const struct ferry_quota_in *in,
                          struct ferry_quota_room *room, int64_t at_most);

/*
 * After ferry_quota_level has not given up: among the shares that reach the
 * optimum those that are even beyond it, which is: as few ranks as possible
 * are on the highest level, then as few as possible on the level below, and
 * so on. The set of levels is unique; who is on which is a fixed function of
 * the question.
 */
void ferry_quota_even(const struct ferry_quota_in *in,
                      struct ferry_quota_room *room);

/* Tokens that a rank can serve up to a level; speed may be NULL. */
static inline int64_t quota_capacity(const int32_t *speed, int32_t rank,
                                     int64_t level)
{
	const int64_t unit = FERRY_SPEED_NORMAL;

	if (!speed)
		return level;
	return level / unit * speed[rank] + level % unit * speed[rank] / unit;
}

/* The level of a rank with that many tokens; speed may be NULL. */
static inline int64_t quota_level_of(const int32_t *speed, int32_t rank,
                                     int64_t tokens)
{
	return speed ? (tokens * FERRY_SPEED_NORMAL + speed[rank] - 1) /
	                       speed[rank]
	             : tokens;
}

#endif
