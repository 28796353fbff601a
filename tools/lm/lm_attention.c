/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention, in lanes: a tile is LM_TILE_ROWS neighbours of one sequence, and
 * its products have shapes that depend on where in the sequence they stand.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lm_work.h"

/* Sequences first.. of a batch that are computed together. */
struct group {
	const struct lm_model *model;
	struct lm_work *work;
	const struct lm_layer *layer;
	const int32_t *lengths;
	int32_t n_sequences;
	int32_t n_rows; /* padded */
	float *h;       /* of its first token */
};

/* Norms of all rows, each sequence padded by zeros to whole tiles. */
static void normed_rows(const struct group *g)
{
	const struct lm_config *const c = &g->model->config;
	const size_t n = (size_t)c->hidden;
	const float *h = g->h;
	float *x = g->work->x;

	g->work->lanes->widen(&g->layer->attention_norm, 0, c->hidden,
	                      g->work->norm);
	for (int32_t s = 0; s < g->n_sequences; s++) {
		const int32_t length = g->lengths[s];
		const int32_t whole = lm_whole_tiles(length);

		for (int32_t i = 0; i < length; i++, h += n, x += n)
			g->work->lanes->norm_row(h, g->work->norm, c->norm_eps,
			                         c->hidden, x);
		memset(x, 0, (size_t)(whole - length) * n * sizeof(*x));
		x += (size_t)(whole - length) * n;
	}
}

/* x[group] times weights, in lanes. */
static void project(const struct group *g, const struct lm_matrix *weight,
                    float *out)
{
	const struct lm_rows in = {g->work->x, (size_t)g->model->config.hidden,
	                           false};
	const struct lm_rows lanes = {out, (size_t)weight->rows, true};

	lm_work_product(g->work, weight, &in, g->n_rows, &lanes);
}

/* Norms and angles of the heads of one tile, whose first row is at `position`
 * of its sequence. */
static void turn_heads(const struct group *g, float *heads, int32_t n_heads,
                       const struct lm_matrix *norm, int32_t position)
{
	const struct lm_config *const c = &g->model->config;
	const size_t angles = (size_t)position * (size_t)(c->head_dim / 2);

	g->work->lanes->widen(norm, 0, c->head_dim, g->work->norm);
	for (int32_t head = 0; head < n_heads; head++) {
		float *const x = heads + (size_t)head * (size_t)c->head_dim *
		                                 LM_TILE_ROWS;

		g->work->lanes->norm_lanes(x, g->work->norm, c->norm_eps,
		                           c->head_dim);
		g->work->lanes->rotate_lanes(x, g->work->cosines + angles,
		                             g->work->sines + angles,
		                             c->head_dim);
	}
}

/* Columns [n][LM_TILE_ROWS] into a matrix of `stride` columns. */
static void place_columns(const float *lanes, int32_t n, float *matrix,
                          size_t stride)
{
	for (int32_t i = 0; i < n; i++)
		memcpy(matrix + (size_t)i * stride, lanes + i * LM_TILE_ROWS,
		       LM_TILE_ROWS * sizeof(*lanes));
}

/* One head of a tile: its queries q[head_dim] in lanes become the result. */
static void attend(const struct group *g, float *q, int32_t kv_head,
                   int32_t n_keys, size_t stride)
{
	struct lm_work *const w = g->work;
	const int32_t n = g->model->config.head_dim;
	const size_t at = (size_t)kv_head * (size_t)n * stride;
	const struct lm_floats keys = {w->keys + at, stride, true};
	const struct lm_floats values = {w->values + at, stride, false};
	float sums[LM_TILE_ROWS];

	lm_tile_lanes(&keys, q, n, w->scores, n_keys);
	w->lanes->softmax_lanes(w->scores, 1 / sqrtf((float)n), n_keys, sums);
	lm_tile_lanes(&values, w->scores, n_keys, q, n);
	w->lanes->divide_lanes(q, sums, n);
}

/* One sequence, whose rows in q, k and v begin at `row`. */
static void sequence(const struct group *g, int32_t row, int32_t length)
{
	struct lm_work *const w = g->work;
	const struct lm_config *const c = &g->model->config;
	const int32_t kv = c->n_kv_heads * c->head_dim;
	const size_t stride = (size_t)lm_whole_tiles(length);

	for (int32_t p = 0; p < length; p += LM_TILE_ROWS) {
		float *const q = w->q + (size_t)(row + p) * (size_t)c->n_heads *
		                                (size_t)c->head_dim;
		const size_t at = (size_t)(row + p) * (size_t)kv;

		turn_heads(g, q, c->n_heads, &g->layer->q_norm, p);
		turn_heads(g, w->k + at, c->n_kv_heads, &g->layer->k_norm, p);
		place_columns(w->k + at, kv, w->keys + p, stride);
		place_columns(w->v + at, kv, w->values + p, stride);
		for (int32_t head = 0; head < c->n_heads; head++)
			attend(g,
			       q + (size_t)head * (size_t)c->head_dim *
			                       LM_TILE_ROWS,
			       head * c->n_kv_heads / c->n_heads,
			       p + LM_TILE_ROWS, stride);
	}
}

/* h += rows of x, which each sequence has padded. */
static void add_rows(const struct group *g)
{
	const int32_t hidden = g->model->config.hidden;
	const float *x = g->work->x;
	float *h = g->h;

	for (int32_t s = 0; s < g->n_sequences; s++) {
		const int64_t n = (int64_t)g->lengths[s] * hidden;

		for (int64_t i = 0; i < n; i++)
			h[i] += x[i];
		h += n;
		x += (int64_t)lm_whole_tiles(g->lengths[s]) * hidden;
	}
}

static void attend_group(const struct group *g)
{
	struct lm_work *const w = g->work;
	const struct lm_config *const c = &g->model->config;
	const struct lm_rows heads = {
		w->q, (size_t)c->n_heads * (size_t)c->head_dim, true};
	const struct lm_rows x = {w->x, (size_t)c->hidden, false};
	int32_t row = 0;

	normed_rows(g);
	project(g, &g->layer->q, w->q);
	project(g, &g->layer->k, w->k);
	project(g, &g->layer->v, w->v);
	for (int32_t s = 0; s < g->n_sequences; s++) {
		sequence(g, row, g->lengths[s]);
		row += lm_whole_tiles(g->lengths[s]);
	}
	lm_work_product(w, &g->layer->o, &heads, g->n_rows, &x);
	add_rows(g);
}

/* Takes as many sequences as the work has room for, at least one; returns their
 * tokens. */
static int32_t fill_group(struct group *g, int32_t n_left)
{
	int32_t n_tokens = 0;

	g->n_sequences = g->n_rows = 0;
	while (g->n_sequences < n_left) {
		const int32_t length = g->lengths[g->n_sequences];
		const int32_t whole = lm_whole_tiles(length);

		if (g->n_rows + whole > g->work->max_group)
			break;
		g->n_rows += whole;
		g->n_sequences++;
		n_tokens += length;
	}
	if (g->n_sequences == 0)
		abort(); /* longer than lm_work_open was told */
	return n_tokens;
}

void lm_attention(const struct lm_model *model, struct lm_work *work,
                  int32_t layer, const struct lm_batch *batch, float *h)
{
	struct group g = {.model = model,
	                  .work = work,
	                  .layer = &model->layers[layer],
	                  .lengths = batch->lengths,
	                  .h = h};

	for (int32_t left = batch->n_sequences; left > 0;
	     left -= g.n_sequences) {
		const int32_t n_tokens = fill_group(&g, left);

		attend_group(&g);
		g.h += (size_t)n_tokens * (size_t)model->config.hidden;
		g.lengths += g.n_sequences;
	}
}
