/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the end of a plan to the day when what it replaced is free on all
 * ranks. Plans are counted in the order of their end, which is the same
 * everywhere; each rank says in its records which it is done with.
 */
#include <stdlib.h>

#include "../core/bits.h"
#include "../fabric/gpu.h"
#include "experts_layout.h"

/*
 * A buffer may have been part of several versions of its layer: so this rank
 * is done with a plan when it is with all earlier ones of that layer, too.
 */
static bool is_done(struct ferry_experts *x, const struct experts_flight *f)
{
	for (const struct experts_flight *e = x->ended; e != f; e = e->next)
		if (e->layer == f->layer && !e->done)
			return false;
	if (!f->old)
		return true;
	return !ferry_experts_version_in_use(x, f->old) &&
	       (!x->on_gpus ||
	        (f->is_marked && ferry_gpu_passed(x->world->gpu, f->over)));
}

enum ferry_status ferry_experts_gpu(struct ferry_experts *x,
                                    enum ferry_status status)
{
	const struct ferry_verdict mine = ferry_verdict_of(status, x->rank);

	if (status == FERRY_OK || status == FERRY_INVAL)
		return status;
	return ferry_segment_break(x->segment, &mine, ferry_last_error());
}

enum ferry_status ferry_experts_mark(struct ferry_experts *x,
                                     struct CUstream_st *stream)
{
	for (struct experts_flight *f = x->ended; x->on_gpus && f;
	     f = f->next) {
		if (!f->old || f->done)
			continue;
		if (ferry_experts_version_in_use(x, f->old)) {
			f->is_marked = false;
			continue;
		}
		if (f->is_marked)
			continue;
		FERRY_TRY(ferry_experts_gpu(
			x, ferry_gpu_mark(&x->world->ctx, x->world->gpu, stream,
		                          &f->over)));
		f->is_marked = true;
	}
	return FERRY_OK;
}

void ferry_experts_say_done(struct ferry_experts *x,
                            struct experts_record *record)
{
	int n_busy = 0;

	for (int i = 0; i < EXPERTS_BUSY; i++)
		record->busy[i] = UINT64_MAX;
	record->n_done = x->n_ended;
	for (struct experts_flight *f = x->ended; f; f = f->next) {
		f->done = is_done(x, f);
		if (f->done)
			continue;
		if (n_busy == EXPERTS_BUSY) {
			record->n_done = f->number;
			return;
		}
		record->busy[n_busy++] = f->number;
	}
}

static void give_back(struct ferry_experts *x, int32_t rank, int32_t buffer)
{
	struct experts_free *f = &x->free[rank];

	f->buffers[(f->first + f->n) % x->n_staging] = buffer;
	f->n++;
}

static bool says_done(const struct experts_record *record,
                      const struct experts_flight *f)
{
	for (int i = 0; i < EXPERTS_BUSY; i++)
		if (record->busy[i] == f->number)
			return false;
	return f->number < record->n_done;
}

/* What rank r has said that it is done with is free from now on. */
static void take_in(struct ferry_experts *x, int32_t r,
                    const struct experts_record *record)
{
	for (struct experts_flight *f = x->ended; f; f = f->next) {
		if (f->freed[r] || !says_done(record, f))
			continue;
		for (int32_t t = 0; t < f->n_transfers; t++)
			if (f->transfers[t].to_rank == r)
				give_back(x, r, f->transfers[t].buffer);
		f->freed[r] = 1;
		f->n_freed++;
	}
}

/* Takes an old version out of its layer's list. */
static void forget(struct ferry_experts *x, struct experts_flight *flight)
{
	struct experts_version **v = &x->layers[flight->layer].newest;

	if (flight->old) {
		pthread_mutex_lock(&x->lock);
		while (*v != flight->old)
			v = &(*v)->older;
		*v = flight->old->older;
		x->stats.versions_kept--;
		pthread_mutex_unlock(&x->lock);
		ferry_experts_version_free(flight->old);
	}
	ferry_experts_flight_free(x, flight);
}

static void drop_freed(struct ferry_experts *x)
{
	struct experts_flight **f = &x->ended;

	while (*f) {
		struct experts_flight *const gone = *f;

		if (gone->n_freed < x->n_ranks) {
			f = &gone->next;
			continue;
		}
		*f = gone->next;
		forget(x, gone);
	}
	x->ended_tail = f;
}

void ferry_experts_end(struct ferry_experts *x, struct experts_flight *flight)
{
	const unsigned char *base = experts_records(x);

	/* What is free depends on what has ended: so must the hash. */
	x->history = hash_u64(x->history, flight->seq);
	x->layers[flight->layer].flight = NULL;
	x->ring[flight->seq % EXPERTS_RING] = NULL;
	for (int32_t r = 0; r < x->n_ranks; r++) {
		const struct experts_record *record =
			(const void *)(base + experts_record_at(x, flight->seq,
		                                                EXPERTS_ENDS,
		                                                r));

		take_in(x, r, record);
	}
	flight->next = NULL;
	flight->number = x->n_ended;
	*x->ended_tail = flight;
	x->ended_tail = &flight->next;
	x->n_ended++;
	drop_freed(x);
	pthread_mutex_lock(&x->lock);
	x->stats.n_in_flight--;
	x->stats.staging_in_use = x->n_staging - x->free[x->rank].n;
	pthread_mutex_unlock(&x->lock);
}

void ferry_experts_books_destroy(struct ferry_experts *x)
{
	for (int i = 0; i < EXPERTS_RING; i++)
		ferry_experts_flight_free(x, x->ring[i]);
	while (x->ended) {
		struct experts_flight *const f = x->ended;

		x->ended = f->next;
		ferry_experts_flight_free(x, f);
	}
	for (int32_t l = 0; x->layers && l < x->n_layers; l++)
		while (x->layers[l].newest) {
			struct experts_version *const v = x->layers[l].newest;

			x->layers[l].newest = v->older;
			ferry_experts_version_free(v);
		}
}
