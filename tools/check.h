/* SPDX-License-Identifier: Apache-2.0 */
/* The self-test of one fabric on the ranks of a crew. */
#ifndef FERRY_CHECK_H
#define FERRY_CHECK_H

#include "bench_case.h"
#include "crew.h"

/* What a rank found; figures are rank 0's. */
struct check_tally {
	char fabric[32];
	int64_t n_puts, wrong_puts;      /* puts verified, wrong bytes */
	int64_t n_shapes, wrong_values;  /* shapes dispatched and combined */
	double flag_p50_us, flag_p99_us; /* signal to wait, one way */
	double put_bytes_per_s;          /* rank 0 to rank 1 */
	/* GPUs: lines polled; seen in part; never come. */
	int64_t n_lines, torn_lines, late_lines;
};

struct check_work {
	uint64_t seed;
	int64_t shapes_ms;           /* how long random shapes are tried */
	struct check_tally *tallies; /* [n_ranks], shared */
	/* Copies to and from the memory of a segment; NULL: memcpy. */
	bool (*copy)(void *to, const void *from, size_t bytes);
};

/* Body of a crew; arg is a struct check_work. */
int check_body(const struct crew_member *me, void *arg);

/* The i-th shape: the same on all ranks. */
struct bench_case check_draw(uint64_t seed, int32_t n_ranks, uint64_t i);

/* A shape with wrong values, and all that is needed to draw it again. */
void check_complain(const struct crew_member *me, const struct bench_case *c,
                    int64_t wrong, uint64_t shape);

/* Rank 0's clock ends it for all; *over is everybody's answer. */
bool check_ask_clock(const struct crew_member *me, struct ferry_world *world,
                     uint64_t deadline, bool *over);

/*
 * Each rank puts blocks of known bytes to every rank, which verifies them;
 * then latency of a flag and rate of puts between ranks 0 and 1.
 */
bool check_primitives(const struct crew_member *me, struct ferry_world *world,
                      const struct check_work *work);

#endif
