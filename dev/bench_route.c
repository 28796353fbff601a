/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of the layout function: nanoseconds per choice and per row that
 * arrives, uniform routing without duplicates. Least and median of runs that
 * take the ranks in turn, so that no branch is learnt by heart.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/bits.h"
#include "core/clock.h"
#include "proto/layout.h"

enum { RUNS = 256, MAX_RANKS = 128 };

static const struct {
	int32_t n_ranks, tokens, topk, experts;
} shapes[] = {
	{2, 128, 8, 64},    {8, 128, 8, 256},   {128, 128, 8, 256},
	{128, 128, 8, 512}, {2, 4096, 8, 64},   {8, 4096, 8, 256},
	{8, 4096, 8, 8},    {8, 4096, 16, 256},
};

static int by_time(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static bool holds(const int32_t *ids, int32_t n, int32_t id)
{
	for (int32_t i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

/* topk different slots for each token; experts are at least as many. */
static struct ferry_table *table_of(const struct ferry_shape *s, uint64_t *seed)
{
	struct ferry_table *const t = calloc(1, s->table_bytes);

	if (!t)
		exit(1);
	t->n_tokens = s->max_tokens;
	t->topk = s->topk;
	int32_t *ids = ferry_table_slots(t);

	for (int32_t token = 0; token < t->n_tokens; token++, ids += s->topk)
		for (int32_t k = 0; k < s->topk; k++)
			do
				ids[k] = (int32_t)(rng_next(seed) %
				                   (uint64_t)s->n_expert_slots);
			while (holds(ids, k, ids[k]));
	return t;
}

static void measure(const struct ferry_shape *s)
{
	static const struct ferry_table *tables[MAX_RANKS];
	static uint64_t ns[RUNS];
	struct ferry_route route;
	uint64_t seed = 1;
	int64_t n_copies = 0;

	for (int32_t r = 0; r < s->n_ranks; r++)
		tables[r] = table_of(s, &seed);
	if (ferry_route_init(&route, s))
		exit(1);
	for (int i = 0; i < RUNS; i++) {
		const uint64_t begin = ferry_now_ns();

		if (ferry_route_build(&route, s, tables, i % s->n_ranks))
			exit(1);
		ns[i] = ferry_now_ns() - begin;
		n_copies += route.n_copies;
	}
	qsort(ns, RUNS, sizeof(*ns), by_time);
	const uint64_t median = ns[RUNS / 2];
	const double choices = (double)s->n_ranks * s->max_tokens * s->topk;

	printf("%4d x %4d x %2d of %3d: least %7.1f us, median %7.1f us, "
	       "%.2f ns per choice, %.1f ns per row\n",
	       s->n_ranks, s->max_tokens, s->topk, s->n_expert_slots,
	       (double)ns[0] / 1e3, (double)median / 1e3,
	       (double)median / choices,
	       (double)median * RUNS / (double)n_copies);
	ferry_route_destroy(&route);
	for (int32_t r = 0; r < s->n_ranks; r++)
		free((void *)(uintptr_t)tables[r]);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;
		struct ferry_shape s;

		c.max_tokens = shapes[i].tokens;
		c.hidden = 7168;
		c.topk = shapes[i].topk;
		c.n_experts = shapes[i].experts;
		c.layout = FERRY_EXPERT_PACKED;
		if (ferry_shape_init(&s, &c, shapes[i].n_ranks, 0))
			return 1;
		measure(&s);
		ferry_shape_destroy(&s);
	}
	return 0;
}
