/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks in a message: "rank 3", "ranks 1, 4..7 and 9". */
#ifndef FERRY_RANK_LIST_H
#define FERRY_RANK_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FERRY_RANK_LIST_BYTES = 160 };

/* Names every rank r with listed[r]; ends in "..." when they are too many. */
void ferry_rank_list(char text[FERRY_RANK_LIST_BYTES], const bool *listed,
                     int32_t n_ranks);

#endif
