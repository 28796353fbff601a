/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See bench_raw.h. A step is a dispatch and a combine: every rank puts its
 * table and its rows for each peer, waits for what peers put, and until its
 * own rows have been read. Rows lie behind each other where they come from, as
 * in a channel's stage, and go to where a channel's window has them: row
 * [source][token] of dispatch, back[token][j] of combine. Signal p * n_ranks +
 * r is raised by rank r in phase p. No rank is more than a step ahead: it waits
 * for what the others put.
 */
#include "bench_raw.h"

#include <stdlib.h>
#include <string.h>

#include <ferry/fabric.h>

#include "alloc.h"
#include "core/bits.h"
#include "core/clock.h"
#include "fabric/segment.h"
#include "opt.h"
#include "proto/table.h"

enum { N_PHASES = BENCH_PAIR, SCALE_ALIGN = 16 };

const char bench_raw_impl[] = "raw";

/* What one rank leaves behind, beside its samples. */
struct raw_tally {
	uint64_t wire_bytes[N_PHASES]; /* of a step */
	int64_t wrong[N_PHASES];
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
	size_t table_bytes, row_bytes[N_PHASES];
	size_t room[N_PHASES]; /* of one source's rows; of all that come back */
	size_t stage;          /* where own rows are */
	int32_t *ids;          /* [n_ranks][tokens][topk] */
	size_t *to[N_PHASES];  /* [n_ranks][most rows] where own rows go */
	int64_t most;
	int64_t *n_rows[N_PHASES]; /* [source][destination] */
	size_t max_put;
	uint64_t *seen;                /* [N_PHASES][n_ranks] */
	struct ferry_wait_item *items; /* [n_ranks] */
};

static int64_t *rows_of(const struct raw_rank *r, int phase, int32_t source,
                        int32_t destination)
{
	return &r->n_rows[phase][source * r->c->n_ranks + destination];
}

static const int32_t *ids_of(const struct raw_rank *r, int32_t rank,
                             int32_t token)
{
	return r->ids + ((size_t)rank * (size_t)r->c->tokens + (size_t)token) *
	                        (size_t)r->c->topk;
}

static bool serves(const struct raw_rank *r, const int32_t *ids, int32_t rank)
{
	for (int32_t k = 0; k < r->c->topk; k++)
		if (ids[k] >= 0 && bench_owner(r->c, ids[k]) == rank)
			return true;
	return false;
}

/* Rank `rank` among those that serve a token, without the token's own. */
static int32_t ordinal(const struct raw_rank *r, const int32_t *ids,
                       int32_t rank, int32_t own)
{
	int32_t n = 0;

	for (int32_t s = 0; s < rank; s++)
		n += s != own && serves(r, ids, s);
	return n;
}

/* Rows that may come back for a token. */
static int32_t back_rows(const struct bench_case *c)
{
	return c->combine == FERRY_EXACT || c->topk < c->n_ranks
	               ? c->topk
	               : c->n_ranks - 1;
}

/* One token's rows of a rank's dispatch or, from there back, of combine. */
static int64_t list_token(const struct raw_rank *r, int phase, int32_t owner,
                          int32_t expert_rank, int32_t token, size_t *to)
{
	const struct bench_case *c = r->c;
	const int32_t *ids = ids_of(r, owner, token);
	const size_t row = r->row_bytes[phase];
	const size_t first = (size_t)token * (size_t)back_rows(c);
	int64_t n = 0;

	if (!serves(r, ids, expert_rank))
		return 0;
	if (phase == BENCH_DISPATCH) {
		to[n++] = (size_t)owner * r->room[BENCH_DISPATCH] +
		          r->table_bytes + (size_t)token * row;
		return n;
	}
	if (c->combine != FERRY_EXACT) {
		to[n++] =
			(first + (size_t)ordinal(r, ids, expert_rank, owner)) *
			row;
		return n;
	}
	for (int32_t k = 0; k < c->topk; k++)
		if (ids[k] >= 0 && bench_owner(c, ids[k]) == expert_rank)
			to[n++] = (first + (size_t)k) * row;
	return n;
}

/* Where the rows from source to destination go, in their order; how many. */
static int64_t list_rows(const struct raw_rank *r, int phase, int32_t source,
                         int32_t destination, size_t *to)
{
	const bool there = phase == BENCH_DISPATCH;
	const int32_t owner = there ? source : destination;
	int64_t n = 0;

	for (int32_t t = 0; t < bench_tokens(r->c, owner); t++) {
		size_t some[64]; /* topk at most */
		const int64_t m = list_token(
			r, phase, owner, there ? destination : source, t, some);

		for (int64_t i = 0; to && i < m; i++)
			to[n + i] = some[i];
		n += m;
	}
	return n;
}

static void make_routing(struct raw_rank *r)
{
	const struct bench_case *c = r->c;
	const size_t n = (size_t)c->tokens * (size_t)c->topk;
	float *weights = alloc_or_exit(n, sizeof(*weights));

	r->ids = alloc_or_exit((size_t)c->n_ranks * n, sizeof(*r->ids));
	for (int32_t a = 0; a < c->n_ranks; a++)
		bench_make_routing(c, a, BENCH_TIMED_STEP,
		                   r->ids + (size_t)a * n, weights);
	free(weights);
}

static void list_all(struct raw_rank *r)
{
	const int32_t n = r->c->n_ranks;

	for (int p = 0; p < N_PHASES; p++)
		for (int32_t i = 0; i < n * n; i++) {
			if (i / n != i % n)
				r->n_rows[p][i] =
					list_rows(r, p, i / n, i % n, NULL);
			if (r->n_rows[p][i] > r->most)
				r->most = r->n_rows[p][i];
		}
	for (int p = 0; p < N_PHASES; p++) {
		r->to[p] = alloc_or_exit((size_t)n * (size_t)r->most,
		                         sizeof(*r->to[p]));
		for (int32_t peer = 0; peer < n; peer++)
			if (peer != r->me->rank)
				list_rows(r, p, r->me->rank, peer,
				          r->to[p] + (size_t)peer *
				                             (size_t)r->most);
	}
}

static void size_up(struct raw_rank *r)
{
	const struct bench_case *c = r->c;
	const size_t scales = (size_t)bench_scales(c) * sizeof(float);
	const size_t row = bench_row_bytes(c);
	const size_t tokens = (size_t)c->tokens;

	r->row_bytes[BENCH_DISPATCH] =
		scales ? round_up(row, SCALE_ALIGN) + scales : row;
	r->row_bytes[BENCH_COMBINE] = (size_t)c->hidden * 2;
	r->table_bytes = ferry_table_bytes(c->tokens, c->topk,
	                                   c->combine != FERRY_EXACT);
	r->room[BENCH_DISPATCH] = round_up(
		r->table_bytes + tokens * r->row_bytes[BENCH_DISPATCH], 4096);
	r->room[BENCH_COMBINE] =
		tokens * (size_t)back_rows(c) * r->row_bytes[BENCH_COMBINE];
}

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
		.seen = alloc_or_exit(N_PHASES * n, sizeof(*r->seen)),
		.items = alloc_or_exit(n, sizeof(*r->items)),
	};
	for (int p = 0; p < N_PHASES; p++)
		r->n_rows[p] = alloc_or_exit(n * n, sizeof(*r->n_rows[p]));
	size_up(r);
	make_routing(r);
	list_all(r);
	const size_t row =
		r->row_bytes[BENCH_DISPATCH] > r->row_bytes[BENCH_COMBINE]
			? r->row_bytes[BENCH_DISPATCH]
			: r->row_bytes[BENCH_COMBINE];
	const size_t stage_bytes = r->table_bytes + (size_t)r->most * row;

	r->stage = n * r->room[BENCH_DISPATCH] + r->room[BENCH_COMBINE];
	if (!crew_good(me,
	               ferry_segment_open(world, r->stage + stage_bytes,
	                                  (uint32_t)(N_PHASES * n),
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
	free(r->ids);
	for (int p = 0; p < N_PHASES; p++) {
		free(r->n_rows[p]);
		free(r->to[p]);
	}
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
	               : (size_t)r->c->n_ranks * r->room[BENCH_DISPATCH];
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
	const int64_t n = *rows_of(r, phase, r->me->rank, peer);
	const size_t *to = r->to[phase] + (size_t)peer * (size_t)r->most;
	const size_t row = r->row_bytes[phase];

	if (phase == BENCH_DISPATCH)
		FERRY_TRY(put_row(r, phase, peer,
		                  (size_t)r->me->rank * r->room[BENCH_DISPATCH],
		                  0, r->table_bytes));
	for (int64_t i = 0; i < n; i++)
		FERRY_TRY(put_row(r, phase, peer, to[i],
		                  r->table_bytes + (size_t)i * row, row));
	return FERRY_OK;
}

/* Everything that the others put in this phase of this step. */
static enum ferry_status await_all(struct raw_rank *r, int phase)
{
	int32_t n = 0;

	for (int32_t source = 0; source < r->c->n_ranks; source++) {
		const int32_t i = phase * r->c->n_ranks + source;
		uint64_t puts =
			(uint64_t)*rows_of(r, phase, source, r->me->rank) *
			pieces_of(r, r->row_bytes[phase]);

		if (source == r->me->rank)
			continue;
		if (phase == BENCH_DISPATCH)
			puts += pieces_of(r, r->table_bytes);
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
	const int64_t n = list_rows(r, phase, source, r->me->rank, to);
	const size_t row = r->row_bytes[phase];
	int64_t wrong = 0;

	for (int64_t k = 0; k < n; k++) {
		const uint8_t *got = r->base + phase_at(r, phase) + to[k];
		const size_t from = r->table_bytes + (size_t)k * row;

		for (size_t i = 0; i < row; i++)
			wrong += got[i] != pattern(source, from + i);
	}
	return wrong;
}

static void count_wrong(const struct raw_rank *r, struct raw_tally *tally)
{
	size_t *to = alloc_or_exit((size_t)r->most, sizeof(*to));

	for (int32_t source = 0; source < r->c->n_ranks; source++)
		for (int p = 0; source != r->me->rank && p < N_PHASES; p++)
			tally->wrong[p] += wrong_rows(r, p, source, to);
	free(to);
}

/* As Ferry's statistics count them: without padding and tables. */
static void count_bytes(const struct raw_rank *r, struct raw_tally *tally)
{
	const size_t scales = (size_t)bench_scales(r->c) * sizeof(float);
	const size_t bytes[N_PHASES] = {bench_row_bytes(r->c) + scales,
	                                r->row_bytes[BENCH_COMBINE]};

	for (int32_t peer = 0; peer < r->c->n_ranks; peer++)
		for (int p = 0; p < N_PHASES; p++)
			tally->wire_bytes[p] +=
				(size_t)*rows_of(r, p, r->me->rank, peer) *
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

	for (int p = 0; p < N_PHASES; p++) {
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
