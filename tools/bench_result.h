/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of one implementation on one shape, from samples to medians. */
#ifndef FERRY_BENCH_RESULT_H
#define FERRY_BENCH_RESULT_H

#include "bench_case.h"

enum bench_phase {
	BENCH_DISPATCH,
	BENCH_COMBINE,
	BENCH_PAIR, /* dispatch and combine, one behind the other */
	BENCH_N_PHASES,
};

extern const char *const bench_phase_names[BENCH_N_PHASES];

/* Of one phase; bytes of all ranks together, per operation. */
struct bench_figure {
	double p50_us, p99_us, max_us;
	uint64_t wire_bytes; /* written to other ranks */
	uint64_t host_bytes; /* of these, to ranks of other hosts */
	int64_t wrong;       /* values, all ranks, all checked steps */
};

struct bench_result {
	struct bench_figure phase[BENCH_N_PHASES];
	int32_t n_hosts;
	uint64_t table_bytes; /* to ranks of other hosts */
	/* One row, or sum, for each (token, host) of an operation. */
	uint64_t least_host_bytes[BENCH_N_PHASES];
};

/* The smallest of n values that at least share * n do not exceed. */
double bench_percentile(const double *values, int n, double share);

/*
 * Samples to figures: ns is [n_ranks][BENCH_N_PHASES][iters], and what counts
 * of an iteration is its slowest rank. Sets only the times.
 */
void bench_summarize(struct bench_result *result, const uint64_t *ns,
                     int32_t n_ranks, int32_t iters);

/*
 * Medians over rounds (of p50 and p99), the largest maximum, all wrong
 * values. A round that never ran has p50_us 0 and is left out.
 */
struct bench_result bench_merge(const struct bench_result *rounds, int n);

/* What the job itself asks for, whoever does it: all ranks together. */
struct bench_bytes {
	uint64_t logical[BENCH_N_PHASES]; /* one row per (token, choice) */
	/*
	 * Must be read and written, each once: dispatch reads every token's
	 * row and writes every arriving row; combine reads every expert row
	 * and writes every token's sum.
	 */
	uint64_t floor[BENCH_N_PHASES];
};

void bench_count_bytes(const struct bench_case *c, struct bench_bytes *bytes);

/* host[r]: equal for ranks of one host. */
void bench_count_host_bytes(const struct bench_case *c, const int32_t *host,
                            uint64_t least[BENCH_N_PHASES]);

#endif
