/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations chained in one CUDA graph, and how long each takes: no host in
 * between, and all ranks brought together by an untimed operation before the
 * first timed one.
 */
#ifndef FERRY_GPU_TIME_H
#define FERRY_GPU_TIME_H

#include "bench_result.h"
#include "gpu_rank.h"

struct gpu_timing {
	int32_t iters, warmup; /* replays */
	int32_t chain;         /* operations of a replay; equal on all ranks */
	bool graph;            /* false: launched one by one */
	int32_t split_us;      /* of other work between send and recv */
	uint64_t *ns; /* [BENCH_N_PHASES][iters], per operation; written */
};

/*
 * Dispatch: a chain of them. Pair: a chain of dispatch and combine. Combine:
 * each replay's pair less the median dispatch.
 */
bool gpu_time_phases(struct gpu_rank *rank, const struct gpu_timing *timing);

/*
 * What recv adds to the stream when split_us of other work lie between it and
 * send: from an event before recv to one behind it, less what lies between two
 * such events with nothing in between; the mean over a chain. No pair.
 */
bool gpu_time_split(struct gpu_rank *rank, const struct gpu_timing *timing);

/* Median of what a call keeps the host, launched one by one. */
bool gpu_time_host(struct gpu_rank *rank, double host_us[BENCH_N_PHASES]);

/*
 * The same for anything else that can be enqueued on the seat's stream, e.g. a
 * baseline: times `op` alone, BENCH_DISPATCH, then `pair`.
 */
typedef bool gpu_op(void *arg, int32_t i);
bool gpu_time_ops(const struct gpu_seat *seat, gpu_op *op, gpu_op *pair,
                  void *arg, const struct gpu_timing *timing);

/*
 * All ranks have made their graphs: cudaGraphInstantiate waits for all kernels
 * of its GPU, and one of another rank's could wait for this one. False after a
 * complaint.
 */
bool gpu_time_meet(const struct gpu_seat *seat);

#endif
