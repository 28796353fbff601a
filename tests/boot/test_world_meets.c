/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds of threads and of processes meet, exchange, and close, up to 16
 * ranks; the next world of the same ranks meets at the same place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "support/ranks.h"

enum { BIG = 100000, N_ROUNDS = 50 };

static void exchange(struct rank *rank, size_t bytes)
{
	const size_t n = (size_t)rank->n_ranks;
	uint8_t *in = malloc(bytes);
	uint8_t *out = malloc(bytes * n);
	uint8_t *want = malloc(bytes * n);

	ranks_defer(free, in);
	ranks_defer(free, out);
	ranks_defer(free, want);
	for (size_t r = 0; r < n; r++)
		memset(want + r * bytes, (int)(r * 7 + bytes), bytes);
	memset(in, (int)((size_t)rank->rank * 7 + bytes), bytes);
	RANKS_OK(ferry_world_allgather(rank->world, in, out, bytes));
	RANKS_BYTES(out, want, bytes * n);
}

static void many_rounds(struct rank *rank)
{
	for (int i = 0; i < N_ROUNDS; i++) {
		int32_t mine = rank->rank * 1000 + i;
		int32_t all[RANKS_MAX];

		RANKS_OK(ferry_world_allgather(rank->world, &mine, all,
		                               sizeof(mine)));
		for (int32_t r = 0; r < rank->n_ranks; r++)
			RANKS_EQ(all[r], r * 1000 + i);
		RANKS_OK(ferry_world_barrier(rank->world));
	}
	exchange(rank, 1);
	exchange(rank, BIG);
	exchange(rank, 1 << 20);
}

static void on_all_kinds(ranks_body *body, int32_t n_ranks)
{
	ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n_ranks = n_ranks},
	          body);
	ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n_ranks = n_ranks},
	          body);
}

static void test_many_rounds(void **state)
{
	(void)state;
	on_all_kinds(many_rounds, 1);
	on_all_kinds(many_rounds, 3);
}

static void few_rounds(struct rank *rank)
{
	RANKS_EQ(ferry_world_rank(rank->world), rank->rank);
	RANKS_EQ(ferry_world_size(rank->world), rank->n_ranks);
	RANKS_EQ(ferry_world_nodes(rank->world), 1);
	exchange(rank, 8);
}

static void test_16_ranks(void **state)
{
	(void)state;
	on_all_kinds(few_rounds, 16);
}

static void again_and_again(struct rank *rank)
{
	(void)rank;
	for (int i = 0; i < 20; i++) {
		struct ferry_world_config config;
		struct ferry_world *world;

		ranks_config(&config);
		RANKS_OK(ferry_world_open(&config, &world));
		/* Some leave at once, while others are still on their way. */
		if (i % 2)
			RANKS_OK(ferry_world_barrier(world));
		ferry_world_close(world);
	}
}

static void test_worlds_in_turn(void **state)
{
	(void)state;
	for (int kind = RANKS_THREADS; kind <= RANKS_PROCESSES; kind++)
		ranks_run(&(struct ranks){.kind = (enum ranks_kind)kind,
		                          .n_ranks = 3,
		                          .no_world = true},
		          again_and_again);
}

static void two_at_once(struct rank *rank)
{
	struct ferry_world_config config;
	struct ferry_world *second;
	int32_t all[RANKS_MAX];

	ranks_config(&config);
	RANKS_OK(ferry_world_open(&config, &second));
	RANKS_OK(ferry_world_allgather(second, &rank->rank, all, 4));
	RANKS_EQ(all[rank->n_ranks - 1], rank->n_ranks - 1);
	RANKS_OK(ferry_world_barrier(rank->world));
	ferry_world_close(second);
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_worlds_at_once(void **state)
{
	(void)state;
	on_all_kinds(two_at_once, 3);
}

/* What a barrier told is what the world's first failure is from then on. */
static void first_failure_is(struct rank *rank, enum ferry_status status,
                             int32_t root)
{
	struct ferry_error error = FERRY_ERROR_INIT;
	int32_t all[RANKS_MAX];

	RANKS_OK(ferry_world_poll(rank->world, &error));
	RANKS_EQ(error.root_rank, -1);
	RANKS_STATUS(ferry_world_barrier(rank->world), status);
	for (int i = 0; i < 2; i++) {
		RANKS_STATUS(ferry_world_poll(rank->world, &error), status);
		RANKS_STATUS(error.status, status);
		RANKS_EQ(error.root_rank, root);
		RANKS_EQ(error.rank, rank->rank);
		RANKS_TEXT(error.text, ferry_last_error());
		RANKS_STATUS(ferry_world_allgather(rank->world, &rank->rank,
		                                   all, sizeof(*all)),
		             status);
	}
}

static void dies(struct rank *rank)
{
	if (rank->rank == 1)
		ranks_die();
	first_failure_is(rank, FERRY_PEER, 1);
	ranks_meet(0, 2);
}

static void does_not_come(struct rank *rank)
{
	if (rank->rank != 2)
		first_failure_is(rank, FERRY_TIMEOUT, 2);
	ranks_meet(0, rank->n_ranks);
}

static void aborts(struct rank *rank)
{
	if (rank->rank == 1)
		ferry_world_abort(rank->world);
	else
		first_failure_is(rank, FERRY_ABORTED, 1);
	ranks_meet(0, rank->n_ranks);
}

/* Arguments that are refused end nothing. */
static void is_refused(struct rank *rank)
{
	struct ferry_error error = FERRY_ERROR_INIT;

	RANKS_STATUS(ferry_world_allgather(rank->world, NULL, NULL, 1),
	             FERRY_INVAL);
	RANKS_OK(ferry_world_poll(rank->world, &error));
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_poll_tells_of_meetings(void **state)
{
	static const struct {
		ranks_body *body;
		uint64_t killed;
		int32_t open_timeout_ms;
	} cases[] = {{dies, RANKS_BIT(1), 0},
	             {does_not_come, 0, 300},
	             {aborts, 0, 0},
	             {is_refused, 0, 0}};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++)
		ranks_run(&(struct ranks){.kind = i % 2 ? RANKS_PROCESSES
		                                        : RANKS_THREADS,
		                          .n_ranks = 3,
		                          .killed = cases[i / 2].killed,
		                          .open_timeout_ms =
		                                  cases[i / 2].open_timeout_ms},
		          cases[i / 2].body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_rounds),
		cmocka_unit_test(test_16_ranks),
		cmocka_unit_test(test_worlds_in_turn),
		cmocka_unit_test(test_worlds_at_once),
		cmocka_unit_test(test_poll_tells_of_meetings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
