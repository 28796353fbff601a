/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer of a step on one rank: attention on its own sequences while the
 * second thread foresees and moves, the switch to where experts are then, the
 * true router, and the way of the tokens to their experts and back.
 */
#include <string.h>

#include "prefill_rank.h"

/* Where a rank is, and where it notes what it sees. */
struct at {
	struct prefill_rank *r;
	int32_t layer;
	bool asked; /* the second thread */
	const struct ferry_placement *placement;
	struct prefill_rank_cell *cell;
	struct prefill_note *note;
	int64_t index; /* prefill_at */
};

static struct at place(struct prefill_rank *r, int32_t layer)
{
	const struct prefill_shape *shape = r->job->shape;
	const int64_t of_rank =
		prefill_rank_at(shape, r->step, layer, r->me->rank);

	return (struct at){
		.r = r,
		.layer = layer,
		.cell = &r->setup->run->rank_cells[of_rank],
		.note = &r->setup->notes[of_rank],
		.index = prefill_at(shape, r->step, layer),
	};
}

static void begin(const struct at *a, enum prefill_stage stage)
{
	a->cell->spans[stage].begin_ns = prefill_now(a->r);
}

static int64_t end(const struct at *a, enum prefill_stage stage)
{
	struct prefill_span *span = &a->cell->spans[stage];

	span->end_ns = prefill_now(a->r);
	return span->end_ns - span->begin_ns;
}

static void attention(const struct at *a)
{
	struct prefill_rank *r = a->r;

	begin(a, PREFILL_ATTENTION);
	if (r->batch.n_tokens)
		lm_attention(r->model, r->work, a->layer, &r->batch.lm, r->h);
	end(a, PREFILL_ATTENTION);
}

/* The window of later layers: all have attention of one type. */
static bool add_window(const struct at *a)
{
	const struct prefill_batch *batch = &a->r->batch;
	const struct prefill_span *span = &a->cell->spans[PREFILL_ATTENTION];

	if (!a->r->windows || !batch->n_tokens)
		return true;
	return crew_good(a->r->me,
	                 ferry_windows_add(a->r->windows, a->layer,
	                                   batch->n_tokens, batch->longest,
	                                   span->end_ns - span->begin_ns),
	                 "noting a window");
}

/* The second thread's time, up to where it began to push. */
static void note_early(const struct at *a,
                       const struct ferry_balancer_report *report)
{
	const struct prefill_early *e = &a->r->early;
	const bool moves = a->r->moved[a->layer];
	const int64_t push_ns = moves ? (int64_t)report->push_ns : 0;

	a->cell->spans[PREFILL_PREDICT] =
		(struct prefill_span){e->begin_ns, e->end_ns - push_ns};
	if (moves)
		a->cell->spans[PREFILL_MIGRATE] =
			(struct prefill_span){e->end_ns - push_ns, e->end_ns};
	a->note->migrate_ns = push_ns;
	a->note->plan_ns = (int64_t)report->plan_ns;
	a->note->moved_bytes = (int64_t)report->bytes_out;
}

/* What the rank waited for the second threads of all, and then did. Until all
 * ranks have come to commit, it would have waited in the dispatch. */
static void note_waits(const struct at *a, int64_t answered_at_ns,
                       const struct ferry_balancer_report *report)
{
	const int64_t computed_at = a->cell->spans[PREFILL_ATTENTION].end_ns;

	a->note->late_ns =
		answered_at_ns - computed_at + (int64_t)report->wait_ns;
	a->note->switch_ns = (int64_t)(report->exposed_ns - report->wait_ns -
	                               report->meet_ns);
}

/* What all ranks have alike is noted by one. */
static void note_decision(const struct at *a,
                          const struct ferry_balancer_report *report)
{
	struct prefill_cell *cell = &a->r->setup->run->cells[a->index];

	if (a->r->me->rank)
		return;
	cell->predicted = a->r->early.foresees;
	cell->ratio_predicted_before = (double)report->before_ppm * 1e-6;
	cell->ratio_predicted_after = (double)report->after_ppm * 1e-6;
	cell->n_swaps = report->held_back ? 0 : report->n_swaps;
	cell->n_copies = report->held_back ? 0 : report->n_copies;
	cell->by_history = report->by_history;
	cell->window_ns = report->window_ns;
}

static void note_served(const struct at *a)
{
	const struct prefill_setup *setup = a->r->setup;
	const int64_t first = a->index * setup->n_slots;

	for (int32_t s = 0; !a->r->me->rank && s < setup->n_slots; s++) {
		setup->served[first + s] =
			ferry_placement_expert(a->placement, s);
		if (setup->quotas)
			setup->quotas[first + s] =
				ferry_placement_quota(a->placement, s);
	}
}

/* Ends what was asked before attention, and switches. */
static bool commit(struct at *a)
{
	struct prefill_rank *r = a->r;
	struct ferry_balancer_report report = FERRY_BALANCER_REPORT_INIT;

	begin(a, PREFILL_COMMIT);
	if (a->asked && !prefill_early_wait(&r->early))
		return false;
	const int64_t answered_at = prefill_now(r);

	if (!add_window(a) ||
	    !crew_good(r->me,
	               ferry_balancer_commit(r->balancer, a->layer,
	                                     &a->placement, &report),
	               "committing"))
		return false;
	end(a, PREFILL_COMMIT);
	r->moved[a->layer] =
		!report.held_back &&
		(report.n_swaps || report.n_copies || report.by_history);
	if (!a->asked) {
		a->cell->spans[PREFILL_COMMIT] = (struct prefill_span){0, 0};
		return true;
	}
	note_waits(a, answered_at, &report);
	note_early(a, &report);
	note_decision(a, &report);
	return true;
}

/* Own tokens' choices into one of the run's [n_tokens][n_layers][topk]. */
static void record(const struct at *a, const int32_t *ids, int32_t *all)
{
	const struct prefill_rank *r = a->r;
	const struct prefill_shape *shape = r->job->shape;
	const size_t topk = (size_t)shape->topk;

	for (int32_t s = 0; all && s < r->batch.lm.n_sequences; s++) {
		const int64_t first =
			r->job->first_token[r->batch.sequences[s]];

		for (int64_t t = 0; t < r->batch.lengths[s]; t++) {
			int32_t *to = all + ((first + t) * shape->n_layers +
			                     a->layer) *
			                            shape->topk;

			if (ids) {
				memcpy(to, ids, topk * sizeof(*ids));
				ids += topk;
			} else { /* -1: no expert */
				memset(to, 0xff, topk * sizeof(*ids));
			}
		}
	}
}

static void record_both(const struct at *a)
{
	const struct prefill_rank *r = a->r;
	const bool foreseen = a->asked && r->early.foresees;

	record(a, r->ids, r->setup->run->topk_ids);
	record(a, foreseen ? r->early.ids : NULL, r->setup->run->predicted_ids);
	if (foreseen)
		prefill_early_judge(&r->early, a->note);
}

/* Own choices of every expert, for the balancer and for the result. */
static bool count(const struct at *a)
{
	const struct prefill_rank *r = a->r;
	const int32_t n_experts = r->job->shape->n_experts;
	const int64_t first =
		(a->index * r->job->shape->n_ranks + r->me->rank) * n_experts;
	int32_t *counts = r->setup->counts + first;
	struct ferry_ids ids = FERRY_IDS_INIT;

	ids.n_tokens = r->batch.n_tokens;
	ids.topk = r->job->shape->topk;
	ids.ids = r->ids;
	if (a->asked && r->early.foresees)
		memcpy(r->setup->foreseen + first, r->early.counts,
		       (size_t)n_experts * sizeof(*counts));
	if (!crew_good(r->me, ferry_predict_counts(&ids, n_experts, counts),
	               "counting"))
		return false;
	return !r->balancer ||
	       crew_good(r->me,
	                 ferry_balancer_observe(r->balancer, a->layer, counts),
	                 "observing");
}

/* Each sequence for itself, so that its token is named. */
static bool check_router(const struct at *a)
{
	const struct prefill_rank *r = a->r;
	const float *logits = r->logits;
	struct fault fault;

	for (int32_t i = 0; i < r->batch.lm.n_sequences; i++) {
		const int32_t n = r->batch.lengths[i];

		if (!lm_check_router(r->model, a->layer, logits, n, &fault)) {
			prefill_fault_in(r->job, r->setup->run,
			                 r->batch.sequences[i], &fault);
			return prefill_rank_fail(r, &fault);
		}
		logits += (int64_t)n * r->job->shape->n_experts;
	}
	return true;
}

static bool choose(const struct at *a)
{
	struct prefill_rank *r = a->r;
	struct fault fault = {""};

	if (!r->batch.n_tokens)
		return true;
	lm_router(r->model, r->work, a->layer, r->h, r->batch.n_tokens, r->x,
	          r->logits);
	if (!check_router(a))
		return false;
	if (lm_choose(r->model, r->logits, r->batch.n_tokens, r->ids,
	              r->weights, &fault))
		return true;
	return prefill_rank_fail(r, &fault);
}

/* With split EXACT: from experts to slots, which meets the other ranks. */
static bool split(const struct at *a)
{
	const struct prefill_rank *r = a->r;
	struct ferry_split_in in = FERRY_SPLIT_IN_INIT;
	struct ferry_split_out out = FERRY_SPLIT_OUT_INIT;

	if (!r->splitter)
		return true;
	in.n_tokens = r->batch.n_tokens;
	in.ids = r->ids;
	in.placement = a->placement;
	out.slots = r->slots;
	return crew_good(r->me, ferry_split(r->splitter, 0, &in, &out),
	                 "splitting");
}

static bool route(const struct at *a)
{
	begin(a, PREFILL_ROUTER);
	const bool good = choose(a) && count(a) && split(a);

	end(a, PREFILL_ROUTER);
	return good;
}

static bool dispatch(const struct at *a)
{
	const struct prefill_rank *r = a->r;
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;

	in.n_tokens = r->batch.n_tokens;
	in.x = r->x;
	in.topk_ids = r->splitter ? r->slots : r->ids;
	in.id_kind = r->splitter ? FERRY_ID_SLOT : FERRY_ID_LOGICAL;
	in.topk_weights = r->weights;
	in.placement = a->placement;
	out.rows = r->rows;
	out.counts = r->counts;
	out.offsets = r->offsets;
	out.n_rows = &a->cell->tokens;
	begin(a, PREFILL_DISPATCH);
	const bool good = crew_good(
		r->me, ferry_dispatch(r->moe, 0, &in, &out, NULL), "dispatch");

	end(a, PREFILL_DISPATCH);
	r->came[a->layer] = a->cell->tokens;
	return good;
}

/* What is only looked at is looked at while the rows of others are coming. */
static bool combine(const struct at *a)
{
	const struct prefill_rank *r = a->r;
	struct ferry_combine_in in = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out out = FERRY_COMBINE_OUT_INIT;

	in.y = r->y;
	in.layout = FERRY_FROM_PACKED;
	out.out = r->h;
	out.residual = r->h;
	begin(a, PREFILL_COMBINE);
	if (!crew_good(r->me, ferry_combine_send(r->moe, 0, &in, NULL),
	               "combine"))
		return false;
	record_both(a);
	const bool good = crew_good(
		r->me, ferry_combine_recv(r->moe, 0, &out, NULL), "combine");

	end(a, PREFILL_COMBINE);
	return good;
}

bool prefill_layer(struct prefill_rank *rank, int32_t layer)
{
	struct at a = place(rank, layer);

	a.placement = rank->first[layer];
	a.asked = rank->balancer && !rank->even[layer] &&
	          ferry_balancer_wants(rank->balancer, layer);
	if (a.asked)
		prefill_early_ask(&rank->early, layer);
	attention(&a);
	if (rank->balancer && !commit(&a))
		return false;
	note_served(&a);
	if (!route(&a) || !dispatch(&a))
		return false;
	begin(&a, PREFILL_EXPERTS);
	prefill_experts_run(rank, layer, a.placement);
	end(&a, PREFILL_EXPERTS);
	return combine(&a);
}
