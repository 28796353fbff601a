/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts as tokens, cut into sequences, and sequences into steps.
 */
#ifndef FERRY_PREFILL_TEXT_H
#define FERRY_PREFILL_TEXT_H

#include "../lm/lm_tokenizer.h"
#include "prefill.h"

enum {
	PREFILL_LEAST_TOKENS = 2, /* of a text: one foretells the other */
	PREFILL_LEAST_REST = 16,  /* what is shorter is no sequence */
};

struct prefill_text {
	const char *name; /* the caller's path, or the end of it */
	int32_t *tokens;
	int64_t n_tokens;
};

/* Tokens of a file, all below vocab. */
bool prefill_text_open(const char *path, const struct lm_tokenizer *tokenizer,
                       int32_t vocab, struct prefill_text *text,
                       struct fault *fault);
void prefill_text_close(struct prefill_text *text);

/* Takes the folders off that all names share. */
void prefill_text_shorten(struct prefill_text *texts, int32_t n_texts);

/* How to cut. */
struct prefill_cut {
	enum prefill_order order;
	int32_t batch, length;
	int32_t max_steps; /* of each text; 0: all */
	int32_t warm_up;   /* steps; one at least is left to be counted */
};

/* What comes of it: what a job and its shape point to. */
struct prefill_input {
	int32_t n_steps, n_sequences;
	int64_t n_tokens;
	int32_t *tokens;         /* [n_tokens] */
	int64_t *first_token;    /* [n_sequences] */
	int32_t *length;         /* [n_sequences] */
	int32_t *text;           /* [n_sequences] */
	int32_t *first_sequence; /* [n_steps + 1] */
	struct prefill_step *steps;
};

/*
 * Cuts each text into sequences of cut->length tokens. Its rest is one more,
 * unless shorter than PREFILL_LEAST_REST; a text that is all rest is kept.
 */
bool prefill_input_open(const struct prefill_text *texts, int32_t n_texts,
                        const struct prefill_cut *cut,
                        struct prefill_input *input, struct fault *fault);
void prefill_input_close(struct prefill_input *input);

/* Text, step and tokens of a run's sequences. */
void prefill_input_name(const struct prefill_input *input,
                        struct prefill_run *run);

#endif
