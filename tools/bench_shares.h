/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of bench_verify.h by several threads. */
#ifndef FERRY_BENCH_SHARES_H
#define FERRY_BENCH_SHARES_H

#include "bench_verify.h"

typedef int64_t bench_share_fn(void *arg, struct bench_share share);

/* Calls fn for each of n shares, each on a thread; the sum of the answers. */
int64_t bench_share_out(int32_t n, bench_share_fn *fn, void *arg);

#endif
