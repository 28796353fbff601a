/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done to rows beside products: widening weights, norms, rotary
 * embedding, softmax, SwiGLU. "In lanes" is as in lm_tile.h: [n][LM_TILE_ROWS],
 * so that each row of the tile has a lane of the vectors, and its bits do not
 * depend on the others.
 */
#ifndef FERRY_LM_LANES_H
#define FERRY_LM_LANES_H

#include "lm_tile.h"

/* out[0..n-1] = elements first.. of a matrix, exact. */
void lm_widen(const struct lm_matrix *matrix, int64_t first, int64_t n,
              float *out);

/* rows[r][0..n-1], r < n_rows <= LM_TILE_ROWS, from lanes[n]. */
void lm_rows_from_lanes(const float *lanes, int32_t n, float *rows,
                        size_t stride, int32_t n_rows);

/* out[i] = x[i] / sqrt(mean of squares + eps) * weight[i] */
void lm_norm_row(const float *x, const float *weight, float eps, int32_t n,
                 float *out);

/* The same for x[n] in lanes, in place. */
void lm_norm_lanes(float *x, const float *weight, float eps, int32_t n);

/* Pairs (i, i + n / 2) of x[n] in lanes turned by angles whose cosines and
 * sines are [n / 2] in lanes. */
void lm_rotate_lanes(float *x, const float *cosines, const float *sines,
                     int32_t n);

/*
 * scores[n] in lanes become exp(scale * (score - largest of the lane)), and
 * sums[LM_TILE_ROWS] their sums. Lane i sees all but the last
 * LM_TILE_ROWS - 1 - i of them; the others become 0.
 */
void lm_softmax_lanes(float *scores, float scale, int32_t n, float *sums);

/* x[n] in lanes divided by the sums of its lanes. */
void lm_divide_lanes(float *x, const float *sums, int32_t n);

/* gate[i] = silu(gate[i]) * up[i] */
void lm_swiglu(float *gate, const float *up, int64_t n);

/* Sum of exp(x[i] - largest), and the largest. */
double lm_sum_exp(const float *x, int32_t n, float *largest);

/*
 * exp(x) within 1 unit in the last place; below 2^-126 it is 0. Plain
 * arithmetic, so that compilers make vectors of it, with the same bits.
 */
void lm_exp(const float *x, float *out, int64_t n);

#endif
