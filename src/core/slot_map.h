/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rank owns which expert slot. Slots are numbered through the world in
 * rank order; placements and channels share this map.
 */
#ifndef FERRY_SLOT_MAP_H
#define FERRY_SLOT_MAP_H

#include <ferry/placement.h>

struct ferry_slot_map {
	int32_t n_ranks;
	int32_t n_slots;
	int32_t max_slots;   /* most slots of any rank */
	int32_t *first_slot; /* [n_ranks + 1] */
	int32_t *slot_rank;  /* [n_slots] */
};

/*
 * expert_slots NULL: n_experts slots, as even as possible, the first ranks one
 * more. `what` names the caller's struct in a refusal. Errors: RANGE, NOMEM.
 */
enum ferry_status ferry_slot_map_init(struct ferry_slot_map *map,
                                      const char *what,
                                      const int32_t *expert_slots,
                                      int32_t n_experts, int32_t n_ranks);
void ferry_slot_map_destroy(struct ferry_slot_map *map);

#endif
