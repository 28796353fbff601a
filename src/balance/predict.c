/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry_predict_topk: what is asked for, checked whole, and then token by
 * token (predict_row.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/placement.h>

#include "../core/bits.h"
#include "../core/number.h"
#include "../core/range.h"
#include "../core/sized.h"
#include "predict_row.h"

static const char call[] = "predict_topk";

static enum ferry_status check_groups(struct ferry_router *router)
{
	if (router->n_groups == 0)
		router->n_groups = 1;
	FERRY_TRY(check_range(NULL, call, "router.n_groups", router->n_groups,
	                      1, router->n_experts));
	if (router->n_experts % router->n_groups)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "predict_topk: router.n_groups is %d, "
		                  "allowed are divisors of the %d experts",
		                  router->n_groups, router->n_experts);
	if (router->topk_groups == 0)
		router->topk_groups = router->n_groups;
	FERRY_TRY(check_range(NULL, call, "router.topk_groups",
	                      router->topk_groups, 1, router->n_groups));
	return check_range(NULL, call, "router.group_score",
	                   router->group_score, FERRY_GROUP_MAX,
	                   FERRY_GROUP_TOP2);
}

static enum ferry_status check_numbers(struct ferry_router *router)
{
	if (router->weight_scale == 0)
		router->weight_scale = 1;
	if (!isfinite(router->weight_scale) || router->weight_scale < 0)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "predict_topk: router.weight_scale is %g, "
		                  "allowed are finite numbers > 0, 0 is 1",
		                  (double)router->weight_scale);
	for (int32_t e = 0; router->bias && e < router->n_experts; e++)
		if (!isfinite(router->bias[e]))
			return ferry_fail(NULL, FERRY_RANGE,
			                  "predict_topk: router.bias[%d] is "
			                  "%g, allowed are finite numbers",
			                  e, (double)router->bias[e]);
	return FERRY_OK;
}

/* Fills in defaults. */
static enum ferry_status check_router(struct ferry_router *router)
{
	FERRY_TRY(check_range(NULL, call, "router.n_experts", router->n_experts,
	                      1, FERRY_MAX_EXPERTS));
	FERRY_TRY(check_range(NULL, call, "router.topk", router->topk, 1,
	                      router->n_experts < FERRY_PREDICT_TOPK
	                              ? router->n_experts
	                              : FERRY_PREDICT_TOPK));
	FERRY_TRY(check_range(NULL, call, "router.score", router->score,
	                      FERRY_SCORE_SOFTMAX, FERRY_SCORE_SIGMOID));
	FERRY_TRY(check_groups(router));
	return check_numbers(router);
}

static enum ferry_status check_logits(struct ferry_logits *in,
                                      int32_t n_experts)
{
	if (in->dtype == FERRY_DTYPE_NONE)
		in->dtype = FERRY_FP32;
	if (in->dtype != FERRY_FP32 && in->dtype != FERRY_BF16 &&
	    in->dtype != FERRY_FP16)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "predict_topk: logits.dtype is %d, allowed "
		                  "are BF16, FP16 and FP32",
		                  (int)in->dtype);
	const size_t row_bytes =
		(size_t)n_experts * (in->dtype == FERRY_FP32 ? 4 : 2);

	FERRY_TRY(check_range(NULL, call, "logits.n_tokens", in->n_tokens, 0,
	                      INT64_MAX));
	if (in->n_tokens > 0 && !in->logits)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "predict_topk: logits.logits is NULL with %d "
		                  "tokens",
		                  in->n_tokens);
	if (in->stride == 0)
		in->stride = row_bytes;
	if (in->stride < row_bytes)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "predict_topk: logits.stride is %zu, a row "
		                  "has %zu bytes",
		                  in->stride, row_bytes);
	return FERRY_OK;
}

static struct predict_rule rule_of(const struct ferry_router *router)
{
	return (struct predict_rule){
		.n_experts = router->n_experts,
		.n_padded = (int32_t)round_up((size_t)router->n_experts,
	                                      FERRY_PREDICT_COLUMNS),
		.topk = router->topk,
		.n_groups = router->n_groups,
		.group_size = router->n_experts / router->n_groups,
		.topk_groups = router->topk_groups,
		.score = router->score,
		.group_score = router->group_score,
		.bias = router->bias,
		.renormalise = router->renormalise,
		.scale = (double)router->weight_scale,
	};
}

/* One block, to be freed; NULL: no memory. The widest come first. */
static void *make_space(const struct predict_rule *rule,
                        struct predict_space *space)
{
	const size_t n_padded = (size_t)rule->n_padded;
	const size_t n_groups = (size_t)rule->n_groups;
	void *block = malloc(
		n_padded * (sizeof(*space->score) + sizeof(*space->x) +
	                    sizeof(*space->key) + sizeof(*space->candidate)) +
		n_groups * sizeof(*space->group_key));

	if (!block)
		return NULL;
	space->score = block;
	space->group_key = (int64_t *)(void *)(space->score + n_padded);
	space->x = (float *)(void *)(space->group_key + n_groups);
	space->key = (int32_t *)(void *)(space->x + n_padded);
	space->candidate = space->key + n_padded;
	return block;
}

static void load_row(const struct ferry_logits *in, int32_t token, float *x,
                     int32_t n)
{
	const unsigned char *row =
		(const unsigned char *)in->logits + (size_t)token * in->stride;
	uint16_t h;

	if (in->dtype == FERRY_FP32)
		memcpy(x, row, (size_t)n * sizeof(*x));
	for (int32_t i = 0; in->dtype == FERRY_BF16 && i < n; i++) {
		memcpy(&h, row + (size_t)i * sizeof(h), sizeof(h));
		x[i] = f32_from_bf16(h);
	}
	for (int32_t i = 0; in->dtype == FERRY_FP16 && i < n; i++) {
		memcpy(&h, row + (size_t)i * sizeof(h), sizeof(h));
		x[i] = f32_from_fp16(h);
	}
}

static void fill_padding(int32_t topk, int32_t *ids, float *weights)
{
	for (int32_t k = 0; k < topk; k++) {
		ids[k] = -1;
		if (weights)
			weights[k] = 0;
	}
}

static void predict_all(const struct predict_rule *rule,
                        const struct predict_space *space,
                        const struct ferry_logits *in, int32_t *ids,
                        float *weights)
{
	for (int32_t t = 0; t < in->n_tokens; t++) {
		const size_t at = (size_t)t * (size_t)rule->topk;
		float *w = weights ? weights + at : NULL;

		if (in->valid && !in->valid[t]) {
			fill_padding(rule->topk, ids + at, w);
			continue;
		}
		load_row(in, t, space->x, rule->n_experts);
		ferry_predict_row(rule, space, ids + at, w);
	}
}

enum ferry_status ferry_predict_topk(const struct ferry_router *router,
                                     const struct ferry_logits *in,
                                     int32_t *ids, float *weights)
{
	struct ferry_router r;
	struct ferry_logits logits;
	struct predict_space space;

	if (!router || !in || !ids)
		return ferry_fail(NULL, FERRY_INVAL, "predict_topk: %s is NULL",
		                  !router ? "router"
		                  : !in   ? "logits"
		                          : "ids");
	FERRY_TRY(ferry_sized_copy(&r, sizeof(r), router,
	                           "predict_topk: router"));
	FERRY_TRY(ferry_sized_copy(&logits, sizeof(logits), in,
	                           "predict_topk: logits"));
	FERRY_TRY(check_router(&r));
	FERRY_TRY(check_logits(&logits, r.n_experts));
	const struct predict_rule rule = rule_of(&r);
	void *block = make_space(&rule, &space);

	if (!block)
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "predict_topk: a row of %d experts",
		                  r.n_experts);
	predict_all(&rule, &space, &logits, ids, weights);
	free(block);
	return FERRY_OK;
}
