/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is it right? A plain recomputation of what one rank must have received and
 * summed, from the inputs of all ranks: no window, no protocol, no kernels.
 * Bit for bit in both modes of combine.
 */
#ifndef FERRY_BENCH_VERIFY_H
#define FERRY_BENCH_VERIFY_H

#include "bench_case.h"

/* A (token, choice) that a rank must receive. */
struct bench_arrival {
	int64_t row;          /* of the output; of the index list for TOKEN */
	int32_t slot, expert; /* own slot; expert = first own expert + slot */
	int32_t source, token, choice;
	float weight;
};

/* All arrivals of a rank in receive order, and the slots' counts. */
struct bench_arrivals {
	int64_t n;
	struct bench_arrival *list;
	int64_t *order; /* [n] of the list by source, token, choice */
	int32_t n_slots;
	int64_t *counts;  /* [n_slots] */
	int64_t *offsets; /* [n_slots + 1] rows before each slot, packed */
	int64_t n_tokens; /* different (source, token) */
};

/* padded_rows: of a slot, for EXPERT_PADDED. */
void bench_arrivals_make(struct bench_arrivals *arrivals,
                         const struct bench_case *c, int32_t rank,
                         uint64_t step, int64_t padded_rows);
void bench_arrivals_free(struct bench_arrivals *arrivals);

/* What a rank did receive. */
struct bench_received {
	const void *rows;
	size_t row_stride;
	const void *scales; /* float per block; NULL: none */
	size_t scales_stride;
	const int32_t *counts;
	const int64_t *offsets; /* NULL: not to be looked at */
	const int64_t *index;   /* TOKEN: row of each entry; otherwise NULL */
};

/* Part `part` of `of`, so that several threads can share the work. */
struct bench_share {
	int32_t part, of;
};
#define BENCH_WHOLE ((struct bench_share){0, 1})

/* Number of values that are not what they must be. */
int64_t bench_check_received(const struct bench_case *c, uint64_t step,
                             const struct bench_arrivals *arrivals,
                             const struct bench_received *got,
                             struct bench_share share);

/*
 * The experts' work, one bf16 row of y for every row that came. presummed: one
 * row for each row of the view instead, weighted and summed.
 */
void bench_run_experts(const struct bench_case *c,
                       const struct bench_arrivals *arrivals,
                       const struct bench_received *got, bool presummed,
                       uint16_t *y, struct bench_share share);

/* out is [tokens of rank][hidden]. Number of wrong values. */
int64_t bench_check_sums(const struct bench_case *c, int32_t rank,
                         uint64_t step, const uint16_t *out,
                         struct bench_share share);

#endif
