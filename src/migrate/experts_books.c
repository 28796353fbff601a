/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the end of a plan to the day when what it replaced is free on all
 * ranks. Plans are counted in the order of their end, which is the same
 * everywhere; a rank is done with them in that order, and says so in its
 * records.
 */
#include <stdlib.h>

#include "../core/bits.h"
#include "experts_inner.h"

uint64_t ferry_experts_n_released(struct ferry_experts *x)
{
	const struct experts_flight *f = x->ended;

	for (uint64_t i = x->n_dropped; i < x->n_released; i++)
		f = f->next;
	for (; f; f = f->next) {
		if (f->old && ferry_experts_version_in_use(x, f->old))
			break;
		x->n_released++;
	}
	return x->n_released;
}

static void give_back(struct ferry_experts *x, int32_t rank, int32_t buffer)
{
	struct experts_free *f = &x->free[rank];

	f->buffers[(f->first + f->n) % x->n_staging] = buffer;
	f->n++;
}

/* What rank r has said that it is done with is free from now on. */
static void take_in(struct ferry_experts *x, int32_t r, uint64_t n_released)
{
	const struct experts_flight *f = x->ended;
	uint64_t i = x->n_dropped;

	for (; i < x->released[r]; i++)
		f = f->next;
	for (; i < n_released && f; i++, f = f->next)
		for (int32_t t = 0; t < f->n_transfers; t++)
			if (f->transfers[t].to_rank == r)
				give_back(x, r, f->transfers[t].buffer);
	x->released[r] = i;
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
	free(flight);
}

static void drop_released(struct ferry_experts *x)
{
	uint64_t least = x->released[0];

	for (int32_t r = 1; r < x->n_ranks; r++)
		if (x->released[r] < least)
			least = x->released[r];
	while (x->n_dropped < least) {
		struct experts_flight *const f = x->ended;

		x->ended = f->next;
		if (!x->ended)
			x->ended_tail = &x->ended;
		forget(x, f);
		x->n_dropped++;
	}
}

void ferry_experts_end(struct ferry_experts *x, struct experts_flight *flight)
{
	const unsigned char *base = experts_base(x);

	/* What is free depends on what has ended: so must the hash. */
	x->history = hash_u64(x->history, flight->seq);
	x->layers[flight->layer].flight = NULL;
	x->ring[flight->seq % EXPERTS_RING] = NULL;
	for (int32_t r = 0; r < x->n_ranks; r++) {
		const struct experts_record *record =
			(const void *)(base + experts_record_at(x, flight->seq,
		                                                EXPERTS_ENDS,
		                                                r));

		take_in(x, r, record->n_released);
	}
	flight->next = NULL;
	*x->ended_tail = flight;
	x->ended_tail = &flight->next;
	x->n_ended++;
	drop_released(x);
	pthread_mutex_lock(&x->lock);
	x->stats.n_in_flight--;
	x->stats.staging_in_use = x->n_staging - x->free[x->rank].n;
	pthread_mutex_unlock(&x->lock);
}

void ferry_experts_books_destroy(struct ferry_experts *x)
{
	for (int i = 0; i < EXPERTS_RING; i++)
		ferry_experts_flight_free(x->ring[i]);
	while (x->ended) {
		struct experts_flight *const f = x->ended;

		x->ended = f->next;
		free(f);
	}
	for (int32_t l = 0; x->layers && l < x->n_layers; l++)
		while (x->layers[l].newest) {
			struct experts_version *const v = x->layers[l].newest;

			x->layers[l].newest = v->older;
			ferry_experts_version_free(v);
		}
}
