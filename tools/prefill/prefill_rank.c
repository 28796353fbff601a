/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a prefill through all steps: its sequences, the layers, and what
 * is left of the sequences after the last one.
 */
#include "prefill_rank.h"

#include <stdio.h>
#include <string.h>

#include "core/bits.h"
#include "core/clock.h"

#include "../opt.h"

bool prefill_rank_fail(const struct prefill_rank *rank,
                       const struct fault *fault)
{
	fprintf(stderr, "%s: rank %d: %s\n", rank->job->name, rank->me->rank,
	        fault->text);
	return false;
}

int64_t prefill_now(const struct prefill_rank *rank)
{
	return (int64_t)ferry_now_ns() - *rank->setup->start_ns;
}

/* Sequences of a step go to the ranks in turn. */
static void take_batch(struct prefill_rank *r)
{
	const struct prefill_job *job = r->job;
	const int32_t end = job->first_sequence[r->step + 1];
	struct prefill_batch *b = &r->batch;
	int32_t n = 0;

	b->n_tokens = 0;
	b->longest = 0;
	for (int32_t s = job->first_sequence[r->step] + r->me->rank; s < end;
	     s += job->shape->n_ranks) {
		const int32_t length = prefill_length(job, s);

		memcpy(b->tokens + b->n_tokens,
		       job->tokens + job->first_token[s],
		       (size_t)length * sizeof(*b->tokens));
		b->sequences[n] = s;
		b->lengths[n++] = length;
		b->n_tokens += length;
		b->longest = (int32_t)max_i64(b->longest, length);
	}
	b->lm = (struct lm_batch){n, b->lengths, b->tokens};
}

static bool end_sequences(const struct prefill_rank *r)
{
	const float *h = r->h;
	struct fault fault;

	for (int32_t i = 0; i < r->batch.lm.n_sequences; i++) {
		const int32_t s = r->batch.sequences[i];
		struct prefill_sequence *out = &r->setup->run->sequences[s];

		out->step = r->step;
		if (!prefill_logits_of(&r->head, s, h, out, &fault)) {
			prefill_fault_in(r->job, r->setup->run, s, &fault);
			return prefill_rank_fail(r, &fault);
		}
		h += (int64_t)r->batch.lengths[i] * r->job->shape->hidden;
	}
	return true;
}

static void show_progress(const struct prefill_rank *r, bool over)
{
	if (!r->job->progress || r->me->rank)
		return;
	if (over)
		fprintf(stderr, "\r\033[K");
	else
		fprintf(stderr, "\rferry: %s: step %d of %d",
		        r->setup->run->name, r->step + 1,
		        r->job->shape->n_steps);
	fflush(stderr);
}

/* All begin together, so that a step waits for none of the step before. */
static bool run_step(struct prefill_rank *r)
{
	struct prefill_span *span =
		&r->setup->step_spans[(int64_t)r->step *
	                                      r->job->shape->n_ranks +
	                              r->me->rank];

	take_batch(r);
	show_progress(r, false);
	if (!prefill_even_meet(r))
		return false;
	span->begin_ns = prefill_now(r);
	if (r->batch.n_tokens)
		lm_embed(r->model, &r->batch.lm, r->h);
	for (int32_t l = 0; l < r->model->config.n_layers; l++)
		if (!prefill_layer(r, l))
			return false;
	span->end_ns = prefill_now(r);
	return end_sequences(r);
}

static bool run_steps(struct prefill_rank *r)
{
	if (!prefill_rank_open(r))
		return false;
	/* Seen by all: they meet at the beginning of each step. */
	if (!r->me->rank)
		*r->setup->start_ns = (int64_t)ferry_now_ns();
	for (r->step = 0; r->step < r->job->shape->n_steps; r->step++)
		if (!run_step(r))
			return false;
	return true;
}

int prefill_rank(const struct crew_member *me, void *arg)
{
	const struct prefill_setup *setup = arg;
	struct prefill_rank rank = {
		.me = me,
		.setup = setup,
		.job = setup->job,
		.model = setup->job->model,
	};

	const bool good = run_steps(&rank);

	show_progress(&rank, true);
	if (!good && rank.world)
		ferry_world_abort(rank.world);
	prefill_rank_close(&rank);
	return good ? EXIT_GOOD : EXIT_FAILED;
}
