/* SPDX-License-Identifier: Apache-2.0 */
/* What table and JSON say alike of a job. */
#ifndef FERRY_PREFILL_WORDS_H
#define FERRY_PREFILL_WORDS_H

#include "prefill.h"

extern const char *const prefill_order_names[];
extern const char *const prefill_start_names[];
extern const char *const prefill_split_names[];
extern const char *const prefill_logits_names[];
extern const char *const prefill_switch_names[]; /* off, on */

/* "96.0 KiB" */
void prefill_bytes(int64_t bytes, char text[32]);

/* "measured", "unlimited", "250 us" */
void prefill_budget(const struct prefill_job *job, char text[32]);

/* "any", "no", "4" */
void prefill_swaps(const struct prefill_job *job, char text[16]);

/* The one that is used. */
const char *prefill_fabric(const struct prefill_job *job);

/* 0 of nothing. */
double prefill_share(int64_t part, int64_t of);

/* Experts that ranks had to fetch, of a layer in a step. */
double prefill_fetched(const struct prefill_shape *shape,
                       const struct prefill_totals *totals);

int32_t prefill_n_warm_up(const struct prefill_shape *shape);

/* What of a text goes in, warm-up or not. */
struct prefill_amount {
	int64_t n_tokens, n_counted; /* of them: not warm-up */
	int32_t n_sequences;
};

struct prefill_amount prefill_text_amount(const struct prefill_shape *shape,
                                          const struct prefill_run *run,
                                          int32_t text);

#endif
