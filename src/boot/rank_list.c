/* SPDX-License-Identifier: Apache-2.0 */
/* Words a set of ranks. */
#include "rank_list.h"

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
