/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ending a plan: poll, commit, abandon. Whoever ends one has read the record
 * of every rank, hence knows that everything is staged, that all have started
 * the same, and what each has done with before.
 */
#include <stdio.h>
#include <string.h>

#include "../core/clock.h"
#include "../core/sized.h"
#include "../fabric/gpu.h"
#include "../trace/events.h"
#include "experts_layout.h"
#include "experts_meet.h"

enum ferry_status ferry_experts_named(struct ferry_experts *x, const char *call,
                                      int32_t layer, enum ferry_status status)
{
	char text[640];

	if (status == FERRY_OK)
		return FERRY_OK;
	snprintf(
		text, sizeof(text), "%s: layer %d, version %llu: %s", call,
		layer,
		(unsigned long long)x->layers[layer].newest->placement->version,
		ferry_last_error());
	ferry_last_error_set(text);
	return status;
}

int32_t ferry_experts_leaving(const struct ferry_experts *x,
                              const struct experts_flight *f)
{
	int32_t n = 0;

	for (int32_t i = 0; i < f->n_transfers; i++)
		n += f->transfers[i].from_rank == x->rank;
	return n;
}

static int32_t coming(const struct ferry_experts *x,
                      const struct experts_flight *f)
{
	int32_t n = 0;

	for (int32_t i = 0; i < f->n_transfers; i++)
		n += f->transfers[i].to_rank == x->rank;
	return n;
}

static enum ferry_status check_call(struct ferry_experts *x, const char *call,
                                    int32_t layer)
{
	if (!x)
		return ferry_fail(NULL, FERRY_INVAL, "%s: experts is NULL",
		                  call);
	if (layer < 0 || layer >= x->n_layers)
		return ferry_fail(&x->world->ctx, FERRY_RANGE,
		                  "%s: layer is %d, allowed are 0..%d", call,
		                  layer, x->n_layers - 1);
	FERRY_TRY(ferry_experts_named(x, call, layer,
	                              ferry_segment_check(x->segment)));
	if (!x->layers[layer].flight)
		return ferry_fail(&x->world->ctx, FERRY_STATE,
		                  "%s: no plan of layer %d was started", call,
		                  layer);
	return FERRY_OK;
}

enum ferry_status ferry_experts_poll(struct ferry_experts *experts,
                                     int32_t layer, bool *staged)
{
	struct ferry_experts *const x = experts;

	FERRY_TRY(check_call(x, "experts_poll", layer));
	if (!staged)
		return ferry_fail(&x->world->ctx, FERRY_INVAL,
		                  "experts_poll: staged is NULL");
	*staged = ferry_experts_is_staged(x, x->layers[layer].flight);
	return FERRY_OK;
}

/* A version that is kept and used; NULL: none. Under the lock. */
static const struct experts_version *used_version(const struct ferry_experts *x,
                                                  int32_t layer)
{
	const struct experts_version *v = x->layers[layer].newest;

	while (v && !v->holds && !ferry_placement_in_use(v->placement))
		v = v->older;
	return v;
}

static bool overwrites(const struct ferry_experts *x,
                       const struct experts_flight *f)
{
	return x->mode == FERRY_EXPERTS_COPY && f->n_transfers;
}

/*
 * COPY: an operation that reads the old weights would read a mixture. It may
 * have come with any version that is kept, since not every commit copies. From
 * here until the layer opens again ferry_experts_acquire waits.
 */
static enum ferry_status close_layer(struct ferry_experts *x,
                                     const struct experts_flight *f)
{
	uint64_t version = 0;

	if (!overwrites(x, f))
		return FERRY_OK;
	pthread_mutex_lock(&x->lock);
	const struct experts_version *v = used_version(x, f->layer);

	if (v)
		version = v->placement->version;
	else
		x->layers[f->layer].closing = true;
	pthread_mutex_unlock(&x->lock);
	if (!v)
		return FERRY_OK;
	return ferry_fail(&x->world->ctx, FERRY_STATE,
	                  "experts_commit: layer %d: version %llu is in use, "
	                  "and its weights are copied over: call again after "
	                  "its combine_send",
	                  f->layer, (unsigned long long)version);
}

static void open_layer(struct ferry_experts *x, const struct experts_flight *f)
{
	if (!overwrites(x, f))
		return;
	pthread_mutex_lock(&x->lock);
	x->layers[f->layer].closing = false;
	pthread_cond_broadcast(&x->opened);
	pthread_mutex_unlock(&x->lock);
}

static enum ferry_status copy_expert(struct ferry_experts *x,
                                     const struct experts_layer *layer,
                                     const struct experts_transfer *t,
                                     struct CUstream_st *stream)
{
	const unsigned char *from =
		experts_base(x) + experts_buffer_at(x, t->buffer);

	for (int32_t k = 0; k < x->n_tensors; k++) {
		unsigned char *const to =
			ferry_experts_address(x, layer, t->to_slot, k);

		if (!x->on_gpus)
			memcpy(to, from + x->tensor_offset[k],
			       x->tensor_bytes[k]);
		else
			FERRY_TRY(ferry_gpu_copy_on(
				&x->world->ctx, x->world->gpu, to,
				from + x->tensor_offset[k], x->tensor_bytes[k],
				stream));
	}
	return FERRY_OK;
}

/*
 * COPY: from staging to where the caller has its weights; on a GPU in the order
 * of the stream, behind which a later commit marks that staging was read.
 */
static enum ferry_status copy_in_place(struct ferry_experts *x,
                                       struct experts_flight *f,
                                       struct CUstream_st *stream)
{
	const struct experts_layer *layer = &x->layers[f->layer];
	const uint64_t begin = ferry_now_ns();

	for (int32_t i = 0; i < f->n_transfers; i++)
		if (f->transfers[i].to_rank == x->rank)
			FERRY_TRY(copy_expert(x, layer, &f->transfers[i],
			                      stream));
	f->copy_ns = ferry_now_ns() - begin;
	return FERRY_OK;
}

/* REMAP: the staged buffers become the slots', theirs become free. */
static void exchange_buffers(struct ferry_experts *x, struct experts_flight *f)
{
	struct experts_layer *layer = &x->layers[f->layer];

	for (int32_t i = 0; i < f->n_transfers; i++) {
		struct experts_transfer *t = &f->transfers[i];
		const int32_t old = layer->buffers[t->to_slot];

		layer->buffers[t->to_slot] = t->buffer;
		t->buffer = old;
	}
}

static enum ferry_status switch_over(struct ferry_experts *x,
                                     struct experts_flight *f,
                                     struct CUstream_st *stream)
{
	struct experts_layer *layer = &x->layers[f->layer];

	if (!f->target)
		return FERRY_OK;
	if (x->mode == FERRY_EXPERTS_REMAP)
		exchange_buffers(x, f);
	else
		FERRY_TRY(ferry_experts_gpu(x, copy_in_place(x, f, stream)));
	pthread_mutex_lock(&x->lock);
	f->old = layer->newest;
	f->target->older = layer->newest;
	layer->newest = f->target;
	f->target = NULL;
	x->stats.versions_kept++;
	pthread_mutex_unlock(&x->lock);
	return FERRY_OK;
}

/* Counts it and fills in the report; the flight is still the caller's. */
static struct ferry_experts_report count(struct ferry_experts *x,
                                         const struct experts_flight *f)
{
	const int32_t n_in = coming(x, f);
	const int32_t n_out = ferry_experts_leaving(x, f);
	const struct ferry_experts_report report = {
		.size = sizeof(report),
		.exposed_ns = f->exposed_ns,
		.wait_ns = f->wait_ns,
		.copy_ns = f->copy_ns,
		.meet_ns = f->meet_ns,
		.bytes_in = (uint64_t)n_in * x->expert_bytes,
		.bytes_out = (uint64_t)n_out * x->expert_bytes,
		.n_in = n_in,
		.n_out = n_out,
		.held_back = f->held_back,
	};

	pthread_mutex_lock(&x->lock);
	x->stats.n_committed++;
	x->stats.bytes_in += report.bytes_in;
	x->stats.bytes_out += report.bytes_out;
	x->stats.exposed_ns += report.exposed_ns;
	pthread_mutex_unlock(&x->lock);
	return report;
}

static void record_commit(struct ferry_experts *x,
                          const struct experts_flight *f, uint64_t begin)
{
	struct ferry_trace_event event = {
		.name = "experts_commit",
		.category = "migrate",
		.begin_ns = begin,
		.epoch = f->seq,
		.bytes = (uint64_t)coming(x, f) * x->expert_bytes,
		.slot = -1,
		.peer = -1,
	};

	ferry_trace_end(x->world->trace, &event);
}

static enum ferry_status check_commit(struct ferry_experts *x, int32_t layer,
                                      struct CUstream_st *stream,
                                      struct ferry_experts_report *report)
{
	struct ferry_experts_report none = FERRY_EXPERTS_REPORT_INIT;

	FERRY_TRY(check_call(x, "experts_commit", layer));
	if (stream && !x->on_gpus)
		return ferry_fail(&x->world->ctx, FERRY_INVAL,
		                  "experts_commit: stream is not NULL in a CPU "
		                  "world");
	/* Nothing may fail when all is done. */
	if (report)
		FERRY_TRY(ferry_sized_give(report, &none, sizeof(none),
		                           "experts_commit: report"));
	return ferry_experts_mark(x, stream);
}

enum ferry_status ferry_experts_commit(struct ferry_experts *experts,
                                       int32_t layer,
                                       struct CUstream_st *stream,
                                       const struct ferry_placement **placement,
                                       struct ferry_experts_report *report)
{
	struct ferry_experts *const x = experts;
	const uint64_t begin = ferry_now_ns();

	FERRY_TRY(check_commit(x, layer, stream, report));
	struct experts_flight *const f = x->layers[layer].flight;

	FERRY_TRY(ferry_experts_named(x, "experts_commit", layer,
	                              ferry_experts_wait_staged(x, f)));
	const enum ferry_status status = close_layer(x, f);

	if (status != FERRY_OK) {
		f->exposed_ns += ferry_now_ns() - begin;
		return status;
	}
	enum ferry_status met = ferry_experts_meet(x, f, true);

	if (met == FERRY_OK)
		met = switch_over(x, f, stream);
	open_layer(x, f);
	FERRY_TRY(ferry_experts_named(x, "experts_commit", layer, met));
	f->exposed_ns += ferry_now_ns() - begin;
	const struct ferry_experts_report found = count(x, f);

	record_commit(x, f, begin);
	ferry_experts_end(x, f);
	if (placement)
		*placement = x->layers[layer].newest->placement;
	return report ? ferry_sized_give(report, &found, sizeof(found),
	                                 "experts_commit: report")
	              : FERRY_OK;
}

enum ferry_status ferry_experts_abandon(struct ferry_experts *experts,
                                        int32_t layer)
{
	struct ferry_experts *const x = experts;

	FERRY_TRY(check_call(x, "experts_abandon", layer));
	struct experts_flight *const f = x->layers[layer].flight;

	FERRY_TRY(ferry_experts_named(x, "experts_abandon", layer,
	                              ferry_experts_wait_staged(x, f)));
	FERRY_TRY(ferry_experts_named(x, "experts_abandon", layer,
	                              ferry_experts_meet(x, f, false)));
	ferry_experts_version_free(f->target);
	f->target = NULL;
	pthread_mutex_lock(&x->lock);
	x->stats.n_abandoned++;
	pthread_mutex_unlock(&x->lock);
	ferry_experts_end(x, f);
	return FERRY_OK;
}
