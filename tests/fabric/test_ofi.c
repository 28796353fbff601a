/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is of fabric ofi alone: refusals with their reasons, signals left as
 * they were, more arrivals than any queue has room for while the receiver
 * computes, open files that run out half way through an open, and few ports.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "conformance.h"
#include "fabric/world.h"

enum {
	N_SIGNALS = 65,
	ARRIVALS = 28672,
	ENOUGH_FILES = 64,
	OPENINGS = 6,
	LIVES = 25
};

static void refused(const char *options, const char *text)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world = NULL;

	config.options = options;
	assert_int_equal(ferry_world_open(&config, &world), FERRY_UNSUPPORTED);
	assert_non_null(strstr(ferry_last_error(), text));
	assert_null(world);
}

static void test_refusals(void **state)
{
	(void)state;
	refused("FABRIC=ofi;OFI_LIBRARY=/nowhere/libfabric.so",
	        "/nowhere/libfabric.so");
	refused("FABRIC=ofi;OFI_PROVIDER=nosuch",
	        "fits FERRY_OFI_PROVIDER=nosuch; found: nothing");
	refused("FABRIC=ofi;OFI_DOMAIN=nosuch0",
	        "fits FERRY_OFI_DOMAIN=nosuch0; found: ");
	refused("FABRIC=ofi;OFI_INTERFACE=203.0.113.77",
	        "fits FERRY_OFI_INTERFACE=203.0.113.77; found: ");
}

static void open_and_close(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	RANKS_OK(ferry_segment_open(rank->world, 4096, 1, &s));
	ferry_segment_close(s);
	/* What was taken, for reports: on one host it is the loopback. */
	RANKS_TEXT(rank->world->fabric_says, "libfabric ");
	RANKS_TEXT(rank->world->fabric_says, ", domain lo");
}

/* All at once, in a range that has little more ports than ranks. */
static void open_often(struct rank *rank)
{
	for (int i = 0; i < OPENINGS; i++)
		open_and_close(rank);
}

/* Before libfabric, which reads the range once, is loaded in this process. */
static void test_few_ports(void **state)
{
	(void)state;
	setenv("FI_TCP_PORT_LOW_RANGE", "30201", 1);
	setenv("FI_TCP_PORT_HIGH_RANGE", "30212", 1);
	ranks_run(&(struct ranks){.n_ranks = 4,
	                          .fabric = "ofi",
	                          .kind = RANKS_PROCESSES},
	          open_often);
	unsetenv("FI_TCP_PORT_LOW_RANGE");
	unsetenv("FI_TCP_PORT_HIGH_RANGE");
}

static void test_signals_are_left_alone(void **state)
{
	struct sigaction before[N_SIGNALS], after;

	(void)state;
	for (int i = 1; i < N_SIGNALS; i++)
		sigaction(i, NULL, &before[i]);
	ranks_run(&(struct ranks){.n_ranks = 2, .fabric = "ofi"},
	          open_and_close);
	for (int i = 1; i < N_SIGNALS; i++)
		if (!sigaction(i, NULL, &after))
			assert_ptr_equal(after.sa_handler,
			                 before[i].sa_handler);
}

/* As many as come from 7 ranks with 4096 tokens each. */
static void many_arrive(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	RANKS_OK(ferry_segment_open(rank->world, 4096, 1, &s));
	if (rank->rank == 0)
		for (int i = 0; i < ARRIVALS; i++)
			RANKS_OK(ferry_segment_put(s, 1, (size_t)i % 64 * 64,
			                           ferry_segment_base(s), 8,
			                           0));
	if (rank->rank == 0)
		RANKS_OK(ferry_segment_flush(s));
	RANKS_OK(ferry_world_barrier(rank->world));
	if (rank->rank == 1)
		RANKS_OK(ferry_segment_wait(s, 0, ARRIVALS));
	RANKS_OK(ferry_world_barrier(rank->world));
	if (rank->rank == 1)
		RANKS_EQ(ferry_segment_read(s, 0), ARRIVALS);
	ferry_segment_close(s);
}

static void test_many_arrive(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 2,
	                          .fabric = "ofi",
	                          .kind = RANKS_PROCESSES},
	          many_arrive);
}

/* The number that the next file gets: as many are open, or more. */
static int next_file(void)
{
	const int fd = dup(STDOUT_FILENO);

	assert_true(fd >= 0);
	close(fd);
	return fd;
}

/* Whatever an open lacks, it says so, gives back the rest, and works later. */
static void test_no_files_left(void **state)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world = NULL;
	struct ferry_segment *s = NULL;
	enum ferry_status status = FERRY_SYS;
	struct rlimit all;
	int n = 0;

	(void)state;
	config.options = "FABRIC=ofi";
	assert_int_equal(ferry_world_open(&config, &world), FERRY_OK);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	const int first = next_file();

	for (; status != FERRY_OK && n < ENOUGH_FILES; n++) {
		const struct rlimit few = {(rlim_t)(first + n), all.rlim_max};

		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		status = ferry_segment_open(world, 4096, 1, &s);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
		if (status != FERRY_OK)
			assert_non_null(strstr(ferry_last_error(), "ofi: "));
		assert_true(status == FERRY_OK || next_file() == first);
	}
	assert_int_equal(status, FERRY_OK);
	printf("# %d files are enough\n", n - 1);
	ferry_segment_close(s);
	assert_int_equal(next_file(), first);
	ferry_world_close(world);
}

/*
 * Segments close while others are in use, and nobody waits for anybody: the
 * end of a connection is seen before, or after, the last word that came over
 * it. Over sockets each of two ranks has a connection of its own.
 */
static void many_lives(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	RANKS_OK(ferry_segment_open(rank->world, 4096, 1, &s));
	for (uint64_t life = 1; life <= LIVES; life++) {
		struct ferry_segment *brief = NULL;

		RANKS_OK(ferry_segment_open(rank->world, 4096, 1, &brief));
		ferry_segment_close(brief);
		for (int32_t r = 0; r < rank->n_ranks; r++)
			RANKS_OK(ferry_segment_signal(s, r, 0));
		RANKS_OK(ferry_segment_kick(s));
		RANKS_OK(ferry_segment_wait(s, 0,
		                            life * (uint64_t)rank->n_ranks));
	}
	ferry_segment_close(s);
}

static void test_many_lives(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 5,
	                          .fabric = "ofi",
	                          .options = "OFI_PROVIDER=sockets",
	                          .kind = RANKS_PROCESSES},
	          many_lives);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_ports),
		cmocka_unit_test(test_signals_are_left_alone),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_no_files_left),
		cmocka_unit_test(test_many_arrive),
		cmocka_unit_test(test_many_lives),
	};

	return cmocka_run_group_tests_name("ofi", tests, NULL, NULL);
}
