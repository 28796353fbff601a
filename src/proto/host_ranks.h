/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks share a host, for channels whose rows travel once per host. Pure
 * numbers, the same on all ranks; how hosts are told apart is the world's.
 */
#ifndef FERRY_HOST_RANKS_H
#define FERRY_HOST_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

/* Ranks of a host are bits of a word. */
enum { FERRY_MAX_HOST_RANKS = 64 };

struct ferry_hosts {
	int32_t n;   /* 0: no hierarchy, and nothing below is there */
	int32_t own; /* of this rank */
	int32_t most_ranks, fewest_ranks; /* of a host */
	int32_t *of;    /* [n_ranks] host; numbered by their first ranks */
	int32_t *place; /* [n_ranks] place among the ranks of its host */
	int32_t *first; /* [n + 1] into ranks */
	int32_t *ranks; /* [n_ranks] host by host, ascending */
	int32_t *far;   /* [n_ranks] number among those of other hosts */
};

/*
 * From ids[n_ranks], equal for ranks of one host. UNSUPPORTED when a host has
 * more than FERRY_MAX_HOST_RANKS.
 */
enum ferry_status ferry_hosts_init(struct ferry_hosts *hosts,
                                   const uint64_t *ids, int32_t n_ranks,
                                   int32_t rank);
void ferry_hosts_destroy(struct ferry_hosts *hosts);

/* Is a rank on another host? Never without a hierarchy. */
static inline bool ferry_hosts_far(const struct ferry_hosts *h, int32_t rank)
{
	return h->n && h->of[rank] != h->own;
}

static inline int32_t ferry_hosts_rank(const struct ferry_hosts *h,
                                       int32_t host, int32_t place)
{
	return h->ranks[h->first[host] + place];
}

static inline int32_t ferry_hosts_size(const struct ferry_hosts *h,
                                       int32_t host)
{
	return h->first[host + 1] - h->first[host];
}

static inline uint64_t ferry_hosts_bit(const struct ferry_hosts *h,
                                       int32_t rank)
{
	return UINT64_C(1) << h->place[rank];
}

/*
 * Place of the rank where row `index` of a source lands, which those of `mask`
 * want: they take turns. mask is not 0.
 */
static inline int32_t ferry_hosts_landing(uint64_t mask, int32_t index)
{
	const int n = __builtin_popcountll(mask);

	for (int skip = index % n; skip > 0; skip--)
		mask &= mask - 1;
	return __builtin_ctzll(mask);
}

#endif
