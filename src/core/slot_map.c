/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers expert slots through the world. */
#include "slot_map.h"

#include <stdlib.h>
#include <string.h>

#include "range.h"

/* Slots of a rank when the caller did not say. */
static int32_t even_share(int32_t n_experts, int32_t n_ranks, int32_t rank)
{
	return n_experts / n_ranks + (rank < n_experts % n_ranks);
}

static enum ferry_status check(const char *what, const int32_t *expert_slots,
                               int32_t n_experts, int32_t n_ranks)
{
	int64_t sum = 0;

	FERRY_TRY(check_range(NULL, what, "n_ranks", n_ranks, 1,
	                      FERRY_MAX_RANKS));
	FERRY_TRY(check_range(NULL, what, "n_experts", n_experts, 1,
	                      FERRY_MAX_EXPERTS));
	for (int32_t r = 0; expert_slots && r < n_ranks; r++) {
		if (expert_slots[r] < 0)
			return ferry_fail(NULL, FERRY_RANGE,
			                  "%s: expert_slots[%d] is %d, "
			                  "allowed are 0..%d",
			                  what, r, expert_slots[r],
			                  FERRY_MAX_EXPERTS);
		sum += expert_slots[r];
	}
	if (expert_slots && (sum < 1 || sum > FERRY_MAX_EXPERTS))
		return ferry_fail(NULL, FERRY_RANGE,
		                  "%s: the sum of expert_slots is %lld, "
		                  "allowed are 1..%d",
		                  what, (long long)sum, FERRY_MAX_EXPERTS);
	return FERRY_OK;
}

enum ferry_status ferry_slot_map_init(struct ferry_slot_map *map,
                                      const char *what,
                                      const int32_t *expert_slots,
                                      int32_t n_experts, int32_t n_ranks)
{
	memset(map, 0, sizeof(*map));
	FERRY_TRY(check(what, expert_slots, n_experts, n_ranks));
	int32_t *first = malloc(((size_t)n_ranks + 1) * sizeof(*first));

	if (!first)
		return ferry_fail(NULL, FERRY_NOMEM, "%s: %d ranks", what,
		                  n_ranks);
	first[0] = 0;
	for (int32_t r = 0; r < n_ranks; r++) {
		const int32_t n = expert_slots
		                          ? expert_slots[r]
		                          : even_share(n_experts, n_ranks, r);

		first[r + 1] = first[r] + n;
		if (n > map->max_slots)
			map->max_slots = n;
	}
	map->n_ranks = n_ranks;
	map->n_slots = first[n_ranks];
	map->first_slot = first;
	map->slot_rank = malloc((size_t)map->n_slots * sizeof(int32_t));
	if (!map->slot_rank) {
		const int32_t n_slots = map->n_slots;

		ferry_slot_map_destroy(map);
		return ferry_fail(NULL, FERRY_NOMEM, "%s: %d expert slots",
		                  what, n_slots);
	}
	for (int32_t r = 0; r < n_ranks; r++)
		for (int32_t s = first[r]; s < first[r + 1]; s++)
			map->slot_rank[s] = r;
	return FERRY_OK;
}

void ferry_slot_map_destroy(struct ferry_slot_map *map)
{
	free(map->first_slot);
	free(map->slot_rank);
	memset(map, 0, sizeof(*map));
}
