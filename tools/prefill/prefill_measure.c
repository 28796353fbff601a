/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what the ranks have left behind to cells: sums and maxima over ranks,
 * and how full ranks were, would have been, and were thought to be.
 */
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"
#include "prefill_inner.h"

#include "../alloc.h"

/* A layer of a step under the parent's eyes. */
struct view {
	const struct prefill_setup *setup;
	const struct prefill_shape *shape;
	int32_t step, layer;
	const struct prefill_note *notes; /* [n_ranks] */
	struct prefill_cell *cell;
	struct prefill_rank_cell *rank_cells; /* [n_ranks] */
	int64_t *loads;                       /* [n_experts] */
	int64_t *rank_loads;                  /* [n_ranks] scratch */
};

/* Sum over ranks of counts[n_ranks][n_experts]. */
static void add_counts(const struct prefill_shape *shape, const int32_t *counts,
                       int64_t *loads)
{
	for (int32_t r = 0; r < shape->n_ranks; r++)
		for (int32_t e = 0; e < shape->n_experts; e++)
			loads[e] += *counts++;
}

static double ratio_of(const int64_t *rank_loads, int32_t n_ranks)
{
	int64_t most = 0, total = 0;

	for (int32_t r = 0; r < n_ranks; r++) {
		most = max_i64(most, rank_loads[r]);
		total += rank_loads[r];
	}
	return total ? (double)most * n_ranks / (double)total : 1;
}

/* True loads of the ranks had the layer these experts in its slots. */
static bool weigh(const struct view *v, const int32_t *slots,
                  const int64_t *quotas, double *ratio, struct fault *fault)
{
	struct ferry_placement *placement;

	if (prefill_placement(v->setup, slots, quotas, &placement))
		return fault_set(fault, "%s", ferry_last_error());
	const enum ferry_status status =
		ferry_rank_loads(placement, v->loads, v->rank_loads);

	ferry_placement_destroy(placement);
	if (status)
		return fault_set(fault, "%s", ferry_last_error());
	*ratio = ratio_of(v->rank_loads, v->shape->n_ranks);
	return true;
}

/* What the step before has left is what a step finds. */
static bool weigh_stay(const struct view *v, struct fault *fault)
{
	const struct prefill_setup *setup = v->setup;
	const int64_t at =
		prefill_at(v->shape, v->step - 1, v->layer) * setup->n_slots;

	if (v->step == 0) {
		v->cell->ratio_stay = v->cell->ratio_fixed;
		return true;
	}
	return weigh(v, setup->served + at,
	             setup->quotas ? setup->quotas + at : NULL,
	             &v->cell->ratio_stay, fault);
}

static bool fill_ratios(const struct view *v, struct fault *fault)
{
	const struct prefill_setup *setup = v->setup;
	const int32_t n_ranks = v->shape->n_ranks;

	if (!weigh(v, setup->first + (int64_t)v->layer * setup->n_slots, NULL,
	           &v->cell->ratio_fixed, fault))
		return false;
	for (int32_t r = 0; r < n_ranks; r++)
		v->rank_cells[r].tokens_fixed = v->rank_loads[r];
	if (!weigh_stay(v, fault))
		return false;
	for (int32_t r = 0; r < n_ranks; r++)
		v->rank_loads[r] = v->rank_cells[r].tokens;
	v->cell->ratio = ratio_of(v->rank_loads, n_ranks);
	return true;
}

/* What a rank pushed while it computed attention. */
static int64_t hidden_ns(const struct prefill_rank_cell *cell)
{
	const struct prefill_span *push = &cell->spans[PREFILL_MIGRATE];
	const struct prefill_span *beside = &cell->spans[PREFILL_ATTENTION];

	return max_i64(0, min_i64(push->end_ns, beside->end_ns) -
	                          max_i64(push->begin_ns, beside->begin_ns));
}

/* Times are those of the slowest rank, bytes of all. */
static void fill_notes(const struct view *v)
{
	struct prefill_cell *cell = v->cell;

	for (int32_t r = 0; r < v->shape->n_ranks; r++) {
		const struct prefill_note *n = &v->notes[r];

		cell->plan_ns = max_i64(cell->plan_ns, n->plan_ns);
		if (n->migrate_ns > cell->migrate_ns) {
			cell->migrate_ns = n->migrate_ns;
			cell->hidden_ns = hidden_ns(&v->rank_cells[r]);
		}
		cell->moved_bytes += n->moved_bytes;
		cell->hidden_cosine += n->hidden_cosine;
		cell->logit_cosine += n->logit_cosine;
		cell->topk_hit += (double)n->n_hits;
	}
}

/*
 * The rank that waits least for what moves is the one that the others wait for
 * anyway, for its attention: what it waits is what all wait because of the
 * moves. Then each switches by itself.
 */
static void fill_exposed(const struct view *v)
{
	struct prefill_cell *cell = v->cell;
	int64_t wait_ns = v->notes[0].late_ns, switch_ns = 0;

	for (int32_t r = 0; r < v->shape->n_ranks; r++) {
		wait_ns = min_i64(wait_ns, v->notes[r].late_ns);
		switch_ns = max_i64(switch_ns, v->notes[r].switch_ns);
	}
	cell->wait_ns = wait_ns;
	cell->exposed_ns = wait_ns + switch_ns;
}

/* From sums over tokens to means. */
static void fill_means(const struct view *v)
{
	const int32_t *first = v->setup->job->first_sequence + v->step;
	struct prefill_cell *cell = v->cell;
	double n = 0;

	for (int32_t s = first[0]; s < first[1]; s++)
		n += prefill_length(v->setup->job, s);
	if (!cell->predicted || n <= 0)
		return;
	cell->hidden_cosine /= n;
	cell->logit_cosine /= n;
	cell->topk_hit /= n * v->shape->topk;
}

static bool measure_layer(struct view *v, struct fault *fault)
{
	const struct prefill_setup *setup = v->setup;
	const struct prefill_shape *shape = v->shape;
	const int64_t at = prefill_at(shape, v->step, v->layer);
	const int64_t of_ranks = at * shape->n_ranks;
	const int64_t first_count = of_ranks * shape->n_experts;

	v->notes = setup->notes + of_ranks;
	v->cell = setup->run->cells + at;
	v->rank_cells = setup->run->rank_cells + of_ranks;
	v->loads = setup->run->loads + at * shape->n_experts;
	add_counts(shape, setup->counts + first_count, v->loads);
	add_counts(shape, setup->foreseen + first_count,
	           setup->run->predicted + at * shape->n_experts);
	fill_notes(v);
	fill_exposed(v);
	fill_means(v);
	return fill_ratios(v, fault);
}

/* From the first rank's begin to the last one's end. */
static void join_spans(const struct prefill_setup *setup)
{
	const struct prefill_shape *shape = setup->job->shape;
	const struct prefill_span *of_rank = setup->step_spans;

	for (int32_t step = 0; step < shape->n_steps; step++) {
		struct prefill_span all = of_rank[0];

		for (int32_t r = 1; r < shape->n_ranks; r++) {
			all.begin_ns =
				min_i64(all.begin_ns, of_rank[r].begin_ns);
			all.end_ns = max_i64(all.end_ns, of_rank[r].end_ns);
		}
		setup->run->step_spans[step] = all;
		of_rank += shape->n_ranks;
	}
}

bool prefill_measure(const struct prefill_setup *setup, struct fault *fault)
{
	const struct prefill_shape *shape = setup->job->shape;
	struct view v = {.setup = setup, .shape = shape};
	bool good = true;

	v.rank_loads =
		alloc_or_exit((size_t)shape->n_ranks, sizeof(*v.rank_loads));
	for (v.step = 0; good && v.step < shape->n_steps; v.step++)
		for (v.layer = 0; good && v.layer < shape->n_layers; v.layer++)
			good = measure_layer(&v, fault);
	free(v.rank_loads);
	join_spans(setup);
	return good;
}
