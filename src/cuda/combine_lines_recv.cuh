/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_recv by lines: waits for what comes and sums it, the own rows before
 * or between.
 */
#ifndef FERRY_COMBINE_LINES_RECV_CUH
#define FERRY_COMBINE_LINES_RECV_CUH

#include "combine_lines.cuh"

/* What a warp receives at a time. */
struct receipt {
	struct item item;
	struct piece p;
	struct wait *wait; /* of this warp, in shared memory */
	uint4 *boxes;
};

static __device__ __forceinline__ uint4 load_piece(const unsigned char *line)
{
	uint64_t a, b;

	load_volatile_16(line, &a, &b);
	return make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b,
	                  (uint32_t)(b >> 32));
}

/* Are the lines of a stripe there? The same on all lanes. */
static __device__ __forceinline__ bool is_there(const struct combine *c,
                                                bool has, uint4 v)
{
	const uint64_t flag = v.z | (uint64_t)v.w << 32;

	return __all_sync(ALL_LANES,
	                  !has || c->lane % LINE_LANES != LINE_LANES - 1 ||
	                          flag == c->epoch);
}

/* This lane's block: the first of two lines gets the half of the second. */
static __device__ __forceinline__ uint4 block_of(uint4 v, int32_t lane)
{
	const uint32_t z = __shfl_down_sync(ALL_LANES, v.x, LINE_LANES);
	const uint32_t w = __shfl_down_sync(ALL_LANES, v.y, LINE_LANES);

	if (lane % LINE_LANES == LINE_LANES - 1) {
		v.z = z;
		v.w = w;
	}
	return v;
}

/* One look at the lines of a term. True: all are there, and now blocks. */
template <int MOST>
static __device__ __forceinline__ bool
look(const struct combine *c, const struct receipt *r, uint4 v[MOST])
{
	bool there = true;

#pragma unroll
	for (int j = 0; j < MOST; j++)
		if (j < r->item.n)
			there = is_there(c, has_line(c, &r->p, j), v[j]) &&
			        there;
	if (!there)
		return false;
#pragma unroll
	for (int j = 0; j < MOST; j++)
		if (j < r->item.n)
			v[j] = block_of(v[j], c->lane);
	return true;
}

/*
 * One look at the lines of the first N terms of `missing`. What is there goes
 * into the box of its place among `rows`, and is taken out.
 */
template <int MOST, int N>
static __device__ __forceinline__ void
look_at_lines(const struct combine *c, const struct terms *t,
              const struct receipt *r, uint32_t rows, uint32_t *missing)
{
	uint32_t left = *missing, same = *missing;
	uint4 v[N][MOST];

#pragma unroll
	for (int i = 0; i < N; i++) {
		const int32_t from = next_lane(&left);

		if (from < 0)
			break;
		const unsigned char *line =
			row_of_lane(t, from) + piece_offset(c, &r->p);

#pragma unroll
		for (int j = 0; j < MOST; j++)
			if (j < r->item.n && has_line(c, &r->p, j))
				v[i][j] = load_piece(line + j * STRIPE_LINES *
				                                    LINE_BYTES);
	}
#pragma unroll
	for (int i = 0; i < N; i++) {
		const int32_t from = next_lane(&same);

		if (from < 0)
			break;
		if (!look<MOST>(c, r, v[i]))
			continue;
		*missing &= ~(1u << from);
		uint4 *box = box_of(r->boxes, rows, from, r->item.n);

#pragma unroll
		for (int j = 0; j < MOST; j++)
			if (j < r->item.n)
				box[j * 32] = v[i][j];
	}
}

/* Boxes the terms in `rows` that come. False: the channel has ended. */
template <int WAY>
static __device__ __forceinline__ bool
box_lines(const struct combine *c, const struct terms *t,
          const struct receipt *r, uint32_t rows)
{
	uint32_t missing = rows & t->comes;
	uint32_t n_looks = 0;

#pragma unroll 1
	while (missing) {
		look_at_lines<most_stripes<WAY>(), most_terms<WAY>()>(
			c, t, r, rows, &missing);
		if (!missing)
			break;
		const int32_t peer = __shfl_sync(ALL_LANES, t->rank,
		                                 __ffs((int)missing) - 1);

		if (!wait_again_warp(r->wait, &n_looks, peer))
			return false;
	}
	return true;
}

template <int DTYPE, int WAY>
static __device__ __forceinline__ bool
sum_exact(const struct combine *c, struct own_choice x, const struct receipt *r,
          float acc[][BLOCK_MOST])
{
	struct terms t;

#pragma unroll 1
	for (int32_t base = 0; base < (WAY == HOW_ANY ? c->a->topk : 1);
	     base += 32) {
		if (base)
			x = load_own_choice(c, r->item.token, base);
		if (!exact_terms(c, &x, r->item.token, base, &t))
			return false;
#pragma unroll 1
		for (uint32_t left = t.all; left;) {
			const uint32_t rows =
				first_rows(&left, BOXES / r->item.n);

			box_rows<DTYPE, WAY>(c, &t, rows, rows & ~t.comes,
			                     &r->item, &r->p, r->boxes);
			if (!box_lines<WAY>(c, &t, r, rows))
				return false;
			async_wait();
			add_boxes<DTYPE, WAY>(&t, rows, &r->item, r->boxes,
			                      acc);
		}
	}
	return true;
}

/* Adds parts in the order of ranks: the own one, and what is in `boxes`. */
template <int DTYPE, int WAY>
static __device__ __forceinline__ void
add_parts(const struct terms *t, uint32_t rows, const struct receipt *r,
          const uint4 *boxes, float acc[][BLOCK_MOST])
{
#pragma unroll 1
	while (rows) {
		const bool own = next_lane(&rows) == t->own;
		const uint4 *box = own ? r->boxes : boxes;

#pragma unroll
		for (int j = 0; j < most_stripes<WAY>(); j++)
			if (j < r->item.n)
				add_block<DTYPE>(acc[j], box[j * 32], 1);
		boxes += own ? 0 : r->item.n * 32;
	}
}

/* The own part as the send has left it, into the first boxes. */
template <int WAY>
static __device__ __forceinline__ void box_kept_part(const struct combine *c,
                                                     const struct receipt *r)
{
	const unsigned char *part = kept_part(c->a, r->item.token) + r->p.at;

#pragma unroll
	for (int j = 0; j < most_stripes<WAY>(); j++)
		if (j < r->item.n && piece_bytes<WAY>(c, &r->p, j) > 0)
			r->boxes[j * 32] =
				load_once_16(part + j * STRIPE_BYTES);
}

/*
 * The own part first: the others fly meanwhile. It keeps the first boxes, and
 * theirs are behind.
 */
template <int DTYPE, int WAY>
static __device__ __forceinline__ bool
sum_reduced(const struct combine *c, const struct own_choice *x,
            const struct receipt *r, float acc[][BLOCK_MOST])
{
	struct receipt others = *r;
	struct boxes boxes = {r->boxes, false};
	struct rank_walk walk;
	struct terms t;

	if (WAY == HOW_ANY && c->a->parts == FERRY_CUDA_RECV)
		box_kept_part<WAY>(c, r);
	else if (!box_part<DTYPE, WAY>(c, x->here, c->a->ch.group, &r->item,
	                               &r->p, &boxes))
		return false;
	walk = walk_begin<WAY % N_HOWS>(c, x, r->item.token);
	others.boxes += r->item.n * 32;
#pragma unroll 1
	while (reduced_terms(c, &walk, r->item.token, &t)) {
		const uint32_t own = t.own < 0 ? 0 : 1u << t.own;

#pragma unroll 1
		for (uint32_t left = t.all; left;) {
			const uint32_t rows =
				first_rows(&left, BOXES / r->item.n - 1);

			if (!box_lines<WAY>(c, &t, &others, rows & ~own))
				return false;
			add_parts<DTYPE, WAY>(&t, rows, r, others.boxes, acc);
		}
	}
	return true;
}

template <int DTYPE, int WAY>
static __device__ __forceinline__ void finish_item(const struct combine *c,
                                                   const struct receipt *r,
                                                   float acc[][BLOCK_MOST])
{
#pragma unroll
	for (int j = 0; j < most_stripes<WAY>(); j++) {
		if (j >= r->item.n)
			break;
		finish_block<DTYPE, WAY != HOW_ANY>(
			c->a, r->item.token, r->p.at + j * STRIPE_BYTES,
			r->p.upper ? 0 : piece_bytes<WAY>(c, &r->p, j), acc[j]);
	}
}

/* x was loaded for the first item of this warp. */
template <int DTYPE, int WAY>
static __device__ __forceinline__ bool
receive_all(const struct combine *c, const struct crew *crew,
            const struct cut *cut, struct own_choice x, struct receipt r)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t n = c->shared->n_tokens[ch->group] * cut->n_items;
	bool loaded = true;

	if (crew->shares)
		__barrier_sync_count(1, THREADS);
#pragma unroll 1
	for (int32_t at = crew->first; at < n; at += crew->step) {
		float acc[most_stripes<WAY>()][BLOCK_MOST] = {{0}};

		r.item = item_of(cut, at);
		r.p = piece_of<WAY>(c, r.item.stripe);
		if (c->lane == 0)
			*r.wait = wait_begin(ch, FERRY_PHASE_COMBINE_RECV,
			                     c->a->slot, c->epoch);
		__syncwarp();
		if (!loaded)
			x = load_own_choice(c, r.item.token, 0);
		const struct own_choice now = x;

		loaded = at + crew->step < n;
		if (loaded)
			x = load_own_choice(
				c, item_of(cut, at + crew->step).token, 0);
		if (!(is_exact<WAY % N_HOWS>(c)
		              ? sum_exact<DTYPE, WAY>(c, now, &r, acc)
		              : sum_reduced<DTYPE, WAY>(c, &now, &r, acc)))
			return false;
		finish_item<DTYPE, WAY>(c, &r, acc);
	}
	return true;
}

#endif
