/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole model on one thread, without dispatch and combine: experts take
 * their rows from the batch and put them back, and the sum over a token's
 * choices is written out once more.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/number.h"
#include "lm_work.h"

/* Arrays for n tokens of a batch. */
struct forward {
	const struct lm_model *model;
	struct lm_work *work;
	int32_t n;
	float *x;       /* [n][hidden] */
	float *logits;  /* [n][n_experts] */
	int32_t *ids;   /* [n][topk] */
	float *weights; /* [n][topk] */
	int32_t *picks; /* [n * topk] choices of one expert */
	float *rows;    /* [n * topk][hidden] inputs of one expert */
	float *results; /* [n * topk][hidden] of it */
	float *y;       /* [n][topk][hidden] results of all */
};

static bool forward_open(struct forward *f, struct fault *fault)
{
	const struct lm_config *const c = &f->model->config;
	const size_t n = (size_t)f->n + 1; /* none of them is empty */
	const size_t hidden = (size_t)c->hidden;
	const size_t choices = n * (size_t)c->topk;

	f->x = calloc(n * hidden, sizeof(*f->x));
	f->logits = calloc(n * (size_t)c->n_experts, sizeof(*f->logits));
	f->ids = calloc(choices, sizeof(*f->ids));
	f->weights = calloc(choices, sizeof(*f->weights));
	f->picks = calloc(choices, sizeof(*f->picks));
	f->rows = calloc(choices * hidden, sizeof(*f->rows));
	f->results = calloc(choices * hidden, sizeof(*f->results));
	f->y = calloc(choices * hidden, sizeof(*f->y));
	if (f->x && f->logits && f->ids && f->weights && f->picks && f->rows &&
	    f->results && f->y)
		return true;
	return fault_set(fault, "no memory for %d tokens", f->n);
}

static void forward_close(struct forward *f)
{
	free(f->x);
	free(f->logits);
	free(f->ids);
	free(f->weights);
	free(f->picks);
	free(f->rows);
	free(f->results);
	free(f->y);
}

/* One expert of all tokens that chose it, in order of (token, choice). */
static void run_expert(struct forward *f, int32_t layer, int32_t expert)
{
	const struct lm_config *const c = &f->model->config;
	const struct lm_matrix *const m =
		f->model->layers[layer].experts[expert];
	const void *const tensors[] = {m[LM_GATE].data, m[LM_UP].data,
	                               m[LM_DOWN].data};
	const size_t hidden = (size_t)c->hidden;
	size_t n = 0;

	for (int32_t i = 0; i < f->n * c->topk; i++)
		if (f->ids[i] == expert) {
			memcpy(f->rows + n * hidden,
			       f->x + (size_t)(i / c->topk) * hidden,
			       hidden * sizeof(*f->x));
			f->picks[n++] = i;
		}
	lm_expert(f->model, f->work, tensors, f->rows, (int32_t)n, f->results);
	for (size_t i = 0; i < n; i++)
		memcpy(f->y + (size_t)f->picks[i] * hidden,
		       f->results + i * hidden, hidden * sizeof(*f->y));
}

/* Combine writes one NaN only. */
static float one_nan(float x)
{
	return isnan(x) ? f32_from_bits(0x7fffffff) : x;
}

/* h = the weighted sum over the choices, then + h. */
static void add_choices(const struct forward *f, float *h)
{
	const size_t topk = (size_t)f->model->config.topk;
	const int32_t hidden = f->model->config.hidden;

	for (size_t token = 0; token < (size_t)f->n; token++) {
		float *const row = h + token * (size_t)hidden;

		memset(f->rows, 0, (size_t)hidden * sizeof(*f->rows));
		for (size_t i = token * topk; i < (token + 1) * topk; i++)
			f->work->lanes->add_weighted(f->rows, f->weights[i],
			                             f->y + i * (size_t)hidden,
			                             hidden);
		for (int32_t i = 0; i < hidden; i++)
			row[i] = one_nan(f->rows[i] + row[i]);
	}
}

static bool moe(struct forward *f, int32_t layer, float *h, struct fault *fault)
{
	lm_router(f->model, f->work, layer, h, f->n, f->x, f->logits);
	if (!lm_check_router(f->model, layer, f->logits, f->n, fault) ||
	    !lm_choose(f->model, f->logits, f->n, f->ids, f->weights, fault))
		return false;
	for (int32_t e = 0; e < f->model->config.n_experts; e++)
		run_expert(f, layer, e);
	add_choices(f, h);
	return true;
}

bool lm_forward(const struct lm_model *model, struct lm_work *work,
                const struct lm_batch *batch, float *h, lm_visit *visit,
                void *arg, struct fault *fault)
{
	struct forward f = {
		.model = model, .work = work, .n = lm_batch_tokens(batch)};
	bool good = forward_open(&f, fault);

	if (good)
		lm_embed(model, batch, h);
	for (int32_t l = 0; good && l < model->config.n_layers; l++) {
		lm_attention(model, work, l, batch, h);
		good = moe(&f, l, h, fault);
		if (good && visit)
			visit(arg, l, f.ids);
	}
	forward_close(&f);
	return good;
}
