/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank is killed while kernels of its peers use its memory: these end as if
 * nothing had happened, the survivors' contexts live, and their segments say
 * who died. On this stands everything about failures on GPUs: memory must not
 * go before the last who has mapped it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include <cuda_runtime_api.h>

#include "core/clock.h"
#include "p2p_kernels.h"
#include "p2p_ranks.h"

enum {
	WORDS = 1 << 16,    /* of every rank in a window */
	STORE_US = 1500000, /* the death comes in the midst of it */
	ROUNDS = 20,
};

static struct ferry_segment *open_segment(struct rank *rank)
{
	CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
	return p2p_open(rank, (size_t)rank->n_ranks * WORDS * 8, 2);
}

/* Where rank `from` stores in the window of `owner`. */
static uint64_t *area(struct ferry_segment *s, int32_t owner, int32_t from)
{
	return (uint64_t *)ferry_segment_ptr(s, owner) + from * WORDS;
}

static uint64_t *new_rounds(void)
{
	uint64_t *rounds = NULL;

	CUDA_OK(cudaHostAlloc((void **)&rounds, sizeof(*rounds),
	                      cudaHostAllocMapped));
	*rounds = 0;
	return rounds;
}

/* Until the kernel has stored n times, at most 10 s. */
static void wait_rounds(const volatile uint64_t *rounds, uint64_t n)
{
	const uint64_t end = ferry_deadline_ns(10000);

	while (*rounds < n)
		if (ferry_now_ns() > end)
			RANKS_FAIL("the kernel does not get on: %d of %d",
			           (int)*rounds, (int)n);
}

/* Whatever a program does with CUDA still works. */
static void context_lives(uint64_t *window)
{
	uint64_t *word = NULL, differs = 0;

	CUDA_OK(cudaGetLastError());
	CUDA_OK(cudaMalloc((void **)&word, 8));
	CUDA_OK(p2p_store(word, 1, 3));
	CUDA_OK(p2p_compare(word, 1, 3, &differs));
	RANKS_EQ(differs, 1);
	CUDA_OK(cudaFree(word));
	CUDA_OK(p2p_store(window, WORDS, 4));
	CUDA_OK(p2p_compare(window, WORDS, 4, &differs));
	RANKS_EQ(differs, WORDS);
	CUDA_OK(cudaDeviceSynchronize());
}

static void expect_death(struct rank *rank, struct ferry_segment *s,
                         int32_t victim)
{
	struct ferry_error error = FERRY_ERROR_INIT;
	char text[64];

	const uint64_t begin = ferry_now_ns();

	/* Signal 1 is never raised. */
	RANKS_STATUS(ferry_segment_wait(s, 1, 1), FERRY_PEER);
	printf("# rank %d of %d knew of the death after %.1f ms\n", rank->rank,
	       rank->n_ranks, (double)(ferry_now_ns() - begin) / 1e6);
	snprintf(text, sizeof(text), "rank %d", victim);
	RANKS_TEXT(ferry_last_error(), text);
	RANKS_STATUS(ferry_world_poll(rank->world, &error), FERRY_PEER);
	RANKS_EQ(error.root_rank, victim);
	RANKS_STATUS(ferry_segment_signal(s, 0, 0), FERRY_BROKEN);
}

/* The last rank dies; kernels of all others store into its memory. */
static void stores_outlive_the_owner(struct rank *rank)
{
	const int32_t victim = rank->n_ranks - 1;
	struct ferry_segment *s = open_segment(rank);
	uint64_t *window = area(s, victim, rank->rank);
	uint64_t differs = 0;

	if (rank->rank == victim) {
		RANKS_OK(ferry_segment_wait(s, 0, (uint64_t)victim));
		ranks_die();
	}
	uint64_t *rounds = new_rounds();

	CUDA_OK(p2p_store_for(window, WORDS, STORE_US, rounds));
	wait_rounds(rounds, 2);
	RANKS_OK(ferry_segment_signal(s, victim, 0));
	expect_death(rank, s, victim);
	const uint64_t at_death = *(volatile uint64_t *)rounds;

	RANKS_EQ(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
	wait_rounds(rounds, at_death + ROUNDS);
	CUDA_OK(p2p_sync());
	CUDA_OK(p2p_compare(window, WORDS, ~UINT64_C(0), &differs));
	RANKS_EQ(differs, WORDS);
	context_lives(window);
}

/* The one that dies is the one whose kernel stores. */
static void owner_outlives_the_stores(struct rank *rank)
{
	const int32_t victim = rank->n_ranks - 1;
	struct ferry_segment *s = open_segment(rank);

	if (rank->rank == victim) {
		uint64_t *rounds = new_rounds();

		for (int32_t r = 0; r < victim; r++)
			CUDA_OK(p2p_store_for(area(s, r, victim), WORDS,
			                      STORE_US, rounds));
		wait_rounds(rounds, 2);
		ranks_die();
	}
	expect_death(rank, s, victim);
	context_lives(area(s, rank->rank, rank->rank));
}

/* What a rank opens anew after a death, alone, works. */
static void opens_anew(struct rank *rank)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world = NULL;
	struct ferry_segment *s = NULL;
	struct ferry_team *team = NULL;

	stores_outlive_the_owner(rank);
	RANKS_OK(ferry_team_create(1, &team));
	config.team = team;
	config.device = FERRY_DEVICE_CUDA;
	config.cuda_device = p2p_gpu(rank->rank) + 1;
	RANKS_OK(ferry_world_open(&config, &world));
	RANKS_OK(ferry_segment_open(world, WORDS * 8, 1, &s));
	context_lives(ferry_segment_base(s));
	RANKS_OK(ferry_segment_put(s, 0, 0, ferry_segment_base(s), 64, 0));
	RANKS_OK(ferry_segment_wait(s, 0, 1));
	ferry_segment_close(s);
	ferry_world_close(world);
	ferry_team_destroy(team);
}

static void run(int32_t n_ranks, ranks_body *body)
{
	struct ranks how = p2p_ranks(n_ranks);

	how.killed = RANKS_BIT(n_ranks - 1);
	ranks_run(&how, body);
}

static void test_stores_outlive_the_owner(void **state)
{
	(void)state;
	run(2, stores_outlive_the_owner);
	run(4, stores_outlive_the_owner);
}

static void test_owner_outlives_the_stores(void **state)
{
	(void)state;
	run(2, owner_outlives_the_stores);
	run(4, owner_outlives_the_stores);
}

static void test_opens_anew(void **state)
{
	(void)state;
	run(2, opens_anew);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stores_outlive_the_owner),
		cmocka_unit_test(test_owner_outlives_the_stores),
		cmocka_unit_test(test_opens_anew),
	};
	const int skip = p2p_begin(argc, argv);

	if (skip)
		return skip;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
