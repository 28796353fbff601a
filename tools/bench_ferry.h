/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch and combine by Ferry, measured and checked on one rank. */
#ifndef FERRY_BENCH_FERRY_H
#define FERRY_BENCH_FERRY_H

#include "bench_result.h"
#include "crew.h"

/* What one rank leaves behind, beside its samples. */
struct bench_tally {
	uint64_t wire_bytes[BENCH_N_PHASES]; /* of all timed iterations */
	int64_t wrong[BENCH_N_PHASES];
	char fabric[32]; /* that the world chose */
};

struct bench_work {
	const struct bench_case *shape;
	int32_t iters, warmup;
	struct bench_tally *tallies; /* [n_ranks], shared */
	uint64_t *ns; /* [n_ranks][BENCH_N_PHASES][iters], shared */
};

/* The channel that serves a shape. */
void bench_configure(const struct bench_case *c,
                     struct ferry_moe_config *config);

/* Body of a crew; arg is a struct bench_work. */
int bench_ferry_body(const struct crew_member *me, void *arg);

/*
 * Runs the body on a crew and sums up. False when a rank failed, after its
 * complaint. fabric receives the name of the one in use.
 */
bool bench_ferry_run(struct crew *crew, const struct bench_case *c,
                     int32_t iters, int32_t warmup, struct bench_result *result,
                     char fabric[32]);

#endif
