/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a layer written out once more, in double, row by row. */
#ifndef LM_DOUBLE_H
#define LM_DOUBLE_H

#include "lm_model.h"

/* y[rows] = matrix * x[cols] */
void double_multiply(const struct lm_matrix *matrix, const double *x,
                     double *y);

void double_norm(const struct lm_matrix *weight, double eps, const double *x,
                 double *y);

/* h[length][hidden] of one sequence, in place. */
void double_attention(const struct lm_model *model, int32_t layer, double *h,
                      int32_t length);

void double_expert(const struct lm_matrix m[LM_EXPERT_TENSORS], const double *x,
                   double *y);

/* logits[vocab] of one row of h. */
void double_head(const struct lm_model *model, const double *h, double *logits);

/*
 * h of one sequence after the last layer, with experts ids[layer][length][topk]
 * chosen. *gap: how much of a logit they fall short of the best, at most.
 */
void double_forward(const struct lm_model *model, const int32_t *tokens,
                    int32_t length, const int32_t *ids, double *h, double *gap);

#endif
