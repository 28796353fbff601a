/* SPDX-License-Identifier: Apache-2.0 */
/* See raw_link.h. */
#include "raw_link.h"

#include <stdlib.h>

#include "alloc.h"
#include "bench_result.h"
#include "core/bits.h"
#include "core/clock.h"

enum {
	PINGS = 400,
	WARM_PINGS = 40,
	SIGNALS = 512, /* at once, for the gap */
	PIECE = 1 << 16,
	AREA = 8 << 20, /* beyond the nearer caches, and a pass */
	PASSES = 4,
};

/* Own memory: what comes, and behind it what goes. */
enum ferry_status raw_ground_open(struct ferry_world *world,
                                  struct raw_ground *g)
{
	const size_t n = (size_t)ferry_world_size(world);

	*g = (struct raw_ground){
		.world = world,
		.pairs.seen = alloc_or_exit(n, sizeof(*g->pairs.seen)),
	};
	FERRY_TRY(ferry_segment_open(world, (size_t)2 * AREA, (uint32_t)n,
	                             &g->pairs.segment));
	const size_t most = ferry_segment_max_put(g->pairs.segment);

	g->base = ferry_segment_base(g->pairs.segment);
	g->piece_bytes = most < PIECE ? most : PIECE;
	return FERRY_OK;
}

void raw_ground_close(struct raw_ground *g)
{
	ferry_segment_close(g->pairs.segment);
	free(g->pairs.seen);
	*g = (struct raw_ground){0};
}

/* Both have come here, and what was put before has been read. */
static enum ferry_status meet(struct raw_ground *g, int32_t peer)
{
	FERRY_TRY(ferry_pairs_say(&g->pairs, peer));
	FERRY_TRY(ferry_pairs_await(&g->pairs, peer, 1));
	return ferry_segment_flush(g->pairs.segment);
}

static uint8_t pattern(int32_t from, int32_t to, size_t i)
{
	return (uint8_t)(hash_u64((uint64_t)from << 32 | (uint32_t)to, i / 8) >>
	                 i % 8 * 8);
}

/* A piece of known bytes each way. */
static enum ferry_status verify(struct raw_ground *g, int32_t peer,
                                struct raw_link *link)
{
	const int32_t rank = ferry_world_rank(g->world);
	uint8_t *const out = g->base + AREA;

	for (size_t i = 0; i < g->piece_bytes; i++) {
		g->base[i] = (uint8_t)~pattern(peer, rank, i);
		out[i] = pattern(rank, peer, i);
	}
	FERRY_TRY(meet(g, peer));
	FERRY_TRY(ferry_segment_put(g->pairs.segment, peer, 0, out,
	                            g->piece_bytes,
	                            ferry_pairs_signal(&g->pairs)));
	FERRY_TRY(ferry_segment_kick(g->pairs.segment));
	FERRY_TRY(ferry_pairs_await(&g->pairs, peer, 1));
	/* The next word must not overtake the piece and be taken for it. */
	FERRY_TRY(ferry_segment_flush(g->pairs.segment));
	for (size_t i = 0; i < g->piece_bytes; i++)
		link->wrong += g->base[i] != pattern(peer, rank, i);
	return meet(g, peer);
}

/* There and back; the lower rank begins. */
static enum ferry_status ping(struct raw_ground *g, int32_t peer)
{
	if (ferry_world_rank(g->world) < peer) {
		FERRY_TRY(ferry_pairs_say(&g->pairs, peer));
		return ferry_pairs_await(&g->pairs, peer, 1);
	}
	FERRY_TRY(ferry_pairs_await(&g->pairs, peer, 1));
	return ferry_pairs_say(&g->pairs, peer);
}

static enum ferry_status time_pings(struct raw_ground *g, int32_t peer,
                                    double us[PINGS])
{
	for (int i = -WARM_PINGS; i < PINGS; i++) {
		const uint64_t start = ferry_now_ns();

		FERRY_TRY(ping(g, peer));
		if (i >= 0)
			us[i] = (double)(ferry_now_ns() - start) / 2e3;
	}
	return FERRY_OK;
}

static enum ferry_status time_flags(struct raw_ground *g, int32_t peer,
                                    struct raw_link *link)
{
	double us[PINGS];

	FERRY_TRY(time_pings(g, peer, us));
	link->flag_p50_us = bench_percentile(us, PINGS, 0.50);
	link->flag_p99_us = bench_percentile(us, PINGS, 0.99);
	return meet(g, peer);
}

/* Many at once, until they have come and gone. */
static enum ferry_status stream(struct raw_ground *g, int32_t peer, size_t n,
                                size_t bytes, uint64_t *ns)
{
	const uint64_t start = ferry_now_ns();

	for (size_t i = 0; i < n; i++)
		FERRY_TRY(ferry_segment_put(g->pairs.segment, peer, i * bytes,
		                            g->base + AREA + i * bytes, bytes,
		                            ferry_pairs_signal(&g->pairs)));
	FERRY_TRY(ferry_segment_kick(g->pairs.segment));
	FERRY_TRY(ferry_pairs_await(&g->pairs, peer, n));
	FERRY_TRY(ferry_segment_flush(g->pairs.segment));
	*ns = ferry_now_ns() - start;
	return meet(g, peer);
}

static enum ferry_status time_stream(struct raw_ground *g, int32_t peer,
                                     struct raw_link *link)
{
	const size_t n = AREA / g->piece_bytes;
	uint64_t ns;

	FERRY_TRY(stream(g, peer, SIGNALS, 0, &ns));
	link->gap_us = (double)ns / 1e3 / SIGNALS;
	for (int pass = 0; pass < PASSES; pass++) {
		FERRY_TRY(stream(g, peer, n, g->piece_bytes, &ns));
		const double rate =
			(double)(n * g->piece_bytes) / (double)ns * 1e9;

		if (rate > link->bytes_per_s)
			link->bytes_per_s = rate;
	}
	return FERRY_OK;
}

enum ferry_status raw_link_measure(struct raw_ground *g, int32_t peer,
                                   struct raw_link *link)
{
	*link = (struct raw_link){0};
	FERRY_TRY(meet(g, peer));
	FERRY_TRY(verify(g, peer, link));
	FERRY_TRY(time_flags(g, peer, link));
	return time_stream(g, peer, link);
}
