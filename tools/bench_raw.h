/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The raw write test: the rows of a shape as bare puts in the pieces that a
 * channel cuts them into, between the same ranks, all of them at once in both
 * directions. Nobody routes, copies or sums. What Ferry is compared with where
 * a network, and not memory, is the bound.
 */
#ifndef FERRY_BENCH_RAW_H
#define FERRY_BENCH_RAW_H

#include "bench_result.h"
#include "crew.h"

extern const char bench_raw_impl[];

/* One round on a crew, as bench_ferry_run. False after a complaint. */
bool bench_raw_run(const struct crew *crew, const struct bench_case *c,
                   int32_t iters, int32_t warmup, struct bench_result *result);

#endif
