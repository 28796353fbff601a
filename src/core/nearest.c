/* SPDX-License-Identifier: Apache-2.0 */
/* Edit distance between short names, and the nearest of a list. */
#include "nearest.h"

#include <ctype.h>
#include <string.h>

enum { LONGEST = 63 };

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

static int same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Damerau-Levenshtein, restricted: three rows of the table are enough. */
int ferry_edit_distance(const char *a, const char *b)
{
	const size_t n = strnlen(a, LONGEST);
	const size_t m = strnlen(b, LONGEST);
	int rows[3][LONGEST + 1];

	for (size_t j = 0; j <= m; j++)
		rows[0][j] = (int)j;
	for (size_t i = 1; i <= n; i++) {
		int *row = rows[i % 3];
		const int *up = rows[(i + 2) % 3];
		const int *upper = rows[(i + 1) % 3];

		row[0] = (int)i;
		for (size_t j = 1; j <= m; j++) {
			const int differ = !same(a[i - 1], b[j - 1]);

			row[j] = min_int(up[j - 1] + differ,
			                 min_int(up[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) &&
			    same(a[i - 2], b[j - 1]))
				row[j] = min_int(row[j], upper[j - 2] + 1);
		}
	}
	return rows[n % 3][m];
}

const char *ferry_nearest(const char *word, const char *const *names,
                          size_t n_names)
{
	const char *best = NULL;
	int best_distance = 0;

	for (size_t i = 0; i < n_names; i++) {
		const int distance = ferry_edit_distance(word, names[i]);
		const int third = (int)strnlen(names[i], LONGEST) / 3;

		if (distance > (third > 2 ? third : 2))
			continue;
		if (!best || distance < best_distance) {
			best = names[i];
			best_distance = distance;
		}
	}
	return best;
}
