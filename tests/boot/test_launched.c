/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds that meet by the variables of each launcher, set here as the launcher
 * sets them, and 16 processes over TCP.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "meeting.h"

/* Replaces what ferry run would set by the variables of a launcher. */
typedef void set_fn(const struct rank *rank, const char *port);

static void set_int(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

static void set_torchrun(const struct rank *rank, const char *port)
{
	set_int("RANK", rank->rank);
	set_int("WORLD_SIZE", rank->n_ranks);
	set_int("LOCAL_WORLD_SIZE", rank->n_ranks);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", port, 1);
	setenv("TORCHELASTIC_RUN_ID", "none", 1);
}

/* As on several hosts: over TCP, to the port behind that of PyTorch. */
static void set_torchrun_tcp(const struct rank *rank, const char *port)
{
	set_torchrun(rank, port);
	set_int("LOCAL_WORLD_SIZE", 1);
	set_int("MASTER_PORT", atoi(port) - 1);
}

static void set_open_mpi(const struct rank *rank, const char *port)
{
	set_int("OMPI_COMM_WORLD_RANK", rank->rank);
	set_int("OMPI_COMM_WORLD_SIZE", rank->n_ranks);
	set_int("OMPI_COMM_WORLD_LOCAL_SIZE", rank->n_ranks);
	setenv("PMIX_NAMESPACE", port, 1);
}

static void set_pmi(const struct rank *rank, const char *port)
{
	(void)port;
	set_int("PMI_RANK", rank->rank);
	set_int("PMI_SIZE", rank->n_ranks);
	set_int("MPI_LOCALNRANKS", rank->n_ranks);
}

static void set_slurm(const struct rank *rank, const char *port)
{
	set_int("SLURM_PROCID", rank->rank);
	set_int("SLURM_NTASKS", rank->n_ranks);
	set_int("SLURM_NNODES", 1);
	setenv("SLURM_JOB_ID", port, 1);
	setenv("SLURM_STEP_ID", "0", 1);
}

/* A node list of this host, which goes over TCP and needs a secret. */
static void set_slurm_tcp(const struct rank *rank, const char *port)
{
	set_slurm(rank, port);
	set_int("SLURM_NNODES", 2);
	setenv("SLURM_JOB_NODELIST", "127.0.0.[1-2]", 1);
	setenv("FERRY_SECRET", "job secret", 1);
}

struct launch_test {
	set_fn *set;
	const char *port;
};

static void launched(struct rank *rank)
{
	const struct launch_test *test = rank->arg;
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world;
	int32_t all[RANKS_MAX];

	unsetenv("FERRY_RANK");
	unsetenv("FERRY_SIZE");
	unsetenv("FERRY_RENDEZVOUS");
	unsetenv("FERRY_SECRET");
	test->set(rank, test->port);
	config.open_timeout_ms = 10000;
	RANKS_OK(ferry_world_open(&config, &world));
	RANKS_EQ(ferry_world_rank(world), rank->rank);
	RANKS_EQ(ferry_world_size(world), rank->n_ranks);
	RANKS_OK(ferry_world_allgather(world, &rank->rank, all, 4));
	for (int32_t r = 0; r < rank->n_ranks; r++)
		RANKS_EQ(all[r], r);
	ferry_world_close(world);
}

static void run(set_fn *set)
{
	struct meeting place;
	struct launch_test test = {.set = set};

	meeting_init(&place, MEET_TCP);
	test.port = strrchr(place.where, ':') + 1;
	ranks_run(&(struct ranks){.kind = RANKS_PROCESSES,
	                          .n_ranks = 4,
	                          .no_world = true,
	                          .arg = &test},
	          launched);
}

static void test_launchers(void **state)
{
	(void)state;
	run(set_torchrun);
	run(set_torchrun_tcp);
	run(set_open_mpi);
	run(set_pmi);
	run(set_slurm);
	run(set_slurm_tcp);
}

static const char *tcp_16;

static void meet_over_tcp(struct rank *rank)
{
	struct ferry_world *world;
	struct ferry_world_config config;
	int32_t all[RANKS_MAX];

	setenv("FERRY_RENDEZVOUS", tcp_16, 1);
	/* The same port, again and again. */
	for (int i = 0; i < 5; i++) {
		ranks_config(&config);
		RANKS_OK(ferry_world_open(&config, &world));
		RANKS_OK(ferry_world_allgather(world, &rank->rank, all, 4));
		for (int32_t r = 0; r < rank->n_ranks; r++)
			RANKS_EQ(all[r], r);
		ferry_world_close(world);
	}
}

static void test_16_over_tcp(void **state)
{
	struct meeting place;

	(void)state;
	meeting_init(&place, MEET_TCP);
	tcp_16 = place.where;
	ranks_run(&(struct ranks){.kind = RANKS_PROCESSES,
	                          .n_ranks = 16,
	                          .no_world = true},
	          meet_over_tcp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_launchers),
		cmocka_unit_test(test_16_over_tcp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
