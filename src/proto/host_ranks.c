/* SPDX-License-Identifier: Apache-2.0 */
/* See host_ranks.h. */
#include "host_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "../core/ctx.h"

/* Numbers hosts in the order of their first ranks; returns how many. */
static int32_t number_hosts(struct ferry_hosts *h, const uint64_t *ids,
                            int32_t n_ranks)
{
	int32_t n = 0;

	for (int32_t r = 0; r < n_ranks; r++) {
		int32_t first = 0;

		while (ids[first] != ids[r])
			first++;
		h->of[r] = first == r ? n++ : h->of[first];
	}
	return n;
}

/* Lists the ranks of each host, ascending. */
static void list_ranks(struct ferry_hosts *h, int32_t n_ranks)
{
	int32_t at = 0;

	h->fewest_ranks = n_ranks;
	for (int32_t host = 0; host < h->n; host++) {
		h->first[host] = at;
		for (int32_t r = 0; r < n_ranks; r++) {
			if (h->of[r] != host)
				continue;
			h->place[r] = at - h->first[host];
			h->ranks[at++] = r;
		}
		const int32_t n = at - h->first[host];

		if (n > h->most_ranks)
			h->most_ranks = n;
		if (n < h->fewest_ranks)
			h->fewest_ranks = n;
	}
	h->first[h->n] = at;
}

enum ferry_status ferry_hosts_init(struct ferry_hosts *hosts,
                                   const uint64_t *ids, int32_t n_ranks,
                                   int32_t rank)
{
	const size_t n = (size_t)n_ranks;
	/* of, place, ranks, far, first */
	int32_t *const block = calloc(5 * n + 1, sizeof(*block));
	struct ferry_hosts h = {.of = block};

	if (!block)
		return ferry_fail(NULL, FERRY_NOMEM, "hosts: %d ranks",
		                  n_ranks);
	h.place = block + n;
	h.ranks = block + 2 * n;
	h.far = block + 3 * n;
	h.first = block + 4 * n;
	h.n = number_hosts(&h, ids, n_ranks);
	h.own = h.of[rank];
	list_ranks(&h, n_ranks);
	for (int32_t r = 0, far = 0; r < n_ranks; r++)
		h.far[r] = h.of[r] == h.own ? far : far++;
	if (h.most_ranks > FERRY_MAX_HOST_RANKS) {
		free(block);
		return ferry_fail(NULL, FERRY_UNSUPPORTED,
		                  "hosts: a host has %d ranks, allowed are %d",
		                  h.most_ranks, FERRY_MAX_HOST_RANKS);
	}
	*hosts = h;
	return FERRY_OK;
}

void ferry_hosts_destroy(struct ferry_hosts *hosts)
{
	free(hosts->of);
	memset(hosts, 0, sizeof(*hosts));
}
