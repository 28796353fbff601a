/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 01: ranks, symmetric memory, put and wait. A number travels once around.
 *
 *     cc 01_ring.c $(pkg-config --cflags --libs ferry) -o ring
 *     ferry run -n 4 -- ./ring
 *
 * prints
 *
 *     4 ranks over shm: the sum of their numbers is 6
 */
#include "example.h"

/* Where things lie in every rank's memory. */
enum { ARRIVING = 0, LEAVING = 64, SEGMENT_BYTES = 128 };
enum { ARRIVED, N_SIGNALS };

static void wait_for_number(struct ferry_segment *segment, uint64_t *sum)
{
	const char *base = ferry_segment_base(segment);

	must(ferry_segment_wait(segment, ARRIVED, 1));
	*sum = *(const uint64_t *)(const void *)(base + ARRIVING);
}

/* The source of a put lies in the own memory, so that any network can. */
static void pass_on(struct ferry_segment *segment, int32_t next, uint64_t sum)
{
	char *base = ferry_segment_base(segment);

	*(uint64_t *)(void *)(base + LEAVING) = sum;
	must(ferry_segment_put(segment, next, ARRIVING, base + LEAVING,
	                       sizeof(sum), ARRIVED));
	must(ferry_segment_flush(segment));
}

int main(void)
{
	struct ferry_world *world;
	struct ferry_segment *segment;
	uint64_t sum = 0;

	must(ferry_world_open(NULL, &world));
	must(ferry_segment_open(world, SEGMENT_BYTES, N_SIGNALS, &segment));
	const int32_t rank = ferry_world_rank(world);
	const int32_t n_ranks = ferry_world_size(world);
	const int32_t next = (rank + 1) % n_ranks;

	/* Rank 0 begins and ends; everybody adds its number. */
	if (rank == 0)
		pass_on(segment, next, 0);
	wait_for_number(segment, &sum);
	if (rank != 0)
		pass_on(segment, next, sum + (uint64_t)rank);
	if (rank == 0) {
		printf("%d ranks over %s: the sum of their numbers is %llu\n",
		       n_ranks, ferry_world_fabric(world),
		       (unsigned long long)sum);
		check(sum == (uint64_t)n_ranks * (uint64_t)(n_ranks - 1) / 2,
		      "sum");
	}
	/* Nobody leaves while a neighbour still writes. */
	must(ferry_world_barrier(world));
	ferry_segment_close(segment);
	ferry_world_close(world);
	return 0;
}
