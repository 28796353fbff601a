/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ending a plan: poll, commit, abandon. Whoever ends one has read the record
 * of every rank, hence knows that everything is staged, that all have started
 * the same, and what each has done with before.
 */
#include <stdio.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "../core/sized.h"
#include "../trace/events.h"
#include "experts_inner.h"

enum { LATE_NS = 200000000 }; /* the longest grace of a failure */

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

/* Records in a ring place are counted from 1. */
static uint64_t turn_of(const struct experts_flight *f)
{
	return f->seq / EXPERTS_RING + 1;
}

static const struct experts_record *record_of(const struct ferry_experts *x,
                                              const struct experts_flight *f,
                                              enum experts_word word,
                                              int32_t rank)
{
	return (const void *)(experts_base(x) +
	                      experts_record_at(x, f->seq, word, rank));
}

static enum ferry_status wait_records(struct ferry_experts *x,
                                      const struct experts_flight *f,
                                      enum experts_word word)
{
	for (int32_t r = 0; r < x->n_ranks; r++)
		x->items[r] = (struct ferry_wait_item){
			.signal = experts_record_signal(x, f->seq, word, r),
			.peer = r,
			.value = turn_of(f),
		};
	return ferry_segment_wait_all(x->segment, x->items, x->n_ranks, NULL);
}

static enum ferry_status mismatch(struct ferry_experts *x, int32_t rank,
                                  const char *text)
{
	const struct ferry_verdict mine = {
		.status = FERRY_MISMATCH,
		.root = rank,
		.slot = -1,
		.token = -1,
	};

	return ferry_segment_break(x->segment, &mine, text);
}

/* All ranks see the same records, and so name the same two ranks. */
static enum ferry_status differ(struct ferry_experts *x,
                                const struct experts_flight *f, int32_t rank)
{
	const struct experts_record *a = record_of(x, f, EXPERTS_STAGED, 0);
	const struct experts_record *b = record_of(x, f, EXPERTS_STAGED, rank);
	char text[208];

	if (a->layer != b->layer)
		snprintf(text, sizeof(text),
		         "rank %d has started a plan of layer %d, rank 0 one "
		         "of layer %d",
		         rank, b->layer, a->layer);
	else if (a->plan_hash != b->plan_hash)
		snprintf(text, sizeof(text),
		         "rank %d has started plan %016llx of layer %d, rank 0 "
		         "plan %016llx",
		         rank, (unsigned long long)b->plan_hash, b->layer,
		         (unsigned long long)a->plan_hash);
	else
		snprintf(text, sizeof(text),
		         "ranks %d and 0 start plan %016llx of layer %d after "
		         "different calls, with other moves, or with different "
		         "loads",
		         rank, (unsigned long long)a->plan_hash, a->layer);
	return mismatch(x, rank, text);
}

static enum ferry_status compare_records(struct ferry_experts *x,
                                         const struct experts_flight *f)
{
	const struct experts_record *a = record_of(x, f, EXPERTS_STAGED, 0);

	for (int32_t r = 1; r < x->n_ranks; r++) {
		const struct experts_record *b =
			record_of(x, f, EXPERTS_STAGED, r);

		if (a->layer != b->layer || a->plan_hash != b->plan_hash ||
		    a->history != b->history)
			return differ(x, f, r);
	}
	return FERRY_OK;
}

/*
 * What comes to this rank is there, by the records; its signals make it
 * visible to this thread.
 */
static enum ferry_status wait_pieces(struct ferry_experts *x,
                                     const struct experts_flight *f)
{
	int32_t n = 0;

	for (int32_t i = 0; i < f->n_transfers; i++) {
		const struct experts_transfer *t = &f->transfers[i];

		if (t->to_rank == x->rank)
			x->items[n++] = (struct ferry_wait_item){
				.signal = experts_buffer_signal(x, t->buffer),
				.peer = t->from_rank,
				.value = x->pieces[t->buffer],
			};
	}
	return ferry_segment_wait_all(x->segment, x->items, n, NULL);
}

static enum ferry_status wait_staged(struct ferry_experts *x,
                                     struct experts_flight *f)
{
	if (f->staged)
		return FERRY_OK;
	const uint64_t begin = ferry_now_ns();

	FERRY_TRY(wait_records(x, f, EXPERTS_STAGED));
	FERRY_TRY(compare_records(x, f));
	FERRY_TRY(wait_pieces(x, f));
	f->staged = true;
	f->wait_ns = ferry_now_ns() - begin;
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
	const struct experts_flight *f = x->layers[layer].flight;
	bool all = true;

	for (int32_t r = 0; all && r < x->n_ranks; r++)
		all = ferry_segment_read(
			      x->segment,
			      experts_record_signal(x, f->seq, EXPERTS_STAGED,
		                                    r)) >= turn_of(f);
	*staged = all;
	return FERRY_OK;
}

/* Does every rank end the plan in the same way? */
static enum ferry_status compare_ends(struct ferry_experts *x,
                                      const struct experts_flight *f)
{
	static const char *const verbs[] = {"abandons", "commits"};
	const bool first = record_of(x, f, EXPERTS_ENDS, 0)->commits;
	char text[208];

	for (int32_t r = 1; r < x->n_ranks; r++) {
		if (record_of(x, f, EXPERTS_ENDS, r)->commits == first)
			continue;
		snprintf(text, sizeof(text),
		         "rank %d %s the plan of layer %d, rank 0 %s it", r,
		         verbs[!first], f->layer, verbs[first]);
		return mismatch(x, r, text);
	}
	return FERRY_OK;
}

static bool has_come(const struct ferry_experts *x,
                     const struct experts_flight *f, int32_t rank)
{
	return ferry_segment_read(x->segment,
	                          experts_record_signal(x, f->seq, EXPERTS_ENDS,
	                                                rank)) >= turn_of(f);
}

static bool all_have_come(const struct ferry_experts *x,
                          const struct experts_flight *f)
{
	for (int32_t r = 0; r < x->n_ranks; r++)
		if (!has_come(x, f, r))
			return false;
	return true;
}

/*
 * The wait for the others has failed, but a faster rank may have had all
 * records, ended the plan, and noticed the failure in a later one. Then all
 * have sent theirs, and what is late comes: this rank must end it, too.
 */
static bool come_after_all(const struct ferry_experts *x,
                           const struct experts_flight *f)
{
	const uint64_t end = ferry_now_ns() + LATE_NS;
	const int32_t root = x->segment->error.root_rank;

	while (root < 0 || has_come(x, f, root)) {
		if (all_have_come(x, f))
			return true;
		if (ferry_now_ns() >= end)
			break;
		nanosleep(&(struct timespec){0, LATE_NS / 200}, NULL);
	}
	return false;
}

/*
 * Nobody ends a plan before all have come to do so: who dies before that
 * leaves all others where they were.
 */
static enum ferry_status meet(struct ferry_experts *x, struct experts_flight *f,
                              bool commits)
{
	const uint64_t begin = ferry_now_ns();
	struct experts_record record = {
		.layer = f->layer,
		.commits = commits,
	};

	ferry_experts_say_done(x, &record);
	FERRY_TRY(ferry_experts_tell(x, f, EXPERTS_ENDS, &record));
	const enum ferry_status status = wait_records(x, f, EXPERTS_ENDS);

	if (status != FERRY_OK && !come_after_all(x, f))
		return status;
	FERRY_TRY(compare_ends(x, f));
	f->meet_ns = ferry_now_ns() - begin;
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

/* COPY: from staging to where the caller has its weights. */
static void copy_in_place(struct ferry_experts *x, struct experts_flight *f)
{
	const struct experts_layer *layer = &x->layers[f->layer];
	const uint64_t begin = ferry_now_ns();

	for (int32_t i = 0; i < f->n_transfers; i++) {
		const struct experts_transfer *t = &f->transfers[i];
		const unsigned char *from =
			experts_base(x) + experts_buffer_at(x, t->buffer);

		for (int32_t k = 0; t->to_rank == x->rank && k < x->n_tensors;
		     k++)
			memcpy(ferry_experts_address(x, layer, t->to_slot, k),
			       from + x->tensor_offset[k], x->tensor_bytes[k]);
	}
	f->copy_ns = ferry_now_ns() - begin;
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

static void switch_over(struct ferry_experts *x, struct experts_flight *f)
{
	struct experts_layer *layer = &x->layers[f->layer];

	if (!f->target)
		return;
	if (x->mode == FERRY_EXPERTS_REMAP)
		exchange_buffers(x, f);
	else
		copy_in_place(x, f);
	pthread_mutex_lock(&x->lock);
	f->old = layer->newest;
	f->target->older = layer->newest;
	layer->newest = f->target;
	f->target = NULL;
	x->stats.versions_kept++;
	pthread_mutex_unlock(&x->lock);
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
                                      const struct CUstream_st *stream,
                                      struct ferry_experts_report *report)
{
	struct ferry_experts_report none = FERRY_EXPERTS_REPORT_INIT;

	FERRY_TRY(check_call(x, "experts_commit", layer));
	if (stream)
		return ferry_fail(&x->world->ctx, FERRY_INVAL,
		                  "experts_commit: stream is not NULL in a CPU "
		                  "world");
	/* Nothing may fail when all is done. */
	if (report)
		return ferry_sized_give(report, &none, sizeof(none),
		                        "experts_commit: report");
	return FERRY_OK;
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
	                              wait_staged(x, f)));
	const enum ferry_status status = close_layer(x, f);

	if (status != FERRY_OK) {
		f->exposed_ns += ferry_now_ns() - begin;
		return status;
	}
	const enum ferry_status met = meet(x, f, true);

	if (met == FERRY_OK)
		switch_over(x, f);
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
	                              wait_staged(x, f)));
	FERRY_TRY(ferry_experts_named(x, "experts_abandon", layer,
	                              meet(x, f, false)));
	ferry_experts_version_free(f->target);
	f->target = NULL;
	pthread_mutex_lock(&x->lock);
	x->stats.n_abandoned++;
	pthread_mutex_unlock(&x->lock);
	ferry_experts_end(x, f);
	return FERRY_OK;
}
