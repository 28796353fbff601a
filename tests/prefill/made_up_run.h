/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole prefill that nobody ran: three texts on ranks under off, eplb and
 * ferry, with numbers as a real one has them, the same in every test. Loads,
 * ratios, rows of ranks and recorded ids fit each other; times are plausible
 * and fit the stages' order.
 */
#ifndef MADE_UP_RUN_H
#define MADE_UP_RUN_H

#include "prefill.h"

enum {
	MADE_UP_TEXTS = 3,
	MADE_UP_STEPS = 7, /* the first is warm-up */
	MADE_UP_LAYERS = 4,
	MADE_UP_EXPERTS = 32,
	MADE_UP_TOPK = 4,
	MADE_UP_BATCH = 8,
	MADE_UP_LENGTH = 24,
	MADE_UP_SEQUENCES = MADE_UP_STEPS * MADE_UP_BATCH,
	MADE_UP_TOKENS = MADE_UP_SEQUENCES * MADE_UP_LENGTH,
	MADE_UP_RUNS = 3,
};

struct made_up {
	struct lm_model model; /* numbers only, no weights */
	struct prefill_shape shape;
	struct prefill_step steps[MADE_UP_STEPS];
	struct prefill_job job;
	struct prefill_run runs[MADE_UP_RUNS];
	struct prefill_report report;
	int32_t tokens[MADE_UP_TOKENS];
	int64_t first_token[MADE_UP_SEQUENCES];
	int32_t first_sequence[MADE_UP_STEPS + 1];
};

/* 1..32 ranks; ends the program without memory. */
void made_up_open(struct made_up *made_up, int32_t n_ranks);
void made_up_close(struct made_up *made_up);

#endif
