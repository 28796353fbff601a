/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of lm_layer.h: the memory of its stages. */
#ifndef FERRY_LM_WORK_H
#define FERRY_LM_WORK_H

#include "lm_lanes.h"
#include "lm_layer.h"

enum {
	/* Rows of a product at a time, where all need memory besides. */
	LM_CHUNK = 1024,
};

struct lm_work {
	struct lm_tile_work *tiles;
	const struct lm_lanes *lanes;
	int32_t max_tokens, max_length;
	/* Rows of a group of sequences, each padded to whole tiles. */
	int32_t max_group;
	float *norm;            /* [max(hidden, head_dim) * 2] weights */
	float *x;               /* [max_group][hidden] */
	float *q;               /* [max_group][n_heads * head_dim], lanes */
	float *k, *v;           /* [max_group][n_kv_heads * head_dim] */
	float *keys, *values;   /* [n_kv_heads * head_dim][max_length] */
	float *scores;          /* [max_length] in lanes */
	float *cosines, *sines; /* [max_length][head_dim / 2] in lanes */
	float *gate, *up;       /* [LM_CHUNK][expert_hidden] in lanes */
};

/* Rounded up to whole tiles. */
static inline int32_t lm_whole_tiles(int32_t n)
{
	return (n + LM_TILE_ROWS - 1) / LM_TILE_ROWS * LM_TILE_ROWS;
}

/* lm_tile_product by a matrix of the model, for which memory is reserved. */
void lm_work_product(struct lm_work *work, const struct lm_matrix *weight,
                     const struct lm_rows *in, int32_t n_rows,
                     const struct lm_rows *out);

#endif
