/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a report of a prefill that nobody ran, for eyes and browsers:
 *
 *	html_sample FILE [RANKS [LAYERS EXPERTS STEPS RUNS]]
 *
 * With sizes the made-up run is repeated until it has them, at least once, and
 * its policies are those of --balance all.
 */
#include <stdio.h>
#include <stdlib.h>

#include "alloc.h"
#include "made_up_run.h"

enum { N_POLICIES = 6 };

static const char *const names[N_POLICIES] = {
	"off", "eplb", "freebalance", "eplb+freebalance", "ferry", "eplb+ferry",
};

/* Of the made-up runs, whose numbers each policy has. */
static const int sources[N_POLICIES] = {0, 1, 2, 1, 2, 2};

static void tile_cell(const struct made_up *m, const struct prefill_run *from,
                      const struct prefill_shape *shape,
                      struct prefill_run *run, const int32_t at[2])
{
	const int32_t step = at[0] % MADE_UP_STEPS;
	const int32_t layer = at[1] % MADE_UP_LAYERS;
	const int64_t source =
		((int64_t)step * MADE_UP_LAYERS + layer) * MADE_UP_EXPERTS;
	const int64_t to =
		((int64_t)at[0] * shape->n_layers + at[1]) * shape->n_experts;

	*prefill_cell_at(shape, run, at[0], at[1]) =
		*prefill_cell_at(&m->shape, from, step, layer);
	for (int32_t r = 0; r < shape->n_ranks; r++)
		*prefill_rank_cell_at(shape, run, at[0], at[1], r) =
			*prefill_rank_cell_at(&m->shape, from, step, layer, r);
	for (int32_t e = 0; e < shape->n_experts; e++) {
		run->loads[to + e] = from->loads[source + e % MADE_UP_EXPERTS];
		run->predicted[to + e] =
			from->predicted[source + e % MADE_UP_EXPERTS];
	}
}

static void tile(const struct made_up *m, const struct prefill_shape *shape,
                 int policy, struct prefill_run *run)
{
	const struct prefill_run *const from = &m->runs[sources[policy]];
	const size_t n = (size_t)shape->n_steps * (size_t)shape->n_layers;
	const size_t n_loads = n * (size_t)shape->n_experts;

	*run = *from;
	run->policy = (enum ferry_balance_policy)policy;
	run->name = names[policy];
	run->cells = alloc_or_exit(n, sizeof(*run->cells));
	run->rank_cells = alloc_or_exit(n * (size_t)shape->n_ranks,
	                                sizeof(*run->rank_cells));
	run->loads = alloc_or_exit(n_loads, sizeof(int64_t));
	run->predicted = alloc_or_exit(n_loads, sizeof(int64_t));
	run->step_spans =
		alloc_or_exit((size_t)shape->n_steps, sizeof(*run->step_spans));
	for (int32_t s = 0; s < shape->n_steps; s++) {
		run->step_spans[s] = from->step_spans[s % MADE_UP_STEPS];
		for (int32_t l = 0; l < shape->n_layers; l++)
			tile_cell(m, from, shape, run, (int32_t[]){s, l});
	}
}

/* The made-up steps again and again; the first one of all is the warm-up. */
static void tile_steps(const struct made_up *m, struct prefill_shape *shape)
{
	struct prefill_step *const steps =
		alloc_or_exit((size_t)shape->n_steps, sizeof(*steps));

	for (int32_t s = 0; s < shape->n_steps; s++) {
		steps[s] = m->steps[s % MADE_UP_STEPS];
		steps[s].warm_up = s == 0;
	}
	shape->steps = steps;
}

static bool write_large(struct made_up *m, int n_runs, const int32_t sizes[3],
                        const char *path)
{
	struct prefill_shape shape = m->shape;
	struct prefill_run runs[N_POLICIES];
	struct prefill_report report = m->report;
	struct prefill_job job = m->job;

	shape.n_layers = sizes[0];
	shape.n_experts = sizes[1];
	shape.n_steps = sizes[2];
	tile_steps(m, &shape);
	for (int i = 0; i < n_runs; i++)
		tile(m, &shape, i, &runs[i]);
	job.shape = &shape;
	report.job = &job;
	report.runs = runs;
	report.n_runs = n_runs;
	const bool written = prefill_write_html(&report, path);

	for (int i = 0; i < n_runs; i++) {
		free(runs[i].cells);
		free(runs[i].rank_cells);
		free(runs[i].loads);
		free(runs[i].predicted);
		free(runs[i].step_spans);
	}
	free(shape.steps);
	return written;
}

static int32_t number(const char *text, int32_t least, int32_t most)
{
	const long n = strtol(text, NULL, 10);

	return n < least ? least : n > most ? most : (int32_t)n;
}

int main(int argc, char **argv)
{
	static struct made_up made_up;
	bool written;

	if (argc != 2 && argc != 3 && argc != 7) {
		fprintf(stderr,
		        "usage: %s FILE [RANKS [LAYERS EXPERTS STEPS "
		        "RUNS]]\n",
		        argv[0]);
		return 2;
	}
	made_up_open(&made_up, argc > 2 ? number(argv[2], 1, 32) : 8);
	if (argc == 7)
		written = write_large(
			&made_up, number(argv[6], 1, N_POLICIES),
			(int32_t[]){number(argv[3], 1, 128),
		                    number(argv[4], 1, 1024),
		                    number(argv[5], MADE_UP_STEPS, 1000)},
			argv[1]);
	else
		written = prefill_write_html(&made_up.report, argv[1]);
	made_up_close(&made_up);
	return !written;
}
