/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a balancer learns from the true router. It travels with the layer's next
 * prediction, so that history and statistics are equal on all ranks and cost
 * no meeting.
 */
#include <string.h>

#include "balancer_inner.h"

enum ferry_status ferry_balancer_check(struct ferry_balancer *b,
                                       const char *call, int32_t layer)
{
	if (!b)
		return ferry_fail(NULL, FERRY_INVAL, "%s: balancer is NULL",
		                  call);
	if (layer < 0 || layer >= b->experts->n_layers)
		return ferry_fail(&b->world->ctx, FERRY_RANGE,
		                  "%s: layer is %d, allowed are 0..%d", call,
		                  layer, b->experts->n_layers - 1);
	return FERRY_OK;
}

/* Sum of |predicted - true|. */
static uint64_t distance(const int64_t *predicted, const int64_t *truth,
                         int32_t n_experts)
{
	uint64_t sum = 0;

	for (int32_t e = 0; e < n_experts; e++) {
		const int64_t off = truth[e] - predicted[e];

		sum += (uint64_t)(off < 0 ? -off : off);
	}
	return sum;
}

/* The truth about the last prediction, under the placement in force. */
static enum ferry_status judge(struct ferry_balancer *b, int32_t layer,
                               const int64_t *truth)
{
	const struct balancer_layer *l = &b->layers[layer];
	int64_t first, level;
	uint64_t all = 0;

	FERRY_TRY(ferry_balancer_level(b, l->first, truth, &first));
	FERRY_TRY(ferry_balancer_level(
		b, ferry_experts_placement(b->experts, layer), truth, &level));
	for (int32_t e = 0; e < l->n_experts; e++)
		all += (uint64_t)truth[e];
	pthread_mutex_lock(&b->lock);
	b->stats.n_compared++;
	b->stats.true_tokens += all;
	if (balancer_plans(b)) {
		b->stats.wrong_tokens +=
			distance(l->foreseen, truth, l->n_experts);
		b->stats.wrong_planned_tokens +=
			distance(l->loads, truth, l->n_experts);
	}
	b->stats.true_first_ppm +=
		(uint64_t)ferry_balancer_ppm(b, first, truth, l->n_experts);
	b->stats.true_ppm +=
		(uint64_t)ferry_balancer_ppm(b, level, truth, l->n_experts);
	pthread_mutex_unlock(&b->lock);
	return FERRY_OK;
}

/* A step of the history ends where a layer comes again. */
static enum ferry_status remember(struct ferry_balancer *b, int32_t layer,
                                  const int64_t *truth)
{
	struct balancer_layer *l = &b->layers[layer];

	if (l->in_history) {
		ferry_history_step(b->history);
		for (int32_t i = 0; i < b->experts->n_layers; i++)
			b->layers[i].in_history = false;
	}
	l->in_history = true;
	memset(b->past, 0, (size_t)b->most_experts * sizeof(*b->past));
	memcpy(b->past, truth, (size_t)l->n_experts * sizeof(*b->past));
	return ferry_history_add(b->history, layer, b->past);
}

enum ferry_status ferry_balancer_learn(struct ferry_balancer *b, int32_t layer)
{
	struct balancer_layer *l = &b->layers[layer];
	const size_t n = (size_t)l->n_experts;
	const int64_t *truth = b->sums + n;
	const int64_t n_seen = b->sums[2 * n];

	if (l->has_loads && n_seen == b->n_ranks) {
		FERRY_TRY(judge(b, layer, truth));
		FERRY_TRY(ferry_balancer_redeem(b, layer, truth));
		if (balancer_calibrates(b))
			ferry_calibration_add(&l->calibration, l->foreseen,
			                      truth);
	}
	ferry_balancer_forget(l);
	if (balancer_has_history(b) && n_seen > 0)
		FERRY_TRY(remember(b, layer, truth));
	l->has_loads = true;
	memcpy(l->foreseen, b->sums, n * sizeof(*l->foreseen));
	memcpy(l->loads, b->sums, n * sizeof(*l->loads));
	if (balancer_calibrates(b))
		ferry_calibration_apply(&l->calibration, l->foreseen, l->loads);
	if (balancer_plans(b))
		return FERRY_OK;
	/* History is all that EPLB foresees. */
	FERRY_TRY(ferry_history_loads(b->history, layer, b->past));
	memcpy(l->loads, b->past, n * sizeof(*l->loads));
	return FERRY_OK;
}

static enum ferry_status check_seen(const struct ferry_balancer *b,
                                    int32_t layer, const int32_t *counts)
{
	const struct balancer_layer *l = &b->layers[layer];

	for (int32_t e = 0; e < l->n_experts; e++) {
		if (counts[e] < 0)
			return ferry_fail(&b->world->ctx, FERRY_RANGE,
			                  "balancer_observe: layer %d: "
			                  "counts[%d] is %d, allowed are 0..",
			                  layer, e, counts[e]);
		if (counts[e] > INT32_MAX - l->seen[e])
			return ferry_fail(&b->world->ctx, FERRY_RANGE,
			                  "balancer_observe: layer %d: "
			                  "counts[%d] is %d, with %d since the "
			                  "last prediction more than %d",
			                  layer, e, counts[e], l->seen[e],
			                  INT32_MAX);
	}
	return FERRY_OK;
}

enum ferry_status ferry_balancer_observe(struct ferry_balancer *balancer,
                                         int32_t layer, const int32_t *counts)
{
	struct ferry_balancer *b = balancer;
	enum ferry_status status = FERRY_OK;

	FERRY_TRY(ferry_balancer_check(b, "balancer_observe", layer));
	if (b->config.policy == FERRY_BALANCE_OFF)
		return FERRY_OK;
	struct balancer_layer *l = &b->layers[layer];

	pthread_mutex_lock(&b->lock);
	if (counts)
		status = check_seen(b, layer, counts);
	for (int32_t e = 0; counts && !status && e < l->n_experts; e++)
		l->seen[e] += counts[e];
	l->n_seen += !status;
	pthread_mutex_unlock(&b->lock);
	return status;
}
