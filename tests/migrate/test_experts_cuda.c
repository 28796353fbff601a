/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts on GPUs: every byte of all weights after random plans of both modes,
 * several of them in flight; a rank that dies between start and commit; and
 * what an expert takes, which is printed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/bits.h"
#include "core/clock.h"
#include "experts_lab.h"
#include "support/gpus.h"
#include "support/test_seed.h"

enum { STEPS = 24, TIMED = 40 };

static uint64_t seed;
static int32_t n_gpus;
static enum ranks_kind kind;

static struct ranks how_of(int32_t n_ranks, const void *arg)
{
	return (struct ranks){
		.kind = kind,
		.n_ranks = n_ranks,
		.device = FERRY_DEVICE_CUDA,
		.fabric = "p2p",
		.n_gpus = n_gpus,
		.open_timeout_ms = 60000,
		.limit_ms = 90000,
		.arg = (void *)(uintptr_t)arg,
	};
}

static void start(struct lab *lab, int32_t layer, uint64_t *rng)
{
	struct ferry_plan plan;

	lab_plan(ferry_experts_placement(lab->experts, layer), layer, rng, 3,
	         true, 2, &plan);
	RANKS_OK(ferry_experts_start(lab->experts, layer, &plan, NULL,
	                             rank_memory_stream(lab->gpu, 0)));
}

static void commit(struct lab *lab, int32_t layer)
{
	RANKS_OK(ferry_experts_commit(lab->experts, layer,
	                              rank_memory_stream(lab->gpu, 0), NULL,
	                              NULL));
}

static void check_all(struct lab *lab)
{
	rank_memory_sync(lab->gpu, rank_memory_stream(lab->gpu, 0));
	for (int32_t l = 0; l < lab->shape.n_layers; l++)
		lab_check(lab, l, ferry_experts_placement(lab->experts, l));
}

/* Layer 0 and 1 in flight together, committed in another order. */
static void random_plans(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	uint64_t rng = lab->shape.seed;

	for (int i = 0; i < STEPS; i++) {
		start(lab, 0, &rng);
		start(lab, 1, &rng);
		commit(lab, 1);
		commit(lab, 0);
		if (i % 6 == 5)
			check_all(lab);
	}
	const struct ferry_experts_stats stats = lab_stats(lab);

	RANKS_EQ(stats.n_committed, 2 * STEPS);
	if (rank->rank == 0)
		printf("# %d ranks, mode %d: %llu of %d plans held back\n",
		       rank->n_ranks, (int)lab->shape.mode,
		       (unsigned long long)stats.n_held_back, 2 * STEPS);
}

static void test_random_plans(void **state)
{
	static const int32_t threads[] = {2, 3, 5, 8, 0};
	static const int32_t processes[] = {2, 4, 0};
	const int32_t *worlds = kind == RANKS_THREADS ? threads : processes;

	(void)state;
	for (int32_t w = 0; worlds[w]; w++)
		for (int mode = 0; mode < 2; mode++) {
			struct lab_shape shape =
				lab_small(seed + (uint64_t)w,
			                  (enum ferry_experts_mode)mode);

			shape.n_staging = 24;
			shape.tensor_bytes[0] = 300001;
			const struct ranks how = how_of(worlds[w], &shape);

			ranks_run(&how, random_plans);
		}
}

static void dies(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	uint64_t rng = lab->shape.seed;
	bool staged = false;

	start(lab, 0, &rng);
	commit(lab, 0);
	const struct ferry_placement *const old =
		ferry_experts_placement(lab->experts, 0);

	start(lab, 0, &rng);
	while (!staged)
		RANKS_OK(ferry_experts_poll(lab->experts, 0, &staged));
	ranks_meet(1, rank->n_ranks);
	if (rank->rank == 1)
		ranks_die();
	RANKS_STATUS(ferry_experts_commit(lab->experts, 0,
	                                  rank_memory_stream(lab->gpu, 0), NULL,
	                                  NULL),
	             FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "rank 1");
	RANKS_CHECK(ferry_experts_placement(lab->experts, 0) == old);
	check_all(lab);
}

static void test_dies(void **state)
{
	(void)state;
	if (kind == RANKS_THREADS) /* none dies alone */
		skip();
	for (int mode = 0; mode < 2; mode++) {
		const struct lab_shape shape =
			lab_small(seed, (enum ferry_experts_mode)mode);
		struct ranks how = how_of(3, &shape);

		how.killed = RANKS_BIT(1);
		ranks_run(&how, dies);
	}
}

/* An expert of a model of 30e9 weights: 9.4 MB. Both ranks give one. */
static void timed(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	uint64_t staged_ns = 0, started_ns = 0, committed_ns = 0;

	for (int i = 0; i < TIMED; i++) {
		const struct ferry_plan plan = lab_one_swap(
			ferry_experts_placement(lab->experts, 0), 0);
		bool staged = false;

		RANKS_OK(ferry_world_barrier(rank->world));
		const uint64_t begin = ferry_now_ns();

		RANKS_OK(ferry_experts_start(lab->experts, 0, &plan, NULL,
		                             rank_memory_stream(lab->gpu, 0)));
		const uint64_t out = ferry_now_ns();

		while (!staged)
			RANKS_OK(ferry_experts_poll(lab->experts, 0, &staged));
		const uint64_t here = ferry_now_ns();

		commit(lab, 0);
		if (i < TIMED / 4) /* warming up */
			continue;
		started_ns += out - begin;
		staged_ns += here - begin;
		committed_ns += ferry_now_ns() - here;
	}
	const uint64_t n = 1000 * (TIMED - TIMED / 4);

	if (rank->rank == 0)
		printf("# mode %d, swap of experts of %zu bytes: start %llu "
		       "us, staged %llu us, commit %llu us\n",
		       (int)lab->shape.mode, lab->shape.tensor_bytes[0],
		       (unsigned long long)(started_ns / n),
		       (unsigned long long)(staged_ns / n),
		       (unsigned long long)(committed_ns / n));
	check_all(lab);
}

static void test_timed(void **state)
{
	(void)state;
	for (int mode = 0; mode < 2; mode++) {
		const struct lab_shape shape = {
			.seed = seed,
			.n_layers = 1,
			.n_experts = 4,
			.n_staging = 6,
			.mode = (enum ferry_experts_mode)mode,
			.n_tensors = 1,
			.tensor_bytes = {9437184},
		};
		const struct ranks how = how_of(2, &shape);

		ranks_run(&how, timed);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_plans),
		cmocka_unit_test(test_timed),
		cmocka_unit_test(test_dies),
	};
	char reason[GPUS_REASON];

	kind = argc > 1 && !strcmp(argv[1], "processes") ? RANKS_PROCESSES
	                                                 : RANKS_THREADS;
	seed = ranks_seed();
	n_gpus = gpus_count(reason);
	if (!n_gpus) {
		printf("skipped: no GPU: %s\n", reason);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
