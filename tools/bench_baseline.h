/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the MPI baseline, which is a program of its own so that this one needs
 * no MPI to load, and reads what it measured.
 */
#ifndef FERRY_BENCH_BASELINE_H
#define FERRY_BENCH_BASELINE_H

#include "bench_report.h"

/*
 * Is it possible here? NULL, or the reason why not. Finds program and
 * launcher.
 */
const char *bench_baseline_missing(void);

/* One round on one shape: fills both results. False after a complaint. */
bool bench_baseline_run(const struct bench_options *o,
                        const struct bench_case *c,
                        struct bench_mpi_facts *facts,
                        struct bench_result results[2]);

/* What the two are called: "mpi" and "mpi-dedup", or over TCP "mpi-tcp", ... */
const char *const *bench_baseline_impls(const struct bench_options *o);

#endif
