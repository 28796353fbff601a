/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing registered experts: checks, the comparison of ranks, the
 * first books, the segment. What must be equal is compared before anything is
 * made, as everywhere.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "../core/sized.h"
#include "../core/thread.h"
#include "experts_layout.h"

/* What a rank tells the others. */
struct card {
	int64_t n_layers;
	int64_t n_tensors;
	int64_t n_staging;
	int64_t mode;
	uint64_t tensors;    /* hash of their sizes */
	uint64_t placements; /* of their hashes and versions */
};

static enum ferry_status refuse(struct ferry_world *world, const char *name,
                                int64_t value, const char *allowed)
{
	return ferry_fail(&world->ctx, FERRY_INVAL,
	                  "experts_open: %s is %lld, allowed are %s", name,
	                  (long long)value, allowed);
}

static enum ferry_status null(struct ferry_world *world, const char *name)
{
	return ferry_fail(&world->ctx, FERRY_INVAL, "experts_open: %s is NULL",
	                  name);
}

static enum ferry_status check_placements(struct ferry_world *world,
                                          const struct ferry_experts_config *c)
{
	for (int32_t l = 0; l < c->n_layers; l++) {
		const struct ferry_placement *p = c->placements[l];

		if (!p)
			return ferry_fail(&world->ctx, FERRY_INVAL,
			                  "experts_open: placements[%d] is "
			                  "NULL",
			                  l);
		if (p->map.n_ranks != world->n_ranks)
			return ferry_fail(&world->ctx, FERRY_INVAL,
			                  "experts_open: placements[%d] is for "
			                  "%d ranks, the world has %d",
			                  l, p->map.n_ranks, world->n_ranks);
	}
	return FERRY_OK;
}

static enum ferry_status check_tensors(struct ferry_world *world,
                                       const struct ferry_experts_config *c)
{
	size_t n_own = 0;

	for (int32_t t = 0; t < c->n_tensors; t++)
		if (c->tensor_bytes[t] < 1 ||
		    c->tensor_bytes[t] > (size_t)1 << 48)
			return ferry_fail(&world->ctx, FERRY_RANGE,
			                  "experts_open: tensor_bytes[%d] is "
			                  "%zu, allowed are 1..2^48",
			                  t, c->tensor_bytes[t]);
	if ((c->mode == FERRY_EXPERTS_COPY) != (c->tensors != NULL))
		return ferry_fail(&world->ctx, FERRY_INVAL,
		                  "experts_open: tensors is %s, but mode is "
		                  "%d: addresses go with mode 1 (COPY)",
		                  c->tensors ? "not NULL" : "NULL",
		                  (int)c->mode);
	for (int32_t l = 0; c->tensors && l < c->n_layers; l++) {
		const int32_t *first = c->placements[l]->map.first_slot;

		n_own += (size_t)(first[world->rank + 1] - first[world->rank]);
	}
	for (size_t i = 0; i < n_own * (size_t)c->n_tensors; i++)
		if (!c->tensors[i])
			return ferry_fail(&world->ctx, FERRY_INVAL,
			                  "experts_open: tensors[%zu] is NULL",
			                  i);
	return FERRY_OK;
}

static enum ferry_status check(struct ferry_world *world,
                               struct ferry_experts_config *c)
{
	if (world->device != FERRY_DEVICE_CPU &&
	    !ferry_fabric_is_near(world->fabric))
		return ferry_fail(&world->ctx, FERRY_UNSUPPORTED,
		                  "experts_open: experts migrate between GPUs "
		                  "by fabric p2p, and the world has %s, which "
		                  "is for others",
		                  world->fabric->ops->name);
	if (c->n_layers < 1)
		return refuse(world, "n_layers", c->n_layers, "1..");
	if (c->n_tensors < 1)
		return refuse(world, "n_tensors", c->n_tensors, "1..");
	if (c->n_staging < 0 || c->n_staging > FERRY_MAX_EXPERTS)
		return refuse(world, "n_staging", c->n_staging, "0..2^24");
	if (c->mode != FERRY_EXPERTS_REMAP && c->mode != FERRY_EXPERTS_COPY)
		return refuse(world, "mode", (int64_t)c->mode,
		              "0 (REMAP), 1 (COPY)");
	if (!c->placements)
		return null(world, "placements");
	if (!c->tensor_bytes)
		return null(world, "tensor_bytes");
	FERRY_TRY(check_placements(world, c));
	if (!c->n_staging)
		c->n_staging = EXPERTS_DEFAULT_STAGING;
	return check_tensors(world, c);
}

/* One allocation into *to, any pointer, or the words for its failure. */
static enum ferry_status get(struct ferry_experts *x, void *to, size_t n,
                             size_t bytes)
{
	void *const memory = calloc(n ? n : 1, bytes);

	if (!memory)
		return ferry_fail(&x->world->ctx, FERRY_NOMEM,
		                  "experts_open: books of %zu times %zu bytes",
		                  n, bytes);
	memcpy(to, &memory, sizeof(memory));
	/* cppcheck-suppress memleak ; it is in *to */
	return FERRY_OK;
}

/* Where tensors lie in a buffer. Cannot overflow: 2^48 each, and n_tensors. */
static enum ferry_status lay_out_expert(struct ferry_experts *x,
                                        const struct ferry_experts_config *c)
{
	const size_t n = (size_t)c->n_tensors;
	size_t at = 0;

	FERRY_TRY(get(x, &x->tensor_bytes, n, sizeof(*x->tensor_bytes)));
	FERRY_TRY(get(x, &x->tensor_offset, n, sizeof(*x->tensor_offset)));
	for (size_t t = 0; t < n; t++) {
		x->tensor_bytes[t] = c->tensor_bytes[t];
		x->tensor_offset[t] = at;
		x->expert_bytes += c->tensor_bytes[t];
		x->filled_bytes = at + c->tensor_bytes[t];
		at = round_up(x->filled_bytes, EXPERTS_ALIGN);
		if (at > (size_t)1 << 50)
			return ferry_fail(&x->world->ctx, FERRY_RANGE,
			                  "experts_open: the tensors of an "
			                  "expert have more than 2^50 bytes");
	}
	x->buffer_bytes = at;
	return FERRY_OK;
}

/* The books of one layer: REMAP gives slot s of a rank the next buffer. */
static enum ferry_status open_layer(struct ferry_experts *x, int32_t l,
                                    const struct ferry_placement *placement,
                                    int32_t *n_homes)
{
	struct experts_layer *layer = &x->layers[l];
	const struct ferry_slot_map *map = &placement->map;

	layer->first_slot = map->first_slot;
	layer->first_own = n_homes[x->rank];
	FERRY_TRY(get(x, &layer->buffers, (size_t)map->n_slots,
	              sizeof(*layer->buffers)));
	for (int32_t s = 0; s < map->n_slots; s++)
		layer->buffers[s] = n_homes[map->slot_rank[s]]++;
	layer->newest = ferry_experts_version_make(x, layer, placement);
	if (!layer->newest)
		return ferry_fail(&x->world->ctx, FERRY_NOMEM,
		                  "experts_open: version of layer %d", l);
	return FERRY_OK;
}

/* Staging lies behind the homes of a rank; COPY has no homes. */
static enum ferry_status open_staging(struct ferry_experts *x,
                                      const int32_t *n_homes)
{
	const bool remap = x->mode == FERRY_EXPERTS_REMAP;

	for (int32_t r = 0; r < x->n_ranks; r++) {
		struct experts_free *f = &x->free[r];
		const int32_t first = remap ? n_homes[r] : 0;

		FERRY_TRY(get(x, &f->buffers, (size_t)x->n_staging,
		              sizeof(*f->buffers)));
		for (f->n = 0; f->n < x->n_staging; f->n++)
			f->buffers[f->n] = first + f->n;
		x->n_buffers =
			(int32_t)max_i64(x->n_buffers, first + x->n_staging);
	}
	return FERRY_OK;
}

static enum ferry_status open_books(struct ferry_experts *x,
                                    const struct ferry_experts_config *c,
                                    int32_t *n_homes)
{
	const size_t n_ranks = (size_t)x->n_ranks;
	int64_t n_all = 0;

	for (int32_t l = 0; l < c->n_layers; l++)
		n_all += c->placements[l]->map.n_slots;
	if (n_all + c->n_staging > INT32_MAX / 2)
		return ferry_fail(&x->world->ctx, FERRY_RANGE,
		                  "experts_open: %lld expert slots in all "
		                  "layers, allowed are fewer than 2^30",
		                  (long long)n_all);
	FERRY_TRY(get(x, &x->layers, (size_t)c->n_layers, sizeof(*x->layers)));
	x->n_layers = c->n_layers;
	FERRY_TRY(get(x, &x->free, n_ranks, sizeof(*x->free)));
	FERRY_TRY(get(x, &x->coming, n_ranks, sizeof(*x->coming)));
	FERRY_TRY(get(x, &x->items, n_ranks + (size_t)c->n_staging,
	              sizeof(*x->items)));
	for (int32_t l = 0; l < c->n_layers; l++)
		FERRY_TRY(open_layer(x, l, c->placements[l], n_homes));
	FERRY_TRY(open_staging(x, n_homes));
	return get(x, &x->pieces, (size_t)x->n_buffers, sizeof(*x->pieces));
}

static enum ferry_status copy_tensors(struct ferry_experts *x,
                                      const struct ferry_experts_config *c,
                                      int32_t n_own)
{
	const size_t n = (size_t)n_own * (size_t)c->n_tensors;

	if (c->mode != FERRY_EXPERTS_COPY)
		return FERRY_OK;
	FERRY_TRY(get(x, &x->tensors, n, sizeof(*x->tensors)));
	memcpy(x->tensors, c->tensors, n * sizeof(*x->tensors));
	return FERRY_OK;
}

/* What a rank does on its own before it meets the others. */
static enum ferry_status prepare(struct ferry_experts *x,
                                 const struct ferry_experts_config *config,
                                 struct ferry_experts_config *own)
{
	int32_t *n_homes = NULL;

	FERRY_TRY(ferry_sized_copy(own, sizeof(*own), config,
	                           "experts_open: config"));
	FERRY_TRY(check(x->world, own));
	x->mode = own->mode;
	x->n_tensors = own->n_tensors;
	x->n_staging = own->n_staging;
	FERRY_TRY(lay_out_expert(x, own));
	FERRY_TRY(get(x, &n_homes, (size_t)x->n_ranks, sizeof(*n_homes)));
	enum ferry_status status = open_books(x, own, n_homes);

	if (status == FERRY_OK)
		status = copy_tensors(x, own, n_homes[x->rank]);
	free(n_homes);
	return status;
}

static struct card card_of(const struct ferry_experts *x)
{
	struct card card = {
		.n_layers = x->n_layers,
		.n_tensors = x->n_tensors,
		.n_staging = x->n_staging,
		.mode = (int64_t)x->mode,
	};

	for (int32_t t = 0; t < x->n_tensors; t++)
		card.tensors = hash_u64(card.tensors, x->tensor_bytes[t]);
	for (int32_t l = 0; l < x->n_layers; l++) {
		const struct ferry_placement *p =
			x->layers[l].newest->placement;

		card.placements = hash_u64(card.placements, p->hash);
		card.placements = hash_u64(card.placements, p->version);
	}
	return card;
}

static enum ferry_status differs(struct ferry_experts *x, const char *what,
                                 int32_t rank, int64_t theirs, int64_t first)
{
	return ferry_fail(&x->world->ctx, FERRY_MISMATCH,
	                  "experts_open: %s is %lld on rank %d, %lld on rank 0",
	                  what, (long long)theirs, rank, (long long)first);
}

/* An array of each rank, by its name. */
struct entries {
	const char *what;
	const uint64_t *own; /* [n]; NULL: no memory */
	int32_t n;
	bool are_hashes;
};

static enum ferry_status entry_differs(struct ferry_experts *x,
                                       const struct entries *e, size_t i,
                                       int32_t rank, const uint64_t both[2])
{
	char text[2][24];

	for (int k = 0; k < 2; k++)
		snprintf(text[k], sizeof(text[k]),
		         e->are_hashes ? "%016llx" : "%llu",
		         (unsigned long long)both[k]);
	return ferry_fail(
		&x->world->ctx, FERRY_MISMATCH,
		"experts_open: %s[%zu] is %s on rank %d, %s on rank 0", e->what,
		i, text[0], rank, text[1]);
}

/*
 * Arrays are compared by hash; this finds the entry. All ranks come here, with
 * equally many numbers each.
 */
static enum ferry_status find_entry(struct ferry_experts *x,
                                    const struct entries *e, int32_t rank,
                                    uint64_t deadline_ns)
{
	const size_t row = (size_t)e->n;
	uint64_t *all = calloc((size_t)x->n_ranks * row, sizeof(*all));
	enum ferry_status status = FERRY_OK;

	if (!all || !e->own)
		status = ferry_fail(&x->world->ctx, FERRY_NOMEM,
		                    "experts_open: %s of all ranks", e->what);
	status = ferry_agree(x->world->boot, status, e->own, all,
	                     row * sizeof(*all), deadline_ns);
	for (size_t i = 0; status == FERRY_OK && i < row; i++) {
		const uint64_t theirs = all[(size_t)rank * row + i];

		if (theirs != all[i])
			status = entry_differs(x, e, i, rank,
			                       (uint64_t[]){theirs, all[i]});
	}
	free(all);
	return status;
}

static enum ferry_status find_tensor(struct ferry_experts *x, int32_t rank,
                                     uint64_t deadline_ns)
{
	uint64_t *own = calloc((size_t)x->n_tensors, sizeof(*own));

	for (int32_t t = 0; own && t < x->n_tensors; t++)
		own[t] = x->tensor_bytes[t];
	const struct entries e = {"tensor_bytes", own, x->n_tensors, false};
	const enum ferry_status status = find_entry(x, &e, rank, deadline_ns);

	free(own);
	return status;
}

static enum ferry_status find_placement(struct ferry_experts *x, int32_t rank,
                                        uint64_t deadline_ns)
{
	uint64_t *own = calloc((size_t)x->n_layers, sizeof(*own));

	for (int32_t l = 0; own && l < x->n_layers; l++)
		own[l] = hash_u64(x->layers[l].newest->placement->hash,
		                  x->layers[l].newest->placement->version);
	const struct entries e = {"hash of placements", own, x->n_layers, true};
	const enum ferry_status status = find_entry(x, &e, rank, deadline_ns);

	free(own);
	return status;
}

static enum ferry_status compare_cards(struct ferry_experts *x,
                                       const struct card *all,
                                       uint64_t deadline_ns)
{
	const struct card *a = &all[0];

	for (int32_t r = 1; r < x->n_ranks; r++) {
		const struct card *b = &all[r];

		if (b->n_layers != a->n_layers)
			return differs(x, "n_layers", r, b->n_layers,
			               a->n_layers);
		if (b->n_tensors != a->n_tensors)
			return differs(x, "n_tensors", r, b->n_tensors,
			               a->n_tensors);
		if (b->n_staging != a->n_staging)
			return differs(x, "n_staging", r, b->n_staging,
			               a->n_staging);
		if (b->mode != a->mode)
			return differs(x, "mode", r, b->mode, a->mode);
		if (b->tensors != a->tensors)
			return find_tensor(x, r, deadline_ns);
		if (b->placements != a->placements)
			return find_placement(x, r, deadline_ns);
	}
	return FERRY_OK;
}

static enum ferry_status compare(struct ferry_experts *x,
                                 enum ferry_status mine, uint64_t deadline_ns)
{
	const int32_t n_ranks = x->n_ranks;
	struct card *all = calloc((size_t)n_ranks, sizeof(*all));
	struct card own = {.n_layers = 0};

	if (!all && mine == FERRY_OK)
		mine = ferry_fail(&x->world->ctx, FERRY_NOMEM,
		                  "experts_open: configurations of %d ranks",
		                  n_ranks);
	if (mine == FERRY_OK)
		own = card_of(x);
	enum ferry_status status = ferry_agree(x->world->boot, mine, &own, all,
	                                       sizeof(own), deadline_ns);

	if (status == FERRY_OK)
		status = compare_cards(x, all, deadline_ns);
	free(all);
	return status;
}

static enum ferry_status open_segment(struct ferry_experts *x)
{
	const uint32_t n_signals = experts_buffer_signal(x, x->n_buffers);

	if ((size_t)x->n_buffers > (SIZE_MAX >> 4) / x->buffer_bytes)
		return ferry_fail(&x->world->ctx, FERRY_NOMEM,
		                  "experts_open: %d buffers of %zu bytes",
		                  x->n_buffers, x->buffer_bytes);
	x->stats.segment_bytes = experts_buffer_at(x, x->n_buffers);
	FERRY_TRY(ferry_segment_open_notes(x->world, x->stats.segment_bytes,
	                                   n_signals, experts_notes_bytes(x),
	                                   &x->segment));
	/* A copy of the copy engine is whole, and never waits for room. */
	const size_t most = x->on_gpus ? x->buffer_bytes : EXPERTS_PIECE_BYTES;
	const size_t max_put = ferry_segment_max_put(x->segment);

	x->piece_bytes = max_put < most ? max_put : most;
	return FERRY_OK;
}

static enum ferry_status open_steps(struct ferry_experts *x,
                                    const struct ferry_experts_config *config)
{
	const uint64_t deadline = ferry_deadline_ns(x->world->open_timeout_ms);
	struct ferry_experts_config own;

	FERRY_TRY(compare(x, prepare(x, config, &own), deadline));
	return open_segment(x);
}

enum ferry_status ferry_experts_open(struct ferry_world *world,
                                     const struct ferry_experts_config *config,
                                     struct ferry_experts **experts)
{
	if (!world || !experts)
		return ferry_fail(world ? &world->ctx : NULL, FERRY_INVAL,
		                  "experts_open: %s is NULL",
		                  world ? "experts" : "world");
	struct ferry_experts *const x = calloc(1, sizeof(*x));

	if (!x)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "experts_open: %zu bytes", sizeof(*x));
	x->world = world;
	x->rank = world->rank;
	x->n_ranks = world->n_ranks;
	x->on_gpus = world->device != FERRY_DEVICE_CPU;
	x->ended_tail = &x->ended;
	pthread_mutex_init(&x->lock, NULL);
	ferry_cond_init(&x->opened);
	const enum ferry_status status = open_steps(x, config);

	if (status != FERRY_OK) {
		ferry_experts_close(x);
		return status;
	}
	*experts = x;
	return FERRY_OK;
}

void ferry_experts_close(struct ferry_experts *experts)
{
	struct ferry_experts *const x = experts;

	if (!x)
		return;
	ferry_experts_books_destroy(x); /* needs the world */
	ferry_segment_close(x->segment);
	pthread_cond_destroy(&x->opened);
	pthread_mutex_destroy(&x->lock);
	for (int32_t l = 0; l < x->n_layers; l++)
		free(x->layers[l].buffers);
	for (int32_t r = 0; x->free && r < x->n_ranks; r++)
		free(x->free[r].buffers);
	free(x->layers);
	free(x->free);
	free(x->pieces);
	free(x->coming);
	free(x->items);
	free(x->tensor_bytes);
	free(x->tensor_offset);
	free(x->tensors);
	free(x);
}
