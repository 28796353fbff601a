/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recv of the lean dispatch kernel as a launch of its own: usually everything
 * is here. So each line is asked for once, without a loop; a block that has all
 * of its rows then delivers them as it places them. Whatever is not here yet is
 * waited for behind that. With few loads that wait for each other, what counts
 * is how many instructions sixteen warps share.
 */
#ifndef FERRY_DISPATCH_LEAN_ALONE_CUH
#define FERRY_DISPATCH_LEAN_ALONE_CUH

#include "dispatch_lean_begin.cuh"
#include "dispatch_lean_recv.cuh"
#include "dispatch_lean_token.cuh"

enum {
	LEAN_ASKS = 2, /* ranks of whose tables a team has a line at once */
	LEAN_LOADER = LEAN_READER - 32, /* the thread that loads own rows */
};

/* None before it is known which they are: places are counted across gaps. */
static __device__ __forceinline__ void clear_entries(const struct lean *l)
{
	uint4 *to = (uint4 *)lean_entries(l, 0);

#pragma unroll 1
	for (uint32_t i = l->thread;
	     i < l->a->by_ranks.by * l->a->at.entry_stride / 8;
	     i += LEAN_THREADS)
		to[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
}

/* On its way. */
struct lean_asked {
	uint64_t a[LEAN_ASKS], b[LEAN_ASKS]; /* lines of tables */
	uint64_t row_a[2], row_b[2];         /* lines of a peer's row */
	uint64_t flag;                       /* TOKEN */
	struct lean_piece piece;             /* quantised: of the own row */
	uint32_t n_tokens;                   /* own ones */
};

/* Tables in turn begin with the first and the middle team. */
static __device__ __forceinline__ uint32_t asked_line(const struct lean *l,
                                                      uint32_t rank)
{
	return l->team ^ (rank & 1) * (LEAN_TEAMS / 2);
}

/* Tokens of the own batch. */
static __device__ __forceinline__ uint32_t asked_tokens(const struct lean *l)
{
	const struct ferry_cuda_dispatch *d = l->d;
	const int32_t n =
		d->in.n_tokens_ptr ? *d->op.own_count : d->in.n_tokens;

	return (uint32_t)n <= (uint32_t)l->ch->max_tokens ? (uint32_t)n : 0;
}

/* Own rows by the copy engine; whoever reads them waits for own_rows. */
static __device__ __forceinline__ void load_own_rows(const struct lean *l)
{
	const struct ferry_dispatch_in *in = &l->d->in;
	uint64_t *barrier = &l->shared->own_rows;
	const uint32_t n_tokens = l->works ? asked_tokens(l) : 0;

	barrier_init(barrier, 1);
	fence_proxy_async_shared();
#pragma unroll 1
	for (uint32_t u = 0; u < l->a->n_units; u++) {
		const size_t token = token_of(l, u);
		unsigned char *image = lean_own_row(l, u);

		if (token >= n_tokens)
			break;
		barrier_more(barrier, l->a->image_bytes);
		bulk_load(image,
		          (const unsigned char *)in->x + token * in->x_stride,
		          l->a->row_bytes, barrier);
		if (l->a->scale_bytes)
			bulk_load(image + l->a->row_bytes,
			          (const unsigned char *)in->scales +
			                  token * in->scales_stride,
			          l->a->scale_bytes, barrier);
	}
	barrier_arrive(barrier);
}

/* What needs no epoch. */
template <bool TOKEN>
static __device__ __forceinline__ void ask_early(const struct lean *l,
                                                 struct lean_asked *k)
{
	if (TOKEN)
		return;
	if (!l->ch->quantize) {
		if (l->thread == LEAN_LOADER)
			load_own_rows(l);
		return;
	}
	k->n_tokens = asked_tokens(l);
	if (l->works && l->worker < k->n_tokens)
		k->piece = load_piece(l, l->worker, 0);
}

template <bool TOKEN>
static __device__ __forceinline__ void
ask(const struct lean *l, const struct lean_guess *g, struct lean_asked *k)
{
	const uint32_t at = l->thread * 16;

#pragma unroll
	for (uint32_t r = 0; r < LEAN_ASKS; r++) {
		k->a[r] = 0;
		k->b[r] = ~l->epoch;
		if (r < l->a->by_ranks.by &&
		    asked_line(l, r) < l->a->by_table_lines.by)
			load_volatile_16(
				l->a->table_in[r] + l->table_half +
					(at ^ (r & 1) * (LEAN_THREADS * 8)),
				&k->a[r], &k->b[r]);
	}
	k->row_b[0] = k->row_b[1] = k->flag = ~l->epoch;
	if (TOKEN)
		k->flag = first_flag(l);
	else
		load_guess(l, g, k->row_a, k->row_b);
}

/* Headers that are here, by the warps that have them. */
static __device__ __forceinline__ void keep_heads(const struct lean *l,
                                                  const struct lean_asked *k)
{
	const uint32_t r = l->warp / (LEAN_WARPS / 2);
	const uint64_t a = r ? k->a[1] : k->a[0];
	const uint64_t b = r ? k->b[1] : k->b[0];

	if (l->warp % (LEAN_WARPS / 2) == 0 &&
	    line_flagged(l->lane, l->epoch, b) &&
	    l->team % (LEAN_TEAMS / 2) == 0)
		keep_head(l, r, a, b);
}

/* Entries that are here. Bits: ranks of which this team's line is not. */
static __device__ __forceinline__ uint32_t
keep_asked(const struct lean *l, const struct lean_asked *k)
{
	uint32_t missing = l->a->by_ranks.by > LEAN_ASKS ? 1u << LEAN_ASKS : 0;

#pragma unroll 1
	for (uint32_t r = 0; r < LEAN_ASKS; r++) {
		const uint32_t line = asked_line(l, r);
		const uint64_t a = r ? k->a[1] : k->a[0];
		const uint64_t b = r ? k->b[1] : k->b[0];

		if ((line & ~3u) >= l->a->by_table_lines.by)
			continue;
		const uint64_t table = l->shared->tables[r];
		const uint32_t known = (uint32_t)table;
		const bool is_here = line_flagged(l->lane, l->epoch, b);

		if (line < known && line && is_here)
			keep_entries(l, r, (uint32_t)(table >> 32), line, a, b);
		else if (!known || (line < known && line))
			missing |= 1u << r;
		if (known > LEAN_TEAMS)
			missing |= 1u << LEAN_ASKS;
	}
	return missing;
}

/* One line of a table of each team. False: the channel has ended. */
static __device__ __forceinline__ bool
receive_line(const struct lean *l, uint32_t rank, uint32_t line, bool wanted)
{
	const volatile struct lean_shared *shared = l->shared;
	const unsigned char *at = l->a->table_in[rank] + l->table_half +
	                          (size_t)line * LINE_BYTES + l->team_lane * 16;
	uint32_t n_looks = 0;

	for (;;) {
		const uint64_t table = shared->tables[rank];
		const uint32_t known = (uint32_t)table;
		uint64_t a = 0, b = ~l->epoch;

		if (known && line >= known)
			wanted = false;
		if (wanted)
			load_volatile_16(at, &a, &b);
		if (line_flagged(l->lane, l->epoch, b)) {
			if (line == 0)
				keep_head(l, rank, a, b);
			else if (known)
				keep_entries(l, rank, (uint32_t)(table >> 32),
				             line, a, b);
			if (line == 0 || known)
				wanted = false;
		}
		if (!__any_sync(0xffffffffu, wanted))
			return true;
		if (!lean_again(l, &n_looks, rank))
			return false;
	}
}

/*
 * Lines of tables that were not there, or not asked for, at the first look.
 * False: the channel has ended.
 */
static __device__ __forceinline__ bool receive_rest(const struct lean *l,
                                                    uint32_t missing)
{
	const uint32_t n = l->a->by_table_lines.by;

#pragma unroll 1
	for (uint32_t r = 0; r < l->a->by_ranks.by; r++)
#pragma unroll 1
		for (uint32_t first = 0; first < n; first += LEAN_TEAMS) {
			const uint32_t line = first + asked_line(l, r);
			const bool asked = r < LEAN_ASKS && first == 0;

			if (!receive_line(l, r, line,
			                  line < n &&
			                          (!asked || missing >> r & 1)))
				return false;
		}
	return true;
}

/* All tables, and may they be used? False: the channel has ended. */
static __device__ __forceinline__ bool agree_alone(const struct lean *l,
                                                   uint32_t missing)
{
	if (__builtin_expect(lean_any(missing), 0)) {
		if (!receive_rest(l, missing) && l->lane == 0)
			atomicOr(&l->shared->odd, LEAN_FAILED);
		lean_sync();
	}
	LEAN_MARK(l, 6);
	return is_agreed(l) &&
	       (!l->is_clerk || (!finds_overflow(l) && tell_counts(l)));
}

/* False: the channel has ended. */
static __device__ __forceinline__ bool receive_alone(const struct lean *l,
                                                     struct lean_asked *k)
{
	struct lean_guess g = guess_row(l);

	ask<false>(l, &g, k);
	begin_wait(l);
	if (l->ch->quantize)
		stage_rows(l, k->piece, k->n_tokens);
	keep_heads(l, k);
	LEAN_MARK(l, 2);
	lean_sync();
	LEAN_MARK(l, 12);
	const uint32_t missing = keep_asked(l, k);

	keep_guess(l, &g, k->row_a, k->row_b);
	if (g.here != 3)
		l->shared->late = 1;
	fence_proxy_async_shared();
	LEAN_MARK(l, 5);
	if (!agree_alone(l, missing))
		return false;
	if (!l->works)
		return true;
	const bool all_here = !l->shared->late && g.is_on &&
	                      l->a->n_units == 1 &&
	                      l->a->row_lines <= 2 * LEAN_TEAMS;
	bool good = place_all<false, LEAN_RECV>(l, all_here);

	LEAN_MARK(l, 7);
	if (all_here)
		return !l->d->op.weights || !lean_any(!good);
	good = good && receive_rows(l, &g);
	LEAN_MARK(l, 8);
	fence_proxy_async_shared();
	if (lean_any(!good))
		return false;
	LEAN_MARK(l, 9);
	deliver_rows(l);
	return true;
}

/* The same of TOKEN. */
static __device__ __forceinline__ bool receive_views_alone(const struct lean *l,
                                                           struct lean_asked *k)
{
	const struct lean_guess none = {false, NULL, NULL, 3};

	ask<true>(l, &none, k);
	begin_wait(l);
	keep_heads(l, k);
	LEAN_MARK(l, 2);
	lean_sync();
	LEAN_MARK(l, 12);
	const uint32_t missing = keep_asked(l, k);

	LEAN_MARK(l, 5);
	if (!agree_alone(l, missing))
		return false;
	if (!l->works)
		return true;
	bool good = place_all<true, LEAN_RECV>(l, false);

	end_index(l);

	LEAN_MARK(l, 7);
	good = good && await_rows<LEAN_RECV>(l, k->flag);
	LEAN_MARK(l, 8);
	return !lean_any(!good);
}

#endif
