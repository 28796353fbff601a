/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tiny random model, random sequences, and runs over them, for tests of the
 * ranks of ferry prefill. lab.job says what else is asked of a run. What fails
 * ends the cmocka test.
 */
#ifndef PREFILL_LAB_H
#define PREFILL_LAB_H

#include "../lm/tiny_model.h"
#include "prefill.h"

/* Sequences of steps; lengths are drawn from 1..length. */
struct lab_input {
	int32_t n_steps, batch, length;
	bool last; /* logits of the last token only */
};

struct lab {
	char *directory;
	struct lm_model model;
	struct prefill_shape shape;
	struct prefill_job job;
	int32_t *tokens;
	int64_t *first_token;
	int32_t *first_sequence;
	struct prefill_run truth; /* without ranks, recorded */
};

/* A run on ranks. */
struct lab_run {
	enum ferry_balance_policy policy;
	int32_t n_ranks, replicas;
	enum ferry_split split;
	enum prefill_start start;
	bool threads;
};

extern uint64_t lab_seed; /* goes on with every draw */

/* 0..n-1 */
int32_t lab_draw(int32_t n);

void lab_open(struct lab *lab, const struct tiny_shape *tiny,
              const struct lab_input *input);
void lab_close(struct lab *lab);

/* Exit status; *run is opened, recorded, and the caller's to close. */
int lab_try(struct lab *lab, const struct lab_run *how,
            struct prefill_run *run);

/* One that must go well, with the bits, losses, loads of the truth. */
void lab_run(struct lab *lab, const struct lab_run *how,
             struct prefill_run *run);

/* The same, closed. */
void lab_check(struct lab *lab, const struct lab_run *how);

#endif
