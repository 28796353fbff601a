/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A router's rule, slow and plain: scores by libm, a full sort, every step as
 * the models' own code words it. What ferry_predict_topk is compared with.
 */
#ifndef PREDICT_REF_H
#define PREDICT_REF_H

#include <float.h>
#include <math.h>

#include <ferry/predict.h>

enum { REF_EXPERTS = 600 };

/* Orders: NaN below -infinity. */
struct ref_key {
	bool is_nan;
	double value;
};

static inline bool ref_less(struct ref_key a, struct ref_key b)
{
	if (a.is_nan || b.is_nan)
		return a.is_nan && !b.is_nan;
	return a.value < b.value;
}

/* Ids of the n best of keys, falling, ties to the lower id. */
static inline void ref_sort(const struct ref_key *key, int32_t n, int32_t *ids)
{
	for (int32_t i = 0; i < n; i++) {
		int32_t at = i;

		for (; at > 0 && ref_less(key[ids[at - 1]], key[i]); at--)
			ids[at] = ids[at - 1];
		ids[at] = i;
	}
}

/* Softmax or sigmoid of n logits; 0 for NaN. */
static inline void ref_scores(enum ferry_score kind, const float *x, int32_t n,
                              double *score)
{
	double max = -(double)INFINITY;
	double sum = 0;

	for (int32_t e = 0; e < n; e++)
		if ((double)x[e] > max)
			max = (double)x[e];
	for (int32_t e = 0; e < n; e++) {
		if (kind == FERRY_SCORE_SIGMOID)
			score[e] = 1 / (1 + exp(-(double)x[e]));
		else if ((double)x[e] == max)
			score[e] = 1;
		else
			score[e] = exp((double)x[e] - max);
		if (isnan(x[e]))
			score[e] = 0;
		sum += score[e];
	}
	for (int32_t e = 0; kind == FERRY_SCORE_SOFTMAX && sum > 0 && e < n;
	     e++)
		score[e] /= sum;
}

static inline void ref_keys(const struct ferry_router *router, const float *x,
                            const double *score, struct ref_key *key)
{
	const bool logits =
		!router->bias && (router->group_score == FERRY_GROUP_MAX ||
	                          !router->topk_groups ||
	                          router->topk_groups == router->n_groups);

	for (int32_t e = 0; e < router->n_experts; e++) {
		key[e].is_nan = isnan(x[e]);
		key[e].value = logits ? (double)x[e] : score[e];
		/* A denormal bias is none. */
		if (router->bias && fabsf(router->bias[e]) >= FLT_MIN)
			key[e].value += (double)router->bias[e];
		if (key[e].is_nan && !logits)
			key[e] = (struct ref_key){false, -(double)INFINITY};
	}
}

/* allowed[e] false: in a group that is not among the best. */
static inline void ref_groups(const struct ferry_router *router,
                              const struct ref_key *key, bool *allowed)
{
	const int32_t n_groups = router->n_groups ? router->n_groups : 1;
	const int32_t size = router->n_experts / n_groups;
	const int32_t n_open =
		router->topk_groups ? router->topk_groups : n_groups;
	struct ref_key group[REF_EXPERTS];
	int32_t best[REF_EXPERTS];

	for (int32_t g = 0; g < n_groups; g++) {
		const struct ref_key *of = key + (size_t)g * (size_t)size;

		ref_sort(of, size, best);
		group[g] = of[best[0]];
		if (router->group_score == FERRY_GROUP_TOP2 && size > 1)
			group[g].value += of[best[1]].value;
	}
	ref_sort(group, n_groups, best);
	for (int32_t e = 0; e < router->n_experts; e++)
		allowed[e] = false;
	for (int32_t i = 0; i < n_open; i++)
		for (int32_t e = 0; e < size; e++)
			allowed[best[i] * size + e] = true;
}

/*
 * Dividing a softmax by the sum of the chosen is a softmax over them, also
 * where their shares of the whole are 0.
 */
static inline void ref_weights(const struct ferry_router *router,
                               const float *x, const double *score,
                               const int32_t *ids, double *weights)
{
	const double scale =
		router->weight_scale != 0 ? (double)router->weight_scale : 1;
	float chosen[REF_EXPERTS];
	double sum = 0;

	for (int32_t k = 0; k < router->topk; k++) {
		chosen[k] = ids[k] < 0 ? NAN : x[ids[k]];
		weights[k] = ids[k] < 0 ? 0 : score[ids[k]];
	}
	if (router->renormalise)
		ref_scores(router->score, chosen, router->topk, weights);
	for (int32_t k = 0; k < router->topk; k++)
		sum += weights[k];
	for (int32_t k = 0; k < router->topk; k++) {
		if (router->renormalise && sum > 0)
			weights[k] /= sum;
		weights[k] *= scale;
	}
}

static inline void ref_topk(const struct ferry_router *router, const float *x,
                            int32_t *ids, double *weights)
{
	double score[REF_EXPERTS];
	struct ref_key key[REF_EXPERTS];
	bool allowed[REF_EXPERTS];
	int32_t order[REF_EXPERTS];
	int32_t n = 0;

	ref_scores(router->score, x, router->n_experts, score);
	ref_keys(router, x, score, key);
	ref_groups(router, key, allowed);
	ref_sort(key, router->n_experts, order);
	for (int32_t i = 0; i < router->n_experts && n < router->topk; i++)
		if (allowed[order[i]])
			ids[n++] = order[i];
	while (n < router->topk)
		ids[n++] = -1;
	ref_weights(router, x, score, ids, weights);
}

#endif
