/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done to rows beside products: widening weights, norms, rotary
 * embedding, softmax, SwiGLU. "In lanes" is as in lm_tile.h: [n][LM_TILE_ROWS],
 * so that each row of the tile has a lane of the vectors, and its bits do not
 * depend on the others. There is a table for each instruction set; they give
 * the same bits.
 */
#ifndef FERRY_LM_LANES_H
#define FERRY_LM_LANES_H

#include "lm_tile.h"

struct lm_lanes {
	/* out[0..n-1] = elements first.. of a matrix, exact. */
	void (*widen)(const struct lm_matrix *matrix, int64_t first, int64_t n,
	              float *out);

	/* rows[r][0..n-1], r < n_rows <= LM_TILE_ROWS, from lanes[n]. */
	void (*rows_from_lanes)(const float *lanes, int32_t n, float *rows,
	                        size_t stride, int32_t n_rows);

	/* out[i] = x[i] / sqrt(mean of squares + eps) * weight[i] */
	void (*norm_row)(const float *x, const float *weight, float eps,
	                 int32_t n, float *out);

	/* The same for x[n] in lanes, in place. */
	void (*norm_lanes)(float *x, const float *weight, float eps, int32_t n);

	/* Pairs (i, i + n / 2) of x[n] in lanes turned by angles whose cosines
	 * and sines are [n / 2] in lanes. */
	void (*rotate_lanes)(float *x, const float *cosines, const float *sines,
	                     int32_t n);

	/*
	 * scores[n] in lanes become exp(scale * (score - largest of the lane)),
	 * and sums[LM_TILE_ROWS] their sums. Lane i sees all but the last
	 * LM_TILE_ROWS - 1 - i of them; the others become 0.
	 */
	void (*softmax_lanes)(float *scores, float scale, int32_t n,
	                      float *sums);

	/* x[n] in lanes divided by the sums of its lanes. */
	void (*divide_lanes)(float *x, const float *sums, int32_t n);

	/* gate[i] = silu(gate[i]) * up[i] */
	void (*swiglu)(float *gate, const float *up, int64_t n);

	/* sums[i] = fma(weight, x[i], sums[i]) */
	void (*add_weighted)(float *sums, float weight, const float *x,
	                     int32_t n);

	/* Sum of exp(x[i] - largest), and the largest. */
	double (*sum_exp)(const float *x, int32_t n, float *largest);

	/* exp(x) within 1 unit in the last place; below 2^-126 it is 0. */
	void (*exp)(const float *x, float *out, int64_t n);
};

extern const struct lm_lanes lm_lanes_plain;
#if defined(__x86_64__)
extern const struct lm_lanes lm_lanes_avx2;
extern const struct lm_lanes lm_lanes_avx512;
#endif

/* Table i of those that this machine can run, the fastest first; NULL behind
 * the last one. */
const struct lm_lanes *lm_lanes_at(int32_t i);

#endif
