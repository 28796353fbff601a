/* SPDX-License-Identifier: Apache-2.0 */
/* What is settled and allocated before the ranks of a run start. */
#include <stdlib.h>

#include "core/bits.h"
#include "lm_blas.h"
#include "prefill_inner.h"

#include "../alloc.h"

int32_t prefill_length(const struct prefill_job *job, int32_t sequence)
{
	const struct prefill_shape *shape = job->shape;
	const int64_t end = sequence + 1 < shape->n_sequences
	                            ? job->first_token[sequence + 1]
	                            : shape->n_tokens;

	return (int32_t)(end - job->first_token[sequence]);
}

/* Most tokens of a rank in a step, and of a sequence. */
static bool find_maxima(struct prefill_setup *setup, struct fault *fault)
{
	const struct prefill_job *job = setup->job;
	const int32_t n_ranks = job->shape->n_ranks;
	int64_t *tokens = alloc_or_exit((size_t)n_ranks, sizeof(*tokens));
	int64_t most = 1, longest = 1;

	for (int32_t step = 0; step < job->shape->n_steps; step++) {
		const int32_t first = job->first_sequence[step];

		for (int32_t r = 0; r < n_ranks; r++)
			tokens[r] = 0;
		for (int32_t s = first; s < job->first_sequence[step + 1];
		     s++) {
			const int32_t n = prefill_length(job, s);

			tokens[(s - first) % n_ranks] += n;
			longest = max_i64(longest, n);
		}
		for (int32_t r = 0; r < n_ranks; r++)
			most = max_i64(most, tokens[r]);
	}
	free(tokens);
	setup->max_tokens = (int32_t)most;
	setup->max_length = (int32_t)longest;
	return most <= INT32_MAX ||
	       fault_set(fault,
	                 "a rank has %lld tokens of a step, at most %d can be",
	                 (long long)most, INT32_MAX);
}

/* Slots and split: copies of experts are only where the policy makes them. */
static void choose_slots(struct prefill_setup *setup)
{
	const struct prefill_job *job = setup->job;
	const struct prefill_shape *shape = job->shape;
	const bool copies =
		shape->replicas && (setup->run->policy &
	                            (FERRY_BALANCE_EPLB | FERRY_BALANCE_FERRY));

	setup->split = copies ? job->split : FERRY_SPLIT_EVEN;
	setup->slots_of_rank = alloc_or_exit((size_t)shape->n_ranks,
	                                     sizeof(*setup->slots_of_rank));
	for (int32_t r = 0; r < shape->n_ranks; r++)
		setup->slots_of_rank[r] =
			shape->n_experts / shape->n_ranks +
			(r < shape->n_experts % shape->n_ranks) +
			shape->replicas;
	setup->n_slots = shape->n_experts + shape->n_ranks * shape->replicas;
	setup->first =
		alloc_or_exit((size_t)shape->n_layers * (size_t)setup->n_slots,
	                      sizeof(*setup->first));
}

/* Numbers of things that a run has, in all its steps. */
struct amounts {
	size_t layers, ranks, counts, slots, steps;
};

static struct amounts amounts_of(const struct prefill_setup *setup)
{
	const struct prefill_shape *shape = setup->job->shape;
	const size_t layers = (size_t)prefill_at(shape, shape->n_steps, 0);
	const size_t ranks = layers * (size_t)shape->n_ranks;

	return (struct amounts){
		.layers = layers,
		.ranks = ranks,
		.counts = ranks * (size_t)shape->n_experts,
		.slots = layers * (size_t)setup->n_slots,
		.steps = (size_t)shape->n_steps * (size_t)shape->n_ranks,
	};
}

static void share(struct prefill_setup *setup)
{
	const struct amounts n = amounts_of(setup);

	setup->notes = alloc_shared(n.ranks * sizeof(*setup->notes));
	setup->counts = alloc_shared(n.counts * sizeof(*setup->counts));
	setup->foreseen = alloc_shared(n.counts * sizeof(*setup->foreseen));
	setup->served = alloc_shared(n.slots * sizeof(*setup->served));
	if (setup->split == FERRY_SPLIT_QUOTA)
		setup->quotas = alloc_shared(n.slots * sizeof(*setup->quotas));
	setup->step_spans = alloc_shared(n.steps * sizeof(*setup->step_spans));
	setup->start_ns = alloc_shared(sizeof(*setup->start_ns));
}

static bool check(const struct prefill_shape *shape, struct fault *fault)
{
	if (shape->n_experts < shape->n_ranks)
		return fault_set(fault,
		                 "%d ranks, but the model has %d experts: a "
		                 "rank needs one at least",
		                 shape->n_ranks, shape->n_experts);
	return true;
}

bool prefill_setup_open(struct prefill_setup *setup,
                        const struct prefill_job *job, struct prefill_run *run,
                        struct fault *fault)
{
	*setup = (struct prefill_setup){.job = job, .run = run};
	/* Of the ranks, too. */
	if (!lm_blas_open(fault) || !check(job->shape, fault) ||
	    !find_maxima(setup, fault))
		return false;
	choose_slots(setup);
	share(setup);
	return prefill_place(setup, fault);
}

void prefill_setup_close(struct prefill_setup *setup)
{
	const struct amounts n = amounts_of(setup);

	free(setup->slots_of_rank);
	free(setup->first);
	alloc_shared_free(setup->notes, n.ranks * sizeof(*setup->notes));
	alloc_shared_free(setup->counts, n.counts * sizeof(*setup->counts));
	alloc_shared_free(setup->foreseen, n.counts * sizeof(*setup->foreseen));
	alloc_shared_free(setup->served, n.slots * sizeof(*setup->served));
	alloc_shared_free(setup->quotas, n.slots * sizeof(*setup->quotas));
	alloc_shared_free(setup->step_spans,
	                  n.steps * sizeof(*setup->step_spans));
	alloc_shared_free(setup->start_ns, sizeof(*setup->start_ns));
}
