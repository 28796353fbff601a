/* SPDX-License-Identifier: Apache-2.0 */
/* Put, signal and wait: are the bytes right, and how fast are they? */
#include <stdlib.h>
#include <string.h>

#include <ferry/fabric.h>

#include "alloc.h"
#include "bench_result.h"
#include "check.h"
#include "core/bits.h"
#include "core/clock.h"

enum {
	ROUNDS = 64,
	BLOCK = 4096, /* most bytes of a verified put */
	PINGS = 2000,
	PIECE = 1 << 20, /* most bytes of a timed put */
	PIECES = 64,
	PASSES = 4,
};

/*
 * Own memory: blocks that came, [n_ranks]; blocks to send, [n_ranks]; a piece
 * that came and one to send. Counters: arrivals of each rank, thanks of each
 * rank (its block may be overwritten), and one for the timed part.
 */
struct ground {
	const struct crew_member *me;
	struct ferry_segment *segment;
	uint8_t *base;
	size_t n_ranks, block, piece;
	const struct check_work *work;
};

static size_t in_block(int32_t source)
{
	return (size_t)source * BLOCK;
}

static size_t out_block(const struct ground *g, int32_t peer)
{
	return (g->n_ranks + (size_t)peer) * BLOCK;
}

static size_t in_piece(const struct ground *g)
{
	return 2 * g->n_ranks * BLOCK;
}

static bool ground_open(struct ground *g, const struct crew_member *me,
                        struct ferry_world *world,
                        const struct check_work *work)
{
	*g = (struct ground){
		.me = me,
		.n_ranks = (size_t)ferry_world_size(world),
		.work = work,
	};
	if (!crew_good(me,
	               ferry_segment_open(
			       world, 2 * g->n_ranks * BLOCK + 2 * PIECE,
			       (uint32_t)(2 * g->n_ranks + 1), &g->segment),
	               "opening a segment"))
		return false;
	const size_t most = ferry_segment_max_put(g->segment);

	g->base = ferry_segment_base(g->segment);
	g->block = most < BLOCK ? most : BLOCK;
	g->piece = most < PIECE ? most : PIECE;
	return true;
}

/* Bytes that `source` sends `peer` in a round, and how many. */
static size_t make_block(const struct ground *g, int32_t source, int32_t peer,
                         uint64_t round, uint8_t *to)
{
	uint64_t state = hash_u64(hash_u64(g->work->seed, round),
	                          (uint64_t)source << 32 | (uint32_t)peer);
	const size_t bytes = rng_next(&state) % (g->block + 1);

	for (size_t i = 0; i < bytes; i += 8) {
		const uint64_t word = rng_next(&state);

		memcpy(to + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
	return bytes;
}

/* Between a block here and the segment's memory, which may be a GPU's. */
static bool copy(const struct ground *g, void *to, const void *from,
                 size_t bytes)
{
	if (g->work->copy)
		return g->work->copy(to, from, bytes);
	memcpy(to, from, bytes);
	return true;
}

static bool put_round(struct ground *g, uint64_t round)
{
	for (int32_t i = 0; i < (int32_t)g->n_ranks; i++) {
		/* Everybody begins elsewhere. */
		const int32_t peer = (g->me->rank + i) % (int32_t)g->n_ranks;
		uint8_t *out = g->base + out_block(g, peer);
		uint8_t block[BLOCK];
		const size_t bytes =
			make_block(g, g->me->rank, peer, round, block);

		if (!copy(g, out, block, bytes) ||
		    !crew_good(g->me,
		               ferry_segment_put(g->segment, peer,
		                                 in_block(g->me->rank), out,
		                                 bytes, (uint32_t)g->me->rank),
		               "put"))
			return false;
	}
	return crew_good(g->me, ferry_segment_kick(g->segment), "kick");
}

static int64_t count_wrong(const uint8_t *got, const uint8_t *want, size_t n)
{
	int64_t wrong = 0;

	for (size_t i = 0; i < n; i++)
		wrong += got[i] != want[i];
	return wrong;
}

/* Waits for every rank's block, verifies, and thanks. */
static bool take_round(struct ground *g, uint64_t round,
                       struct check_tally *tally)
{
	uint8_t want[BLOCK], got[BLOCK];

	for (int32_t r = 0; r < (int32_t)g->n_ranks; r++) {
		const size_t bytes = make_block(g, r, g->me->rank, round, want);

		if (!crew_good(g->me,
		               ferry_segment_wait(g->segment, (uint32_t)r,
		                                  round + 1),
		               "wait"))
			return false;
		if (!copy(g, got, g->base + in_block(r), bytes))
			return false;
		tally->wrong_puts += count_wrong(got, want, bytes);
		tally->n_puts++;
		if (!crew_good(
			    g->me,
			    ferry_segment_signal(g->segment, r,
		                                 (uint32_t)g->n_ranks +
		                                         (uint32_t)g->me->rank),
			    "signal"))
			return false;
	}
	return crew_good(g->me, ferry_segment_flush(g->segment), "flush");
}

/* Blocks may be used again when every rank has said thanks. */
static bool wait_thanks(struct ground *g, uint64_t round)
{
	for (uint32_t r = 0; r < (uint32_t)g->n_ranks; r++)
		if (!crew_good(g->me,
		               ferry_segment_wait(g->segment,
		                                  (uint32_t)g->n_ranks + r,
		                                  round + 1),
		               "wait"))
			return false;
	return true;
}

/* To the peer and back; *value is what the counter must show next. */
static bool ping(struct ground *g, uint64_t *value)
{
	const int32_t peer = 1 - g->me->rank;
	const uint32_t signal = 2 * (uint32_t)g->n_ranks;
	enum ferry_status status = FERRY_OK;

	++*value;
	if (g->me->rank == 0)
		status = ferry_segment_signal(g->segment, peer, signal);
	if (!status)
		status = ferry_segment_kick(g->segment);
	if (!status)
		status = ferry_segment_wait(g->segment, signal, *value);
	if (!status && g->me->rank == 1)
		status = ferry_segment_signal(g->segment, peer, signal);
	if (!status)
		status = ferry_segment_kick(g->segment);
	return crew_good(g->me, status, "flag");
}

static bool time_flags(struct ground *g, uint64_t *value,
                       struct check_tally *tally)
{
	double *us = alloc_or_exit(PINGS, sizeof(*us));
	bool good = true;

	for (int i = 0; good && i < PINGS; i++) {
		const uint64_t start = ferry_now_ns();

		good = ping(g, value);
		us[i] = (double)(ferry_now_ns() - start) / 2e3;
	}
	tally->flag_p50_us = bench_percentile(us, PINGS, 0.50);
	tally->flag_p99_us = bench_percentile(us, PINGS, 0.99);
	free(us);
	return good;
}

/* One pass of pieces from rank 0 to rank 1, and an answer at its end. */
static bool stream(struct ground *g, uint64_t *value)
{
	const uint32_t signal = 2 * (uint32_t)g->n_ranks;
	enum ferry_status status = FERRY_OK;

	if (g->me->rank == 1) {
		*value += PIECES;
		status = ferry_segment_wait(g->segment, signal, *value);
		if (!status)
			status = ferry_segment_signal(g->segment, 0, signal);
		if (!status)
			status = ferry_segment_kick(g->segment);
		return crew_good(g->me, status, "stream");
	}
	for (int i = 0; !status && i < PIECES; i++)
		status = ferry_segment_put(g->segment, 1, in_piece(g),
		                           g->base + in_piece(g) + PIECE,
		                           g->piece, signal);
	if (!status)
		status = ferry_segment_flush(g->segment);
	if (!status)
		status = ferry_segment_wait(g->segment, signal, ++*value);
	return crew_good(g->me, status, "stream");
}

static bool time_puts(struct ground *g, uint64_t *value,
                      struct check_tally *tally)
{
	for (int pass = 0; pass < PASSES; pass++) {
		const uint64_t start = ferry_now_ns();

		if (!stream(g, value))
			return false;
		const double ns = (double)(ferry_now_ns() - start);
		const double rate = (double)(g->piece * PIECES) / ns * 1e9;

		if (rate > tally->put_bytes_per_s)
			tally->put_bytes_per_s = rate;
	}
	return true;
}

bool check_primitives(const struct crew_member *me, struct ferry_world *world,
                      const struct check_work *work)
{
	struct check_tally *const tally = &work->tallies[me->rank];
	uint64_t value = 0;
	struct ground g;

	if (!ground_open(&g, me, world, work))
		return false;
	bool good = true;

	for (uint64_t round = 0; good && round < ROUNDS; round++)
		good = put_round(&g, round) && take_round(&g, round, tally) &&
		       wait_thanks(&g, round);
	/* The others have nothing to do meanwhile, and sleep. */
	if (good && g.n_ranks > 1 && me->rank < 2)
		good = time_flags(&g, &value, tally) &&
		       time_puts(&g, &value, tally);
	if (good)
		good = crew_good(me, ferry_world_barrier(world), "barrier");
	ferry_segment_close(g.segment);
	return good;
}
