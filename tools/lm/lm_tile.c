/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products in tiles: see lm_tile.h. To BLAS, which counts columns first, a tile
 * of the result is a matrix of LM_TILE_ROWS rows and as many columns as there
 * are outputs: in lanes.
 */
#include "lm_tile.h"

#include <stdlib.h>
#include <string.h>

#include "lm_blas.h"
#include "lm_lanes.h"

enum {
	/* Weights are widened in blocks: of few outputs the tiles are packed
	 * too often, of many the caches are left. */
	BLOCK_OUTPUTS = 1024,
	BLOCK_FLOATS = 1 << 19,
	ALIGNMENT = 64,
};

struct lm_tile_work {
	float *weights; /* a block of them, widened */
	float *in;      /* a tile of rows, padded */
	float *out;     /* a tile of the block's outputs, in lanes */
	size_t n_weights, n_in, n_out;
	const struct lm_lanes *lanes;
};

bool lm_tile_open(struct lm_tile_work **work, struct fault *fault)
{
	*work = calloc(1, sizeof(**work));
	if (!*work)
		return fault_set(fault, "products: no memory");
	(*work)->lanes = lm_lanes_at(0);
	return true;
}

void lm_tile_close(struct lm_tile_work *work)
{
	if (!work)
		return;
	free(work->weights);
	free(work->in);
	free(work->out);
	free(work);
}

/* Outputs of a block: by the shape of the weights alone. */
static int32_t block_outputs(int32_t n_in)
{
	const int32_t n = BLOCK_FLOATS / n_in / LM_TILE_ROWS * LM_TILE_ROWS;

	if (n > BLOCK_OUTPUTS)
		return BLOCK_OUTPUTS;
	return n > LM_TILE_ROWS ? n : LM_TILE_ROWS;
}

static bool grow(float **data, size_t *n, size_t wanted)
{
	if (wanted <= *n)
		return true;
	const size_t bytes = (wanted * sizeof(float) + ALIGNMENT - 1) /
	                     ALIGNMENT * ALIGNMENT;
	float *const grown = aligned_alloc(ALIGNMENT, bytes);

	if (!grown)
		return false;
	free(*data);
	*data = grown;
	*n = wanted;
	return true;
}

bool lm_tile_reserve(struct lm_tile_work *work, int32_t n_out, int32_t n_in)
{
	const int32_t block = block_outputs(n_in);
	const size_t n = (size_t)(block < n_out ? block : n_out);

	return grow(&work->weights, &work->n_weights, n * (size_t)n_in) &&
	       grow(&work->in, &work->n_in, (size_t)n_in * LM_TILE_ROWS) &&
	       grow(&work->out, &work->n_out, n * LM_TILE_ROWS);
}

void lm_tile_lanes(const struct lm_floats *m, const float *in, int32_t n_in,
                   float *out, int32_t n_out)
{
	lm_blas.sgemm(CblasColMajor, CblasNoTrans,
	              m->transposed ? CblasTrans : CblasNoTrans, LM_TILE_ROWS,
	              n_out, n_in, 1, in, LM_TILE_ROWS, m->data,
	              (blasint)m->stride, 0, out, LM_TILE_ROWS);
}

/* One tile of whole rows, by weights [n_out][n_in]. */
static void tile_of_rows(const float *weights, const float *in, size_t stride,
                         int32_t n_in, float *out, int32_t n_out)
{
	lm_blas.sgemm(CblasColMajor, CblasTrans, CblasNoTrans, LM_TILE_ROWS,
	              n_out, n_in, 1, in, (blasint)stride, weights, n_in, 0,
	              out, LM_TILE_ROWS);
}

/* What the tiles of a block have in common. */
struct block {
	struct lm_tile_work *work;
	const float *weights; /* [n_out][n_in] */
	int32_t first, n_out, n_in;
};

static void tile_in(const struct block *b, const struct lm_rows *in,
                    int32_t row, int32_t n_rows, float *out)
{
	const struct lm_floats m = {b->weights, (size_t)b->n_in, false};
	const float *const data = in->data + (size_t)row * in->stride;

	if (in->lanes) {
		lm_tile_lanes(&m, data, b->n_in, out, b->n_out);
	} else if (n_rows == LM_TILE_ROWS) {
		tile_of_rows(b->weights, data, in->stride, b->n_in, out,
		             b->n_out);
	} else {
		float *const padded = b->work->in;
		const size_t n = (size_t)b->n_in;

		memset(padded, 0, n * LM_TILE_ROWS * sizeof(*padded));
		for (int32_t r = 0; r < n_rows; r++)
			memcpy(padded + (size_t)r * n,
			       data + (size_t)r * in->stride,
			       n * sizeof(*padded));
		tile_of_rows(b->weights, padded, n, b->n_in, out, b->n_out);
	}
}

static void tile(const struct block *b, const struct lm_rows *in, int32_t row,
                 int32_t n_rows, const struct lm_rows *out)
{
	float *const data = out->data + (size_t)row * out->stride;

	if (out->lanes) {
		tile_in(b, in, row, n_rows,
		        data + (size_t)b->first * LM_TILE_ROWS);
		return;
	}
	tile_in(b, in, row, n_rows, b->work->out);
	b->work->lanes->rows_from_lanes(b->work->out, b->n_out, data + b->first,
	                                out->stride, n_rows);
}

bool lm_tile_product(struct lm_tile_work *work, const struct lm_matrix *weight,
                     const struct lm_rows *in, int32_t n_rows,
                     const struct lm_rows *out)
{
	const int32_t n_in = weight->cols, n_out = weight->rows;
	const int32_t step = block_outputs(n_in);

	if (n_rows == 0)
		return true;
	if (!lm_tile_reserve(work, n_out, n_in))
		return false;
	for (int32_t first = 0; first < n_out; first += step) {
		const int32_t n = first + step < n_out ? step : n_out - first;
		const struct block b = {work, work->weights, first, n, n_in};

		work->lanes->widen(weight, (int64_t)first * n_in,
		                   (int64_t)n * n_in, work->weights);
		for (int32_t row = 0; row < n_rows; row += LM_TILE_ROWS)
			tile(&b, in, row,
			     n_rows - row < LM_TILE_ROWS ? n_rows - row
			                                 : LM_TILE_ROWS,
			     out);
	}
	return true;
}
