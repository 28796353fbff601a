/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planning allocates nothing: the linker leads every malloc, calloc and
 * realloc of the program here, where they are counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include <ferry/plan.h>

#include "core/bits.h"
#include "test_seed.h"

enum { RANKS = 8, OWN = 18, SPARE = 2, EXPERTS = RANKS * (OWN - SPARE) };

static uint64_t seed;
static int n_allocations;

/* Names that the linker gives. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
	n_allocations++;
	return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	n_allocations++;
	return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	n_allocations++;
	return __real_realloc(old, bytes);
}

static struct ferry_placement *make_placement(enum ferry_split split)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;
	int32_t expert_slots[RANKS], slot_expert[RANKS * OWN];
	int64_t quota[RANKS * OWN];
	int32_t next = 0;

	for (int32_t s = 0; s < RANKS * OWN; s++) {
		expert_slots[s / OWN] = OWN;
		slot_expert[s] = s % OWN < OWN - SPARE ? next++ : -1;
		quota[s] = 1;
	}
	c.n_experts = EXPERTS;
	c.n_ranks = RANKS;
	c.expert_slots = expert_slots;
	c.slot_expert = slot_expert;
	c.split = split;
	c.quota = split == FERRY_SPLIT_QUOTA ? quota : NULL;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	return p;
}

/* Plans of all kinds for one placement; the number of their moves. */
static int plan_all(struct ferry_planner *planner, struct ferry_plan_in *in)
{
	static struct ferry_plan plan = {.size = sizeof(plan)};
	int n_moves = 0;

	for (int kind = 0; kind < 24; kind++) {
		in->rule = (enum ferry_plan_rule)(kind % 3);
		in->max_swaps = kind & 4 ? 4 : 0;
		in->max_copies = kind & 8 ? SPARE : 0;
		in->spare_copies = in->thorough = in->tight_bound = kind & 16;
		assert_int_equal(ferry_plan_make(planner, in, &plan), FERRY_OK);
		n_moves += plan.n_moves;
	}
	return n_moves;
}

static void nothing_is_allocated(void **state)
{
	int64_t loads[EXPERTS], alpha[RANKS * RANKS], beta[RANKS * RANKS];
	struct ferry_cost cost = FERRY_COST_INIT;
	struct ferry_planner *planner = NULL;

	(void)state;
	for (int e = 0; e < EXPERTS; e++)
		loads[e] = (int64_t)(rng_next(&seed) >> 44 >> (e % 8));
	for (int i = 0; i < RANKS * RANKS; i++)
		alpha[i] = 5000, beta[i] = 3;
	cost.n_ranks = RANKS;
	cost.alpha_ns = alpha;
	cost.ps_per_byte = beta;
	cost.all_bytes = 9437184;
	assert_int_equal(
		ferry_planner_create(EXPERTS, RANKS * OWN, RANKS, &planner),
		FERRY_OK);
	assert_true(n_allocations > 0); /* they are seen */
	for (int i = 0; i < 6; i++) {
		struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
		struct ferry_placement *p =
			make_placement((enum ferry_split)(i % 3));

		in.placement = p;
		in.loads = loads;
		in.cost = i / 3 ? &cost : NULL;
		in.window_ns = i / 3 ? 200000 : 0;
		n_allocations = 0;
		assert_in_range(plan_all(planner, &in), 24, 24 * 256);
		assert_int_equal(n_allocations, 0);
		ferry_placement_destroy(p);
	}
	ferry_planner_destroy(planner);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_allocated),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
