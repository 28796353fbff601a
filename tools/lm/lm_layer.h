/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages of a layer for a batch of sequences, on one thread. Everything is
 * computed in fp32; a token's result depends on its own sequence up to itself
 * and on the weights, to the bit, and on nothing else: not on the batch, its
 * order, or the rank. Only what is infinite or NaN spreads, to at most
 * LM_TILE_ROWS - 1 tokens before it, since attention multiplies by 0 what they
 * do not see.
 */
#ifndef FERRY_LM_LAYER_H
#define FERRY_LM_LAYER_H

#include "lm_tile.h"

/* Memory for stages of one thread: two threads have one each. */
struct lm_work;

/* For up to max_tokens tokens at a time, in sequences of up to max_length. */
bool lm_work_open(const struct lm_model *model, int32_t max_tokens,
                  int32_t max_length, struct lm_work **work,
                  struct fault *fault);
void lm_work_close(struct lm_work *work);

/* Tokens of a batch: sequences one after the other. */
struct lm_batch {
	int32_t n_sequences;
	const int32_t *lengths; /* [n_sequences] 1.. */
	const int32_t *tokens;  /* [sum of lengths], 0..vocab-1 */
};

/* Sum of lengths. */
int32_t lm_batch_tokens(const struct lm_batch *batch);

/* h[n][hidden] = embeddings. */
void lm_embed(const struct lm_model *model, const struct lm_batch *batch,
              float *h);

/* h += attention(norm(h)) of a layer, causal within each sequence. */
void lm_attention(const struct lm_model *model, struct lm_work *work,
                  int32_t layer, const struct lm_batch *batch, float *h);

/*
 * x[n][hidden] = the layer's norm before its MoE, of h[n][hidden]; and
 * logits[n][n_experts] = its router on x. Given h of the layer before, this is
 * the early router: its logits foresee the true ones.
 */
void lm_router(const struct lm_model *model, struct lm_work *work,
               int32_t layer, const float *h, int32_t n, float *x,
               float *logits);

/*
 * out[n][hidden] = one expert of rows[n][hidden], by tensors of the model's
 * expert_type wherever they lie: down(silu(gate(x)) * up(x)). out may not be
 * rows.
 */
void lm_expert(const struct lm_model *model, struct lm_work *work,
               const void *const tensors[LM_EXPERT_TENSORS], const float *rows,
               int32_t n, float *out);

/* logits[n][vocab] = head(norm(h[n][hidden])). */
void lm_head(const struct lm_model *model, struct lm_work *work, const float *h,
             int32_t n, float *logits);

/* sum over n tokens of -log softmax(logits)[target], in double. */
double lm_nll(const float *logits, int32_t n, int32_t vocab,
              const int32_t *targets);

/* The first of n rows that has a value which is infinite or NaN; n: none. */
int32_t lm_first_broken(const float *rows, int32_t n, int32_t width);

/* Chosen experts ids[n][topk] and their weights[n][topk] of router logits, by
 * ferry_predict_topk. */
bool lm_choose(const struct lm_model *model, const float *logits, int32_t n,
               int32_t *ids, float *weights, struct fault *fault);

/* Are router logits[n][n_experts] of a layer finite? A fault names layer and
 * token. */
bool lm_check_router(const struct lm_model *model, int32_t layer,
                     const float *logits, int32_t n, struct fault *fault);

/*
 * The whole model on one thread without ranks: what runs on ranks is checked
 * against it. h[n][hidden] is the residual stream after the last layer. The sum
 * over choices is that of FERRY_COMBINE_EXACT, with the residual last.
 * visit, where not NULL, gets each layer's chosen ids[n][topk].
 */
typedef void lm_visit(void *arg, int32_t layer, const int32_t *ids);

bool lm_forward(const struct lm_model *model, struct lm_work *work,
                const struct lm_batch *batch, float *h, lm_visit *visit,
                void *arg, struct fault *fault);

#endif
