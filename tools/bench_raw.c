/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See bench_raw.h. A step is a dispatch and a combine: every rank puts its
 * table and its rows for each peer, waits for what peers put, and until its
 * own rows have been read. Rows lie behind each other where they come from, as
 * in a channel's stage. Signal p * n_ranks + r is raised by rank r in phase p.
 * No rank is more than a step ahead: it waits for what the others put.
 */
#include "bench_raw.h"

#include <stdlib.h>

#include <ferry/fabric.h>

#include "alloc.h"
#include "core/clock.h"
#include "fabric/segment.h"
#include "opt.h"
#include "raw_rows.h"

const char bench_raw_impl[] = "raw";

/* What one rank leaves behind, beside its samples. */
struct raw_tally {
	uint64_t wire_bytes[RAW_PHASES]; /* of a step */
	int64_t wrong[RAW_PHASES];
};

struct raw_work {
	const struct bench_case *shape;
	int32_t iters, warmup;
	struct raw_tally *tallies; /* [n_ranks], shared */
	uint64_t *ns; /* [n_ranks][BENCH_N_PHASES][iters], shared */
};

struct raw_rank {
	const struct crew_member *me;
	const struct bench_case *c;
	struct ferry_segment *segment;
	uint8_t *base;
	struct raw_rows rows;
	size_t stage; /* where own rows are */
	size_t max_put;
	uint64_t *seen;                /* [RAW_PHASES][n_ranks] */
	struct ferry_wait_item *items; /* [n_ranks] */
};

static uint8_t pattern(int32_t from, size_t i)
{
	return (uint8_t)((size_t)(from * 31 + 1) + i * 131 + (i >> 8));
}

/* In own memory: what comes, by phase; then a stage, which all peers get. */
static bool raw_open(struct raw_rank *r, const struct crew_member *me,
                     const struct bench_case *c, struct ferry_world *world)
{
	const size_t n = (size_t)c->n_ranks;

	*r = (struct raw_rank){
		.me = me,
		.c = c,
		.seen = alloc_or_exit(RAW_PHASES * n, sizeof(*r->seen)),
		.items = alloc_or_exit(n, sizeof(*r->items)),
	};
	raw_rows_make(&r->rows, c, me->rank);
	const size_t row = r->rows.row_bytes[BENCH_DISPATCH] >
	                                   r->rows.row_bytes[BENCH_COMBINE]
	                           ? r->rows.row_bytes[BENCH_DISPATCH]
	                           : r->rows.row_bytes[BENCH_COMBINE];
	const size_t stage_bytes =
		r->rows.table_bytes + (size_t)r->rows.most * row;

	r->stage =
		n * r->rows.room[BENCH_DISPATCH] + r->rows.room[BENCH_COMBINE];
	if (!crew_good(me,
	               ferry_segment_open(world, r->stage + stage_bytes,
	                                  (uint32_t)(RAW_PHASES * n),
	                                  &r->segment),
	               "opening a segment"))
		return false;
	r->base = ferry_segment_base(r->segment);
	r->max_put = ferry_segment_max_put(r->segment);
	for (size_t i = 0; i < stage_bytes; i++)
		r->base[r->stage + i] = pattern(me->rank, i);
	return true;
}

static void raw_close(struct raw_rank *r)
{
	ferry_segment_close(r->segment);
	free(r->seen);
	free(r->items);
	raw_rows_free(&r->rows);
}

static uint64_t pieces_of(const struct raw_rank *r, size_t bytes)
{
	return bytes ? (bytes - 1) / r->max_put + 1 : 0;
}

/* Where a phase's rows begin in everybody's memory. */
static size_t phase_at(const struct raw_rank *r, int phase)
{
	return phase == BENCH_DISPATCH
	               ? 0
	               : (size_t)r->c->n_ranks * r->rows.room[BENCH_DISPATCH];
}

/* `bytes` from `from` of the stage, one row or table, in pieces. */
static enum ferry_status put_row(struct raw_rank *r, int phase, int32_t peer,
                                 size_t to, size_t from, size_t bytes)
{
	const uint32_t signal = (uint32_t)(phase * r->c->n_ranks + r->me->rank);

	to += phase_at(r, phase);
	from += r->stage;
	for (size_t done = 0; done < bytes; done += r->max_put) {
		const size_t left = bytes - done;

		FERRY_TRY(ferry_segment_put(
			r->segment, peer, to + done, r->base + from + done,
			left < r->max_put ? left : r->max_put, signal));
	}
	return FERRY_OK;
}

static enum ferry_status put_peer(struct raw_rank *r, int phase, int32_t peer)
{
	const int64_t n = raw_rows_n(&r->rows, phase, r->me->rank, peer);
	const size_t *to =
		r->rows.to[phase] + (size_t)peer * (size_t)r->rows.most;
	const size_t row = r->rows.row_bytes[phase];

	if (phase == BENCH_DISPATCH)
		FERRY_TRY(put_row(r, phase, peer,
		                  (size_t)r->me->rank *
		                          r->rows.room[BENCH_DISPATCH],
		                  0, r->rows.table_bytes));
	for (int64_t i = 0; i < n; i++)
		FERRY_TRY(put_row(r, phase, peer, to[i],
		                  r->rows.table_bytes + (size_t)i * row, row));
	return FERRY_OK;
}

/* Everything that the others put in this phase of this step. */
static enum ferry_status await_all(struct raw_rank *r, int phase)
{
	int32_t n = 0;

	for (int32_t source = 0; source < r->c->n_ranks; source++) {
		const int32_t i = phase * r->c->n_ranks + source;
		uint64_t puts = (uint64_t)raw_rows_n(&r->rows, phase, source,
		                                     r->me->rank) *
		                pieces_of(r, r->rows.row_bytes[phase]);

		if (source == r->me->rank)
			continue;
		if (phase == BENCH_DISPATCH)
			puts += pieces_of(r, r->rows.table_bytes);
		r->seen[i] += puts;
		r->items[n++] = (struct ferry_wait_item){
			.signal = (uint32_t)i,
			.peer = source,
			.value = r->seen[i],
		};
	}
	return ferry_segment_wait_all(r->segment, r->items, n, NULL);
}

static enum ferry_status run_phase(struct raw_rank *r, int phase)
{
	for (int32_t i = 1; i < r->c->n_ranks; i++)
		FERRY_TRY(
			put_peer(r, phase, (r->me->rank + i) % r->c->n_ranks));
	FERRY_TRY(ferry_segment_kick(r->segment));
	FERRY_TRY(await_all(r, phase));
	return ferry_segment_flush(r->segment);
}

static bool step(struct raw_rank *r, uint64_t ns[BENCH_N_PHASES])
{
	const uint64_t start = ferry_now_ns();

	if (!crew_good(r->me, run_phase(r, BENCH_DISPATCH), "raw dispatch"))
		return false;
	const uint64_t middle = ferry_now_ns();

	if (!crew_good(r->me, run_phase(r, BENCH_COMBINE), "raw combine"))
		return false;
	const uint64_t end = ferry_now_ns();

	ns[BENCH_DISPATCH] = middle - start;
	ns[BENCH_COMBINE] = end - middle;
	ns[BENCH_PAIR] = end - start;
	return true;
}

/* What the last step has left, row by row. */
static int64_t wrong_rows(const struct raw_rank *r, int phase, int32_t source,
                          size_t *to)
{
	const int64_t n =
		raw_rows_list(&r->rows, phase, source, r->me->rank, to);
	const size_t row = r->rows.row_bytes[phase];
	int64_t wrong = 0;

	for (int64_t k = 0; k < n; k++) {
		const uint8_t *got = r->base + phase_at(r, phase) + to[k];
		const size_t from = r->rows.table_bytes + (size_t)k * row;

		for (size_t i = 0; i < row; i++)
			wrong += got[i] != pattern(source, from + i);
	}
	return wrong;
}

static void count_wrong(const struct raw_rank *r, struct raw_tally *tally)
{
	size_t *to = alloc_or_exit((size_t)r->rows.most, sizeof(*to));

	for (int32_t source = 0; source < r->c->n_ranks; source++)
		for (int p = 0; source != r->me->rank && p < RAW_PHASES; p++)
			tally->wrong[p] += wrong_rows(r, p, source, to);
	free(to);
}

/* As Ferry's statistics count them: without padding and tables. */
static void count_bytes(const struct raw_rank *r, struct raw_tally *tally)
{
	const size_t scales = (size_t)bench_scales(r->c) * sizeof(float);
	const size_t bytes[RAW_PHASES] = {bench_row_bytes(r->c) + scales,
	                                  r->rows.row_bytes[BENCH_COMBINE]};

	for (int32_t peer = 0; peer < r->c->n_ranks; peer++)
		for (int p = 0; p < RAW_PHASES; p++)
			tally->wire_bytes[p] +=
				(size_t)raw_rows_n(&r->rows, p, r->me->rank,
			                           peer) *
				bytes[p];
}

static bool measure(struct raw_rank *r, const struct raw_work *work)
{
	const size_t iters = (size_t)work->iters;
	uint64_t *const ns =
		work->ns + (size_t)r->me->rank * BENCH_N_PHASES * iters;
	uint64_t one[BENCH_N_PHASES];

	/* One at least: nobody has touched the pages yet. */
	for (int32_t i = 0; i <= work->warmup; i++)
		if (!step(r, one))
			return false;
	crew_barrier(r->me);
	for (size_t i = 0; i < iters; i++) {
		if (!step(r, one))
			return false;
		for (int p = 0; p < BENCH_N_PHASES; p++)
			ns[(size_t)p * iters + i] = one[p];
	}
	count_bytes(r, &work->tallies[r->me->rank]);
	count_wrong(r, &work->tallies[r->me->rank]);
	return true;
}

static int raw_body(const struct crew_member *me, void *arg)
{
	const struct raw_work *work = arg;
	struct ferry_world *world;
	struct raw_rank rank;

	if (!crew_open(me, 0, &world))
		return EXIT_FAILED;
	bool good =
		raw_open(&rank, me, work->shape, world) && measure(&rank, work);

	/* Nobody closes what others still put to. */
	good = good && crew_good(me, ferry_world_barrier(world), "barrier");
	raw_close(&rank);
	ferry_world_close(world);
	return good ? EXIT_GOOD : EXIT_FAILED;
}

static void add_tallies(struct bench_result *result,
                        const struct raw_work *work, int32_t n_ranks)
{
	struct bench_figure *const pair = &result->phase[BENCH_PAIR];

	for (int p = 0; p < RAW_PHASES; p++) {
		struct bench_figure *figure = &result->phase[p];

		for (int32_t r = 0; r < n_ranks; r++) {
			figure->wire_bytes += work->tallies[r].wire_bytes[p];
			figure->wrong += work->tallies[r].wrong[p];
		}
		pair->wire_bytes += figure->wire_bytes;
		pair->wrong += figure->wrong;
	}
}

bool bench_raw_run(const struct crew *crew, const struct bench_case *c,
                   int32_t iters, int32_t warmup, struct bench_result *result)
{
	const size_t n = (size_t)crew->n_ranks;
	const size_t tally_bytes = n * sizeof(struct raw_tally);
	const size_t ns_bytes =
		n * BENCH_N_PHASES * (size_t)iters * sizeof(uint64_t);
	struct raw_work work = {
		.shape = c,
		.iters = iters,
		.warmup = warmup,
		.tallies = alloc_shared(tally_bytes),
		.ns = alloc_shared(ns_bytes),
	};
	const bool good = crew_run(crew, raw_body, &work) == EXIT_GOOD;

	*result = (struct bench_result){0};
	if (good) {
		bench_summarize(result, work.ns, crew->n_ranks, iters);
		add_tallies(result, &work, crew->n_ranks);
	}
	alloc_shared_free(work.tallies, tally_bytes);
	alloc_shared_free(work.ns, ns_bytes);
	return good;
}
