/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving half of the lean dispatch kernel: tables and rows of peers as
 * they arrive, and counts.
 */
#ifndef FERRY_DISPATCH_LEAN_RECV_CUH
#define FERRY_DISPATCH_LEAN_RECV_CUH

#include "dispatch_lean_place.cuh"

/* For each warp, before it first looks for what peers send. */
static __device__ __forceinline__ void begin_wait(const struct lean *l)
{
	if (l->lane == 0)
		l->shared->waits[l->warp] =
			lean_wait(l->d, FERRY_PHASE_DISPATCH_RECV, l->epoch);
	__syncwarp();
}

/*
 * A header, without its last 8 bytes, which are reserved. By one team; others
 * look at its word of `tables`, which leaves 0 once, by an exchange.
 */
static __device__ __forceinline__ void
keep_head(const struct lean *l, uint32_t rank, uint64_t a, uint64_t b)
{
	const struct ferry_cuda_channel *ch = l->ch;
	uint64_t *to = (uint64_t *)&l->shared->heads[rank] + l->team_lane * 2;
	const uint32_t team = 0xffu << (l->lane & 24);

	to[0] = a;
	to[1] = b;
	__syncwarp(team);
	if (l->team_lane)
		return;
	const struct ferry_table *t = &l->shared->heads[rank];
	const bool good = t->n_tokens >= 0 && t->n_tokens <= ch->max_tokens &&
	                  t->topk >= 1 && t->topk <= ch->max_topk &&
	                  t->epoch == l->epoch &&
	                  (!t->has_weights || ch->send_weights);
	const uint32_t n = good ? (uint32_t)(t->n_tokens * t->topk) : 0;

	if (!good || t->mark_status || t->hidden != l->d->in.hidden ||
	    t->placement_hash != l->d->placement.hash)
		atomicOr(&l->shared->odd, LEAN_LOOK);
	const uint32_t n_lines =
		((uint32_t)sizeof(*t) + n * 4 + LINE_DATA - 1) / LINE_DATA;

	l->shared->n[rank] = n;
	atomicExch((unsigned long long *)&l->shared->tables[rank],
	           (unsigned long long)n << 32 | n_lines);
}

/*
 * This lane's share of line `line` > 0 of a table of n entries, four or two.
 * Almost no branches: those cost more than what they would save.
 */
static __device__ __forceinline__ void keep_entries(const struct lean *l,
                                                    uint32_t rank, uint32_t n,
                                                    uint32_t line, uint64_t a,
                                                    uint64_t b)
{
	const uint32_t n_slots = (uint32_t)l->ch->n_expert_slots;
	const uint32_t at = line * (LINE_DATA / 4) + l->team_lane * 4 -
	                    (uint32_t)sizeof(struct ferry_table) / 4;
	const uint32_t in[4] = {(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b,
	                        (uint32_t)(b >> 32)};
	/* Before the first entry, `at` is huge. Lane 7 has the epoch. */
	const uint32_t end = l->team_lane == 7 && at + 2 < n ? at + 2 : n;
	uint32_t *to = (uint32_t *)(lean_entries(l, rank) + (int32_t)at);
	uint32_t slot[4];
	bool bad = false;

#pragma unroll
	for (uint32_t i = 0; i < 4; i++) {
		const bool is_in = at + i < end;

		slot[i] = is_in && in[i] < n_slots ? in[i] : LEAN_NO_SLOT;
		bad |= is_in && in[i] >= n_slots && in[i] != 0xffffffffu;
	}
	if (at < end)
		to[0] = slot[0] | slot[1] << 16;
	if (at + 2 < end)
		to[1] = slot[2] | slot[3] << 16;
	if (l->counts)
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			/* Behind the counts there is one for none. */
			atomicAdd(&lean_counts(l)[slot[i] < n_slots ? slot[i]
			                                            : n_slots],
			          1);
	if (!bad)
		return;
	atomicOr(&l->shared->bad_slots, 1u << rank);
	atomicOr(&l->shared->odd, LEAN_LOOK);
}

/* Rows of peers: this lane's share of line 0. */
static __device__ __forceinline__ const unsigned char *
row_in(const struct lean *l, uint32_t source, uint32_t token)
{
	return l->a->row_in[source] + l->row_half +
	       (size_t)token * l->ch->row_stride + l->team_lane * 16;
}

static __device__ __forceinline__ void keep_line(const struct lean *l,
                                                 unsigned char *image,
                                                 uint32_t line, uint64_t a,
                                                 uint64_t b)
{
	uint64_t *to =
		(uint64_t *)(image + line * LINE_DATA + l->team_lane * 16);

	to[0] = a;
	if (l->team_lane != 7)
		to[1] = b;
}

/* Two lines of a row that are looked at while tables are waited for. */
struct lean_guess {
	bool is_on;
	const unsigned char *row;
	unsigned char *image;
	uint32_t here; /* bits: line team + i * LEAN_TEAMS is kept */
};

static __device__ __forceinline__ struct lean_guess
guess_row(const struct lean *l)
{
	const uint32_t other = l->own ? 0 : 1;
	struct lean_guess g;

	g.is_on = l->ch->n_ranks == 2 && l->works;
	g.row = row_in(l, other, l->worker);
	g.image = lean_row(l, 0, other);
	g.here = 0;
#pragma unroll
	for (uint32_t i = 0; i < 2; i++)
		if (!g.is_on || l->team + i * LEAN_TEAMS >= l->a->row_lines)
			g.here |= 1u << i;
	return g;
}

static __device__ __forceinline__ void load_guess(const struct lean *l,
                                                  const struct lean_guess *g,
                                                  uint64_t *a, uint64_t *b)
{
#pragma unroll
	for (uint32_t j = 0; j < 2; j++)
		if (!(g->here >> j & 1))
			load_volatile_16(g->row + (l->team + j * LEAN_TEAMS) *
			                                  LINE_BYTES,
			                 &a[j], &b[j]);
}

static __device__ __forceinline__ void keep_guess(const struct lean *l,
                                                  struct lean_guess *g,
                                                  const uint64_t *a,
                                                  const uint64_t *b)
{
#pragma unroll
	for (uint32_t j = 0; j < 2; j++)
		if (line_flagged(l->lane, l->epoch, b[j])) {
			keep_line(l, g->image, l->team + j * LEAN_TEAMS, a[j],
			          b[j]);
			g->here |= 1u << j;
		}
}

/* All lines of the peers' tables but weights. False: the channel has ended. */
static __device__ __forceinline__ bool
receive_tables(const struct lean *l, uint32_t likely, struct lean_guess *g)
{
	const volatile struct lean_shared *shared = l->shared;
	const uint32_t n =
		(uint32_t)(l->ch->n_ranks - 1) * l->a->by_table_lines.by;
	uint32_t n_looks = 0;

#pragma unroll 1
	for (uint32_t i = l->team; i - l->team < n; i += LEAN_TEAMS) {
		const uint32_t q =
			i < n ? lean_quotient(i, l->a->by_table_lines) : 0;
		const uint32_t line = i - q * l->a->by_table_lines.by;
		const uint32_t rank = q < l->own ? q : q + 1;
		const unsigned char *at = l->a->table_in[rank] + l->table_half +
		                          (size_t)line * LINE_BYTES +
		                          l->team_lane * 16;
		bool wanted = i < n, is_here = false;
		uint64_t a = 0, b = 0;

		for (;;) {
			const uint64_t table = shared->tables[rank];
			const uint32_t known = (uint32_t)table;
			const bool looks =
				wanted && !is_here &&
				(known ? line < known : line < likely);
			uint64_t ra[2], rb[2] = {~l->epoch, ~l->epoch};

			if (looks)
				load_volatile_16(at, &a, &b);
			load_guess(l, g, ra, rb);
			is_here = line_flagged(l->lane, l->epoch, b) &&
			          (looks || is_here);
			keep_guess(l, g, ra, rb);
			if (known && line >= known)
				wanted = false;
			if (wanted && is_here && line == 0) {
				keep_head(l, rank, a, b);
				wanted = false;
			} else if (wanted && is_here && known) {
				keep_entries(l, rank, (uint32_t)(table >> 32),
				             line, a, b);
				wanted = false;
			}
			/* The rank of a lane that waits. */
			const uint32_t lanes =
				__ballot_sync(0xffffffffu, wanted);

			if (!lanes)
				break;
			if (!lean_again(l, &n_looks,
			                __shfl_sync(0xffffffffu, rank,
			                            __ffs((int)lanes) - 1)))
				return false;
		}
	}
	return true;
}

/* A row of a peer, but for the lines in `here`. False: the end. */
static __device__ __forceinline__ bool
receive_row(const struct lean *l, uint32_t unit, uint32_t source,
            uint32_t token, uint32_t here)
{
	enum { OPEN = 2 };
	const unsigned char *row = row_in(l, source, token);
	unsigned char *image = lean_row(l, unit, source);
	uint32_t n_looks = 0;

#pragma unroll 1
	for (uint32_t i = l->team; i - l->team < l->a->row_lines;
	     i += OPEN * LEAN_TEAMS) {
		bool all;

#pragma unroll
		for (uint32_t j = 0; j < OPEN; j++)
			if (i + j * LEAN_TEAMS >= l->a->row_lines)
				here |= 1u << j;
		do {
			uint64_t a[OPEN], b[OPEN] = {~l->epoch, ~l->epoch};

#pragma unroll
			for (uint32_t j = 0; j < OPEN; j++)
				if (!(here >> j & 1))
					load_volatile_16(
						row + (i + j * LEAN_TEAMS) *
								LINE_BYTES,
						&a[j], &b[j]);
#pragma unroll
			for (uint32_t j = 0; j < OPEN; j++)
				if (line_flagged(l->lane, l->epoch, b[j])) {
					keep_line(l, image, i + j * LEAN_TEAMS,
					          a[j], b[j]);
					here |= 1u << j;
				}
			all = __all_sync(0xffffffffu, here == 3);
			if (!all && !lean_again(l, &n_looks, source))
				return false;
		} while (!all);
		here = 0;
	}
	return true;
}

/* The rows of peers that are served here. False: the channel has ended. */
static __device__ __forceinline__ bool receive_rows(const struct lean *l,
                                                    const struct lean_guess *g)
{
	const uint32_t n_ranks = (uint32_t)l->ch->n_ranks;

#pragma unroll 1
	for (uint32_t u = 0; u < l->a->n_units; u++) {
		const uint32_t token = l->worker + u * l->a->n_workers;

#pragma unroll 1
		for (uint32_t s = 0; s < n_ranks; s++) {
			const struct ferry_table *head = &l->shared->heads[s];
			const uint32_t topk = (uint32_t)head->topk;
			uint32_t slot = LEAN_NO_SLOT;

			if (s == l->own || (int32_t)token >= head->n_tokens)
				continue;
			if (l->lane < topk)
				slot = lean_entries(l,
				                    s)[token * topk + l->lane];
			if (!__any_sync(
				    0xffffffffu,
				    lean_own_slot(l, slot) <
					    (uint32_t)l->ch->own_expert_slots))
				continue;
			if (!receive_row(l, u, s, token,
			                 u == 0 && g->is_on ? g->here : 0))
				return false;
		}
	}
	return true;
}

/* Rows of peers to their places, by the warps that placed them. */
static __device__ __forceinline__ void deliver_rows(const struct lean *l)
{
	const uint32_t n = n_tasks(l);

#pragma unroll 1
	for (uint32_t i = l->warp; i < n && l->lane == 0; i += LEAN_WARPS) {
		const int64_t row = task_rows(l)[i];
		const struct lean_task t = task_of(l, i);

		if (row >= 0 && t.source != l->own)
			deliver(l, lean_row(l, t.unit, t.source), row);
	}
}

/* After the tables are in: may the block go on? */
static __device__ __forceinline__ bool is_agreed(const struct lean *l)
{
	const uint32_t odd = l->shared->odd;

	if (!odd)
		return true;
	if (odd & LEAN_FAILED)
		return false;
	return !lean_any(l->thread == 0 && lean_refuses(l->a, l->shared));
}

/* Does a rank lack room? By the whole clerk. */
static __device__ __forceinline__ bool finds_overflow(const struct lean *l)
{
	const struct ferry_cuda_channel *ch = l->ch;
	bool lacks = false;

	if (!ch->bounded)
		return false;
#pragma unroll 1
	for (int32_t s = (int32_t)l->thread; s < ch->n_expert_slots;
	     s += LEAN_THREADS)
		if (lean_counts(l)[s] > ch->padded_rows) {
			atomicMin(&l->shared->bad_rank,
			          (uint32_t)rank_of_slot(ch, s));
			lacks = true;
		}
	if (!lean_any(lacks))
		return false;
	if (l->thread == 0)
		lean_overflows(l->a, l->shared, lean_counts(l));
	lean_sync();
	return true;
}

/* Offsets of the slots that the lanes of a warp have, and their counts. */
static __device__ __forceinline__ void tell_slots(const struct lean *l)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const struct ferry_dispatch_out *out = &l->d->out;
	const uint32_t *counts = lean_counts(l) + ch->first_slot[l->own];
	const uint32_t s = l->thread, n = (uint32_t)ch->own_expert_slots;
	const uint32_t count = s < n ? counts[s] : 0;
	const uint32_t rows = aligned_rows(ch, count);
	uint32_t sum = rows, before = 0;

#pragma unroll
	for (uint32_t i = 1; i < 32; i *= 2) {
		const uint32_t below = __shfl_up_sync(0xffffffffu, sum, i);

		sum += l->lane >= i ? below : 0;
	}
#pragma unroll 1
	for (uint32_t i = l->lane; i < l->warp * 32; i += 32)
		before += aligned_rows(ch, counts[i]);
	sum += __reduce_add_sync(0xffffffffu, before) - rows;
	if (s <= n) {
		l->d->op.offsets[s] = sum;
		if (out->offsets)
			out->offsets[s] = ch->layout == FERRY_EXPERT_PADDED
			                          ? s * ch->padded_rows
			                          : sum;
	}
	if (s < n && out->counts)
		out->counts[s] = (int32_t)count;
}

/* What there is one of, by the last warp. */
static __device__ __forceinline__ void tell_totals(const struct lean *l)
{
	const struct ferry_dispatch_out *out = &l->d->out;
	const uint32_t *counts = lean_counts(l) + l->ch->first_slot[l->own];
	uint32_t n = 0;

#pragma unroll 4
	for (uint32_t s = l->lane; s < (uint32_t)l->ch->own_expert_slots;
	     s += 32)
		n += counts[s];
	n = __reduce_add_sync(0xffffffffu, n);
	if (l->lane < (uint32_t)l->ch->n_ranks)
		l->d->op.n_tokens[l->lane] = l->shared->heads[l->lane].n_tokens;
	if (l->lane == 0 && out->n_rows)
		*out->n_rows = n;
	if (l->lane == 0 && out->n_dropped)
		*out->n_dropped = 0;
}

/* Counts and offsets, by the clerk. False: the channel has ended. */
static __device__ __forceinline__ bool tell_counts(const struct lean *l)
{
	const bool has_slots =
		l->warp * 32 <= (uint32_t)l->ch->own_expert_slots;
	const bool is_last = l->warp == LEAN_WARPS - 1;
	bool broken = false;

	if (has_slots)
		tell_slots(l);
	if (is_last)
		tell_totals(l);
	LEAN_MARK(l, 11);
	if (has_slots || is_last) {
		/* Orders them before the look, as lean_clear does after. */
		fence_sc_gpu();
		broken = is_broken(l->ch);
	}
	return !lean_any(broken);
}

#endif
