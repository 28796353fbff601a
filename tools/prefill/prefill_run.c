/* SPDX-License-Identifier: Apache-2.0 */
/* A run from the parent's side: its shared memory, its ranks, its result. */
#include <stdio.h>

#include "prefill_inner.h"
#include "prefill_rank.h"
#include "prefill_words.h"

#include "../alloc.h"
#include "../crew.h"
#include "../opt.h"

/* Sizes of the arrays of a run. */
struct sizes {
	size_t cells, rank_cells, loads, sequences, spans, ids;
};

static struct sizes sizes_of(const struct prefill_shape *shape)
{
	const struct prefill_run *run = NULL;
	const size_t layers = (size_t)prefill_at(shape, shape->n_steps, 0);
	const size_t n_sequences = (size_t)shape->n_sequences;
	const size_t choices = (size_t)shape->n_tokens *
	                       (size_t)shape->n_layers * (size_t)shape->topk;

	return (struct sizes){
		.cells = layers * sizeof(*run->cells),
		.rank_cells = layers * (size_t)shape->n_ranks *
	                      sizeof(*run->rank_cells),
		.loads =
			layers * (size_t)shape->n_experts * sizeof(*run->loads),
		.sequences = n_sequences * sizeof(*run->sequences),
		.spans = (size_t)shape->n_steps * sizeof(*run->step_spans),
		.ids = choices * sizeof(*run->topk_ids),
	};
}

void prefill_run_open(const struct prefill_shape *shape, bool record,
                      struct prefill_run *run)
{
	const struct sizes s = sizes_of(shape);

	run->cells = alloc_shared(s.cells);
	run->rank_cells = alloc_shared(s.rank_cells);
	run->loads = alloc_shared(s.loads);
	run->predicted = alloc_shared(s.loads);
	run->sequences = alloc_shared(s.sequences);
	run->step_spans = alloc_shared(s.spans);
	run->topk_ids = record ? alloc_shared(s.ids) : NULL;
	run->predicted_ids = record ? alloc_shared(s.ids) : NULL;
	run->bits_equal = false;
	run->n_differ = 0;
}

void prefill_run_close(const struct prefill_shape *shape,
                       struct prefill_run *run)
{
	const struct sizes s = sizes_of(shape);

	alloc_shared_free(run->cells, s.cells);
	alloc_shared_free(run->rank_cells, s.rank_cells);
	alloc_shared_free(run->loads, s.loads);
	alloc_shared_free(run->predicted, s.loads);
	alloc_shared_free(run->sequences, s.sequences);
	alloc_shared_free(run->step_spans, s.spans);
	alloc_shared_free(run->topk_ids, s.ids);
	alloc_shared_free(run->predicted_ids, s.ids);
}

static int run_crew(struct prefill_setup *setup)
{
	const struct prefill_job *job = setup->job;
	const struct crew crew = {
		.name = job->name,
		.n_ranks = job->shape->n_ranks,
		.threads = job->threads,
		.fabric = prefill_fabric(job),
		.timeout_ms = job->timeout_ms,
	};

	/* A rank that was killed is this program's failure, not its death. */
	return crew_run(&crew, prefill_rank, setup) ? EXIT_FAILED : EXIT_GOOD;
}

int prefill_run_ranks(const struct prefill_job *job, struct prefill_run *run)
{
	struct prefill_setup setup;
	struct fault fault = {""};
	int status = EXIT_FAILED;
	bool good = prefill_setup_open(&setup, job, run, &fault);

	if (good) {
		status = run_crew(&setup);
		if (status == EXIT_GOOD)
			good = prefill_measure(&setup, &fault);
	}
	if (!good) {
		fprintf(stderr, "%s: %s\n", job->name, fault.text);
		status = EXIT_FAILED;
	}
	prefill_setup_close(&setup);
	return status;
}
