/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the stages, and the angles of the rotary embedding. */
#include "lm_work.h"

#include <math.h>
#include <stdlib.h>

static int32_t larger(int32_t a, int32_t b)
{
	return a > b ? a : b;
}

/* Memory that is touched only where it is used: the early router needs little
 * of it. False where there is none. */
static bool floats(float **data, int64_t rows, int64_t columns)
{
	const size_t bytes =
		((size_t)rows * (size_t)columns * sizeof(float) + 63) / 64 * 64;

	*data = aligned_alloc(64, bytes);
	return *data;
}

static bool arrays(struct lm_work *w, const struct lm_config *c)
{
	const int32_t group = w->max_group;
	const int32_t length = lm_whole_tiles(w->max_length);
	const int32_t q = c->n_heads * c->head_dim;
	const int32_t kv = c->n_kv_heads * c->head_dim;

	return floats(&w->norm, 2, larger(c->hidden, c->head_dim)) &&
	       floats(&w->x, larger(group, LM_CHUNK), c->hidden) &&
	       floats(&w->q, group, q) && floats(&w->k, group, kv) &&
	       floats(&w->v, group, kv) && floats(&w->keys, length, kv) &&
	       floats(&w->values, length, kv) &&
	       floats(&w->scores, length, LM_TILE_ROWS) &&
	       floats(&w->cosines, length, c->head_dim / 2) &&
	       floats(&w->sines, length, c->head_dim / 2) &&
	       floats(&w->gate, LM_CHUNK, c->expert_hidden) &&
	       floats(&w->up, LM_CHUNK, c->expert_hidden);
}

/* Room in the tiles for every product of the model. */
static bool products(struct lm_tile_work *tiles, const struct lm_config *c)
{
	const int32_t q = c->n_heads * c->head_dim;
	const int32_t kv = c->n_kv_heads * c->head_dim;

	return lm_tile_reserve(tiles, larger(q, kv), c->hidden) &&
	       lm_tile_reserve(tiles, c->hidden, q) &&
	       lm_tile_reserve(tiles, c->n_experts, c->hidden) &&
	       lm_tile_reserve(tiles, c->expert_hidden, c->hidden) &&
	       lm_tile_reserve(tiles, c->hidden, c->expert_hidden) &&
	       lm_tile_reserve(tiles, c->vocab, c->hidden);
}

static void angles(struct lm_work *w, const struct lm_config *c)
{
	const int32_t half = c->head_dim / 2;

	for (int32_t i = 0; i < half; i++) {
		const double frequency =
			pow(c->rope_theta, -2.0 * i / c->head_dim);

		for (int32_t p = 0; p < lm_whole_tiles(w->max_length); p++) {
			const size_t at =
				((size_t)(p / LM_TILE_ROWS) * (size_t)half +
			         (size_t)i) *
					LM_TILE_ROWS +
				(size_t)(p % LM_TILE_ROWS);

			w->cosines[at] = (float)cos(p * frequency);
			w->sines[at] = (float)sin(p * frequency);
		}
	}
}

bool lm_work_open(const struct lm_model *model, int32_t max_tokens,
                  int32_t max_length, struct lm_work **work,
                  struct fault *fault)
{
	struct lm_work *const w = calloc(1, sizeof(*w));

	if (!w || !lm_tile_open(&w->tiles, fault))
		goto no_memory;
	w->lanes = lm_lanes_at(0);
	w->max_tokens = max_tokens;
	w->max_length = max_length;
	w->max_group = lm_whole_tiles(larger(max_tokens, max_length));
	if (!arrays(w, &model->config) || !products(w->tiles, &model->config))
		goto no_memory;
	angles(w, &model->config);
	*work = w;
	return true;

no_memory:
	lm_work_close(w);
	return fault_set(fault, "no memory to compute %d tokens", max_tokens);
}

void lm_work_close(struct lm_work *work)
{
	if (!work)
		return;
	lm_tile_close(work->tiles);
	free(work->norm);
	free(work->x);
	free(work->q);
	free(work->k);
	free(work->v);
	free(work->keys);
	free(work->values);
	free(work->scores);
	free(work->cosines);
	free(work->sines);
	free(work->gate);
	free(work->up);
	free(work);
}

void lm_work_product(struct lm_work *work, const struct lm_matrix *weight,
                     const struct lm_rows *in, int32_t n_rows,
                     const struct lm_rows *out)
{
	if (!lm_tile_product(work->tiles, weight, in, n_rows, out))
		abort(); /* lm_work_open has reserved for this shape */
}
