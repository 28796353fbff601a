/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads fitted to placements that EPLB made from loads that are not known. The
 * files: NAME-SLOTS-GROUPS-NODES-RANKS-TASK.jsonl, {"phy2log": [layers][slots]}
 * in the first line.
 */
#ifndef FERRY_ROUTE_MAPS_H
#define FERRY_ROUTE_MAPS_H

#include "route_parts.h"

/* A step for each task that has a map with as many slots as experts. */
bool route_maps(const char *folder, int32_t n_experts, struct route *route,
                char *note, size_t n_note, struct fault *fault);

/* A placement: the expert in each slot, of each layer. */
struct route_map {
	char task[ROUTE_NAME_BYTES];
	int32_t n_layers, n_slots, n_ranks;
	int32_t *experts; /* [n_layers][n_slots] */
};

/* Parses one; experts are 0..n_experts-1 (else it is refused), to be freed. */
bool route_map_read(const struct route_bytes *in, int32_t n_experts,
                    struct route_map *map, struct fault *fault);

#endif
