/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing and weighing the experts of one token. Choice scores are compared
 * as integers in the order of the numbers that they stand for. Where the order
 * is that of the logits, the keys are made of the logits' own bits and nothing
 * rounds. Otherwise (a bias, or groups by the sum of their best two) scores
 * are doubles computed by fixed_exp.h, the keys their upper halves.
 */
#include "predict_row.h"

#include <math.h>

#include "../core/number.h"
#include "fixed_exp.h"

static inline int32_t key_of_float(float x)
{
	int32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	const int32_t magnitude = bits & INT32_MAX;
	const int32_t key = bits < 0 ? -magnitude : magnitude;

	return magnitude > 0x7f800000 ? FERRY_KEY_NAN : key;
}

/* The largest logit and the sum of e^(logit - largest). */
struct softmax {
	float max;
	double sum; /* 0: all are NaN */
};

static inline double softmax_term(float x, float max)
{
	return fixed_exp((double)x - (double)max);
}

/* Of infinite logits the largest, all alike, share all of it. */
static double n_equal(const float *x, int32_t n, float max)
{
	double sum = 0;

	for (int32_t i = 0; i < n; i++)
		sum += x[i] == max;
	return sum;
}

/*
 * In four sums, of every fourth, so that additions overlap; their order is
 * fixed like everything here.
 */
static struct softmax softmax_of(const float *x, int32_t n)
{
	float m[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
	double sum[4] = {0, 0, 0, 0};
	struct softmax s;
	int32_t i;

	for (i = 0; i < n; i++)
		m[i % 4] = x[i] > m[i % 4] ? x[i] : m[i % 4];
	m[0] = m[1] > m[0] ? m[1] : m[0];
	m[2] = m[3] > m[2] ? m[3] : m[2];
	s.max = m[2] > m[0] ? m[2] : m[0];
	if (isinf(s.max)) {
		s.sum = n_equal(x, n, s.max);
		return s;
	}
	for (i = 0; i + 4 <= n; i += 4)
		for (int32_t k = 0; k < 4; k++)
			sum[k] += softmax_term(x[i + k], s.max);
	for (; i < n; i++)
		sum[i % 4] += softmax_term(x[i], s.max);
	s.sum = (sum[0] + sum[1]) + (sum[2] + sum[3]);
	return s;
}

static inline double softmax_score(const struct softmax *s, float x)
{
	if (isinf(s->max))
		return x == s->max ? 1 / s->sum : 0.0;
	return softmax_term(x, s->max) / s->sum;
}

/* Is the order of choice that of the logits, in groups and among them? */
static bool orders_as_logits(const struct predict_rule *rule)
{
	return !rule->bias && (rule->topk_groups == rule->n_groups ||
	                       rule->group_score == FERRY_GROUP_MAX);
}

static void key_logits(const struct predict_rule *rule,
                       const struct predict_space *space)
{
	for (int32_t e = 0; e < rule->n_experts; e++)
		space->key[e] = key_of_float(space->x[e]);
}

static void score_sigmoid(const struct predict_rule *rule,
                          const struct predict_space *space)
{
	for (int32_t e = 0; e < rule->n_experts; e++)
		space->score[e] = fixed_sigmoid((double)space->x[e]);
}

static void score_softmax(const struct predict_rule *rule,
                          const struct predict_space *space)
{
	const struct softmax s = softmax_of(space->x, rule->n_experts);

	for (int32_t e = 0; e < rule->n_experts; e++)
		space->score[e] = softmax_score(&s, space->x[e]);
}

/* A denormal one is 0, whether the machine takes it for that or not. */
static inline double bias_of(float bias)
{
	return fabsf(bias) < FLT_MIN ? 0.0 : (double)bias;
}

static void key_scores(const struct predict_rule *rule,
                       const struct predict_space *space)
{
	double *const score = space->score;

	if (rule->score == FERRY_SCORE_SIGMOID)
		score_sigmoid(rule, space);
	else
		score_softmax(rule, space);
	for (int32_t e = 0; rule->bias && e < rule->n_experts; e++)
		score[e] += bias_of(rule->bias[e]);
	for (int32_t e = 0; e < rule->n_experts; e++) {
		if (space->x[e] != space->x[e])
			score[e] = -(double)INFINITY;
		space->key[e] = (int32_t)(ferry_key_of_double(score[e]) >> 32);
	}
}

static int64_t best_score(const double *score, int32_t n)
{
	double best = -(double)INFINITY;

	for (int32_t i = 0; i < n; i++)
		best = score[i] > best ? score[i] : best;
	return ferry_key_of_double(best);
}

static int64_t best_key(const int32_t *key, int32_t n)
{
	int32_t best = FERRY_KEY_NAN;

	for (int32_t i = 0; i < n; i++)
		best = key[i] > best ? key[i] : best;
	return best;
}

/* Of a group of one, its only score. */
static int64_t best_two_scores(const double *score, int32_t n)
{
	double first = score[0];
	double second = -(double)INFINITY;

	for (int32_t i = 1; i < n; i++) {
		if (score[i] > first) {
			second = first;
			first = score[i];
		} else if (score[i] > second) {
			second = score[i];
		}
	}
	return ferry_key_of_double(n > 1 ? first + second : first);
}

static int64_t key_of_group(const struct predict_rule *rule,
                            const struct predict_space *space,
                            const double *score, int32_t group)
{
	const size_t first = (size_t)group * (size_t)rule->group_size;

	if (!score)
		return best_key(space->key + first, rule->group_size);
	if (rule->group_score == FERRY_GROUP_MAX)
		return best_score(score + first, rule->group_size);
	return best_two_scores(score + first, rule->group_size);
}

/* All but the topk_groups best groups; of equal ones the lower is better. */
static void close_groups(const struct predict_rule *rule,
                         const struct predict_space *space, const double *score)
{
	int64_t *const key = space->group_key;

	for (int32_t g = 0; g < rule->n_groups; g++)
		key[g] = key_of_group(rule, space, score, g);
	for (int32_t g = 0; g < rule->n_groups; g++) {
		const size_t first = (size_t)g * (size_t)rule->group_size;
		int32_t n_better = 0;

		for (int32_t i = 0; i < rule->n_groups; i++)
			n_better += i < g ? key[i] >= key[g] : key[i] > key[g];
		for (int32_t e = 0;
		     n_better >= rule->topk_groups && e < rule->group_size; e++)
			space->key[first + (size_t)e] = FERRY_KEY_CLOSED;
	}
}

/* How many were chosen; the other ids are -1. */
static int32_t choose(const struct predict_rule *rule,
                      const struct predict_space *space, int32_t *ids)
{
	const double *score = orders_as_logits(rule) ? NULL : space->score;

	if (score)
		key_scores(rule, space);
	else
		key_logits(rule, space);
	for (int32_t e = rule->n_experts; e < rule->n_padded; e++)
		space->key[e] = FERRY_KEY_CLOSED;
	if (rule->topk_groups < rule->n_groups)
		close_groups(rule, space, score);
	return ferry_predict_select(rule, space, score, ids);
}

/* To fp32; what is denormal there is 0, whether the machine flushes or not. */
static float weight_of(double w)
{
	return w < (double)FLT_MIN ? 0.0f : (float)w;
}

static void weigh_softmax(const struct predict_rule *rule,
                          const struct predict_space *space, const float *x,
                          int32_t n, float *weights)
{
	/* Shares of the chosen ones are a softmax over them. */
	const struct softmax s =
		rule->renormalise ? softmax_of(x, n)
				  : softmax_of(space->x, rule->n_experts);

	for (int32_t k = 0; k < n; k++)
		weights[k] = weight_of(softmax_score(&s, x[k]) * rule->scale);
}

static void weigh_sigmoid(const struct predict_rule *rule, const float *x,
                          int32_t n, float *weights)
{
	double score[FERRY_PREDICT_TOPK];
	double sum = 0;

	for (int32_t k = 0; k < n; k++) {
		score[k] = fixed_sigmoid((double)x[k]);
		sum += score[k];
	}
	if (!rule->renormalise || !(sum > 0))
		sum = 1;
	for (int32_t k = 0; k < n; k++)
		weights[k] = weight_of(score[k] / sum * rule->scale);
}

/* From the logits of the chosen; a bias has no part in it. */
static void weigh(const struct predict_rule *rule,
                  const struct predict_space *space, const int32_t *ids,
                  int32_t n, float *weights)
{
	float x[FERRY_PREDICT_TOPK];

	for (int32_t k = 0; k < n; k++)
		x[k] = space->x[ids[k]];
	if (rule->score == FERRY_SCORE_SIGMOID)
		weigh_sigmoid(rule, x, n, weights);
	else
		weigh_softmax(rule, space, x, n, weights);
	for (int32_t k = n; k < rule->topk; k++)
		weights[k] = 0;
}

void ferry_predict_row(const struct predict_rule *rule,
                       const struct predict_space *space, int32_t *ids,
                       float *weights)
{
	const int32_t n = choose(rule, space, ids);

	if (weights)
		weigh(rule, space, ids, n, weights);
}
