/* SPDX-License-Identifier: Apache-2.0 */
/* Random placements with replicas, empty slots and uneven ranks. */
#ifndef RANDOM_MAP_H
#define RANDOM_MAP_H

#include <ferry/placement.h>

enum { RANDOM_MAP_SLOTS = 8 }; /* most of one rank */

/*
 * A placement of 1..8 * n_ranks experts on n_ranks ranks. *seed is that of
 * core/bits.h. Fails the cmocka test where it cannot be built.
 */
struct ferry_placement *random_map(uint64_t *seed, int32_t n_ranks,
                                   enum ferry_split split);

#endif
