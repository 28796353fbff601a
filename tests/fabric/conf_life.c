/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance: closing while others are at work, and opening and closing many
 * times without anything being left.
 */
#include <stdio.h>
#include <string.h>

#include "conformance.h"
#include "descriptors.h"

/* Whoever is done closes; what the others still write harms nobody. */
static void close_while_others_write(struct rank *rank)
{
	enum { TIMES = 6, PUTS = 150, BYTES = 4096 };
	const size_t offset = (size_t)(rank->rank + 1) * BYTES;
	struct ferry_segment *s;

	for (int32_t i = 0; i < TIMES; i++) {
		RANKS_OK(ferry_segment_open(rank->world, 65536, 1, &s));
		const uint8_t *base = ferry_segment_base(s);

		for (int32_t p = 0; p < PUTS; p++) {
			if (rank->rank == i % rank->n_ranks && p > i)
				break;
			for (int32_t r = 0; r < rank->n_ranks; r++)
				RANKS_OK(ferry_segment_put(s, r, offset, base,
				                           BYTES, 0));
		}
		ferry_segment_close(s);
	}
}

/* A rank that leaves in good order leaves the others at peace. */
static void leave_early(struct rank *rank)
{
	struct ferry_segment *s = NULL;
	const int32_t n = rank->n_ranks;

	RANKS_OK(ferry_segment_open(rank->world, 8, 2, &s));
	if (rank->rank == 0) {
		conf_signal(s, n - 1, 0);
		ferry_segment_close(s);
		return;
	}
	conf_sleep_ms(rank->rank * 10);
	conf_signal(s, n - 1, 1);
	if (rank->rank == n - 1) {
		conf_wait(s, 1, (uint64_t)n - 1);
		conf_wait(s, 0, 1);
	}
	ferry_segment_close(s);
}

static int count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	char line[4096];
	int n = 0;

	while (file && fgets(line, sizeof(line), file))
		n++;
	if (file)
		fclose(file);
	return n;
}

static void open_and_close(struct rank *rank, int times)
{
	for (int i = 0; i < times; i++) {
		struct ferry_segment *s = NULL;

		RANKS_OK(ferry_segment_open(rank->world, 10000, 3, &s));
		conf_signal(s, (rank->rank + 1) % rank->n_ranks, 1);
		conf_wait(s, 1, 1);
		ferry_segment_close(s);
	}
}

struct usage {
	int n_descriptors;
	int n_mappings;
};

/* While nobody else of the process is at it: counting opens files, too. */
static struct usage count(struct rank *rank)
{
	struct usage usage = {0, 0};

	RANKS_OK(ferry_world_barrier(rank->world));
	if (rank->kind == RANKS_PROCESSES || rank->rank == 0) {
		usage.n_descriptors = descriptors_count();
		usage.n_mappings = count_mappings();
	}
	RANKS_OK(ferry_world_barrier(rank->world));
	return usage;
}

/* A runtime of threads or sanitizers may keep a few mappings of its own. */
static void nothing_is_left(struct rank *rank)
{
	enum { TIMES = RANKS_STEPS(1000), SOME = 40 };

	open_and_close(rank, 20);
	const struct usage before = count(rank);

	open_and_close(rank, TIMES);
	const struct usage after = count(rank);

	RANKS_EQ(after.n_descriptors, before.n_descriptors);
	RANKS_CHECK(after.n_mappings <= before.n_mappings + SOME);
}

const struct conf_case conf_life_cases[] = {
	{"close_while_others_write",
         close_while_others_write,
         {1, 2, 4},
         false},
	{"leave_early", leave_early, {2, 5}, false},
	{"nothing_is_left", nothing_is_left, {2}, true},
	{NULL, NULL, {0}, false},
};
