/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A router's rule on one token: its logits in, experts and weights out. Plain
 * loops over plain arrays that the caller owns.
 */
#ifndef FERRY_PREDICT_ROW_H
#define FERRY_PREDICT_ROW_H

#include <ferry/predict.h>

enum {
	FERRY_PREDICT_TOPK = 64, /* most choices of a token */
	/* Rows are padded to so many experts, with any numbers. */
	FERRY_PREDICT_COLUMNS = 16,
};

/* struct ferry_router, checked, with its defaults filled in. */
struct predict_rule {
	int32_t n_experts;
	int32_t n_padded;
	int32_t topk;
	int32_t n_groups;
	int32_t group_size; /* experts */
	int32_t topk_groups;
	enum ferry_score score;
	enum ferry_group_score group_score;
	const float *bias; /* NULL: none */
	bool renormalise;
	double scale;
};

/* Memory of a row. */
struct predict_space {
	double *score;      /* [n_padded] choice scores, where keys are */
	int64_t *group_key; /* [n_groups] */
	float *x;           /* [n_padded] logits */
	int32_t *key;       /* [n_padded] see predict_row.c */
	int32_t *candidate; /* [n_padded] */
};

/* space->x holds the logits. ids[topk], weights[topk] or NULL. */
void ferry_predict_row(const struct predict_rule *rule,
                       const struct predict_space *space, int32_t *ids,
                       float *weights);

/*
 * Chooses by falling key, ties to the lower id: ids[topk]; how many there are,
 * the rest is -1. An expert whose key is FERRY_KEY_CLOSED is not chosen. Where
 * score is not NULL it decides between experts with equal keys.
 */
int32_t ferry_predict_select(const struct predict_rule *rule,
                             const struct predict_space *space,
                             const double *score, int32_t *ids);

#define FERRY_KEY_CLOSED INT32_MIN       /* of an expert in no open group */
#define FERRY_KEY_NAN    (INT32_MIN + 1) /* below all other logits */

/* An integer that orders as the number does, which is not NaN; -0 is 0. */
int64_t ferry_key_of_double(double x);

#endif
