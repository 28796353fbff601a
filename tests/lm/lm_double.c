/* SPDX-License-Identifier: Apache-2.0 */
/* See lm_double.h. */
#include "lm_double.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"

void double_multiply(const struct lm_matrix *matrix, const double *x, double *y)
{
	for (int32_t i = 0; i < matrix->rows; i++) {
		y[i] = 0;
		for (int32_t c = 0; c < matrix->cols; c++)
			y[i] += x[c] *
			        (double)lm_element(
					matrix, (int64_t)i * matrix->cols + c);
	}
}

void double_norm(const struct lm_matrix *weight, double eps, const double *x,
                 double *y)
{
	double squares = 0;

	for (int32_t i = 0; i < weight->cols; i++)
		squares += x[i] * x[i];
	for (int32_t i = 0; i < weight->cols; i++)
		y[i] = x[i] / sqrt(squares / weight->cols + eps) *
		       (double)lm_element(weight, i);
}

/* Norm and angle of one head at a position. */
static void turn(const struct lm_config *c, const struct lm_matrix *norm,
                 double *x, int32_t position)
{
	const int32_t half = c->head_dim / 2;

	double_norm(norm, (double)c->norm_eps, x, x);
	for (int32_t i = 0; i < half; i++) {
		const double angle =
			position * pow(c->rope_theta, -2.0 * i / c->head_dim);
		const double a = x[i], b = x[i + half];

		x[i] = a * cos(angle) - b * sin(angle);
		x[i + half] = b * cos(angle) + a * sin(angle);
	}
}

/* y = softmax(q * keys) * values, of n keys that are `stride` apart. */
static void attend(const struct lm_config *c, const double *q,
                   const double *keys, const double *values, int32_t n,
                   int32_t stride, double *y)
{
	double *const p = alloc_or_exit((size_t)n, sizeof(*p));
	double largest = -INFINITY, sum = 0;

	for (int32_t j = 0; j < n; j++) {
		for (int32_t i = 0; i < c->head_dim; i++)
			p[j] += q[i] * keys[j * stride + i];
		p[j] /= sqrt(c->head_dim);
		largest = fmax(largest, p[j]);
	}
	for (int32_t j = 0; j < n; j++)
		sum += p[j] = exp(p[j] - largest);
	memset(y, 0, (size_t)c->head_dim * sizeof(*y));
	for (int32_t j = 0; j < n; j++)
		for (int32_t i = 0; i < c->head_dim; i++)
			y[i] += p[j] / sum * values[j * stride + i];
	free(p);
}

/* All rows, each normed and multiplied, with turned heads where norm is set. */
static double *project(const struct lm_model *model, const struct lm_layer *l,
                       const struct lm_matrix *weight,
                       const struct lm_matrix *norm, const double *h,
                       int32_t length)
{
	const struct lm_config *const c = &model->config;
	double *const x = alloc_or_exit((size_t)c->hidden, sizeof(*x));
	double *const y = alloc_or_exit((size_t)length * (size_t)weight->rows,
	                                sizeof(*y));

	for (int32_t p = 0; p < length; p++) {
		double *const row = y + p * weight->rows;

		double_norm(&l->attention_norm, (double)c->norm_eps,
		            h + p * c->hidden, x);
		double_multiply(weight, x, row);
		for (int32_t i = 0; norm && i < weight->rows; i += c->head_dim)
			turn(c, norm, row + i, p);
	}
	free(x);
	return y;
}

void double_attention(const struct lm_model *model, int32_t layer, double *h,
                      int32_t length)
{
	const struct lm_config *const c = &model->config;
	const struct lm_layer *const l = &model->layers[layer];
	const int32_t wide = c->n_heads * c->head_dim;
	const int32_t kv = c->n_kv_heads * c->head_dim;
	double *const q = project(model, l, &l->q, &l->q_norm, h, length);
	double *const k = project(model, l, &l->k, &l->k_norm, h, length);
	double *const v = project(model, l, &l->v, NULL, h, length);
	double *const y = alloc_or_exit((size_t)wide, sizeof(*y));
	double *const o = alloc_or_exit((size_t)c->hidden, sizeof(*o));

	for (int32_t p = 0; p < length; p++) {
		for (int32_t i = 0; i < c->n_heads; i++) {
			const int32_t at =
				i / (c->n_heads / c->n_kv_heads) * c->head_dim;

			attend(c, q + p * wide + i * c->head_dim, k + at,
			       v + at, p + 1, kv, y + i * c->head_dim);
		}
		double_multiply(&l->o, y, o);
		for (int32_t i = 0; i < c->hidden; i++)
			h[p * c->hidden + i] += o[i];
	}
	free(q);
	free(k);
	free(v);
	free(y);
	free(o);
}

void double_expert(const struct lm_matrix m[LM_EXPERT_TENSORS], const double *x,
                   double *y)
{
	const int32_t n = m[LM_GATE].rows;
	double *const gate = alloc_or_exit((size_t)n, sizeof(*gate));
	double *const up = alloc_or_exit((size_t)n, sizeof(*up));

	double_multiply(&m[LM_GATE], x, gate);
	double_multiply(&m[LM_UP], x, up);
	for (int32_t i = 0; i < n; i++)
		gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
	double_multiply(&m[LM_DOWN], gate, y);
	free(gate);
	free(up);
}

void double_head(const struct lm_model *model, const double *h, double *logits)
{
	double *const x =
		alloc_or_exit((size_t)model->config.hidden, sizeof(*x));

	double_norm(&model->norm, (double)model->config.norm_eps, h, x);
	double_multiply(&model->head, x, logits);
	free(x);
}

/* Weights of the chosen; returns by how much another logit exceeds theirs. */
static double weigh(const struct lm_config *c, const double *logits,
                    const int32_t *ids, double *weights)
{
	double lowest = INFINITY, others = -INFINITY, all = 0, chosen = 0;

	for (int32_t k = 0; k < c->topk; k++)
		lowest = fmin(lowest, logits[ids[k]]);
	for (int32_t e = 0; e < c->n_experts; e++) {
		bool is_chosen = false;

		all += exp(logits[e]);
		for (int32_t k = 0; k < c->topk; k++)
			is_chosen |= ids[k] == e;
		chosen += is_chosen ? exp(logits[e]) : 0;
		others = is_chosen ? others : fmax(others, logits[e]);
	}
	for (int32_t k = 0; k < c->topk; k++)
		weights[k] =
			exp(logits[ids[k]]) / (c->norm_topk ? chosen : all);
	return others - lowest;
}

/* One token's row of h through the experts that were chosen for it. */
static double experts(const struct lm_model *model, const struct lm_layer *l,
                      const int32_t *ids, double *h)
{
	const struct lm_config *const c = &model->config;
	const size_t n = (size_t)c->hidden;
	double *const x = alloc_or_exit(2 * n, sizeof(*x)), *const y = x + n;
	double *const logits =
		alloc_or_exit((size_t)c->n_experts, sizeof(*logits));
	double weights[64];

	double_norm(&l->moe_norm, (double)c->norm_eps, h, x);
	double_multiply(&l->router, x, logits);
	const double gap = weigh(c, logits, ids, weights);

	for (int32_t k = 0; k < c->topk; k++) {
		double_expert(l->experts[ids[k]], x, y);
		for (int32_t i = 0; i < c->hidden; i++)
			h[i] += weights[k] * y[i];
	}
	free(x);
	free(logits);
	return gap;
}

void double_forward(const struct lm_model *model, const int32_t *tokens,
                    int32_t length, const int32_t *ids, double *h, double *gap)
{
	const struct lm_config *const c = &model->config;

	*gap = 0;
	for (int32_t p = 0; p < length; p++)
		for (int32_t i = 0; i < c->hidden; i++)
			h[p * c->hidden + i] = (double)lm_element(
				&model->embedding,
				(int64_t)tokens[p] * c->hidden + i);
	for (int32_t l = 0; l < c->n_layers; l++) {
		double_attention(model, l, h, length);
		for (int32_t p = 0; p < length; p++)
			*gap = fmax(*gap,
			            experts(model, &model->layers[l],
			                    ids + (l * length + p) * c->topk,
			                    h + p * c->hidden));
	}
}
