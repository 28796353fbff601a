/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine for few tokens: rows come back as lines that carry their flag.
 *
 * Does
 *	parts SEND: sends the expert outputs back to every rank of the token's
 *	group: EXACT a row per (token, choice), REDUCED a row per (token, rank),
 *	summed here and rounded once. parts RECV: waits for what comes and
 *	writes the sum of each own token. Both in one launch: fused.
 * Buffers
 *	y: the caller's. What own tokens need of it never passes the window.
 *	op->copies, weights, offsets, n_tokens, own_slots, own_weights, dropped:
 *	left by dispatch, read here.
 *	back[token][j], windows of the token's group: lines; written by the
 *	experts' ranks, read by the owner. EXACT: j is the choice. REDUCED: the
 *	sender among the ranks other than the receiver where `back` has a row
 *	for each, else the sender's first choice that is kept.
 * Steps
 *	1. op->slot: epoch, state; poison            relaxed
 *	2. a ticket for each block; the last one moves the state on
 *	3. y -> back: a line of 128 bytes at once    volatile, partner 4
 *	4. back, until the line has the epoch        volatile, partner 3
 *	5. own rows and lines -> out                 plain
 * Flags
 *	The last 8 bytes of each line: the whole epoch. Never reset.
 * Threads
 *	A warp takes 4 neighbouring lines of a token, one block of 16 bytes a
 *	lane, and knows all of the token's choices; no warp waits for another.
 *	In a fused block a few warps send and wait for nobody, the others sum.
 * Waits
 *	4, bounded by timeout_ns (wait.cuh).
 * Cost
 *	A chain of launch, three dependent loads, a flight, and the wire; the
 *	own rows are summed while lines fly. dev/cuda-combine.md.
 *
 * Two lines carry 15 blocks of the row, 240 bytes: lanes 0..6 of the first
 * line blocks 0..6, of the second line 7..13, and the two lanes 7 share block
 * 14, 8 bytes each. So all accesses to rows are of 16 bytes. A single last
 * line has its bytes in order.
 */
#include <cuda_runtime_api.h>

#include "combine_terms.cuh"
#include "cuda_kernels.h"
#include "line.cuh"

enum {
	N_WARPS = 16,
	/*
	 * Warps of a fused block that send. Whatever the others load waits
	 * behind their stores, which the wire takes at its own pace: 128
	 * tokens PRESUMMED, REDUCED, EXACT take 11.9, 19.7, 31.8 us with 4,
	 * 11.9, 16.2, 32.4 with 6, 14.8, 18.0, 35.3 with 8; when each warp
	 * sends and then sums 13.3, 16.3, 34.7 (two H200s, 2026-11-30).
	 */
	SENDERS = 6,
	THREADS = N_WARPS * 32,
	WARP_LINES = 32 / LINE_LANES,
	PAIR_BYTES = 2 * LINE_DATA,
	SHARED_AT = 14 * BLOCK_BYTES, /* the block of both lanes 7 */
};

/* What a lane has of the lines of a row. */
struct piece {
	int32_t line;  /* -1: the row is shorter */
	int32_t at;    /* of its block in the row */
	int32_t bytes; /* of the block within the row, at most 16 */
	bool upper;    /* its line has the upper half of the block */
};

static __device__ __forceinline__ struct piece
piece_of(int32_t lane, int32_t part, int32_t row_bytes)
{
	const int32_t line = part * WARP_LINES + lane / LINE_LANES;
	const int32_t place = lane % LINE_LANES;
	const int32_t base = line / 2 * PAIR_BYTES;
	const bool second = line % 2;
	const bool shared =
		place == LINE_LANES - 1 && row_bytes - base > LINE_DATA;
	const int32_t at = shared   ? SHARED_AT
	                   : second ? (place + 7) * BLOCK_BYTES
	                            : place * BLOCK_BYTES;
	struct piece p;

	p.line = line * LINE_DATA < row_bytes ? line : -1;
	p.at = base + at;
	p.bytes = p.line < 0
	                  ? 0
	                  : max(0, min(row_bytes - p.at, (int32_t)BLOCK_BYTES));
	p.upper = shared && second;
	return p;
}

static __device__ __forceinline__ void store_piece(unsigned char *row,
                                                   const struct piece *p,
                                                   int32_t lane, uint4 v,
                                                   uint64_t epoch)
{
	const uint64_t low = v.x | (uint64_t)v.y << 32;
	const uint64_t high = v.z | (uint64_t)v.w << 32;

	if (p->line >= 0)
		line_store(row + (size_t)p->line * LINE_BYTES,
		           (uint32_t)(lane % LINE_LANES), p->upper ? high : low,
		           high, epoch);
}

/* Stores a block of a row to all ranks of a group but this one. */
template <int HOW>
static __device__ __forceinline__ void
store_to_group(const struct combine *c, int32_t group, int32_t token,
               int32_t first_choice, const struct piece *p, uint4 v)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t first = group * ch->group_size;

#pragma unroll 1
	for (int32_t r = first; r < first + ch->group_size; r++) {
		if (r == ch->rank)
			continue;
		store_piece(back_row_of<HOW>(c, r, token, first_choice), p,
		            c->lane, v, c->epoch);
	}
}

template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
send_exact(const struct combine *c, struct choice x, int32_t group,
           int32_t token, const struct piece *p)
{
	struct terms t;

#pragma unroll 1
	for (int32_t base = 0; base < (HOW == HOW_ANY ? c->a->topk : 1);
	     base += 32) {
		if (base)
			x = load_choice(c, group, token, base);
		if (!here_terms(c, &x, token, base, &t))
			return false;
#pragma unroll 1
		for (uint32_t left = t.all; left;) {
			int32_t from[IN_FLIGHT];
			uint4 v[IN_FLIGHT];

#pragma unroll
			for (int i = 0; i < IN_FLIGHT; i++) {
				from[i] = next_lane(&left);
				if (from[i] >= 0)
					v[i] = load_block<DTYPE,
					                  HOW != HOW_ANY>(
						row_of_lane(&t, from[i]) +
							p->at,
						p->bytes);
			}
#pragma unroll
			for (int i = 0; i < IN_FLIGHT; i++)
				if (from[i] >= 0)
					store_to_group<HOW>(c, group, token,
					                    base + from[i], p,
					                    v[i]);
		}
	}
	return true;
}

template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
send_part(const struct combine *c, const struct choice *x, int32_t group,
          int32_t token, const struct piece *p)
{
	const int32_t first = first_here<HOW>(c, x, group, token);
	uint4 v;

	if (first < 0)
		return true;
	if (!part_blocks<DTYPE, HOW, 1, 2 * IN_FLIGHT>(c, *x, group, token,
	                                               p->at, 0, &v))
		return false;
	store_to_group<HOW>(c, group, token, first, p, v);
	return true;
}

/*
 * Items are (token, part of its lines), numbered through all groups. x was
 * loaded for the first item of this warp, if that is of the first group.
 */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
send_all(const struct combine *c, int32_t item, int32_t step, int32_t n_parts,
         struct choice x)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	bool loaded = true;

#pragma unroll 1
	for (int32_t i = 1; i <= ch->n_groups; i++) {
		const int32_t group = nth_group(c, i);

		if (!has_receivers(c, group))
			continue;
		const int32_t n = c->shared->n_tokens[group] * n_parts;

#pragma unroll 1
		for (; item < n; item += step) {
			const int32_t token = item / n_parts;
			const struct piece p =
				piece_of(c->lane, item % n_parts,
			                 (int32_t)c->a->row_bytes);

			if (!loaded)
				x = load_choice(c, group, token, 0);
			const struct choice now = x;

			loaded = item + step < n;
			if (loaded)
				x = load_choice(c, group,
				                (item + step) / n_parts, 0);
			if (!(is_exact<HOW>(c)
			              ? send_exact<DTYPE, HOW>(c, now, group,
			                                       token, &p)
			              : send_part<DTYPE, HOW>(c, &now, group,
			                                      token, &p)))
				return false;
		}
		item -= n;
		loaded = false;
	}
	return true;
}

/* One look at this lane's share; true on all lanes when the line is there. */
static __device__ __forceinline__ bool look(const unsigned char *row,
                                            const struct piece *p, int32_t lane,
                                            uint64_t epoch, uint64_t *a,
                                            uint64_t *b)
{
	const uint32_t place = (uint32_t)(lane % LINE_LANES);
	const int32_t line = max(p->line, 0);

	return line_load(row + (size_t)line * LINE_BYTES, place, epoch,
	                 ALL_LANES, a, b);
}

/* This lane's block: the first of two lines gets the half of the second. */
static __device__ __forceinline__ uint4 block_of(uint64_t a, uint64_t b,
                                                 int32_t lane)
{
	const uint64_t other = __shfl_down_sync(ALL_LANES, a, LINE_LANES);

	if (lane % LINE_LANES == LINE_LANES - 1)
		b = other;
	return make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b,
	                  (uint32_t)(b >> 32));
}

/*
 * The lines of the terms in `missing`, bits of from[]. False: the channel has
 * ended.
 */
static __device__ __forceinline__ bool
look_until_there(const struct combine *c, const struct terms *t,
                 const struct piece *p, const int32_t from[IN_FLIGHT],
                 uint32_t missing, struct wait *w, uint4 v[IN_FLIGHT])
{
#pragma unroll 1
	while (missing) {
		uint64_t a[IN_FLIGHT], b[IN_FLIGHT];
		bool there[IN_FLIGHT];

#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++)
			if (missing >> i & 1)
				there[i] =
					look(row_of_lane(t, from[i]), p,
				             c->lane, c->epoch, &a[i], &b[i]);
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++)
			if (missing >> i & 1 &&
			    __all_sync(ALL_LANES, there[i] || p->line < 0)) {
				v[i] = block_of(a[i], b[i], c->lane);
				missing &= ~(1u << i);
			}
		if (!missing)
			break;
		int32_t awaited = 0;

#pragma unroll
		for (int i = IN_FLIGHT - 1; i >= 0; i--)
			if (missing >> i & 1)
				awaited = from[i];
		const int32_t peer = __shfl_sync(ALL_LANES, t->rank, awaited);

		if (!__all_sync(ALL_LANES, wait_again(w, peer)))
			return false;
	}
	return true;
}

/* Adds terms as they come, in order. False: the channel has ended. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
add_terms(const struct combine *c, const struct terms *t, uint4 own,
          const struct piece *p, float acc[BLOCK_MOST])
{
	struct wait w = wait_begin(&c->a->ch, FERRY_PHASE_COMBINE_RECV,
	                           c->a->slot, c->epoch);

#pragma unroll 1
	for (uint32_t left = t->all; left;) {
		int32_t from[IN_FLIGHT];
		uint4 v[IN_FLIGHT];
		uint32_t missing = 0;

#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) {
			from[i] = next_lane(&left);
			if (from[i] < 0)
				continue;
			if (t->comes >> from[i] & 1)
				missing |= 1u << i;
			else if (from[i] == t->own)
				v[i] = own;
			else
				v[i] = load_block<DTYPE, HOW != HOW_ANY>(
					row_of_lane(t, from[i]) + p->at,
					p->bytes);
		}
		if (!look_until_there(c, t, p, from, missing, &w, v))
			return false;
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++)
			if (from[i] >= 0)
				add_block<DTYPE>(acc, v[i],
				                 __shfl_sync(ALL_LANES,
				                             t->weight,
				                             from[i]));
	}
	return true;
}

template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
sum_exact(const struct combine *c, struct own_choice x, int32_t token,
          const struct piece *p, float acc[BLOCK_MOST])
{
	struct terms t;

#pragma unroll 1
	for (int32_t base = 0; base < (HOW == HOW_ANY ? c->a->topk : 1);
	     base += 32) {
		if (base)
			x = load_own_choice(c, token, base);
		if (!exact_terms(c, &x, token, base, &t) ||
		    !add_terms<DTYPE, HOW>(c, &t, make_uint4(0, 0, 0, 0), p,
		                           acc))
			return false;
	}
	return true;
}

/* The own part first: the others fly meanwhile. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
sum_reduced(const struct combine *c, const struct own_choice *x, int32_t token,
            const struct piece *p, float acc[BLOCK_MOST])
{
	struct rank_walk walk;
	struct terms t;
	uint4 own;

	if (!part_blocks<DTYPE, HOW, 1, 2 * IN_FLIGHT>(
		    c, x->here, c->a->ch.group, token, p->at, 0, &own))
		return false;
	walk = walk_begin<HOW>(c, x, token);
#pragma unroll 1
	while (reduced_terms(c, &walk, token, &t))
		if (!add_terms<DTYPE, HOW>(c, &t, own, p, acc))
			return false;
	return true;
}

template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
receive_all(const struct combine *c, int32_t item, int32_t step,
            int32_t n_parts, struct own_choice x)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t n = c->shared->n_tokens[ch->group] * n_parts;
	bool loaded = true;

#pragma unroll 1
	for (; item < n; item += step) {
		const int32_t token = item / n_parts;
		const struct piece p = piece_of(c->lane, item % n_parts,
		                                (int32_t)c->a->row_bytes);
		float acc[BLOCK_MOST] = {0};

		if (!loaded)
			x = load_own_choice(c, token, 0);
		const struct own_choice now = x;

		loaded = item + step < n;
		if (loaded)
			x = load_own_choice(c, (item + step) / n_parts, 0);
		if (!(is_exact<HOW>(c)
		              ? sum_exact<DTYPE, HOW>(c, now, token, &p, acc)
		              : sum_reduced<DTYPE, HOW>(c, &now, token, &p,
		                                        acc)))
			return false;
		finish_block<DTYPE, HOW != HOW_ANY>(c->a, token, p.at,
		                                    p.upper ? 0 : p.bytes, acc);
	}
	return true;
}

template <int DTYPE, int HOW>
static __global__ void __launch_bounds__(THREADS, 1)
	combine_lines(const __grid_constant__ struct ferry_cuda_combine a)
{
	__shared__ struct combine_shared shared;
	const bool sends = a.parts & FERRY_CUDA_SEND;
	const bool receives = a.parts & FERRY_CUDA_RECV;
	/* Of the warps, the first send; what is left over receives. */
	const int32_t n_send = !sends ? 0 : receives ? SENDERS : N_WARPS;
	const int32_t warp = (int32_t)threadIdx.x / 32;
	const bool sender = warp < n_send;
	const int32_t n_warps = sender ? n_send : N_WARPS - n_send;
	const int32_t step = (int32_t)gridDim.x * n_warps;
	/* Few items are spread over the multiprocessors. */
	const int32_t item =
		(sender ? warp : warp - n_send) * (int32_t)gridDim.x +
		(int32_t)blockIdx.x;
	const int32_t n_lines =
		(int32_t)((a.row_bytes + LINE_DATA - 1) / LINE_DATA);
	const int32_t n_parts = (n_lines + WARP_LINES - 1) / WARP_LINES;
	const int32_t token = item / n_parts;
	struct combine c = {&a, &shared, 0, 0, (int32_t)threadIdx.x % 32};
	struct choice x = {-1, 0, 0};
	struct own_choice own = {x, -1};

	/* On the way before the slot is known; within the arrays if unused. */
	if (token < a.ch.max_tokens) {
		if (sender)
			x = load_choice(&c, nth_group(&c, 1), token, 0);
		else
			own = load_own_choice(&c, token, 0);
	}
	if (!combine_begin(&c, &shared))
		return;
	if (sender)
		send_all<DTYPE, HOW>(&c, item, step, n_parts, x);
	else
		receive_all<DTYPE, HOW>(&c, item, step, n_parts, own);
	combine_advance(&c);
}

typedef void kernel(const struct ferry_cuda_combine a);

template <int DTYPE> static kernel *kernel_how(int how)
{
	return how == HOW_EXACT       ? combine_lines<DTYPE, HOW_EXACT>
	       : how == HOW_REDUCED   ? combine_lines<DTYPE, HOW_REDUCED>
	       : how == HOW_PRESUMMED ? combine_lines<DTYPE, HOW_PRESUMMED>
	                              : combine_lines<DTYPE, HOW_ANY>;
}

static kernel *kernel_of(int32_t dtype, int how)
{
	return dtype == FERRY_BF16   ? kernel_how<FERRY_BF16>(how)
	       : dtype == FERRY_FP16 ? kernel_how<FERRY_FP16>(how)
	                             : kernel_how<FERRY_FP32>(how);
}

static const char *refuse(const struct ferry_cuda_channel *ch)
{
	return ch->back_lines ? NULL : "rows do not come back as lines";
}

static size_t scratch_bytes(const struct ferry_cuda_channel *ch, int32_t ctas)
{
	(void)ch;
	(void)ctas;
	return 0;
}

static int load(const struct ferry_cuda_channel *ch, struct ferry_cuda_fit *fit)
{
	int ctas = 0;

	for (int how = 0; how < N_HOWS; how++) {
		const cudaError_t error =
			cudaOccupancyMaxActiveBlocksPerMultiprocessor(
				&ctas,
				(const void *)kernel_of(ch->combine_dtype, how),
				THREADS, 0);

		if (error != cudaSuccess)
			return (int)error;
	}
	fit->threads = THREADS;
	fit->smem_bytes = 0;
	fit->ctas_per_sm = ctas;
	return cudaSuccess;
}

/* Blocks that have something to do at the most tokens there can be. */
static int32_t useful_ctas(const struct ferry_cuda_combine *a)
{
	const int64_t lines =
		((int64_t)a->row_bytes + LINE_DATA - 1) / LINE_DATA;
	const int64_t warps = (lines + WARP_LINES - 1) / WARP_LINES *
	                      a->ch.max_tokens * a->ch.n_groups;

	return warps < INT32_MAX ? (int32_t)warps : INT32_MAX;
}

static int launch(const struct ferry_cuda_combine *args, int32_t ctas,
                  struct CUstream_st *stream)
{
	struct ferry_cuda_combine a = *args;
	void *arguments[] = {&a};
	const int32_t useful = useful_ctas(args);
	const unsigned n = (unsigned)(useful < ctas ? useful : ctas);

	return (int)cudaLaunchKernel(
		(const void *)kernel_of(a.ch.combine_dtype, how_of(&a)),
		dim3(n ? n : 1), dim3(THREADS), arguments, 0, stream);
}

extern "C" const struct ferry_cuda_combine_ops ferry_cuda_combine_lines = {
	refuse, scratch_bytes, load, launch};
