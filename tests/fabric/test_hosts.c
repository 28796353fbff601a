/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What counts as a host: FERRY_HOST and FERRY_RANKS_PER_HOST divide a machine,
 * what the ranks see of it, who refuses such worlds and in which words, and
 * that cores are not multiplied.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/fabric.h>

#include "fabric/place.h"
#include "fabrics.h"
#include "ranks.h"

/* The ranks' hosts by options "RANKS_PER_HOST=n". */
struct shape {
	const char *options;
	int32_t n_ranks;
	int32_t per_host; /* 0: one host */
};

static const struct shape shapes[] = {
	{"RANKS_PER_HOST=1", 4, 1},        {"RANKS_PER_HOST=2", 4, 2},
	{"RANKS_PER_HOST=2", 5, 2},        {"RANKS_PER_HOST=3", 5, 3},
	{"RANKS_PER_HOST=1k", 3, 0},       {"RANKS_PER_HOST=0", 3, 0},
	{"RANKS_PER_HOST=", 2, 0},         {"HOST=a", 3, 0},
	{"HOST=a;RANKS_PER_HOST=2", 3, 2},
};

enum { N_SHAPES = sizeof(shapes) / sizeof(*shapes) };

static int32_t host_of(const struct shape *shape, int32_t rank)
{
	return shape->per_host ? rank / shape->per_host : 0;
}

static void looks_like(struct rank *rank)
{
	const struct shape *shape = rank->arg;
	const struct ferry_world *world = rank->world;
	const int32_t n = rank->n_ranks;
	int32_t mates = 0;

	for (int32_t r = 0; r < n; r++) {
		const bool same =
			host_of(shape, r) == host_of(shape, rank->rank);

		mates += same;
		RANKS_EQ(ferry_place_same_host(&world->places[r],
		                               &world->places[rank->rank]),
		         same);
		RANKS_CHECK(ferry_place_same_machine(&world->places[r],
		                                     &world->places[0]));
	}
	RANKS_EQ(ferry_world_nodes(world), host_of(shape, n - 1) + 1);
	RANKS_EQ(world->n_host_ranks, mates);
	RANKS_EQ(world->n_machine_ranks, n);
	RANKS_EQ(world->n_machine_cores,
	         ferry_place_machine_cores(world->places, 1, 0));
}

static void test_shapes(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * N_SHAPES; i++) {
		struct shape shape = shapes[i / 2];
		const struct ranks how = {
			.kind = i % 2 ? RANKS_PROCESSES : RANKS_THREADS,
			.n_ranks = shape.n_ranks,
			.fabric = "wire",
			.options = shape.options,
			.arg = &shape,
		};

		ranks_run(&how, looks_like);
	}
}

/* Ranks 0, 2 say the one, rank 1 another name. */
static void name_hosts(const struct rank *rank,
                       struct ferry_world_config *config)
{
	config->options = rank->rank == 1 ? "HOST=b" : "HOST=a";
}

static void two_names(struct rank *rank)
{
	RANKS_EQ(ferry_world_nodes(rank->world), 2);
	RANKS_EQ(rank->world->n_host_ranks, rank->rank == 1 ? 1 : 2);
	RANKS_EQ(rank->world->n_machine_ranks, 3);
}

static void test_names(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct ranks how = {
			.kind = i ? RANKS_PROCESSES : RANKS_THREADS,
			.n_ranks = 3,
			.fabric = "wire",
			.configure = name_hosts,
		};

		ranks_run(&how, two_names);
	}
}

struct refusal {
	const char *fabric;
	const char *options;
	const char *text;
	enum ranks_kind kind;
	enum ferry_status status;
};

static const struct refusal refusals[] = {
	{"local", "RANKS_PER_HOST=1",
         "fabric local: ranks are on 2 hosts of one machine, says FERRY_HOST "
         "or FERRY_RANKS_PER_HOST",
         RANKS_THREADS, FERRY_UNSUPPORTED},
	{"shm", "RANKS_PER_HOST=1",
         "fabric shm: ranks are on 2 hosts of one machine, says FERRY_HOST or "
         "FERRY_RANKS_PER_HOST",
         RANKS_PROCESSES, FERRY_UNSUPPORTED},
	{"auto", "RANKS_PER_HOST=1;OFI_LIBRARY=/nowhere/libfabric.so",
         "no fabric reaches all ranks: local: ranks are not threads of one "
         "team; shm: ranks are on 2 hosts of one machine, says FERRY_HOST or "
         "FERRY_RANKS_PER_HOST; shm+ofi: ",
         RANKS_PROCESSES, FERRY_UNSUPPORTED},
	{"shm", "RANKS_PER_HOST=-1",
         "RANKS_PER_HOST is '-1', allowed is a whole number 0..", RANKS_THREADS,
         FERRY_INVAL},
	{"wire", "RANKS_PER_HOST=-2",
         "RANKS_PER_HOST is '-2', allowed is a whole number", RANKS_PROCESSES,
         FERRY_INVAL},
	{"wire", "RANKS_PER_HOST=two",
         "RANKS_PER_HOST is 'two', allowed is a whole number", RANKS_THREADS,
         FERRY_INVAL},
};

static void refused(struct rank *rank)
{
	const struct refusal *refusal = rank->arg;

	RANKS_STATUS(rank->open_status, refusal->status);
	RANKS_TEXT(ferry_last_error(), refusal->text);
}

static void test_refusals(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		struct refusal refusal = refusals[i];
		const struct ranks how = {
			.kind = refusal.kind,
			.n_ranks = 2,
			.fabric = refusal.fabric,
			.options = refusal.options,
			.open_may_fail = true,
			.arg = &refusal,
		};

		ranks_run(&how, refused);
	}
}

/* The one for several hosts where it works; or all say why not. */
static void chooses_network(struct rank *rank)
{
	const struct ferry_fabric_info info = fabrics_get("shm+ofi");

	if (info.score > 0) {
		RANKS_OK(rank->open_status);
		RANKS_EQ(strcmp(ferry_world_fabric(rank->world), info.name), 0);
		return;
	}
	RANKS_STATUS(rank->open_status, FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(), "shm: ranks are on 2 hosts");
	RANKS_TEXT(ferry_last_error(), "shm+ofi: ");
}

static void test_auto(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct ranks how = {
			.kind = i ? RANKS_PROCESSES : RANKS_THREADS,
			.n_ranks = 3,
			.options = "RANKS_PER_HOST=2",
			.open_may_fail = true,
		};

		ranks_run(&how, chooses_network);
	}
}

/* One rank has a name, the others have none: all use one interface. */
static void name_first(const struct rank *rank,
                       struct ferry_world_config *config)
{
	config->options = rank->rank == 0 ? "HOST=first" : "";
}

static void reach_all(struct rank *rank)
{
	struct ferry_segment *segment;

	RANKS_EQ(ferry_world_nodes(rank->world), 2);
	RANKS_OK(ferry_segment_open(rank->world, 1, 1, &segment));
	ranks_defer((void (*)(void *))ferry_segment_close, segment);
	for (int32_t r = 0; r < rank->n_ranks; r++)
		RANKS_OK(ferry_segment_signal(segment, r, 0));
	RANKS_OK(ferry_segment_kick(segment));
	RANKS_OK(ferry_segment_wait(segment, 0, (uint64_t)rank->n_ranks));
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_one_has_a_name(void **state)
{
	const struct ferry_fabric_info info = fabrics_get("shm+ofi");
	const struct ranks how = {
		.kind = RANKS_PROCESSES,
		.n_ranks = 3,
		.fabric = info.score > 0 ? "shm+ofi" : "shm+wire",
		.configure = name_first,
	};

	(void)state;
	if (info.score <= 0)
		print_message("on shm+wire, for shm+ofi: %s\n", info.reason);
	ranks_run(&how, reach_all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_auto),
		cmocka_unit_test(test_one_has_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
