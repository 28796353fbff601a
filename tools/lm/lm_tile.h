/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products whose rows have the same bits wherever they stand.
 *
 * A BLAS chooses its kernels by the shape, so that a row's last bits depend on
 * how many rows are beside it, and where it is among them. Here every product
 * is made of tiles of LM_TILE_ROWS rows (the last padded with zeros), each one
 * call of sgemm with the same shape, on one thread: a row of the result is a
 * function of its row of the input and of the weights alone. So results do not
 * depend on which rank computes them, nor in which company. Between machines
 * whose BLAS has other kernels they may differ.
 */
#ifndef FERRY_LM_TILE_H
#define FERRY_LM_TILE_H

#include <stddef.h>

#include "lm_model.h"

enum { LM_TILE_ROWS = 32 }; /* measured: see dev/lm.md */

/* Memory for products of one thread, grown as needed. */
struct lm_tile_work;

bool lm_tile_open(struct lm_tile_work **work, struct fault *fault);
void lm_tile_close(struct lm_tile_work *work);

/* One thread of BLAS for this process; call it once, before any product. */
void lm_tile_one_thread(void);

/*
 * out[i][j] = sum over c of in[i][c] * weight[j][c], for n_rows rows; strides
 * in floats. in and out do not overlap. False where memory ran out.
 */
bool lm_tile_matmul(struct lm_tile_work *work, const struct lm_matrix *weight,
                    const float *in, size_t in_stride, int32_t n_rows,
                    float *out, size_t out_stride);

#endif
