/* SPDX-License-Identifier: Apache-2.0 */
/* The permutation that moves least, against all permutations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/placement.h>

#include "core/bits.h"
#include "test_seed.h"

enum { MAX_RANKS = 6, MAX_SLOTS = 64 };

static uint64_t seed;

static int32_t below(int32_t n)
{
	return (int32_t)(rng_next(&seed) % (uint64_t)n);
}

/* Slots of ranks, and experts in them, no expert twice on a rank. */
struct world {
	int32_t n_ranks, n_experts, n_slots;
	int32_t slots[MAX_RANKS], first[MAX_RANKS + 1];
};

static void random_world(struct world *w)
{
	const int32_t n_kinds = 1 + below(3);

	w->n_ranks = 1 + below(MAX_RANKS);
	w->n_slots = 0;
	for (int32_t r = 0; r < w->n_ranks; r++) {
		w->first[r] = w->n_slots;
		w->slots[r] = 3 + below(n_kinds);
		w->n_slots += w->slots[r];
	}
	w->first[w->n_ranks] = w->n_slots;
	w->n_experts = w->n_slots - below(w->n_slots / 2);
}

static bool holds(const int32_t *slots, int32_t n, int32_t expert)
{
	for (int32_t i = 0; i < n; i++)
		if (slots[i] == expert)
			return true;
	return false;
}

static void random_map(const struct world *w, int32_t *map)
{
	for (int32_t s = 0; s < w->n_slots; s++)
		map[s] = -1;
	for (int32_t e = 0; e < w->n_experts; e++) {
		int32_t s = below(w->n_slots);

		while (map[s] >= 0)
			s = (s + 1) % w->n_slots;
		map[s] = e;
	}
	for (int32_t r = 0; r < w->n_ranks; r++)
		for (int32_t i = 0; i < w->slots[r]; i++) {
			int32_t *const at = map + w->first[r];
			const int32_t e = below(w->n_experts);

			if (at[i] < 0 && below(4) && !holds(at, w->slots[r], e))
				at[i] = e;
		}
}

static struct ferry_placement *of(const struct world *w, const int32_t *map)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;

	c.n_experts = w->n_experts;
	c.n_ranks = w->n_ranks;
	c.expert_slots = w->slots;
	c.slot_expert = map;
	if (ferry_placement_create(&c, &p))
		fail_msg("%s", ferry_last_error());
	return p;
}

/* Experts that rank `to` lacks of what rank `rank` of target has. */
static int32_t n_lacking(const struct world *w, const int32_t *from, int32_t to,
                         const int32_t *target, int32_t rank)
{
	int32_t n = 0;

	for (int32_t i = 0; i < w->slots[rank]; i++) {
		const int32_t e = target[w->first[rank] + i];

		n += e >= 0 && !holds(from + w->first[to], w->slots[to], e);
	}
	return n;
}

/* All permutations that keep sizes, and ranks of one host together. */
struct search {
	const struct world *w;
	const int32_t *from, *target;
	int32_t per_node;
	int32_t becomes[MAX_RANKS];
};

static bool may_become(const struct search *s, int32_t rank, int32_t to)
{
	const int32_t node = rank / s->per_node;

	if (s->w->slots[to] != s->w->slots[rank])
		return false;
	for (int32_t r = 0; r < rank; r++) {
		const bool mates = r / s->per_node == node;
		const bool there =
			s->becomes[r] / s->per_node == to / s->per_node;

		if (s->becomes[r] == to || mates != there)
			return false;
	}
	return true;
}

/* Fewest moves of ranks from `rank` on. */
static int32_t fewest(struct search *s, int32_t rank)
{
	int32_t best = 1 << 20;

	if (rank == s->w->n_ranks)
		return 0;
	for (int32_t to = 0; to < s->w->n_ranks; to++) {
		if (!may_become(s, rank, to))
			continue;
		s->becomes[rank] = to;
		const int32_t n =
			n_lacking(s->w, s->from, to, s->target, rank) +
			fewest(s, rank + 1);

		best = n < best ? n : best;
	}
	return best;
}

static int32_t random_divisor(int32_t n)
{
	int32_t by;

	do
		by = 1 + below(n);
	while (n % by);
	return by;
}

static int by_number(const void *a, const void *b)
{
	return *(const int32_t *)a - *(const int32_t *)b;
}

/* A rank's experts, sorted, as a number to compare. */
static uint64_t content(const struct world *w, const int32_t *map, int32_t rank)
{
	int32_t sorted[MAX_SLOTS];
	const int32_t n = w->slots[rank];
	uint64_t h = hash_u64(0, (uint64_t)n);

	memcpy(sorted, map + w->first[rank], (size_t)n * sizeof(*sorted));
	qsort(sorted, (size_t)n, sizeof(*sorted), by_number);
	for (int32_t i = 0; i < n; i++)
		h = hash_u64(h, (uint64_t)sorted[i]);
	return h;
}

/* The ranks of `aligned` are those of target in another order. */
static void is_permuted(const struct world *w, const int32_t *target,
                        const int32_t *aligned)
{
	uint32_t taken = 0;

	for (int32_t r = 0; r < w->n_ranks; r++) {
		int32_t of = 0;

		while (of < w->n_ranks &&
		       (taken >> of & 1 ||
		        content(w, aligned, r) != content(w, target, of)))
			of++;
		assert_true(of < w->n_ranks);
		taken |= 1u << of;
	}
}

/* Who stays on its rank stays in its slot; who does not was counted. */
static void stays_in_its_slot(const struct world *w, const int32_t *from,
                              const int32_t *aligned, int32_t n_moved)
{
	for (int32_t r = 0; r < w->n_ranks; r++)
		for (int32_t i = 0; i < w->slots[r]; i++) {
			const int32_t s = w->first[r] + i;

			if (aligned[s] < 0 || aligned[s] == from[s])
				continue;
			assert_false(holds(from + w->first[r], w->slots[r],
			                   aligned[s]));
			n_moved--;
		}
	assert_int_equal(n_moved, 0);
}

static void moves_as_few_as_possible(void **state)
{
	int32_t from[MAX_SLOTS], target[MAX_SLOTS], aligned[MAX_SLOTS];
	struct world w;

	(void)state;
	for (int round = 0; round < 3000; round++) {
		int32_t n_moved = -1;

		random_world(&w);
		random_map(&w, from);
		random_map(&w, target);
		const int32_t n_nodes = random_divisor(w.n_ranks);
		struct search s = {.w = &w,
		                   .from = from,
		                   .target = target,
		                   .per_node = w.n_ranks / n_nodes};
		struct ferry_placement *const p = of(&w, from);

		assert_int_equal(ferry_placement_align_nodes(p, target, n_nodes,
		                                             aligned, &n_moved),
		                 FERRY_OK);
		assert_int_equal(n_moved, fewest(&s, 0));
		is_permuted(&w, target, aligned);
		stays_in_its_slot(&w, from, aligned, n_moved);
		ferry_placement_destroy(p);
	}
}

/* In place, and again: nothing changes any more. */
static void aligned_stays_aligned(void **state)
{
	int32_t from[MAX_SLOTS], target[MAX_SLOTS], aligned[MAX_SLOTS];
	struct world w;

	(void)state;
	for (int round = 0; round < 500; round++) {
		random_world(&w);
		random_map(&w, from);
		random_map(&w, target);
		struct ferry_placement *const p = of(&w, from);

		assert_int_equal(
			ferry_placement_align(p, target, aligned, NULL),
			FERRY_OK);
		for (int again = 0; again < 2; again++) {
			assert_int_equal(
				ferry_placement_align(p, target, target, NULL),
				FERRY_OK);
			assert_memory_equal(target, aligned,
			                    (size_t)w.n_slots *
			                            sizeof(*target));
		}
		ferry_placement_destroy(p);
	}
}

/* Ranks and slots shuffled: the old map is found again, whole. */
static void finds_itself(void **state)
{
	int32_t from[MAX_SLOTS], target[MAX_SLOTS];
	struct world w;

	(void)state;
	for (int round = 0; round < 500; round++) {
		int32_t n_moved = -1;

		random_world(&w);
		random_map(&w, from);
		memcpy(target, from, sizeof(target));
		for (int i = 0; i < 20; i++) {
			const int32_t a = below(w.n_ranks);
			const int32_t b = below(w.n_ranks);

			if (w.slots[a] != w.slots[b])
				continue;
			for (int32_t k = 0; k < w.slots[a]; k++) {
				const int32_t x = w.first[a] + k;
				const int32_t y =
					w.first[b] + (k + 1) % w.slots[b];
				const int32_t e = target[x];

				target[x] = target[y];
				target[y] = e;
			}
		}
		struct ferry_placement *const p = of(&w, from);

		assert_int_equal(
			ferry_placement_align(p, target, target, &n_moved),
			FERRY_OK);
		assert_int_equal(n_moved, 0);
		assert_memory_equal(target, from,
		                    (size_t)w.n_slots * sizeof(*from));
		ferry_placement_destroy(p);
	}
}

/* Nothing in common with any rank: ranks stay as they are in target. */
static void ties_stay(void **state)
{
	static const int32_t slots[] = {1, 1, 1, 1};
	static const int32_t from[] = {0, 1, 2, 3}, target[] = {4, 4, 4, 4};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;
	int32_t aligned[4], n_moved = 0;

	(void)state;
	c.n_experts = 4;
	c.n_ranks = 4;
	c.expert_slots = slots;
	c.slot_expert = from;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	assert_int_equal(ferry_placement_align(p, target, aligned, &n_moved),
	                 FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "target[0] is 4, experts "
	                                           "are 0..3"));
	static const int32_t empty[] = {-1, 2, -1, -1};
	static const int32_t want[] = {-1, -1, 2, -1};

	assert_int_equal(ferry_placement_align(p, empty, aligned, &n_moved),
	                 FERRY_OK);
	assert_int_equal(n_moved, 0);
	assert_memory_equal(aligned, want, sizeof(want));
	assert_int_equal(
		ferry_placement_align_nodes(p, empty, 3, aligned, NULL),
		FERRY_INVAL);
	assert_non_null(strstr(ferry_last_error(),
	                       "n_nodes is 3, which must divide n_ranks, 4"));
	assert_int_equal(
		ferry_placement_align_nodes(p, empty, 0, aligned, NULL),
		FERRY_INVAL);
	assert_int_equal(ferry_placement_align(NULL, from, aligned, NULL),
	                 FERRY_INVAL);
	assert_int_equal(ferry_placement_align(p, NULL, aligned, NULL),
	                 FERRY_INVAL);
	assert_int_equal(ferry_placement_align(p, from, NULL, NULL),
	                 FERRY_INVAL);
	assert_non_null(strstr(ferry_last_error(), "aligned is NULL"));
	ferry_placement_destroy(p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moves_as_few_as_possible),
		cmocka_unit_test(aligned_stays_aligned),
		cmocka_unit_test(finds_itself),
		cmocka_unit_test(ties_stay),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
