/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a shape must move between GPUs and through their memory, however it is
 * done: the two floors of a figure. Needs no GPU.
 */
#ifndef FERRY_GPU_BYTES_H
#define FERRY_GPU_BYTES_H

#include "bench_result.h"

/* Of one operation; rank r is on GPU r modulo their number. */
struct gpu_bytes {
	/* Payload and scales written for other ranks, by all ranks. */
	uint64_t wire[BENCH_N_PHASES];
	/* The most that one GPU sends to, or gets from, the others. */
	uint64_t link[BENCH_N_PHASES];
	/*
	 * The most that one GPU reads and writes of its memory. Dispatch: own
	 * tokens read, rows from other ranks written, and where they go to
	 * experts read again; every expert's row written (TOKEN: own rows
	 * written). Combine: every expert's row read (TOKEN, REDUCED: every
	 * summed row), what comes from other ranks written and read, sums
	 * written.
	 */
	uint64_t memory[BENCH_N_PHASES];
};

void gpu_count_bytes(const struct bench_case *c, int32_t n_gpus,
                     struct gpu_bytes *bytes);

/*
 * What an exchange of one row for each (token, choice) puts on the wire
 * instead; dense: room for all tokens at every expert.
 */
void gpu_count_exchange(const struct bench_case *c, bool dense,
                        struct gpu_bytes *bytes);

/*
 * From source rank to serving rank, [n_ranks * n_ranks] each: tokens that have
 * a choice there, and choices there.
 */
void gpu_count_flow(const struct bench_case *c, uint64_t *tokens,
                    uint64_t *choices);

/* Microseconds of the larger floor; a rate of 0: does not count. */
double gpu_floor_us(const struct gpu_bytes *bytes, int phase,
                    double link_bytes_per_s, double memory_bytes_per_s);

#endif
