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

/* A wait of rank `waiter` that had patience_ms, 0: nothing, when it came. */
struct ferry_absence {
	const bool *absent;
	int32_t n_ranks;
	int32_t waiter;
	uint64_t patience_ms;
};

enum { FERRY_ABSENCE_BYTES = FERRY_RANK_LIST_BYTES + 80 };

/* Returns the rank to blame; -1: there are several. */
int32_t ferry_absence_text(char text[FERRY_ABSENCE_BYTES],
                           const struct ferry_absence *absence);

#endif
