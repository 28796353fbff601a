/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products whose rows have the same bits wherever they stand.
 *
 * A BLAS chooses its kernels by the shape, so that a row's last bits depend on
 * how many rows are beside it, and where it is among them. Here every product
 * is made of tiles of LM_TILE_ROWS rows (the last padded with zeros), each one
 * call of sgemm with the same shape, on one thread, and the rows of a tile are
 * the lanes of the vectors of one kernel: a row of the result is a function of
 * its row of the input and of the weights alone. So results do not depend on
 * which rank computes them, nor in which company. Between machines whose BLAS
 * has other kernels they may differ. dev/lm.md has what else was tried.
 */
#ifndef FERRY_LM_TILE_H
#define FERRY_LM_TILE_H

#include <stddef.h>

#include "lm_model.h"

enum { LM_TILE_ROWS = 16 }; /* measured: see dev/lm.md */

/* Memory for products of one thread, grown as needed. lm_blas_open() has been
 * called before. */
struct lm_tile_work;

bool lm_tile_open(struct lm_tile_work **work, struct fault *fault);
void lm_tile_close(struct lm_tile_work *work);

/* Room for all weights up to this shape: later products cannot fail. */
bool lm_tile_reserve(struct lm_tile_work *work, int32_t n_out, int32_t n_in);

/*
 * Rows lie one after the other, or in lanes: tile after tile, in each the first
 * elements of its LM_TILE_ROWS rows side by side, then the second ones. Element
 * c of row r of n columns: at [(r / T * n + c) * T + r % T]. The last tile is
 * whole; what its surplus rows have does not matter to the others.
 */
struct lm_rows {
	float *data;
	size_t stride; /* floats from row to row; in lanes: the columns */
	bool lanes;
};

/*
 * out[i][j] = sum over c of in[i][c] * weight[j][c], for n_rows rows. in is not
 * written, and does not overlap out. False where memory ran out.
 */
bool lm_tile_product(struct lm_tile_work *work, const struct lm_matrix *weight,
                     const struct lm_rows *in, int32_t n_rows,
                     const struct lm_rows *out);

/*
 * One tile by a matrix of floats: out[j] = sum over c of in[c] * m[j][c], where
 * in[n_in] and out[n_out] are in lanes. m is [n_out][stride], or transposed:
 * [n_in][stride].
 */
struct lm_floats {
	const float *data;
	size_t stride;
	bool transposed;
};

void lm_tile_lanes(const struct lm_floats *m, const float *in, int32_t n_in,
                   float *out, int32_t n_out);

#endif
