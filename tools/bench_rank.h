/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank with a channel, its buffers, and a way to run one checked step.
 * Used by bench, which then times steps, and by check, which varies shapes.
 */
#ifndef FERRY_BENCH_RANK_H
#define FERRY_BENCH_RANK_H

#include <ferry/moe.h>

#include "bench_result.h"
#include "bench_verify.h"
#include "crew.h"

struct bench_rank {
	const struct crew_member *me;
	const struct bench_case *c;
	struct ferry_moe *moe;
	struct ferry_moe_need need;
	uint16_t *x, *y, *out;
	int32_t *ids;
	float *weights;
	struct ferry_dispatch_in in;
	struct ferry_dispatch_out got;
	struct ferry_combine_in back;
	struct ferry_combine_out sum;
	struct bench_received received; /* the same as got, for the checks */
	bool presummed;
};

/* [n_ranks] the first rank of each one's host; free() it. */
int32_t *bench_hosts_of(const struct ferry_world *world);

/* The channel that serves a shape. */
void bench_configure(const struct bench_case *c,
                     struct ferry_moe_config *config);

/* Opens a channel in the world and allocates. False after a complaint. */
bool bench_rank_open(struct bench_rank *rank, const struct crew_member *me,
                     const struct bench_case *c, struct ferry_world *world);
void bench_rank_close(struct bench_rank *rank);

bool bench_rank_dispatch(struct bench_rank *rank);
bool bench_rank_combine(struct bench_rank *rank);

/*
 * Loads, dispatches into poisoned memory, runs the experts and combines. With
 * `wrong` [2], counts wrong values of dispatch and combine into it.
 */
bool bench_rank_step(struct bench_rank *rank, uint64_t step, int64_t *wrong);

/* Counts what is wrong in the buffers now, after a combine of `step`. */
void bench_rank_check(struct bench_rank *rank, uint64_t step, int64_t *wrong);

#endif
