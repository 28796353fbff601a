/* SPDX-License-Identifier: Apache-2.0 */
/* Words a set of ranks. */
#include "rank_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ferry_rank_list(char text[FERRY_RANK_LIST_BYTES], const bool *listed,
                     int32_t n_ranks)
{
	char list[FERRY_RANK_LIST_BYTES] = "";
	size_t n = 0;
	int32_t n_listed = 0;

	for (int32_t first = 0, end; first < n_ranks; first = end + 1) {
		char part[32];

		for (end = first; end < n_ranks && listed[end]; end++)
			n_listed++;
		if (end == first)
			continue;
		if (end == first + 1)
			snprintf(part, sizeof(part), "%d", first);
		else
			snprintf(part, sizeof(part), "%d..%d", first, end - 1);
		/* Room for ", ", ", ..." and the word before the list. */
		if (n + strlen(part) + 16 > sizeof(list)) {
			strcpy(list + n, ", ...");
			break;
		}
		n += (size_t)sprintf(list + n, "%s%s", n ? ", " : "", part);
	}
	snprintf(text, FERRY_RANK_LIST_BYTES, "rank%s %s",
	         n_listed == 1 ? "" : "s", list);
}

/* The rank that alone is absent, or -1. */
static int32_t only(const struct ferry_absence *absence)
{
	int32_t rank = -1, n = 0;

	for (int32_t r = 0; r < absence->n_ranks; r++)
		if (absence->absent[r]) {
			rank = r;
			n++;
		}
	return n == 1 ? rank : -1;
}

int32_t ferry_absence_text(char text[FERRY_ABSENCE_BYTES],
                           const struct ferry_absence *absence)
{
	char list[FERRY_RANK_LIST_BYTES];

	ferry_rank_list(list, absence->absent, absence->n_ranks);
	if (absence->patience_ms)
		snprintf(text, FERRY_ABSENCE_BYTES,
		         "boot: %s did not come within %" PRIu64 " ms", list,
		         absence->patience_ms);
	else
		snprintf(text, FERRY_ABSENCE_BYTES,
		         "boot: rank %d came when its time was over, before %s",
		         absence->waiter, list);
	return absence->patience_ms ? only(absence) : absence->waiter;
}
