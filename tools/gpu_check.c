/* SPDX-License-Identifier: Apache-2.0 */
/* The self-test of GPUs: primitives, lines, then shapes drawn at random. */
#include "gpu_check.h"

#include <stdio.h>

#include "core/bits.h"
#include "core/clock.h"
#include "gpu_lines.h"
#include "gpu_rank.h"
#include "opt.h"

enum { STEPS = 3 };

/*
 * Whichever of the two is on the GPU. From pageable memory cudaMemcpy may
 * return before the bytes have arrived.
 */
static bool copy(void *to, const void *from, size_t bytes)
{
	return !bytes ||
	       (cudaMemcpy(to, from, bytes, cudaMemcpyDefault) == cudaSuccess &&
	        cudaStreamSynchronize(NULL) == cudaSuccess);
}

/* The shapes of the CPU's check, and a path for each. */
static struct bench_case draw(const struct check_work *work, int32_t n_ranks,
                              uint64_t i, bool lines)
{
	struct bench_case c = check_draw(work->seed, n_ranks, i);
	static const enum ferry_path paths[] = {
		FERRY_PATH_AUTO, FERRY_PATH_CHUNKS, FERRY_PATH_LINES};

	c.device = FERRY_DEVICE_CUDA;
	c.path = paths[hash_u64(c.seed, 77) % (lines ? 3 : 2)];
	return c;
}

/* See run_ferry in gpu_bench_rank.c for the two meetings. */
static bool try_shape(struct gpu_seat *seat, const struct bench_case *c,
                      uint64_t i, struct check_tally *tally)
{
	int64_t wrong[2] = {0};
	struct gpu_rank rank;
	bool good = gpu_rank_open(&rank, seat, c);

	crew_barrier(seat->me);
	for (uint64_t step = 0; good && step < STEPS; step++)
		good = gpu_rank_step(&rank, step, wrong);
	cudaStreamSynchronize(seat->stream);
	crew_barrier(seat->me);
	gpu_rank_close(&rank);
	if (!good || wrong[0] + wrong[1] > 0)
		check_complain(seat->me, c, wrong[0] + wrong[1], i);
	tally->wrong_values += wrong[0] + wrong[1];
	tally->n_shapes++;
	return good;
}

static bool try_shapes(struct gpu_seat *seat, const struct check_work *work,
                       struct check_tally *tally)
{
	const uint64_t deadline = ferry_deadline_ns(work->shapes_ms);
	bool over = false;

	for (uint64_t i = 0; !over; i++) {
		const struct bench_case c = draw(work, seat->me->crew->n_ranks,
		                                 i, tally->n_lines > 0);

		if (!try_shape(seat, &c, i, tally) ||
		    !check_ask_clock(seat->me, seat->world, deadline, &over))
			return false;
	}
	return true;
}

int gpu_check_body(const struct crew_member *me, void *arg)
{
	struct check_work work = *(const struct check_work *)arg;
	struct check_tally *const tally = &work.tallies[me->rank];
	struct gpu_seat seat;

	work.copy = copy;
	bool good = gpu_seat_open(&seat, me);

	if (good)
		snprintf(tally->fabric, sizeof(tally->fabric), "%s",
		         ferry_world_fabric(seat.world));
	good = good && check_primitives(me, seat.world, &work) &&
	       gpu_lines_check(&seat, &work, tally) &&
	       try_shapes(&seat, &work, tally);
	gpu_seat_close(&seat);
	return good ? EXIT_GOOD : EXIT_FAILED;
}
