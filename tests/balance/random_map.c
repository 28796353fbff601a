/* SPDX-License-Identifier: Apache-2.0 */
/* See random_map.h. */
#include "random_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/bits.h"

static int32_t below(uint64_t *seed, int32_t n)
{
	return (int32_t)(rng_next(seed) % (uint64_t)n);
}

struct map {
	int32_t n_ranks;
	int32_t n_experts;
	int32_t *slots; /* [n_ranks] */
	int32_t *first; /* [n_ranks] */
	int32_t *expert;
};

static bool has(const struct map *m, int32_t rank, int32_t expert)
{
	for (int32_t i = 0; i < m->slots[rank]; i++)
		if (m->expert[m->first[rank] + i] == expert)
			return true;
	return false;
}

/* Every expert once, in the first slot that is free from a random one on. */
static void place_experts(struct map *m, int32_t n_slots, uint64_t *seed)
{
	for (int32_t e = 0; e < m->n_experts; e++) {
		int32_t s = below(seed, n_slots);

		while (m->expert[s] >= 0)
			s = (s + 1) % n_slots;
		m->expert[s] = e;
	}
}

/* Copies into the free slots, where that is legal; some stay empty. */
static void place_copies(struct map *m, uint64_t *seed)
{
	for (int32_t r = 0; r < m->n_ranks; r++)
		for (int32_t i = 0; i < m->slots[r]; i++) {
			const int32_t e = below(seed, m->n_experts);

			if (m->expert[m->first[r] + i] < 0 && !has(m, r, e))
				m->expert[m->first[r] + i] = e;
		}
}

struct ferry_placement *random_map(uint64_t *seed, int32_t n_ranks,
                                   enum ferry_split split)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct map m = {.n_ranks = n_ranks};
	struct ferry_placement *p = NULL;
	const size_t n = (size_t)n_ranks;
	int32_t n_slots = 0;

	m.slots = malloc(2 * n * sizeof(int32_t));
	m.expert = malloc(n * RANDOM_MAP_SLOTS * sizeof(int32_t));
	assert_non_null(m.slots);
	assert_non_null(m.expert);
	m.first = m.slots + n;
	for (int32_t r = 0; r < n_ranks; r++) {
		m.first[r] = n_slots;
		m.slots[r] = 1 + below(seed, RANDOM_MAP_SLOTS);
		n_slots += m.slots[r];
	}
	for (int32_t s = 0; s < n_slots; s++)
		m.expert[s] = -1;
	m.n_experts = 1 + below(seed, n_slots);
	place_experts(&m, n_slots, seed);
	place_copies(&m, seed);
	c.n_experts = m.n_experts;
	c.n_ranks = n_ranks;
	c.expert_slots = m.slots;
	c.slot_expert = m.expert;
	c.split = split;
	if (ferry_placement_create(&c, &p))
		fail_msg("%s", ferry_last_error());
	free(m.slots);
	free(m.expert);
	return p;
}
