/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank with another version of the library, or with another build of its
 * structs: every rank is told which, and nobody opens. What a rank says of
 * itself is changed on its way, in an allgather of the test's own.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fabric/world.h"
#include "ranks.h"

enum { N_RANKS = 3, MAX_BYTES = 8192, LIAR = 2 };

enum lie { ANOTHER_VERSION, ANOTHER_ABI };

/* Where the ranks meet, in memory that they share. */
struct hall {
	pthread_barrier_t barrier;
	uint8_t bytes[N_RANKS * MAX_BYTES];
};

struct guest {
	struct hall *hall;
	int32_t rank;
	enum lie lie;
	int n_lies;
};

/* A place holds pid and version beside each other, and then the hash. */
static void tell_lies(struct guest *g, uint8_t *said, size_t bytes)
{
	const int32_t truth[2] = {(int32_t)getpid(), FERRY_VERSION};
	uint8_t *at = memmem(said, bytes, truth, sizeof(truth));
	const int32_t version = 20304;

	if (at == NULL)
		return;
	at -= offsetof(struct ferry_place, pid);
	g->n_lies++;
	if (g->lie == ANOTHER_VERSION)
		memcpy(at + offsetof(struct ferry_place, version), &version,
		       sizeof(version));
	else
		at[offsetof(struct ferry_place, abi)] ^= 1;
}

static int allgather(void *arg, const void *in, void *out, size_t bytes)
{
	struct guest *g = arg;
	uint8_t *said = g->hall->bytes + (size_t)g->rank * bytes;

	if (bytes > MAX_BYTES)
		return -1;
	memcpy(said, in, bytes);
	if (g->rank == LIAR)
		tell_lies(g, said, bytes);
	pthread_barrier_wait(&g->hall->barrier);
	memcpy(out, g->hall->bytes, N_RANKS * bytes);
	pthread_barrier_wait(&g->hall->barrier);
	return 0;
}

static int barrier(void *arg)
{
	struct guest *g = arg;

	pthread_barrier_wait(&g->hall->barrier);
	return 0;
}

static void open_world(struct rank *rank, enum lie lie)
{
	struct guest guest = {
		.hall = rank->arg, .rank = rank->rank, .lie = lie};
	const struct ferry_boot_callbacks callbacks = {&guest, allgather,
	                                               barrier};
	struct ferry_world_config config;
	struct ferry_world *world = NULL;

	ranks_config(&config);
	config.team = NULL;
	config.callbacks = &callbacks;
	config.rank = rank->rank;
	config.n_ranks = rank->n_ranks;
	RANKS_STATUS(ferry_world_open(&config, &world), FERRY_MISMATCH);
	RANKS_CHECK(world == NULL);
	if (rank->rank == LIAR)
		RANKS_EQ(guest.n_lies, 1);
}

static void version_body(struct rank *rank)
{
	open_world(rank, ANOTHER_VERSION);
	RANKS_TEXT(ferry_last_error(), "rank 2 has ferry 2.3.4");
	RANKS_TEXT(ferry_last_error(), "rank 0");
}

static void abi_body(struct rank *rank)
{
	open_world(rank, ANOTHER_ABI);
	RANKS_TEXT(ferry_last_error(), "rank 2 and rank 0");
	RANKS_TEXT(ferry_last_error(), "builds");
}

static void run(ranks_body *body)
{
	struct hall hall;
	struct ranks how = {.n_ranks = N_RANKS, .no_world = true, .arg = &hall};

	pthread_barrier_init(&hall.barrier, NULL, N_RANKS);
	ranks_run(&how, body);
	pthread_barrier_destroy(&hall.barrier);
}

static void another_version_is_named(void **state)
{
	(void)state;
	run(version_body);
}

static void another_build_is_named(void **state)
{
	(void)state;
	run(abi_body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_version_is_named),
		cmocka_unit_test(another_build_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
