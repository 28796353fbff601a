/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/predict.h: from router logits to expert ids, and from ids to counts,
 * on the CPU. Whose hidden state the logits come from is the caller's choice:
 * of the layer itself, or an early one, to foresee the loads.
 */
#ifndef FERRY_PREDICT_H
#define FERRY_PREDICT_H

#include <ferry/moe_config.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What turns a logit into a score. */
enum ferry_score {
	FERRY_SCORE_SOFTMAX = 0,
	FERRY_SCORE_SIGMOID = 1,
};

/** The score of a group of experts. */
enum ferry_group_score {
	FERRY_GROUP_MAX = 0,  /* its best expert's (DeepSeek-V2) */
	FERRY_GROUP_TOP2 = 1, /* sum of its best two (DeepSeek-V3) */
};

/** A router's rule. Zero means default. */
struct ferry_router {
	size_t size;
	int32_t n_experts; /* 1..FERRY_MAX_EXPERTS */
	int32_t topk;      /* 1..64, <= n_experts */
	enum ferry_score score;
	/* [n_experts] finite, added to the score for choosing, not for
	 * weighing; below 2^-126 it is 0. NULL: none */
	const float *bias;
	int32_t n_groups; /* of consecutive experts; 0: 1. Divides n_experts */
	int32_t topk_groups; /* groups that may be chosen from; 0: all */
	enum ferry_group_score group_score;
	bool renormalise;   /* weights of a token sum to 1 */
	float weight_scale; /* then a factor of each, finite, > 0; 0: 1 */
};
#define FERRY_ROUTER_INIT                                                      \
	{                                                                      \
		sizeof(struct ferry_router), 0, 0, FERRY_SCORE_SOFTMAX, NULL,  \
			0, 0, FERRY_GROUP_MAX, false, 0                        \
	}

/** Logits of a batch. */
struct ferry_logits {
	size_t size;
	int32_t n_tokens;
	const void *logits;     /* [n_tokens][n_experts] */
	size_t stride;          /* bytes from token to token; 0: contiguous */
	enum ferry_dtype dtype; /* FP32, BF16, FP16; 0: FP32 */
	/* [n_tokens] a token whose byte is 0 is padding: its ids are -1, its
	 * weights 0. NULL: none is. */
	const uint8_t *valid;
};
#define FERRY_LOGITS_INIT                                                      \
	{                                                                      \
		sizeof(struct ferry_logits), 0, NULL, 0, FERRY_DTYPE_NONE,     \
			NULL                                                   \
	}

/**
 * Chooses experts by a router's rule: ids[n_tokens][topk] by falling choice
 * score, ties to the lower id (compared on the logits themselves, without a
 * bias or groups by TOP2), and weights[n_tokens][topk] (NULL: not wanted). A
 * NaN logit is below all others, and weighs 0. With topk_groups * (n_experts /
 * n_groups) < topk the rest of a row is -1 with weight 0.
 *
 * Equal logits give equal ids and weights, to the bit, on every machine in the
 * default rounding mode: exponentials are computed in double by operations
 * that IEEE 754 fixes, off by less than 2^-51 of the true value; weights are
 * then rounded to fp32, below 2^-126 to 0. docs/balance.md has the rules.
 * Errors: INVAL, RANGE, NOMEM.
 */
FERRY_API enum ferry_status
ferry_predict_topk(const struct ferry_router *router,
                   const struct ferry_logits *in, int32_t *ids,
                   float *weights) FERRY_MUST_CHECK;

/** Ids of a batch. */
struct ferry_ids {
	size_t size;
	int32_t n_tokens;
	int32_t topk;
	const void *ids; /* [n_tokens][topk]; -1: no expert, never counted */
	size_t stride;   /* bytes from token to token; 0: contiguous */
	enum ferry_id_type type;
};
#define FERRY_IDS_INIT                                                         \
	{                                                                      \
		sizeof(struct ferry_ids), 0, 0, NULL, 0, FERRY_ID_INT32        \
	}

/**
 * Adds the choices of every expert to counts[n_experts], which the caller has
 * zeroed. -1 never counts, an expert chosen twice by a token counts twice.
 * Errors: INVAL; RANGE (naming token, choice and id, or a count that might
 * overflow). Counts are then untouched.
 */
FERRY_API enum ferry_status
ferry_predict_counts(const struct ferry_ids *in, int32_t n_experts,
                     int32_t *counts) FERRY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
