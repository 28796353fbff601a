/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same sequences without ranks, one after the other by lm_forward: the
 * truth that runs on ranks are compared with, and the routing of a step.
 */
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"
#include "lm_blas.h"
#include "prefill_inner.h"

#include "../alloc.h"

/* One sequence under way. */
struct alone {
	const struct prefill_job *job;
	struct lm_work *work;
	float *h;
	int32_t n_tokens;
	int64_t first_token;
	int64_t *loads;    /* [n_layers][n_experts] of its step */
	int32_t *topk_ids; /* of the run; NULL: not wanted */
};

static int32_t longest(const struct prefill_job *job)
{
	int64_t n = 1;

	for (int32_t s = 0; s < job->shape->n_sequences; s++)
		n = max_i64(n, prefill_length(job, s));
	return (int32_t)n;
}

static bool open_alone(struct alone *a, const struct prefill_job *job,
                       struct fault *fault)
{
	const int32_t n = longest(job);

	*a = (struct alone){.job = job};
	if (!lm_blas_open(fault) ||
	    !lm_work_open(job->model, n, n, &a->work, fault))
		return false;
	a->h = alloc_or_exit((size_t)n * (size_t)job->shape->hidden,
	                     sizeof(*a->h));
	return true;
}

static void close_alone(struct alone *a)
{
	free(a->h);
	lm_work_close(a->work);
}

/* An lm_visit. */
static void note_ids(void *arg, int32_t layer, const int32_t *ids)
{
	const struct alone *a = arg;
	const struct prefill_shape *shape = a->job->shape;
	const int64_t topk = shape->topk;

	for (int64_t i = 0; i < a->n_tokens * topk; i++)
		if (ids[i] >= 0)
			a->loads[(int64_t)layer * shape->n_experts + ids[i]]++;
	for (int64_t t = 0; a->topk_ids && t < a->n_tokens; t++)
		memcpy(a->topk_ids + ((a->first_token + t) * shape->n_layers +
		                      layer) *
		                             topk,
		       ids + t * topk, (size_t)topk * sizeof(*ids));
}

static bool forward(struct alone *a, int32_t sequence, int64_t *loads,
                    struct fault *fault)
{
	const struct prefill_job *job = a->job;

	a->n_tokens = prefill_length(job, sequence);
	a->first_token = job->first_token[sequence];
	a->loads = loads;
	const struct lm_batch batch = {1, &a->n_tokens,
	                               job->tokens + a->first_token};

	return lm_forward(job->model, a->work, &batch, a->h, note_ids, a,
	                  fault);
}

static bool run_step(struct alone *a, const struct prefill_logits *logits,
                     int32_t step, struct prefill_run *run, struct fault *fault)
{
	const struct prefill_shape *shape = a->job->shape;
	int64_t *loads =
		run->loads + prefill_at(shape, step, 0) * shape->n_experts;

	for (int32_t s = a->job->first_sequence[step];
	     s < a->job->first_sequence[step + 1]; s++) {
		run->sequences[s].step = step;
		if (!forward(a, s, loads, fault) ||
		    !prefill_logits_of(logits, s, a->h, &run->sequences[s],
		                       fault))
			return prefill_fault_in(a->job, run, s, fault);
	}
	return true;
}

bool prefill_run_alone(const struct prefill_job *job, struct prefill_run *run,
                       struct fault *fault)
{
	struct prefill_logits logits;
	struct alone alone;
	bool good = true;

	if (!open_alone(&alone, job, fault))
		return false;
	alone.topk_ids = run->topk_ids;
	prefill_logits_open(&logits, job, alone.work);
	for (int32_t s = 0; good && s < job->shape->n_steps; s++)
		good = run_step(&alone, &logits, s, run, fault);
	prefill_logits_close(&logits);
	close_alone(&alone);
	return good;
}

bool prefill_route_alone(const struct prefill_job *job, int32_t step,
                         int64_t *loads, struct fault *fault)
{
	struct alone alone;
	bool good = true;

	if (!open_alone(&alone, job, fault))
		return false;
	for (int32_t s = job->first_sequence[step];
	     good && s < job->first_sequence[step + 1]; s++)
		good = forward(&alone, s, loads, fault) ||
		       prefill_fault_in(job, NULL, s, fault);
	close_alone(&alone);
	return good;
}
