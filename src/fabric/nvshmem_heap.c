/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symmetric heap as segments need it. All ranks allocate and free the same
 * blocks in the same order; what one cannot, none keeps.
 */
#include <stdlib.h>

#include "../core/clock.h"
#include "nvshmem_inner.h"

/* What ranks tell each other. */
struct heap_word {
	uint64_t done; /* bit i: block i may be freed */
	uint64_t got;  /* 1: the block that was asked for is there */
};

_Static_assert(FERRY_NVSHMEM_BLOCKS <= 64, "a bit for each block");

static uint64_t read_done(struct ferry_nvshmem_fabric *f)
{
	uint64_t done = 0;

	pthread_mutex_lock(&f->lock);
	for (int i = 0; i < FERRY_NVSHMEM_BLOCKS; i++)
		if (f->blocks[i].done)
			done |= UINT64_C(1) << i;
	pthread_mutex_unlock(&f->lock);
	return done;
}

/* Frees what all are done with. */
static void sweep(struct ferry_nvshmem_fabric *f, const struct heap_word *all)
{
	uint64_t done = UINT64_MAX;

	for (int32_t r = 0; r < f->wrap.fabric.world->n_ranks; r++)
		done &= all[r].done;
	for (int i = 0; i < FERRY_NVSHMEM_BLOCKS; i++) {
		if (!(done >> i & 1))
			continue;
		f->module->free(f->pe, f->blocks[i].memory);
		pthread_mutex_lock(&f->lock);
		f->blocks[i].memory = NULL;
		f->blocks[i].done = false;
		pthread_mutex_unlock(&f->lock);
	}
}

static int32_t find_free(const struct ferry_nvshmem_fabric *f)
{
	for (int32_t i = 0; i < FERRY_NVSHMEM_BLOCKS; i++)
		if (!f->blocks[i].memory)
			return i;
	return -1;
}

static enum ferry_status alloc(struct ferry_nvshmem_fabric *f, size_t bytes,
                               int32_t block)
{
	struct ferry_ctx *ctx = &f->wrap.fabric.world->ctx;
	char why[FERRY_NVSHMEM_WHY_BYTES];
	void *memory = NULL;

	if (f->module->alloc(f->pe, bytes, &memory, why))
		return ferry_fail(ctx, FERRY_NOMEM,
		                  "nvshmem: a block of %zu bytes: %s", bytes,
		                  why);
	pthread_mutex_lock(&f->lock);
	f->blocks[block].memory = memory;
	pthread_mutex_unlock(&f->lock);
	return FERRY_OK;
}

/* Where some have it and some do not, nothing can be freed any more. */
static enum ferry_status alloc_all(struct ferry_nvshmem_fabric *f, size_t bytes,
                                   int32_t block, struct heap_word *all,
                                   uint64_t deadline)
{
	struct ferry_world *world = f->wrap.fabric.world;
	const enum ferry_status status = alloc(f, bytes, block);
	const struct heap_word own = {0, status == FERRY_OK};
	enum ferry_status told;
	int32_t n_got = 0;

	f->lost = true;
	told = world->boot->ops->allgather(world->boot, &own, all, sizeof(own),
	                                   deadline);
	if (told != FERRY_OK)
		return status != FERRY_OK ? status : told;
	for (int32_t r = 0; r < world->n_ranks; r++)
		n_got += all[r].got != 0;
	f->lost = n_got > 0 && n_got < world->n_ranks;
	if (n_got == world->n_ranks || status != FERRY_OK)
		return status;
	return ferry_fail(&world->ctx, FERRY_NOMEM,
	                  "nvshmem: %d of %d ranks have no block of %zu bytes",
	                  world->n_ranks - n_got, world->n_ranks, bytes);
}

static enum ferry_status may_take(struct ferry_nvshmem_fabric *f,
                                  enum ferry_status mine,
                                  const struct heap_word *all)
{
	struct ferry_ctx *ctx = &f->wrap.fabric.world->ctx;

	if (mine != FERRY_OK)
		return mine;
	if (!all)
		return ferry_fail(ctx, FERRY_NOMEM,
		                  "nvshmem: words of %d ranks",
		                  f->wrap.fabric.world->n_ranks);
	if (f->lost)
		return ferry_fail(
			ctx, FERRY_FABRIC,
			"nvshmem: the heaps of the ranks differ since "
			"an allocation has failed");
	return FERRY_OK;
}

#undef ferry_nvshmem_take /* a macro for the analyzer */

enum ferry_status ferry_nvshmem_take(struct ferry_nvshmem_fabric *f,
                                     enum ferry_status mine, size_t bytes,
                                     int32_t *block)
{
	struct ferry_world *world = f->wrap.fabric.world;
	const uint64_t deadline = ferry_deadline_ns(world->open_timeout_ms);
	struct heap_word *all = calloc((size_t)world->n_ranks, sizeof(*all));
	const struct heap_word own = {read_done(f), 0};
	enum ferry_status status = may_take(f, mine, all);

	status = ferry_agree(world->boot, status, &own, all, sizeof(own),
	                     deadline);
	if (status == FERRY_OK) {
		sweep(f, all);
		*block = find_free(f);
		status = *block >= 0
		                 ? alloc_all(f, bytes, *block, all, deadline)
		                 : ferry_fail(&world->ctx, FERRY_NOMEM,
		                              "nvshmem: %d segments are open",
		                              FERRY_NVSHMEM_BLOCKS);
	}
	free(all);
	return status;
}

void ferry_nvshmem_give(struct ferry_nvshmem_fabric *f, int32_t block)
{
	pthread_mutex_lock(&f->lock);
	f->blocks[block].done = true;
	pthread_mutex_unlock(&f->lock);
}
