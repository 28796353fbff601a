/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a CUDA world with a channel: buffers on its GPU, their twins on
 * the host, and a way to run one checked step. The twin of bench_rank.h.
 */
#ifndef FERRY_GPU_RANK_H
#define FERRY_GPU_RANK_H

#include <ferry/moe.h>

#include "bench_verify.h"
#include "gpu_seat.h"

struct gpu_rank {
	struct gpu_seat *seat;
	const struct bench_case *c;
	/*
	 * The shape as the host's arrays have it: rows of EXPERT_PADDED lie
	 * packed there, which saves gigabytes of holes.
	 */
	struct bench_case packed;
	struct ferry_moe *moe;
	struct ferry_moe_need need;
	struct ferry_moe_view view; /* of slot 0 */
	bool presummed;
	struct ferry_dispatch_in in;
	struct ferry_dispatch_out got;
	struct ferry_combine_in back;
	struct ferry_combine_out sum;
	struct bench_received received; /* on the host */
};

/* Opens a channel for the shape. False after a complaint. */
bool gpu_rank_open(struct gpu_rank *rank, struct gpu_seat *seat,
                   const struct bench_case *c);

/* No peer may be waiting for this rank. */
void gpu_rank_close(struct gpu_rank *rank);

/* Enqueue one operation of a slot. */
bool gpu_rank_dispatch(struct gpu_rank *rank, int32_t slot);
bool gpu_rank_combine(struct gpu_rank *rank, int32_t slot);

/* Waits for the stream, and asks the channel whether all went well. */
bool gpu_rank_sync(struct gpu_rank *rank);

/*
 * Loads, dispatches into poisoned memory, runs the experts on the host and
 * combines, on slot 0. With `wrong` [2], counts wrong values of dispatch and
 * combine into it.
 */
bool gpu_rank_step(struct gpu_rank *rank, uint64_t step, int64_t *wrong);

/* Counts what is wrong in the buffers now, after a combine of `step`. */
bool gpu_rank_check(struct gpu_rank *rank, uint64_t step, int64_t *wrong);

#endif
