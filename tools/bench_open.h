/* SPDX-License-Identifier: Apache-2.0 */
/* How long it takes to open and close a world, and a channel in it. */
#ifndef FERRY_BENCH_OPEN_H
#define FERRY_BENCH_OPEN_H

#include "bench_report.h"

/* Measures, prints, writes JSON where asked to; returns the exit status. */
int bench_open_report(struct bench_run *run, const struct crew *crew);

#endif
