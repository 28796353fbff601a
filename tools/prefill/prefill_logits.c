/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is left of a sequence after its last layer: the hash of its logits, and
 * its loss. Both are for comparing runs, and no part of what is timed.
 */
#include <stdlib.h>

#include "core/bits.h"
#include "prefill_inner.h"

#include "../alloc.h"

void prefill_logits_open(struct prefill_logits *logits,
                         const struct prefill_job *job, struct lm_work *work)
{
	logits->job = job;
	logits->work = work;
	logits->rows =
		alloc_or_exit(PREFILL_HEAD_ROWS * (size_t)job->shape->vocab,
	                      sizeof(*logits->rows));
}

void prefill_logits_close(struct prefill_logits *logits)
{
	free(logits->rows);
	logits->rows = NULL;
}

static bool check(const float *rows, int32_t begin, int32_t n, int32_t width,
                  const char *what, struct fault *fault)
{
	const int32_t row = lm_first_broken(rows, n, width);

	return row == n ||
	       fault_set(fault,
	                 "token %d: %s are not finite; weights may be damaged",
	                 begin + row, what);
}

/* Rows of a sequence. */
struct part {
	int32_t begin, end;
	const int32_t *tokens; /* [n_tokens] of the whole sequence */
};

/* Each row foretells the token after it. */
static bool take_rows(const struct prefill_logits *logits, const float *h,
                      const struct part *part, struct prefill_sequence *out,
                      struct fault *fault)
{
	const struct prefill_shape *shape = logits->job->shape;
	const int32_t n = part->end - part->begin;
	const int32_t last = out->n_tokens - 1;
	const int32_t n_foretold =
		(part->end < last ? part->end : last) - part->begin;

	lm_head(logits->job->model, logits->work,
	        h + (int64_t)part->begin * shape->hidden, n, logits->rows);
	if (!check(logits->rows, part->begin, n, shape->vocab, "logits", fault))
		return false;
	out->hash = prefill_hash(out->hash, logits->rows,
	                         (int64_t)n * shape->vocab);
	if (shape->all_logits && n_foretold > 0)
		out->nll += lm_nll(logits->rows, n_foretold, shape->vocab,
		                   part->tokens + part->begin + 1);
	return true;
}

static bool take_all(const struct prefill_logits *logits, const float *h,
                     const int32_t *tokens, struct prefill_sequence *out,
                     struct fault *fault)
{
	const int32_t n = out->n_tokens;

	for (int32_t i = 0; i < n; i += PREFILL_HEAD_ROWS) {
		const struct part part = {
			i, (int32_t)min_i64(n, i + PREFILL_HEAD_ROWS), tokens};

		if (!take_rows(logits, h, &part, out, fault))
			return false;
	}
	return true;
}

bool prefill_logits_of(const struct prefill_logits *logits, int32_t sequence,
                       const float *h, struct prefill_sequence *out,
                       struct fault *fault)
{
	const struct prefill_job *job = logits->job;
	const int32_t *tokens = job->tokens + job->first_token[sequence];
	const int32_t n = prefill_length(job, sequence);
	const struct part last = {n - 1, n, tokens};

	out->n_tokens = n;
	out->hash = 0;
	out->nll = 0;
	if (!check(h, 0, n, job->shape->hidden,
	           "hidden states after the last layer", fault))
		return false;
	if (job->shape->all_logits)
		return take_all(logits, h, tokens, out, fault);
	if (!take_rows(logits, h, &last, out, fault))
		return false;
	out->hash = prefill_hash(out->hash, h, (int64_t)n * job->shape->hidden);
	return true;
}

bool prefill_fault_in(const struct prefill_job *job,
                      const struct prefill_run *run, int32_t sequence,
                      struct fault *fault)
{
	const struct fault of = *fault;

	if (!run)
		return fault_set(fault, "sequence %d: %s", sequence, of.text);
	return fault_set(fault, "%s, sequence %d: %s",
	                 job->shape->texts[run->sequences[sequence].text],
	                 sequence, of.text);
}
