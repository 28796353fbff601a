/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch and combine by Ferry, measured and checked on one rank. */
#ifndef FERRY_BENCH_FERRY_H
#define FERRY_BENCH_FERRY_H

#include "bench_result.h"
#include "crew.h"

/*
 * Runs one round on a crew and sums up. False when a rank failed, after its
 * complaint. fabric receives the name of the one in use.
 */
bool bench_ferry_run(const struct crew *crew, const struct bench_case *c,
                     int32_t iters, int32_t warmup, struct bench_result *result,
                     char fabric[32]);

#endif
