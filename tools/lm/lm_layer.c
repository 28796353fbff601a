/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a layer but attention; the head; the choice of experts. */
#include "lm_layer.h"

#include <ferry/predict.h>
#include <math.h>
#include <string.h>

#include "lm_work.h"

int32_t lm_batch_tokens(const struct lm_batch *batch)
{
	int32_t n = 0;

	for (int32_t s = 0; s < batch->n_sequences; s++)
		n += batch->lengths[s];
	return n;
}

void lm_embed(const struct lm_model *model, const struct lm_batch *batch,
              float *h)
{
	const int32_t hidden = model->config.hidden;
	const int32_t n = lm_batch_tokens(batch);
	const struct lm_lanes *const lanes = lm_lanes_at(0);

	for (int32_t i = 0; i < n; i++)
		lanes->widen(&model->embedding,
		             (int64_t)batch->tokens[i] * hidden, hidden,
		             h + (size_t)i * (size_t)hidden);
}

/* x[n] = norms of h[n]. */
static void norm_rows(const struct lm_model *model, struct lm_work *work,
                      const struct lm_matrix *norm, const float *h, int32_t n,
                      float *x)
{
	const struct lm_config *const c = &model->config;

	work->lanes->widen(norm, 0, c->hidden, work->norm);
	for (int32_t i = 0; i < n; i++) {
		const size_t at = (size_t)i * (size_t)c->hidden;

		work->lanes->norm_row(h + at, work->norm, c->norm_eps,
		                      c->hidden, x + at);
	}
}

void lm_router(const struct lm_model *model, struct lm_work *work,
               int32_t layer, const float *h, int32_t n, float *x,
               float *logits)
{
	const struct lm_layer *const l = &model->layers[layer];
	const struct lm_rows in = {x, (size_t)model->config.hidden, false};
	const struct lm_rows out = {logits, (size_t)model->config.n_experts,
	                            false};

	norm_rows(model, work, &l->moe_norm, h, n, x);
	lm_work_product(work, &l->router, &in, n, &out);
}

static struct lm_matrix expert_matrix(const struct lm_model *model,
                                      const void *data, enum lm_expert_tensor t)
{
	const int32_t hidden = model->config.hidden;
	const int32_t inner = model->config.expert_hidden;

	return (struct lm_matrix){data, model->expert_type,
	                          t == LM_DOWN ? hidden : inner,
	                          t == LM_DOWN ? inner : hidden};
}

void lm_expert(const struct lm_model *model, struct lm_work *work,
               const void *const tensors[LM_EXPERT_TENSORS], const float *rows,
               int32_t n, float *out)
{
	const size_t hidden = (size_t)model->config.hidden;
	const size_t inner = (size_t)model->config.expert_hidden;
	const struct lm_rows gate = {work->gate, inner, true};
	const struct lm_rows up = {work->up, inner, true};
	struct lm_matrix m[LM_EXPERT_TENSORS];

	for (int32_t t = 0; t < LM_EXPERT_TENSORS; t++)
		m[t] = expert_matrix(model, tensors[t],
		                     (enum lm_expert_tensor)t);
	for (int32_t row = 0; row < n; row += LM_CHUNK) {
		const int32_t some = n - row < LM_CHUNK ? n - row : LM_CHUNK;
		const size_t at = (size_t)row * hidden;
		/* Products do not write their input. */
		const struct lm_rows in = {(float *)(uintptr_t)rows + at,
		                           hidden, false};
		const struct lm_rows result = {out + at, hidden, false};

		lm_work_product(work, &m[LM_GATE], &in, some, &gate);
		lm_work_product(work, &m[LM_UP], &in, some, &up);
		work->lanes->swiglu(work->gate, work->up,
		                    (int64_t)inner * lm_whole_tiles(some));
		lm_work_product(work, &m[LM_DOWN], &gate, some, &result);
	}
}

void lm_head(const struct lm_model *model, struct lm_work *work, const float *h,
             int32_t n, float *logits)
{
	const size_t hidden = (size_t)model->config.hidden;
	const size_t vocab = (size_t)model->config.vocab;

	for (int32_t row = 0; row < n; row += LM_CHUNK) {
		const int32_t some = n - row < LM_CHUNK ? n - row : LM_CHUNK;
		const struct lm_rows in = {work->x, hidden, false};
		const struct lm_rows out = {logits + (size_t)row * vocab, vocab,
		                            false};

		norm_rows(model, work, &model->norm, h + (size_t)row * hidden,
		          some, work->x);
		lm_work_product(work, &model->head, &in, some, &out);
	}
}

double lm_nll(const float *logits, int32_t n, int32_t vocab,
              const int32_t *targets)
{
	double sum = 0;

	for (int32_t i = 0; i < n; i++) {
		const float *const row = logits + (size_t)i * (size_t)vocab;
		float largest;
		const double exps =
			lm_lanes_at(0)->sum_exp(row, vocab, &largest);

		sum += log(exps) + (double)largest - (double)row[targets[i]];
	}
	return sum;
}

static bool is_broken(const float *row, int32_t width)
{
	bool broken = false;

	for (int32_t i = 0; i < width; i++)
		broken |= !isfinite(row[i]);
	return broken;
}

int32_t lm_first_broken(const float *rows, int32_t n, int32_t width)
{
	int32_t row = 0;

	while (row < n && !is_broken(rows + (size_t)row * (size_t)width, width))
		row++;
	return row;
}

bool lm_check_router(const struct lm_model *model, int32_t layer,
                     const float *logits, int32_t n, struct fault *fault)
{
	const int32_t token =
		lm_first_broken(logits, n, model->config.n_experts);

	return token == n ||
	       fault_set(fault,
	                 "layer %d, token %d: the router's logits are not "
	                 "finite; weights of this layer, or of one before, "
	                 "may be damaged",
	                 layer, token);
}

bool lm_choose(const struct lm_model *model, const float *logits, int32_t n,
               int32_t *ids, float *weights, struct fault *fault)
{
	const struct lm_config *const c = &model->config;
	struct ferry_router router = FERRY_ROUTER_INIT;
	struct ferry_logits in = FERRY_LOGITS_INIT;

	router.n_experts = c->n_experts;
	router.topk = c->topk;
	router.renormalise = c->norm_topk;
	in.n_tokens = n;
	in.logits = logits;
	const enum ferry_status status =
		ferry_predict_topk(&router, &in, ids, weights);

	return status == FERRY_OK ? true
	                          : fault_set(fault, "choice of experts: %s",
	                                      ferry_status_text(status));
}
