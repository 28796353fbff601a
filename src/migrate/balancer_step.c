/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a step that meet the other ranks: predict and commit. One round
 * of sums carries what ranks foresee, and what they have seen.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "../core/sized.h"
#include "../trace/events.h"
#include "balancer_inner.h"
#include "experts_from.h"

static enum ferry_status check_whole(struct ferry_balancer *b, const char *call)
{
	pthread_mutex_lock(&b->lock);
	const bool broken = b->broken;

	pthread_mutex_unlock(&b->lock);
	if (!broken)
		return FERRY_OK;
	return ferry_fail(&b->world->ctx, FERRY_BROKEN, "%s: after: %s", call,
	                  b->why);
}

/* A failure after which ranks may differ. */
static enum ferry_status broken(struct ferry_balancer *b,
                                enum ferry_status status)
{
	pthread_mutex_lock(&b->lock);
	if (!b->broken)
		snprintf(b->why, sizeof(b->why), "%s", ferry_last_error());
	b->broken = true;
	pthread_mutex_unlock(&b->lock);
	return status;
}

void ferry_balancer_want(const struct ferry_balancer *b,
                         struct balancer_layer *layer)
{
	layer->wants =
		layer->has_goal || (balancer_has_history(b) &&
	                            layer->since >= b->config.eplb_every);
	if (balancer_plans(b))
		layer->wants |= !layer->quiet ||
		                layer->n_quiet + 1 >= b->config.recheck_steps;
}

bool ferry_balancer_wants(const struct ferry_balancer *balancer, int32_t layer)
{
	struct ferry_balancer *b = (struct ferry_balancer *)(uintptr_t)balancer;

	if (!b || layer < 0 || layer >= b->experts->n_layers)
		return false;
	pthread_mutex_lock(&b->lock);
	const bool wants = b->layers[layer].wants;

	pthread_mutex_unlock(&b->lock);
	return wants;
}

static enum ferry_status check_send(struct ferry_balancer *b, int32_t layer)
{
	const struct ferry_experts *x = b->experts;
	const uint64_t seq = x->n_starts;

	if (b->sent >= 0)
		return ferry_fail(&b->world->ctx, FERRY_STATE,
		                  "balancer_predict_send: layer %d: the "
		                  "prediction of layer %d was not started",
		                  layer, b->sent);
	if (b->layers[layer].state != BALANCER_IDLE)
		return ferry_fail(&b->world->ctx, FERRY_STATE,
		                  "balancer_predict_send: layer %d was not "
		                  "committed since its last prediction",
		                  layer);
	if (seq >= FERRY_EXPERTS_PLANS &&
	    x->ring[(seq - FERRY_EXPERTS_PLANS) % EXPERTS_RING])
		return ferry_fail(&b->world->ctx, FERRY_STATE,
		                  "balancer_predict_send: layer %d: more than "
		                  "%d layers are not committed",
		                  layer, FERRY_EXPERTS_PLANS);
	return FERRY_OK;
}

/* Own predicted counts into b->counts, checked. */
static enum ferry_status count(struct ferry_balancer *b, int32_t layer,
                               const struct ferry_balancer_in *in)
{
	const int32_t n = b->layers[layer].n_experts;

	memset(b->counts, 0, (size_t)n * sizeof(*b->counts));
	if (in->counts && in->ids)
		return ferry_fail(&b->world->ctx, FERRY_INVAL,
		                  "balancer_predict_send: layer %d: counts and "
		                  "ids are both given",
		                  layer);
	if (in->ids)
		return ferry_predict_counts(in->ids, n, b->counts);
	for (int32_t e = 0; in->counts && e < n; e++) {
		if (in->counts[e] < 0)
			return ferry_fail(&b->world->ctx, FERRY_RANGE,
			                  "balancer_predict_send: layer %d: "
			                  "counts[%d] is %d, allowed are 0..",
			                  layer, e, in->counts[e]);
		b->counts[e] = in->counts[e];
	}
	return FERRY_OK;
}

static enum ferry_status window_of(const struct ferry_balancer *b,
                                   int32_t layer,
                                   const struct ferry_balancer_in *in,
                                   int64_t *window_ns)
{
	int64_t profiled = INT64_MAX;

	if (in->n_tokens < 0 || in->seq_len < 0)
		return ferry_fail(
			&b->world->ctx, FERRY_RANGE,
			"balancer_predict_send: layer %d: n_tokens is "
			"%d, seq_len %d, allowed are 0..",
			layer, in->n_tokens, in->seq_len);
	if (b->config.windows && in->n_tokens)
		FERRY_TRY(ferry_windows_get(b->config.windows, layer,
		                            in->n_tokens, in->seq_len,
		                            &profiled));
	*window_ns = min_i64(in->window_ns, profiled);
	return FERRY_OK;
}

/* What ranks must have alike before they plan. */
static uint64_t tag_of(const struct ferry_balancer *b, int32_t layer)
{
	uint64_t h = hash_u64(b->planned, (uint64_t)layer);

	for (int32_t r = 0; r < b->n_ranks; r++)
		h = hash_u64(h, (uint64_t)b->speed[r]);
	return hash_u64(h, ferry_placement_hash(
				   ferry_experts_placement(b->experts, layer)));
}

/* What was seen of the layer goes behind the predicted counts. */
static void take_seen(struct ferry_balancer *b, struct balancer_layer *l)
{
	const size_t n = (size_t)l->n_experts;

	pthread_mutex_lock(&b->lock);
	memcpy(b->counts + n, l->seen, n * sizeof(*l->seen));
	b->counts[2 * n] = l->n_seen;
	memset(l->seen, 0, n * sizeof(*l->seen));
	l->n_seen = 0;
	pthread_mutex_unlock(&b->lock);
}

enum ferry_status
ferry_balancer_predict_send(struct ferry_balancer *balancer, int32_t layer,
                            const struct ferry_balancer_in *in)
{
	struct ferry_balancer *b = balancer;
	struct ferry_balancer_in given;
	struct ferry_totals_in send = FERRY_TOTALS_IN_INIT;

	FERRY_TRY(ferry_balancer_check(b, "balancer_predict_send", layer));
	FERRY_TRY(ferry_sized_copy(&given, sizeof(given), in, "balancer_in"));
	if (b->config.policy == FERRY_BALANCE_OFF)
		return FERRY_OK;
	FERRY_TRY(check_whole(b, "balancer_predict_send"));
	FERRY_TRY(check_send(b, layer));
	FERRY_TRY(count(b, layer, &given));
	FERRY_TRY(window_of(b, layer, &given, &send.window_ns));
	take_seen(b, &b->layers[layer]);
	send.n_experts = 2 * b->layers[layer].n_experts + 1;
	send.counts = b->counts;
	send.tag = tag_of(b, layer);
	const enum ferry_status status = ferry_totals_send(b->totals, &send);

	if (status != FERRY_OK)
		return broken(b, status);
	b->layers[layer].state = BALANCER_SENT;
	b->sent = layer;
	return FERRY_OK;
}

static enum ferry_status decide(struct ferry_balancer *b, int32_t layer,
                                int64_t window_ns,
                                struct balancer_target *target)
{
	struct balancer_layer *l = &b->layers[layer];

	memcpy(l->next, l->base, (size_t)l->n_slots * sizeof(*l->next));
	FERRY_TRY(ferry_balancer_aim(b, layer));
	if (l->has_goal && balancer_plans(b))
		FERRY_TRY(ferry_balancer_doubt(b, layer));
	if (l->has_goal)
		FERRY_TRY(ferry_balancer_approach(b, layer, target));
	if (target->placement || !balancer_plans(b))
		return FERRY_OK;
	return ferry_balancer_plan(b, layer, window_ns, target);
}

/* Level of where the layer is now, and will be, by EPLB or not at all. */
static enum ferry_status weigh(struct ferry_balancer *b, int32_t layer,
                               const struct ferry_placement *target)
{
	struct balancer_layer *l = &b->layers[layer];
	const struct ferry_placement *now =
		ferry_experts_placement(b->experts, layer);
	int64_t before, after;

	if (balancer_plans(b) && !l->report.by_history)
		return FERRY_OK; /* planning has */
	FERRY_TRY(ferry_balancer_level(b, now, l->loads, &before));
	FERRY_TRY(ferry_balancer_level(b, target, l->loads, &after));
	l->report.before_ppm =
		ferry_balancer_ppm(b, before, l->loads, l->n_experts);
	l->report.after_ppm =
		ferry_balancer_ppm(b, after, l->loads, l->n_experts);
	return FERRY_OK;
}

static enum ferry_status start(struct ferry_balancer *b, int32_t layer,
                               int64_t window_ns)
{
	struct ferry_balancer_report *report = &b->layers[layer].report;
	struct ferry_trace_event event = {
		.name = "balancer_plan",
		.category = "balance",
		.begin_ns = ferry_now_ns(),
		.epoch = b->stats.n_predictions,
		.slot = layer,
		.peer = -1,
	};
	struct balancer_target made = {NULL, NULL};

	FERRY_TRY(decide(b, layer, window_ns, &made));
	const struct ferry_placement *target =
		made.placement ? made.placement
			       : ferry_experts_placement(b->experts, layer);
	enum ferry_status status = weigh(b, layer, target);
	const uint64_t planned_ns = ferry_now_ns();

	ferry_trace_end(b->world->trace, &event);
	b->planned = hash_u64(b->planned, ferry_placement_hash(target));
	if (status == FERRY_OK)
		status = ferry_experts_start_from(b->experts, layer, target,
		                                  made.sources,
		                                  b->config.stream);
	report->plan_ns = planned_ns - event.begin_ns;
	report->push_ns = ferry_now_ns() - planned_ns;
	ferry_placement_destroy(made.placement);
	return status;
}

static void count_prediction(struct ferry_balancer *b,
                             const struct ferry_balancer_report *report)
{
	struct ferry_balancer_stats *s = &b->stats;

	pthread_mutex_lock(&b->lock);
	s->n_predictions++;
	s->n_left_alone += report->left_alone;
	s->n_below_margin += report->below_margin;
	s->before_ppm += (uint64_t)report->before_ppm;
	s->after_ppm += (uint64_t)report->after_ppm;
	s->plan_ns += report->plan_ns;
	s->push_ns += report->push_ns;
	pthread_mutex_unlock(&b->lock);
}

enum ferry_status ferry_balancer_predict_start(struct ferry_balancer *balancer,
                                               int32_t layer)
{
	struct ferry_balancer *b = balancer;
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;
	int64_t window_ns;

	FERRY_TRY(ferry_balancer_check(b, "balancer_predict_start", layer));
	if (b->config.policy == FERRY_BALANCE_OFF)
		return FERRY_OK;
	FERRY_TRY(check_whole(b, "balancer_predict_start"));
	if (b->sent != layer)
		return ferry_fail(&b->world->ctx, FERRY_STATE,
		                  "balancer_predict_start: no prediction of "
		                  "layer %d was sent",
		                  layer);
	struct balancer_layer *l = &b->layers[layer];

	out.loads = b->sums;
	out.window_ns = &window_ns;
	l->report = (struct ferry_balancer_report)FERRY_BALANCER_REPORT_INIT;
	enum ferry_status status = ferry_totals_recv(b->totals, &out);

	if (status == FERRY_OK)
		status = ferry_balancer_learn(b, layer);
	if (status == FERRY_OK)
		status = start(b, layer, window_ns);
	if (status != FERRY_OK)
		return broken(b, status);
	l->report.predicted = true;
	l->report.window_ns = window_ns;
	l->state = BALANCER_STARTED;
	b->sent = -1;
	count_prediction(b, &l->report);
	return FERRY_OK;
}

enum ferry_status ferry_balancer_predict(struct ferry_balancer *balancer,
                                         int32_t layer,
                                         const struct ferry_balancer_in *in)
{
	FERRY_TRY(ferry_balancer_predict_send(balancer, layer, in));
	return ferry_balancer_predict_start(balancer, layer);
}

/* The layer is where its plan has led. */
static void arrive(struct balancer_layer *l)
{
	const size_t bytes = (size_t)l->n_slots * sizeof(*l->base);

	l->state = BALANCER_IDLE;
	if (l->report.held_back)
		return;
	memcpy(l->base, l->next, bytes);
	if (l->has_goal && !memcmp(l->base, l->goal, bytes))
		l->has_goal = false;
}

static void count_commit(struct ferry_balancer *b,
                         const struct ferry_balancer_report *report, bool moved)
{
	struct ferry_balancer_stats *s = &b->stats;

	s->n_moved += moved;
	s->n_by_history += moved && report->by_history;
	s->n_held_back += report->held_back;
	if (!report->held_back) {
		s->n_swaps += (uint64_t)report->n_swaps;
		s->n_copies += (uint64_t)report->n_copies;
	}
	s->exposed_ns += report->exposed_ns;
	s->wait_ns += report->wait_ns;
	s->bytes_in += report->bytes_in;
	s->bytes_out += report->bytes_out;
}

static enum ferry_status commit_plan(struct ferry_balancer *b, int32_t layer)
{
	struct balancer_layer *l = &b->layers[layer];
	const bool moves =
		l->report.n_swaps || l->report.n_copies || l->report.by_history;
	struct ferry_experts_report took = FERRY_EXPERTS_REPORT_INIT;
	const enum ferry_status status = ferry_experts_commit(
		b->experts, layer, b->config.stream, NULL, &took);

	if (status == FERRY_STATE || status == FERRY_INVAL)
		return status;
	if (status != FERRY_OK)
		return broken(b, status);
	l->report.held_back = took.held_back;
	l->report.exposed_ns = took.exposed_ns;
	l->report.wait_ns = took.wait_ns;
	l->report.meet_ns = took.meet_ns;
	l->report.bytes_in = took.bytes_in;
	l->report.bytes_out = took.bytes_out;
	pthread_mutex_lock(&b->lock);
	arrive(l);
	count_commit(b, &l->report, moves && !took.held_back);
	l->n_quiet = -1;
	pthread_mutex_unlock(&b->lock);
	return FERRY_OK;
}

enum ferry_status
ferry_balancer_commit(struct ferry_balancer *balancer, int32_t layer,
                      const struct ferry_placement **placement,
                      struct ferry_balancer_report *report)
{
	static const struct ferry_balancer_report none =
		FERRY_BALANCER_REPORT_INIT;
	struct ferry_balancer *b = balancer;

	FERRY_TRY(ferry_balancer_check(b, "balancer_commit", layer));
	FERRY_TRY(check_whole(b, "balancer_commit"));
	struct balancer_layer *l = &b->layers[layer];
	const bool started = l->state == BALANCER_STARTED;

	if (l->state == BALANCER_SENT)
		return ferry_fail(&b->world->ctx, FERRY_STATE,
		                  "balancer_commit: the prediction of layer %d "
		                  "was not started",
		                  layer);
	if (started)
		FERRY_TRY(commit_plan(b, layer));
	pthread_mutex_lock(&b->lock);
	l->n_quiet++;
	l->since++;
	ferry_balancer_want(b, l);
	b->stats.n_commits++;
	pthread_mutex_unlock(&b->lock);
	if (placement)
		*placement = ferry_experts_placement(b->experts, layer);
	if (!report)
		return FERRY_OK;
	return ferry_sized_give(report, started ? &l->report : &none,
	                        sizeof(none), "balancer_commit: report");
}
