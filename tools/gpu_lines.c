/* SPDX-License-Identifier: Apache-2.0 */
/* Lines under stress, on the memory of a segment as a channel has it. */
#include "gpu_lines.h"

#include <stdio.h>
#include <stdlib.h>

#include <ferry/fabric.h>

#include "alloc.h"
#include "core/clock.h"
#include "cuda/cuda_check.h"

enum {
	LINES_OF_PAIR = 256,
	PAIRS = 64, /* of one GPU */
	ROUNDS = 1000,
	WAIT_MS = 2000,
};

static bool possible_here(struct gpu_seat *seat, struct ferry_segment *segment,
                          bool *possible)
{
	const int32_t n = seat->me->crew->n_ranks;
	bool *all = alloc_or_exit((size_t)n, sizeof(*all));
	bool mine = true;

	for (int32_t r = 0; r < n; r++)
		mine &= r == seat->me->rank || (ferry_segment_caps(segment, r) &
		                                FERRY_CAP_NVLINK) != 0;
	const bool good = crew_good(
		seat->me,
		ferry_world_allgather(seat->world, &mine, all, sizeof(mine)),
		"allgather");

	*possible = good;
	for (int32_t r = 0; good && r < n; r++)
		*possible &= all[r];
	free(all);
	return good;
}

static int32_t pairs_of(const struct gpu_seat *seat)
{
	const int32_t sharing =
		(seat->me->crew->n_ranks + seat->n_devices - 1) /
		seat->n_devices;

	return PAIRS / sharing > 0 ? PAIRS / sharing : 1;
}

/* One run; all ranks come here together. */
static bool run_once(struct gpu_seat *seat,
                     const struct ferry_cuda_lines_check *check)
{
	const struct crew_member *me = seat->me;

	return crew_good(me, ferry_world_barrier(seat->world), "barrier") &&
	       gpu_good(me,
	                (cudaError_t)ferry_cuda_lines_run(check, seat->stream),
	                "lines") &&
	       gpu_good(me, cudaStreamSynchronize(seat->stream), "lines");
}

static bool run_until(struct gpu_seat *seat, struct ferry_cuda_lines_check *c,
                      int64_t ms)
{
	const uint64_t deadline = ferry_deadline_ns(ms);
	bool over = false;

	while (!over) {
		if (!run_once(seat, c) ||
		    !check_ask_clock(seat->me, seat->world, deadline, &over))
			return false;
		c->first_round += c->rounds;
	}
	return true;
}

static bool take_found(struct gpu_seat *seat,
                       const struct ferry_cuda_lines_found *device,
                       struct check_tally *tally)
{
	struct ferry_cuda_lines_found found;

	if (!gpu_good(seat->me,
	              cudaMemcpy(&found, device, sizeof(found),
	                         cudaMemcpyDeviceToHost),
	              "lines"))
		return false;
	tally->n_lines += (int64_t)found.seen;
	tally->torn_lines += (int64_t)found.torn;
	tally->late_lines += (int64_t)found.late;
	if (found.torn)
		fprintf(stderr,
		        "%s: rank %d: line %llu was torn: lane %llu had %llx, "
		        "wanted %llx\n",
		        seat->me->crew->name, seat->me->rank,
		        found.first_torn[0], found.first_torn[1],
		        found.first_torn[2], found.first_torn[3]);
	return true;
}

static bool stress(struct gpu_seat *seat, struct ferry_segment *segment,
                   const struct check_work *work, struct check_tally *tally)
{
	const int32_t n = seat->me->crew->n_ranks, me = seat->me->rank;
	struct ferry_cuda_lines_check check = {
		.own = ferry_segment_base(segment),
		.next = ferry_segment_ptr(segment, (me + 1) % n),
		.before = ferry_segment_ptr(segment, (me + n - 1) % n),
		.n_pairs = pairs_of(seat),
		.lines_of_pair = LINES_OF_PAIR,
		.rounds = ROUNDS,
		.seed = work->seed,
		.timeout_ns = (uint64_t)WAIT_MS * 1000000,
	};
	void *found = NULL;
	const size_t bytes = sizeof(*check.found);

	if (!gpu_good(seat->me, cudaMalloc(&found, bytes), "memory"))
		return false;
	check.found = found;
	const bool good =
		gpu_good(seat->me, cudaMemset(found, 0, bytes), "memory") &&
		run_until(seat, &check, work->shapes_ms / 4) &&
		take_found(seat, found, tally);

	cudaFree(found);
	return good;
}

bool gpu_lines_check(struct gpu_seat *seat, const struct check_work *work,
                     struct check_tally *tally)
{
	struct ferry_segment *segment;
	bool possible;

	if (!crew_good(seat->me,
	               ferry_segment_open(seat->world,
	                                  ferry_cuda_lines_bytes(pairs_of(seat),
	                                                         LINES_OF_PAIR),
	                                  1, &segment),
	               "opening a segment"))
		return false;
	bool good = possible_here(seat, segment, &possible);

	if (good && possible)
		good = stress(seat, segment, work, tally);
	if (good) /* a peer may still store */
		good = crew_good(seat->me, ferry_world_barrier(seat->world),
		                 "barrier");
	ferry_segment_close(segment);
	return good;
}
