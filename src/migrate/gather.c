/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathering over a segment of host memory: in worlds of GPUs on the fabric
 * that control uses there.
 *
 * Data: two halves of one entry per rank. Entry r of every rank is written by
 * rank r; the own entry is the source of the puts, so that it lies in memory
 * that a network has registered. A round takes `pieces` puts to each peer.
 *
 * Signals: half * n_ranks + source. Puts may overtake each other, also those
 * of round n those of round n + 1, since a rank may send n + 1 while its round
 * n is still on the way to a slow peer. So each half has counters of its own:
 * when rank A sends round n + 2, all have received its round n.
 *
 * The own entry is written anew after a flush, as a fabric may demand. It finds
 * nothing to wait for but the round before: what came before that has arrived.
 */
#include "gather.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../fabric/segment.h"

enum { ENTRY_ALIGN = 64 };

struct ferry_gather {
	struct ferry_world *world;
	struct ferry_segment *segment;
	struct ferry_wait_item *items; /* [n_ranks - 1] */
	const char *what;
	size_t bytes;
	size_t stride;
	size_t piece_bytes;
	uint64_t pieces;
	uint64_t n_sent; /* rounds */
	uint64_t n_received;
};

static uint32_t half_of(uint64_t round)
{
	return (uint32_t)(round & 1);
}

/* Offset of a rank's entry in the half of a round, in every memory. */
static size_t entry_at(const struct ferry_gather *g, uint64_t round,
                       int32_t rank)
{
	const size_t n_ranks = (size_t)g->world->n_ranks;

	return (half_of(round) * n_ranks + (size_t)rank) * g->stride;
}

/*
 * Bytes of the segment, 0: too many. The last entry is not rounded up: opening
 * compares this number, and so finds ranks that differ by a byte.
 */
static size_t total_bytes(const struct ferry_gather *g)
{
	size_t total;

	if (g->bytes > SIZE_MAX - ENTRY_ALIGN ||
	    __builtin_mul_overflow(g->stride, 2 * (size_t)g->world->n_ranks,
	                           &total))
		return 0;
	return total - (g->stride - g->bytes);
}

static enum ferry_status check_open(struct ferry_world *world, const char *what,
                                    size_t bytes, struct ferry_gather **gather)
{
	if (!world || !gather)
		return ferry_fail(world ? &world->ctx : NULL, FERRY_INVAL,
		                  "%s: %s is NULL", what,
		                  world ? "gather" : "world");
	if (bytes < 1)
		return ferry_fail(&world->ctx, FERRY_INVAL,
		                  "%s: bytes is 0, allowed are 1..", what);
	if (!ferry_fabric_host(world->fabric))
		return ferry_fail(
			&world->ctx, FERRY_UNSUPPORTED,
			"%s: fabric %s has no memory of hosts; open a "
			"world with FERRY_DEVICE_CPU beside it for "
			"this",
			what, world->fabric->ops->name);
	return FERRY_OK;
}

static enum ferry_status open_parts(struct ferry_gather *g)
{
	const uint32_t n_ranks = (uint32_t)g->world->n_ranks;
	const size_t bytes = total_bytes(g);

	g->items = calloc(n_ranks, sizeof(*g->items));
	if (!bytes || !g->items)
		return ferry_fail(&g->world->ctx, FERRY_NOMEM,
		                  "%s: %zu bytes from each of %u ranks",
		                  g->what, g->bytes, n_ranks);
	FERRY_TRY(ferry_segment_open_on(g->world,
	                                ferry_fabric_host(g->world->fabric),
	                                bytes, 2 * n_ranks, &g->segment));
	const size_t max_put = ferry_segment_max_put(g->segment);

	g->piece_bytes = max_put < g->bytes ? max_put : g->bytes;
	g->pieces = (g->bytes - 1) / g->piece_bytes + 1;
	return FERRY_OK;
}

enum ferry_status ferry_gather_open(struct ferry_world *world, const char *what,
                                    size_t bytes, struct ferry_gather **gather)
{
	FERRY_TRY(check_open(world, what, bytes, gather));
	struct ferry_gather *g = calloc(1, sizeof(*g));

	if (!g)
		return ferry_fail(&world->ctx, FERRY_NOMEM, "%s: %zu bytes",
		                  what, sizeof(*g));
	g->world = world;
	g->what = what;
	g->bytes = bytes;
	g->stride = round_up(bytes, ENTRY_ALIGN);
	const enum ferry_status status = open_parts(g);

	if (status != FERRY_OK) {
		ferry_gather_close(g);
		return status;
	}
	*gather = g;
	return FERRY_OK;
}

void ferry_gather_close(struct ferry_gather *gather)
{
	if (!gather)
		return;
	ferry_segment_close(gather->segment);
	free(gather->items);
	free(gather);
}

/* The segment has said what is wrong, but not who used it for what. */
static enum ferry_status fail(const struct ferry_gather *g, uint64_t round,
                              enum ferry_status status)
{
	char text[640];

	snprintf(text, sizeof(text), "%s: round %" PRIu64 ": %s", g->what,
	         round, ferry_last_error());
	ferry_last_error_set(text);
	return status;
}

static enum ferry_status put_to(struct ferry_gather *g, int32_t peer)
{
	const size_t entry = entry_at(g, g->n_sent, g->world->rank);
	const uint32_t signal =
		half_of(g->n_sent) * (uint32_t)g->world->n_ranks +
		(uint32_t)g->world->rank;
	const unsigned char *source =
		(unsigned char *)ferry_segment_base(g->segment) + entry;

	for (size_t at = 0; at < g->bytes; at += g->piece_bytes) {
		const size_t left = g->bytes - at;

		FERRY_TRY(ferry_segment_put(
			g->segment, peer, entry + at, source + at,
			left < g->piece_bytes ? left : g->piece_bytes, signal));
	}
	return FERRY_OK;
}

/* To the ranks after this one first, so that not all begin with rank 0. */
static enum ferry_status put_to_all(struct ferry_gather *g)
{
	const int32_t n_ranks = g->world->n_ranks;

	for (int32_t i = 1; i < n_ranks; i++)
		FERRY_TRY(put_to(g, (g->world->rank + i) % n_ranks));
	return ferry_segment_kick(g->segment);
}

enum ferry_status ferry_gather_send(struct ferry_gather *gather,
                                    const void *own)
{
	struct ferry_gather *g = gather;
	enum ferry_status status = ferry_segment_check(g->segment);

	if (status != FERRY_OK)
		return fail(g, g->n_sent, status);
	if (g->n_sent != g->n_received)
		return ferry_fail(&g->world->ctx, FERRY_STATE,
		                  "%s: round %" PRIu64
		                  " was sent and not received",
		                  g->what, g->n_received);
	status = ferry_segment_flush(g->segment);
	if (status == FERRY_OK) {
		memcpy((unsigned char *)ferry_segment_base(g->segment) +
		               entry_at(g, g->n_sent, g->world->rank),
		       own, g->bytes);
		status = put_to_all(g);
	}
	if (status != FERRY_OK)
		return fail(g, g->n_sent, status);
	g->n_sent++;
	return FERRY_OK;
}

/* Fills in what the round needs of each peer; how many they are. */
static int32_t expect(struct ferry_gather *g, uint64_t round)
{
	const int32_t n_ranks = g->world->n_ranks;
	const uint64_t value = (round / 2 + 1) * g->pieces;
	int32_t n = 0;

	for (int32_t r = 0; r < n_ranks; r++)
		if (r != g->world->rank)
			g->items[n++] = (struct ferry_wait_item){
				.signal = half_of(round) * (uint32_t)n_ranks +
			                  (uint32_t)r,
				.peer = r,
				.value = value,
			};
	return n;
}

enum ferry_status ferry_gather_recv(struct ferry_gather *gather,
                                    const void **all, size_t *stride)
{
	struct ferry_gather *g = gather;
	const uint64_t round = g->n_received;
	enum ferry_status status = FERRY_OK;

	if (g->n_sent == round) /* perhaps because the send failed */
		status = ferry_segment_check(g->segment);
	if (g->n_sent == round && status == FERRY_OK)
		return ferry_fail(&g->world->ctx, FERRY_STATE,
		                  "%s: round %" PRIu64 " was not sent", g->what,
		                  round);
	if (status == FERRY_OK)
		status = ferry_segment_wait_all(g->segment, g->items,
		                                expect(g, round), NULL);
	if (status != FERRY_OK)
		return fail(g, round, status);
	g->n_received++;
	*all = (unsigned char *)ferry_segment_base(g->segment) +
	       entry_at(g, round, 0);
	*stride = g->stride;
	return FERRY_OK;
}
