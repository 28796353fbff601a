/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of a run out of its cells: steps, layers and texts. */
#include "prefill_result.h"

#include <math.h>

/* What counts. */
struct choice {
	const struct prefill_shape *shape;
	const struct prefill_run *run;
	int32_t text, layer, step; /* -1: all */
};

static bool counts(const struct choice *c, int32_t step)
{
	const struct prefill_step *const s = &c->shape->steps[step];

	if (c->step >= 0)
		return step == c->step;
	return !s->warm_up && (c->text < 0 || s->text == c->text);
}

static void add_worst(double *worst, double value)
{
	*worst = value > *worst ? value : *worst;
}

/* What a prediction has led to; means are sums until the end. */
static void add_predicted(const struct prefill_cell *cell, int64_t *n_windows,
                          struct prefill_totals *t)
{
	if (!cell->predicted)
		return;
	t->n_predicted++;
	t->ratio_predicted_before += cell->ratio_predicted_before;
	t->ratio_predicted_after += cell->ratio_predicted_after;
	t->topk_hit += cell->topk_hit;
	t->hidden_cosine += cell->hidden_cosine;
	t->logit_cosine += cell->logit_cosine;
	if (cell->window_ns == INT64_MAX)
		return;
	++*n_windows;
	t->window_ns += cell->window_ns;
}

static void add_moves(const struct prefill_cell *cell, struct prefill_totals *t)
{
	const int32_t moves = cell->n_swaps + cell->n_copies;

	t->moves_mean += moves;
	t->moved_bytes += cell->moved_bytes;
	t->plan_ns += cell->plan_ns;
	t->migrate_ns += cell->migrate_ns;
	t->hidden_ns += cell->hidden_ns;
	t->exposed_ns += cell->exposed_ns;
	t->wait_ns += cell->wait_ns;
	if (!moves && !cell->moved_bytes)
		return;
	t->n_moved++;
	t->n_improved += cell->ratio < cell->ratio_stay;
}

/* The longest rank of each stage: it is what the others wait for. */
static void add_stages(const struct choice *c, int32_t step, int32_t layer,
                       struct prefill_totals *t)
{
	for (int s = 0; s < PREFILL_N_STAGES; s++) {
		int64_t longest = 0;

		for (int32_t r = 0; r < c->shape->n_ranks; r++) {
			const struct prefill_span *const span =
				&prefill_rank_cell_at(c->shape, c->run, step,
			                              layer, r)
					 ->spans[s];
			const int64_t ns = span->end_ns - span->begin_ns;

			longest = ns > longest ? ns : longest;
		}
		t->stage_ns[s] += longest;
	}
}

static void add_step(const struct choice *c, int32_t step, int64_t *n_windows,
                     struct prefill_totals *t)
{
	const int32_t first = c->layer < 0 ? 0 : c->layer;
	const int32_t end = c->layer < 0 ? c->shape->n_layers : c->layer + 1;
	const struct prefill_span *const span = &c->run->step_spans[step];

	t->n_steps++;
	t->total_ns += span->end_ns - span->begin_ns;
	for (int32_t layer = first; layer < end; layer++) {
		const struct prefill_cell *const cell =
			prefill_cell_at(c->shape, c->run, step, layer);

		t->n_cells++;
		t->ratio_before += cell->ratio_fixed;
		t->ratio_after += cell->ratio;
		t->ratio_stay += cell->ratio_stay;
		add_worst(&t->ratio_before_worst, cell->ratio_fixed);
		add_worst(&t->ratio_after_worst, cell->ratio);
		add_predicted(cell, n_windows, t);
		add_moves(cell, t);
		add_stages(c, step, layer, t);
	}
}

static void divide(double *sum, int64_t n)
{
	*sum = n ? *sum / (double)n : 0;
}

/* The first sequence of c->step: they are in the order of steps. */
static int32_t first_sequence(const struct choice *c)
{
	int32_t low = 0, high = c->step < 0 ? 0 : c->shape->n_sequences;

	while (low < high) {
		const int32_t middle = low + (high - low) / 2;

		if (c->run->sequences[middle].step < c->step)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_behind(const struct choice *c, int32_t sequence)
{
	return sequence == c->shape->n_sequences ||
	       (c->step >= 0 && c->run->sequences[sequence].step != c->step);
}

static void add_sequences(const struct choice *c, struct prefill_totals *t)
{
	int64_t n_foreseen = 0; /* tokens that had one before them */

	for (int32_t i = first_sequence(c); !is_behind(c, i); i++) {
		const struct prefill_sequence *const s = &c->run->sequences[i];

		if (c->step < 0 && (c->shape->steps[s->step].warm_up ||
		                    (c->text >= 0 && s->text != c->text)))
			continue;
		t->n_tokens += s->n_tokens;
		t->nll_mean += s->nll;
		n_foreseen += s->n_tokens - 1;
	}
	divide(&t->nll_mean, n_foreseen);
}

static void sum(const struct choice *c, struct prefill_totals *t)
{
	int64_t n_windows = 0;

	*t = (struct prefill_totals){0};
	for (int32_t step = 0; step < c->shape->n_steps; step++)
		if (counts(c, step))
			add_step(c, step, &n_windows, t);
	divide(&t->ratio_before, t->n_cells);
	divide(&t->ratio_after, t->n_cells);
	divide(&t->ratio_stay, t->n_cells);
	divide(&t->moves_mean, t->n_cells);
	divide(&t->ratio_predicted_before, t->n_predicted);
	divide(&t->ratio_predicted_after, t->n_predicted);
	divide(&t->topk_hit, t->n_predicted);
	divide(&t->hidden_cosine, t->n_predicted);
	divide(&t->logit_cosine, t->n_predicted);
	t->window_ns = n_windows ? t->window_ns / n_windows : -1;
	add_sequences(c, t);
}

void prefill_sum(const struct prefill_shape *shape,
                 const struct prefill_run *run, int32_t text,
                 struct prefill_totals *totals)
{
	const struct choice all = {shape, run, text, -1, -1};

	sum(&all, totals);
}

void prefill_sum_layer(const struct prefill_shape *shape,
                       const struct prefill_run *run, int32_t layer,
                       struct prefill_totals *totals)
{
	const struct choice one = {shape, run, -1, layer, -1};

	sum(&one, totals);
}

void prefill_sum_step(const struct prefill_shape *shape,
                      const struct prefill_run *run, int32_t step,
                      struct prefill_totals *totals)
{
	const struct choice one = {shape, run, -1, -1, step};

	sum(&one, totals);
}

static double step_ns(const struct prefill_run *run, int32_t step)
{
	const struct prefill_span *const span = &run->step_spans[step];

	return (double)(span->end_ns - span->begin_ns);
}

struct prefill_change prefill_compare_times(const struct prefill_shape *shape,
                                            const struct prefill_run *run,
                                            const struct prefill_run *other,
                                            int32_t text)
{
	const struct choice all = {shape, run, text, -1, -1};
	double now = 0, was = 0, squares = 0, n = 0;

	for (int32_t s = 0; s < shape->n_steps; s++)
		if (counts(&all, s)) {
			now += step_ns(run, s);
			was += step_ns(other, s);
			n++;
		}
	if (n < 2 || !(was > 0))
		return (struct prefill_change){false, 0, 0};
	for (int32_t s = 0; s < shape->n_steps; s++)
		if (counts(&all, s)) {
			const double off =
				step_ns(run, s) - now / was * step_ns(other, s);

			squares += off * off;
		}
	return (struct prefill_change){true, now / was - 1,
	                               sqrt(squares * n / (n - 1)) / was};
}
