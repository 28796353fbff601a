/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorts loads. These spread over several powers of two, so that a counting
 * sort by the leading four bits leaves little to do; a bucket that stays large
 * is merged.
 */
#include <string.h>

#include "bound_inner.h"

enum { N_BUCKETS = 512, RUN = 24 };

/* Rises with v: position of the leading bit, and the three bits after it. */
static int32_t bucket_of(int64_t v)
{
	if (v < 8)
		return (int32_t)v;
	const int32_t bit = 63 - __builtin_clzll((unsigned long long)v);

	return (bit - 2) * 8 + (int32_t)((v >> (bit - 3)) & 7);
}

static void insert(int64_t *key, int32_t begin, int32_t end)
{
	for (int32_t i = begin + 1; i < end; i++) {
		const int64_t k = key[i];
		int32_t j = i;

		for (; j > begin && key[j - 1] > k; j--)
			key[j] = key[j - 1];
		key[j] = k;
	}
}

/*
 * Exchanges neighbours that are out of order, those at even places, then those
 * at odd ones. Without a branch, which nobody could foresee.
 */
static void exchange_neighbours(int64_t *key, int32_t n)
{
	for (int32_t first = 0; first < 2; first++) {
		for (int32_t i = first; i + 1 < n; i += 2) {
			const int64_t a = key[i];
			const int64_t b = key[i + 1];

			key[i] = a < b ? a : b;
			key[i + 1] = a < b ? b : a;
		}
	}
}

/* Merges [begin, middle) and [middle, end) into the same places of to. */
static void merge_two(const int64_t *key, int32_t begin, int32_t middle,
                      int32_t end, int64_t *to)
{
	int32_t a = begin;
	int32_t b = middle;

	for (int32_t i = begin; i < end; i++)
		to[i] = b >= end || (a < middle && key[a] <= key[b]) ? key[a++]
		                                                     : key[b++];
}

static void merge(int64_t *key, int32_t begin, int32_t end, int64_t *spare)
{
	const size_t bytes = (size_t)(end - begin) * sizeof(*key);

	for (int64_t i = begin; i < end; i += RUN)
		insert(key, (int32_t)i, (int32_t)min_i64(i + RUN, end));
	for (int64_t width = RUN; width < end - begin; width *= 2) {
		for (int64_t i = begin; i < end; i += 2 * width)
			merge_two(key, (int32_t)i,
			          (int32_t)min_i64(i + width, end),
			          (int32_t)min_i64(i + 2 * width, end), spare);
		memcpy(key + begin, spare + begin, bytes);
	}
}

void ferry_bound_sort(int64_t *key, int32_t n, int64_t *to)
{
	int32_t end[N_BUCKETS] = {0};
	int32_t sum = 0;
	int32_t first = N_BUCKETS;
	int32_t last = 0;

	for (int32_t i = 0; i < n; i++) {
		const int32_t bucket = bucket_of(key[i]);

		end[bucket]++;
		first = bucket < first ? bucket : first;
		last = bucket > last ? bucket : last;
	}
	for (int32_t i = first; i <= last; i++) {
		const int32_t start = sum;

		sum += end[i];
		end[i] = start;
	}
	for (int32_t i = 0; i < n; i++)
		to[end[bucket_of(key[i])]++] = key[i];
	for (int32_t i = first, begin = 0; i <= last; begin = end[i++])
		if (end[i] - begin > RUN)
			merge(to, begin, end[i], key);
	/* The rest are short ways within buckets. */
	exchange_neighbours(to, n);
	exchange_neighbours(to, n);
	insert(to, 0, n);
}
