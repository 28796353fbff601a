/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <ferry/fabric.h>
#include "ranks.h"

static void body(struct rank *rank)
{
	struct ferry_segment *s;
	RANKS_OK(ferry_segment_open(rank->world, 100000, 8, &s));
	RANKS_EQ(rank->n_ranks, ferry_world_size(rank->world));
	const int32_t next = (rank->rank + 1) % rank->n_ranks;
	for (uint64_t i = 1; i <= 1000; i++) {
		uint64_t *own = ferry_segment_base(s);
		own[500] = i * 3;
		RANKS_OK(ferry_segment_put(s, next, (i & 15) * 8, own + 500, 8, 3));
		RANKS_OK(ferry_segment_kick(s));
		RANKS_OK(ferry_segment_flush(s));
		RANKS_OK(ferry_segment_wait(s, 3, i));
		RANKS_EQ(own[i & 15], i * 3);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
	ferry_segment_close(s);
}

static void test(void **state)
{
	(void)state;
	for (int n = 1; n <= 8; n *= 2)
		for (int f = 0; f < 4; f++) {
			const struct ranks how = {
				.n_ranks = n,
				.fabric = f == 3 ? "wire" : f ? "shm" : "local",
				.options = f == 2 ? "SHM=file" : "",
			};
			ranks_run(&how, body);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
