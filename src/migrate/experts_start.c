/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a plan: staging is allotted in the book that all ranks keep alike,
 * the own experts are pushed, and when they are out, fenced by a flush, the
 * record tells it to all. Nothing here waits for a call of a peer.
 */
#include <string.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "../fabric/gpu.h"
#include "../trace/events.h"
#include "experts_from.h"
#include "experts_layout.h"

static enum ferry_status check_call(const struct ferry_experts *x,
                                    const struct experts_asked *asked,
                                    const struct CUstream_st *stream)
{
	if (!x)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "experts_start: experts is NULL");
	if (!asked->plan && !asked->to)
		return ferry_fail(&x->world->ctx, FERRY_INVAL,
		                  "experts_start: plan is NULL");
	if (asked->layer < 0 || asked->layer >= x->n_layers)
		return ferry_fail(&x->world->ctx, FERRY_RANGE,
		                  "experts_start: layer is %d, allowed are "
		                  "0..%d",
		                  asked->layer, x->n_layers - 1);
	if (stream && !x->on_gpus)
		return ferry_fail(&x->world->ctx, FERRY_INVAL,
		                  "experts_start: stream is not NULL in a CPU "
		                  "world");
	return FERRY_OK;
}

/* Plan n needs n - PLANS to have ended: see EXPERTS_RING. */
static enum ferry_status check_state(struct ferry_experts *x, int32_t layer)
{
	const uint64_t seq = x->n_starts;
	const struct experts_flight *before =
		seq < FERRY_EXPERTS_PLANS
			? NULL
			: x->ring[(seq - FERRY_EXPERTS_PLANS) % EXPERTS_RING];

	if (x->layers[layer].flight)
		return ferry_fail(&x->world->ctx, FERRY_STATE,
		                  "experts_start: layer %d has a plan that is "
		                  "neither committed nor abandoned",
		                  layer);
	if (before)
		return ferry_fail(
			&x->world->ctx, FERRY_STATE,
			"experts_start: layer %d: %d plans after that "
			"of layer %d, which is neither committed nor "
			"abandoned, allowed are %d",
			layer, FERRY_EXPERTS_PLANS, before->layer,
			FERRY_EXPERTS_PLANS - 1);
	return FERRY_OK;
}

/* How many experts come to each rank, into x->coming. */
static void count_coming(struct ferry_experts *x,
                         const struct experts_flight *f)
{
	memset(x->coming, 0, (size_t)x->n_ranks * sizeof(*x->coming));
	for (int32_t i = 0; i < f->n_transfers; i++)
		x->coming[f->transfers[i].to_rank]++;
}

/* Can it ever be staged? */
static enum ferry_status check_staging(struct ferry_experts *x,
                                       const struct experts_flight *f)
{
	for (int32_t r = 0; r < x->n_ranks; r++)
		if (x->coming[r] > x->n_staging)
			return ferry_fail(
				&x->world->ctx, FERRY_RANGE,
				"experts_start: layer %d: %d experts "
				"come to rank %d, which has %d staging "
				"buffers",
				f->layer, x->coming[r], r, x->n_staging);
	return FERRY_OK;
}

/* Can it be staged now? All ranks' books say the same. */
static bool has_room(const struct ferry_experts *x)
{
	for (int32_t r = 0; r < x->n_ranks; r++)
		if (x->coming[r] > x->free[r].n)
			return false;
	return true;
}

/* A plan that cannot be staged now becomes one without moves. */
static enum ferry_status make_flight(struct ferry_experts *x,
                                     struct experts_asked *asked,
                                     struct experts_flight **flight)
{
	FERRY_TRY(ferry_experts_flight_make(x, asked, flight));
	count_coming(x, *flight);
	const enum ferry_status status = check_staging(x, *flight);

	asked->held_back = !has_room(x);
	if (status == FERRY_OK && !asked->held_back)
		return FERRY_OK;
	ferry_experts_flight_free(x, *flight);
	FERRY_TRY(status);
	return ferry_experts_flight_make(x, asked, flight);
}

/* Puts that one expert takes. */
static uint64_t pieces_of_expert(const struct ferry_experts *x)
{
	const int64_t piece = (int64_t)x->piece_bytes;
	uint64_t n = 0;

	if (x->mode == FERRY_EXPERTS_REMAP)
		return (uint64_t)div_up((int64_t)x->filled_bytes, piece);
	for (int32_t t = 0; t < x->n_tensors; t++)
		n += (uint64_t)div_up((int64_t)x->tensor_bytes[t], piece);
	return n;
}

static void allot(struct ferry_experts *x, struct experts_flight *flight)
{
	for (int32_t i = 0; i < flight->n_transfers; i++) {
		struct experts_transfer *t = &flight->transfers[i];
		struct experts_free *f = &x->free[t->to_rank];

		t->buffer = f->buffers[f->first];
		f->first = (f->first + 1) % x->n_staging;
		f->n--;
		if (t->to_rank != x->rank)
			continue;
		x->pieces[t->buffer] += pieces_of_expert(x);
		if (flight->target && x->mode == FERRY_EXPERTS_REMAP)
			flight->target->buffers[t->to_slot -
			                        x->layers[flight->layer]
			                                .first_slot[x->rank]] =
				t->buffer;
	}
}

static void enter(struct ferry_experts *x, struct experts_flight *f)
{
	f->seq = x->n_starts++;
	x->history = hash_u64(x->history, (uint64_t)f->layer);
	x->history = hash_u64(x->history, f->plan_hash);
	if (f->target)
		x->history = hash_u64(x->history, f->target->placement->hash);
	f->history = x->history;
	x->ring[f->seq % EXPERTS_RING] = f;
	x->layers[f->layer].flight = f;
	allot(x, f);
	pthread_mutex_lock(&x->lock);
	x->stats.n_started++;
	x->stats.n_in_flight++;
	x->stats.n_held_back += f->held_back;
	x->stats.staging_in_use = x->n_staging - x->free[x->rank].n;
	x->stats.staging_most = (int32_t)max_i64(x->stats.staging_most,
	                                         x->stats.staging_in_use);
	pthread_mutex_unlock(&x->lock);
}

/* Registered memory of the caller's: no network may read it where it is. */
static enum ferry_status bounce(struct ferry_experts *x, const void **source,
                                size_t bytes)
{
	if (x->bounced + bytes > EXPERTS_PIECE_BYTES) {
		FERRY_TRY(ferry_segment_flush(x->segment));
		x->bounced = 0;
	}
	unsigned char *to = experts_base(x) + experts_bounce_at(x) + x->bounced;

	memcpy(to, *source, bytes);
	*source = to;
	x->bounced += bytes;
	return FERRY_OK;
}

static enum ferry_status push_bytes(struct ferry_experts *x,
                                    const struct experts_transfer *t,
                                    size_t offset, const unsigned char *from,
                                    size_t bytes)
{
	const bool bounces =
		x->mode == FERRY_EXPERTS_COPY && !x->on_gpus &&
		!(ferry_segment_caps(x->segment, t->to_rank) & FERRY_CAP_LDST);
	const size_t to = experts_buffer_at(x, t->buffer) + offset;
	const uint32_t signal = experts_buffer_signal(x, t->buffer);
	enum ferry_status (*const put)(struct ferry_segment *, int32_t, size_t,
	                               const void *, size_t, uint32_t) =
		x->on_gpus ? ferry_segment_put_from : ferry_segment_put;

	for (size_t at = 0; at < bytes; at += x->piece_bytes) {
		const size_t left = bytes - at;
		const size_t n = left < x->piece_bytes ? left : x->piece_bytes;
		const void *source = from + at;

		FERRY_TRY(ferry_segment_check(x->segment));
		if (bounces)
			FERRY_TRY(bounce(x, &source, n));
		FERRY_TRY(put(x->segment, t->to_rank, to + at, source, n,
		              signal));
	}
	return FERRY_OK;
}

static enum ferry_status push(struct ferry_experts *x,
                              const struct experts_layer *layer,
                              const struct experts_transfer *t)
{
	if (x->mode == FERRY_EXPERTS_REMAP)
		return push_bytes(
			x, t, 0,
			ferry_experts_address(x, layer, t->from_slot, 0),
			x->filled_bytes);
	for (int32_t i = 0; i < x->n_tensors; i++)
		FERRY_TRY(push_bytes(
			x, t, x->tensor_offset[i],
			ferry_experts_address(x, layer, t->from_slot, i),
			x->tensor_bytes[i]));
	return FERRY_OK;
}

/* Worlds of GPUs: the host stores it. STAGED comes behind the copies. */
static enum ferry_status note(struct ferry_experts *x,
                              const struct experts_flight *f,
                              enum experts_word word,
                              const struct experts_record *record)
{
	for (int32_t i = 1; i <= x->n_ranks; i++) {
		const struct ferry_note n = {
			.peer = (x->rank + i) % x->n_ranks,
			.offset = experts_record_at(x, f->seq, word, x->rank),
			.source = record,
			.bytes = sizeof(*record),
			.signal =
				experts_record_signal(x, f->seq, word, x->rank),
			.behind = word == EXPERTS_STAGED,
		};

		FERRY_TRY(ferry_segment_note(x->segment, &n));
	}
	return FERRY_OK;
}

/* To the ranks after this one first, so that not all begin with rank 0. */
enum ferry_status ferry_experts_tell(struct ferry_experts *x,
                                     const struct experts_flight *f,
                                     enum experts_word word,
                                     const struct experts_record *record)
{
	if (x->on_gpus)
		return note(x, f, word, record);
	unsigned char *own =
		experts_base(x) + experts_outgoing_at(x, f->seq, word);

	memcpy(own, record, sizeof(*record));
	for (int32_t i = 1; i <= x->n_ranks; i++)
		FERRY_TRY(ferry_segment_put(
			x->segment, (x->rank + i) % x->n_ranks,
			experts_record_at(x, f->seq, word, x->rank), own,
			sizeof(*record),
			experts_record_signal(x, f->seq, word, x->rank)));
	return ferry_segment_kick(x->segment);
}

static enum ferry_status push_all(struct ferry_experts *x,
                                  const struct experts_flight *f)
{
	for (int32_t i = 0; i < f->n_transfers; i++)
		if (f->transfers[i].from_rank == x->rank)
			FERRY_TRY(push(x, &x->layers[f->layer],
			               &f->transfers[i]));
	return FERRY_OK;
}

/*
 * The flush fences: what was pushed is there before the record is, on every
 * rank. So who has all records knows that everything is staged. On a GPU
 * signals come in the order of the copies, and nothing waits.
 */
static enum ferry_status send(struct ferry_experts *x,
                              const struct experts_flight *f)
{
	const struct experts_record record = {
		.plan_hash = f->plan_hash,
		.history = f->history,
		.layer = f->layer,
	};

	if (x->on_gpus) {
		FERRY_TRY(push_all(x, f));
		return ferry_experts_tell(x, f, EXPERTS_STAGED, &record);
	}
	/* What was said of the plan before has come: see docs/balance.md. */
	FERRY_TRY(ferry_segment_flush(x->segment));
	x->bounced = 0;
	FERRY_TRY(push_all(x, f));
	FERRY_TRY(ferry_segment_flush(x->segment));
	return ferry_experts_tell(x, f, EXPERTS_STAGED, &record);
}

static enum ferry_status send_timed(struct ferry_experts *x,
                                    const struct experts_flight *f)
{
	const uint64_t begin = ferry_now_ns();
	struct ferry_trace_event event = {
		.name = "experts_start",
		.category = "migrate",
		.begin_ns = begin,
		.epoch = f->seq,
		.bytes =
			(uint64_t)ferry_experts_leaving(x, f) * x->expert_bytes,
		.slot = -1,
		.peer = -1,
	};
	const enum ferry_status status = send(x, f);

	ferry_trace_end(x->world->trace, &event);
	pthread_mutex_lock(&x->lock);
	x->stats.push_ns += ferry_now_ns() - begin;
	pthread_mutex_unlock(&x->lock);
	return status;
}

/* Copies begin when the stream has written what they read. */
static enum ferry_status await_stream(struct ferry_experts *x,
                                      const struct experts_flight *f,
                                      struct CUstream_st *stream)
{
	if (!x->on_gpus || !ferry_experts_leaving(x, f))
		return FERRY_OK;
	return ferry_experts_gpu(
		x, ferry_gpu_copy_after(&x->world->ctx, x->world->gpu, stream));
}

static enum ferry_status start(struct ferry_experts *x,
                               struct experts_asked *asked,
                               struct CUstream_st *stream)
{
	struct experts_flight *f;

	FERRY_TRY(check_call(x, asked, stream));
	FERRY_TRY(ferry_experts_named(x, "experts_start", asked->layer,
	                              ferry_segment_check(x->segment)));
	FERRY_TRY(check_state(x, asked->layer));
	FERRY_TRY(make_flight(x, asked, &f));
	const enum ferry_status status = await_stream(x, f, stream);

	if (status != FERRY_OK) {
		ferry_experts_flight_free(x, f);
		return status;
	}
	enter(x, f);
	return ferry_experts_named(x, "experts_start", asked->layer,
	                           send_timed(x, f));
}

enum ferry_status ferry_experts_start(struct ferry_experts *experts,
                                      int32_t layer,
                                      const struct ferry_plan *plan,
                                      const int64_t *loads,
                                      struct CUstream_st *stream)
{
	struct experts_asked asked = {
		.layer = layer, .plan = plan, .loads = loads};

	return start(experts, &asked, stream);
}

enum ferry_status
ferry_experts_start_placement(struct ferry_experts *experts, int32_t layer,
                              const struct ferry_placement *placement,
                              struct CUstream_st *stream)
{
	struct experts_asked asked = {.layer = layer, .to = placement};

	if (experts && !placement)
		return ferry_fail(&experts->world->ctx, FERRY_INVAL,
		                  "experts_start_placement: placement is NULL");
	return start(experts, &asked, stream);
}

enum ferry_status
ferry_experts_start_from(struct ferry_experts *experts, int32_t layer,
                         const struct ferry_placement *placement,
                         const int32_t *sources, struct CUstream_st *stream)
{
	struct experts_asked asked = {
		.layer = layer, .to = placement, .sources = sources};

	return start(experts, &asked, stream);
}
