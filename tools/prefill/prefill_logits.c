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

/* Rows [begin, end) of a sequence: each foretells the token after it. */
static void take_rows(const struct prefill_logits *logits, const float *h,
                      int32_t begin, int32_t end, int64_t first_token,
                      struct prefill_sequence *out)
{
	const struct prefill_job *job = logits->job;
	const int64_t vocab = job->shape->vocab;
	const int32_t last = out->n_tokens - 1;
	const int32_t n_foretold = (end < last ? end : last) - begin;

	lm_head(job->model, logits->work,
	        h + (int64_t)begin * job->shape->hidden, end - begin,
	        logits->rows);
	out->hash =
		prefill_hash(out->hash, logits->rows, (end - begin) * vocab);
	if (job->shape->all_logits && n_foretold > 0)
		out->nll += lm_nll(logits->rows, n_foretold, (int32_t)vocab,
		                   job->tokens + first_token + begin + 1);
}

void prefill_logits_of(const struct prefill_logits *logits, int32_t sequence,
                       const float *h, struct prefill_sequence *out)
{
	const struct prefill_job *job = logits->job;
	const int64_t first_token = job->first_token[sequence];
	const int32_t n = prefill_length(job, sequence);

	out->n_tokens = n;
	out->hash = 0;
	out->nll = 0;
	if (!job->shape->all_logits) {
		take_rows(logits, h, n - 1, n, first_token, out);
		out->hash = prefill_hash(out->hash, h,
		                         (int64_t)n * job->shape->hidden);
		return;
	}
	for (int32_t i = 0; i < n; i += PREFILL_HEAD_ROWS)
		take_rows(logits, h, i,
		          (int32_t)min_i64(n, i + PREFILL_HEAD_ROWS),
		          first_token, out);
}
