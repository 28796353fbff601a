/* SPDX-License-Identifier: Apache-2.0 */
/* See lm_made.h. */
#include "lm_made.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"
#include "core/number.h"

int32_t lm_random_below(uint64_t *seed, int32_t n)
{
	return (int32_t)(rng_next(seed) % (uint64_t)n);
}

float lm_random_float(uint64_t *seed)
{
	return (float)(rng_next(seed) >> 40) * 0x1p-23f - 1;
}

struct lm_matrix lm_made_matrix(uint64_t *seed, enum lm_type type, int32_t rows,
                                int32_t cols, float scale)
{
	const size_t n = (size_t)rows * (size_t)cols;
	char *const data = malloc(n * (size_t)lm_type_bytes(type) + 1);

	if (!data)
		exit(1);
	for (size_t i = 0; i < n; i++) {
		const float x = lm_random_float(seed) * scale;
		const uint16_t half =
			type == LM_BF16 ? bf16_from_f32(x) : fp16_from_f32(x);

		if (type == LM_F32)
			memcpy(data + 4 * i, &x, 4);
		else
			memcpy(data + 2 * i, &half, 2);
	}
	return (struct lm_matrix){data, type, rows, cols};
}

/* Random with outputs about as large as inputs. */
static struct lm_matrix projection(uint64_t *seed, enum lm_type type,
                                   int32_t rows, int32_t cols)
{
	return lm_made_matrix(seed, type, rows, cols, sqrtf(3 / (float)cols));
}

/* A norm's weights; 0 to 2. */
static struct lm_matrix norm(uint64_t *seed, int32_t n)
{
	struct lm_matrix m = lm_made_matrix(seed, LM_F32, 1, n, 1);
	float *const x = (float *)(uintptr_t)m.data;

	for (int32_t i = 0; i < n; i++)
		x[i] += 1;
	return m;
}

static void fill_layer(struct lm_layer *l, const struct lm_config *c,
                       enum lm_type type, uint64_t *seed)
{
	const int32_t q = c->n_heads * c->head_dim;
	const int32_t kv = c->n_kv_heads * c->head_dim;

	l->attention_norm = norm(seed, c->hidden);
	l->moe_norm = norm(seed, c->hidden);
	l->q_norm = norm(seed, c->head_dim);
	l->k_norm = norm(seed, c->head_dim);
	l->q = projection(seed, type, q, c->hidden);
	l->k = projection(seed, type, kv, c->hidden);
	l->v = projection(seed, type, kv, c->hidden);
	l->o = projection(seed, type, c->hidden, q);
	l->router = projection(seed, type, c->n_experts, c->hidden);
	l->experts = calloc((size_t)c->n_experts, sizeof(*l->experts));
	if (!l->experts)
		exit(1);
	for (int32_t e = 0; e < c->n_experts; e++)
		for (int32_t t = 0; t < LM_EXPERT_TENSORS; t++)
			l->experts[e][t] = projection(
				seed, type,
				t == LM_DOWN ? c->hidden : c->expert_hidden,
				t == LM_DOWN ? c->expert_hidden : c->hidden);
}

void lm_made_open(struct lm_model *model, const struct lm_config *config,
                  enum lm_type type, uint64_t seed)
{
	*model = (struct lm_model){.config = *config, .expert_type = type};
	model->embedding =
		lm_made_matrix(&seed, type, config->vocab, config->hidden, 1);
	model->norm = norm(&seed, config->hidden);
	model->head = projection(&seed, type, config->vocab, config->hidden);
	model->layers =
		calloc((size_t)config->n_layers, sizeof(*model->layers));
	if (!model->layers)
		exit(1);
	for (int32_t l = 0; l < config->n_layers; l++)
		fill_layer(&model->layers[l], config, type, &seed);
}

static void drop(struct lm_matrix *m)
{
	free((void *)(uintptr_t)m->data);
}

void lm_made_close(struct lm_model *model)
{
	drop(&model->embedding);
	drop(&model->norm);
	drop(&model->head);
	for (int32_t i = 0; i < model->config.n_layers; i++) {
		struct lm_layer *const l = &model->layers[i];

		for (int32_t e = 0; e < model->config.n_experts; e++)
			for (int32_t t = 0; t < LM_EXPERT_TENSORS; t++)
				drop(&l->experts[e][t]);
		free(l->experts);
		drop(&l->attention_norm);
		drop(&l->moe_norm);
		drop(&l->q_norm);
		drop(&l->k_norm);
		drop(&l->q);
		drop(&l->k);
		drop(&l->v);
		drop(&l->o);
		drop(&l->router);
	}
	free(model->layers);
}

int32_t *lm_made_tokens(uint64_t *seed, int32_t n, int32_t vocab)
{
	int32_t *const tokens = malloc(((size_t)n + 1) * sizeof(*tokens));

	if (!tokens)
		exit(1);
	for (int32_t i = 0; i < n; i++)
		tokens[i] = lm_random_below(seed, vocab);
	return tokens;
}
