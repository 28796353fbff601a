/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers and random models in memory, for tests of the arithmetic. */
#ifndef LM_MADE_H
#define LM_MADE_H

#include "lm_layer.h"

/* 0..n-1 */
int32_t lm_random_below(uint64_t *seed, int32_t n);
/* -1..1 */
float lm_random_float(uint64_t *seed);

/* Random matrix of -scale..scale; data is the caller's to free. */
struct lm_matrix lm_made_matrix(uint64_t *seed, enum lm_type type, int32_t rows,
                                int32_t cols, float scale);

/* A model whose weights keep activations near 1. */
void lm_made_open(struct lm_model *model, const struct lm_config *config,
                  enum lm_type type, uint64_t seed);
void lm_made_close(struct lm_model *model);

/* n random tokens; the caller's to free. */
int32_t *lm_made_tokens(uint64_t *seed, int32_t n, int32_t vocab);

#endif
