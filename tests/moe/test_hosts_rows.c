/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which way rows take in a world of several hosts: into the windows of the own
 * host's ranks by stores, with a signal for many; to all others staged and put,
 * each with its bytes. Hosts may be uneven, and their ranks dealt out. Seen in
 * the trace of the fabric's puts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "fabric/place.h"
#include "proto/channel.h"
#include "run_args.h"
#include "smoke_pair.h"
#include "trace/events.h"

enum { N_RANKS = 5, TURNS = 4, ROW_BYTES = SMOKE_HIDDEN * 2 };

/* Puts of this rank, to ranks of the own host and to others. */
struct puts {
	int signals[2];
	int rows[2];
};

static void close_moe(void *moe)
{
	ferry_moe_close(moe);
}

static void count_puts(const struct ferry_world *world, uint64_t first,
                       struct puts *puts)
{
	const struct ferry_place *own = &world->places[world->rank];
	struct ferry_trace_event event;

	for (uint64_t i = first; i < ferry_trace_count(world->trace); i++) {
		RANKS_CHECK(ferry_trace_at(world->trace, i, &event));
		if (event.peer < 0 || event.category[0] != 'f')
			continue;
		const bool mate =
			ferry_place_same_host(&world->places[event.peer], own);

		puts->signals[mate] += event.bytes == 0;
		puts->rows[mate] += event.bytes == ROW_BYTES;
	}
}

static void rows_take_their_way(struct rank *rank)
{
	const bool alone = rank->world->n_host_ranks == 1;
	struct ferry_moe_config config = smoke_config(rank->n_ranks);
	struct ferry_moe *moe;
	struct puts puts = {0};

	RANKS_OK(ferry_moe_open(rank->world, &config, &moe));
	ranks_defer(close_moe, moe);
	struct smoke_pair *p = smoke_open(rank, moe, &config, 0);
	const uint64_t first = ferry_trace_count(rank->world->trace);

	RANKS_CHECK(moe->staged);
	for (int32_t turn = 0; turn < TURNS; turn++)
		smoke_run(p, turn, SMOKE_TOKENS);
	count_puts(rank->world, first, &puts);
	RANKS_CHECK(puts.rows[false] > 0);
	RANKS_EQ(puts.rows[true], 0);
	RANKS_CHECK(alone || puts.signals[true] > 0);
}

static struct ranks run_traced(void)
{
	static char fabric[64];
	struct ranks how = run_args_ranks(N_RANKS);

	snprintf(fabric, sizeof(fabric), "trace:%s", run_args.fabric);
	how.fabric = fabric;
	return how;
}

static void test_rows(void **state)
{
	struct ranks how = run_traced();

	(void)state;
	how.options = "RANKS_PER_HOST=2;TRACE=/dev/null";
	ranks_run(&how, rows_take_their_way);
}

/* Hosts by name, whose ranks are not consecutive, of one machine. */
static void name_hosts(const struct rank *rank,
                       struct ferry_world_config *config)
{
	config->options = rank->rank % 2 ? "HOST=b;TRACE=/dev/null"
	                                 : "HOST=a;TRACE=/dev/null";
}

static void test_names(void **state)
{
	struct ranks how = run_traced();

	(void)state;
	how.configure = name_hosts;
	ranks_run(&how, rows_take_their_way);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_names),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
