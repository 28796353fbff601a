/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of the lean dispatch kernel: ids and rows into shared
 * memory, the table and rows as lines to peers.
 */
#ifndef FERRY_DISPATCH_LEAN_SEND_CUH
#define FERRY_DISPATCH_LEAN_SEND_CUH

#include "dispatch_lean.cuh"

/* Id number e of the batch; ids are aligned to their size. */
static __device__ __forceinline__ int64_t lean_id(const struct lean *l,
                                                  uint32_t e)
{
	const struct ferry_dispatch_in *in = &l->d->in;
	const uint32_t token = lean_quotient(e, l->a->by_topk);
	const uint32_t choice = e - token * l->a->by_topk.by;
	const unsigned char *row = (const unsigned char *)in->topk_ids +
	                           (size_t)token * in->ids_stride;

	return in->id_type == FERRY_ID_INT64 ? ((const int64_t *)row)[choice]
	                                     : ((const int32_t *)row)[choice];
}

static __device__ __forceinline__ float lean_weight(const struct lean *l,
                                                    uint32_t e)
{
	const struct ferry_dispatch_in *in = &l->d->in;
	const uint32_t token = lean_quotient(e, l->a->by_topk);
	const float *row =
		(const float *)((const unsigned char *)in->topk_weights +
	                        (size_t)token * in->weights_stride);

	if (!in->topk_weights)
		return l->ch->routed_scale;
	return __fmul_rn(row[e - token * l->a->by_topk.by],
	                 l->ch->routed_scale);
}

static __device__ __forceinline__ int32_t
lean_id_limit(const struct ferry_cuda_dispatch *d)
{
	return d->in.id_kind == FERRY_ID_SLOT ? d->ch.n_expert_slots
	                                      : d->ch.n_experts;
}

/* An entry of the batch on its way to shared memory. */
struct lean_entry {
	int64_t id;
	float weight; /* clerks only */
};

static __device__ __forceinline__ struct lean_entry
load_entry(const struct lean *l, uint32_t e)
{
	struct lean_entry entry = {lean_id(l, e), 0};

	if (l->is_clerk)
		entry.weight = lean_weight(l, e);
	return entry;
}

/* Expert slot of a choice; the id is in range. */
template <int32_t PARTS>
static __device__ __forceinline__ uint32_t lean_slot(const struct lean *l,
                                                     int32_t id, uint32_t token,
                                                     uint32_t choice)
{
	const struct ferry_cuda_placement *p = &l->d->placement;

	if (l->d->in.id_kind == FERRY_ID_SLOT)
		return (uint32_t)id;
	if (PARTS & LEAN_QUOTA)
		return (uint32_t)resolve_by_quota(l->ch, p, id, (int32_t)token,
		                                  (int32_t)choice);
	return (uint32_t)resolve_evenly(l->ch, p, id, (int32_t)token,
	                                (int32_t)choice);
}

/* Entry e of the own table. */
template <int32_t PARTS>
static __device__ __forceinline__ void
keep_own(const struct lean *l, uint32_t e, const struct lean_entry *entry)
{
	const struct ferry_cuda_dispatch *d = l->d;
	const uint32_t token = lean_quotient(e, l->a->by_topk);
	const uint32_t choice = e - token * l->a->by_topk.by;
	const int64_t id = entry->id;
	uint32_t slot = LEAN_NO_SLOT;

	if (id >= 0 && id < lean_id_limit(d))
		slot = lean_slot<PARTS>(l, (int32_t)id, token, choice);
	else if (id != -1 && l->ch->bad_id == FERRY_BAD_ID_ERROR)
		atomicMin(&l->shared->bad, e);
	lean_entries(l, l->own)[e] = (uint16_t)slot;
	lean_count(l, slot);
	if (l->is_clerk)
		((float *)(l->smem + l->a->at.weights))[e] =
			slot == LEAN_NO_SLOT ? 0 : entry->weight;
}

/* Part of a row on its way to shared memory: 32 bytes of each thread. */
struct lean_piece {
	uint4 v, w;
};

/* 16 bytes of the image of a row that is not quantised. */
static __device__ __forceinline__ uint4 load_image(const struct lean *l,
                                                   uint32_t token, uint32_t at)
{
	const struct ferry_dispatch_in *in = &l->d->in;

	if (at < l->a->row_bytes)
		return load_once_16((const unsigned char *)in->x +
		                    (size_t)token * in->x_stride + at);
	if (at < l->a->image_bytes)
		return load_once_16((const unsigned char *)in->scales +
		                    (size_t)token * in->scales_stride +
		                    (at - l->a->row_bytes));
	return make_uint4(0, 0, 0, 0);
}

/* Begins to load part `round` of a row. */
static __device__ __forceinline__ struct lean_piece
load_piece(const struct lean *l, uint32_t token, uint32_t round)
{
	const uint32_t at = (round * LEAN_THREADS + l->thread) * 16;
	struct lean_piece p = {{0, 0, 0, 0}, {0, 0, 0, 0}};

	if (l->ch->quantize) {
		const unsigned char *x = (const unsigned char *)l->d->in.x +
		                         (size_t)token * l->d->in.x_stride;

		if (at < l->a->row_bytes) {
			p.v = load_once_16(x + (size_t)at * 2);
			p.w = load_once_16(x + (size_t)at * 2 + 16);
		}
		return p;
	}
	p.v = load_image(l, token, at + round * LEAN_THREADS * 16);
	p.w = load_image(l, token, at + (round + 1) * LEAN_THREADS * 16);
	return p;
}

static __device__ __forceinline__ uint32_t amax_of_8(uint4 v)
{
	return max_u32(max_u32(amax_of_pair(v.x), amax_of_pair(v.y)),
	               max_u32(amax_of_pair(v.z), amax_of_pair(v.w)));
}

/* Sixteen elements of each thread; eight threads have a block. */
static __device__ __forceinline__ void
quantize_piece(const struct lean *l, unsigned char *image, uint32_t at,
               const struct lean_piece *p)
{
	const bool ue8m0 = l->ch->scale_type == FERRY_SCALE_UE8M0;
	uint32_t m = max_u32(amax_of_8(p->v), amax_of_8(p->w));

#pragma unroll
	for (int i = 4; i > 0; i /= 2)
		m = max_u32(m, __shfl_xor_sync(0xffffffffu, m, i));
	float scale = quant_scale_of(f32_of_bf16_low(m));
	const uint8_t e = ue8m0_of(scale);

	if (ue8m0)
		scale = f32_of_ue8m0(e);
	const float r = __frcp_rn(scale);

	if (at >= l->a->row_bytes)
		return;
	*(uint4 *)(image + at) = make_uint4(
		quantize_4(p->v.x, p->v.y, r), quantize_4(p->v.z, p->v.w, r),
		quantize_4(p->w.x, p->w.y, r), quantize_4(p->w.z, p->w.w, r));
	if (at % ROW_QUANT_BLOCK)
		return;
	image += l->a->row_bytes;
	if (ue8m0)
		image[at / ROW_QUANT_BLOCK] = e;
	else
		((float *)image)[at / ROW_QUANT_BLOCK] = scale;
}

static __device__ __forceinline__ void store_piece(const struct lean *l,
                                                   unsigned char *image,
                                                   uint32_t round,
                                                   const struct lean_piece *p)
{
	const uint32_t at = (round * LEAN_THREADS + l->thread) * 16;

	if (l->ch->quantize) {
		quantize_piece(l, image, at, p);
		return;
	}
	const uint32_t first = at + round * LEAN_THREADS * 16;
	const uint32_t end = l->a->row_lines * LINE_DATA;

	if (first < end)
		*(uint4 *)(image + first) = p->v;
	if (first + LEAN_THREADS * 16 < end)
		*(uint4 *)(image + first + LEAN_THREADS * 16) = p->w;
}

/* Zeros up to the end of the last line. */
static __device__ __forceinline__ void end_image(const struct lean *l,
                                                 unsigned char *image)
{
	const uint32_t at = l->a->image_bytes + l->thread * 4;

	if (l->ch->quantize && at < l->a->row_lines * LINE_DATA)
		*(uint32_t *)(image + at) = 0;
}

/* The token of unit u of this block. */
static __device__ __forceinline__ uint32_t token_of(const struct lean *l,
                                                    uint32_t u)
{
	return l->worker + u * l->a->n_workers;
}

/* Own rows into shared memory; `piece` begins the first one. */
static __device__ __forceinline__ void
stage_rows(const struct lean *l, struct lean_piece piece, uint32_t n_tokens)
{
	if (!l->works)
		return;
#pragma unroll 1
	for (uint32_t u = 0; u < l->a->n_units; u++) {
		unsigned char *image = lean_own_row(l, u);

		if (token_of(l, u) >= n_tokens)
			break;
#pragma unroll 1
		for (uint32_t r = 0; r < l->a->n_rounds; r++) {
			if (u || r)
				piece = load_piece(l, token_of(l, u), r);
			store_piece(l, image, r, &piece);
		}
		end_image(l, image);
	}
	fence_proxy_async_shared();
}

/*
 * Ids and own rows into shared memory: everything is asked for before
 * anything is looked at.
 */
template <int32_t PARTS>
static __device__ __forceinline__ void stage(const struct lean *l, uint32_t n,
                                             uint32_t n_tokens)
{
	enum { OPEN = 2 };
	struct lean_piece piece = {{0, 0, 0, 0}, {0, 0, 0, 0}};
	const bool has_row = l->works && l->worker < n_tokens;
	struct lean_entry entry[OPEN];

#pragma unroll
	for (uint32_t j = 0; j < OPEN; j++)
		if (l->thread + j * LEAN_THREADS < n)
			entry[j] = load_entry(l, l->thread + j * LEAN_THREADS);
	if (has_row)
		piece = load_piece(l, l->worker, 0);
#pragma unroll
	for (uint32_t j = 0; j < OPEN; j++)
		if (l->thread + j * LEAN_THREADS < n)
			keep_own<PARTS>(l, l->thread + j * LEAN_THREADS,
			                &entry[j]);
#pragma unroll 1
	for (uint32_t e = l->thread + OPEN * LEAN_THREADS; e < n;
	     e += LEAN_THREADS) {
		entry[0] = load_entry(l, e);
		keep_own<PARTS>(l, e, &entry[0]);
	}
	stage_rows(l, piece, n_tokens);
}

/* Ranks that serve a token of a source, as bits. By a warp. */
static __device__ __forceinline__ uint32_t serving(const struct lean *l,
                                                   uint32_t source,
                                                   uint32_t token,
                                                   uint32_t topk)
{
	const struct ferry_cuda_channel *ch = l->ch;
	uint32_t slot = LEAN_NO_SLOT, bits = 0;

	if (l->lane < topk)
		slot = lean_entries(l, source)[token * topk + l->lane];
#pragma unroll 1
	for (int32_t r = 0; r < ch->n_ranks; r++)
		if (__any_sync(0xffffffffu,
		               slot >= (uint32_t)ch->first_slot[r] &&
		                       slot < (uint32_t)ch->first_slot[r + 1]))
			bits |= 1u << r;
	return bits;
}

/* The own rows of this block to the peers that serve them. */
static __device__ __forceinline__ void send_rows(const struct lean *l,
                                                 uint32_t n_tokens)
{
	const uint32_t n_ranks = (uint32_t)l->ch->n_ranks;

#pragma unroll 1
	for (uint32_t u = 0; u < l->a->n_units; u++) {
		const uint32_t token = token_of(l, u);

		if (token >= n_tokens)
			return;
		const uint32_t bits =
			serving(l, l->own, token, l->a->by_topk.by);
		const unsigned char *from =
			lean_own_row(l, u) + l->team_lane * 16;

#pragma unroll 1
		for (uint32_t r = l->own + 1; r < l->own + n_ranks; r++) {
			const uint32_t to = r < n_ranks ? r : r - n_ranks;
			unsigned char *row = l->a->row_to[to] + l->row_half +
			                     (size_t)token * l->ch->row_stride;

			if (!(bits >> to & 1))
				continue;
#pragma unroll 2
			for (uint32_t i = l->team; i < l->a->row_lines;
			     i += LEAN_TEAMS) {
				const uint64_t *at =
					(const uint64_t *)(from +
				                           i * LINE_DATA);
				const uint64_t low = at[0];
				const uint64_t high =
					l->team_lane == 7 ? 0 : at[1];

				line_store(row + (size_t)i * LINE_BYTES,
				           l->team_lane, low, high, l->epoch);
			}
		}
	}
}

/*
 * The own header, marked where something is refused: by one thread of every
 * block. Returns the tokens that the batch then has.
 */
static __device__ __forceinline__ void make_head(const struct lean *l,
                                                 int32_t given)
{
	const struct ferry_cuda_dispatch *d = l->d;
	struct ferry_table *t = &l->shared->heads[l->own];
	const uint32_t bad = l->shared->bad;
	const bool bad_count = given < 0 || given > l->ch->max_tokens;
	const bool marked = bad_count || bad != LEAN_NOTHING;

	t->epoch = l->epoch;
	t->n_tokens = marked ? 0 : given;
	t->topk = d->in.topk;
	t->hidden = d->in.hidden;
	t->has_weights = l->a->weights_travel && !marked;
	t->placement_hash =
		d->in.id_kind == FERRY_ID_SLOT ||
				(!d->placement.first && t->n_tokens == 0)
			? 0
			: d->placement.hash;
	t->mark_status = 0;
	t->mark_token = t->mark_choice = t->mark_limit = 0;
	t->mark_value = 0;
	t->content_hash = d->in.topk_weights != NULL;
	t->reserved[0] = 0;
	l->shared->n[l->own] = (uint32_t)(t->n_tokens * t->topk);
	if (!marked)
		return;
	t->mark_status = FERRY_RANGE;
	t->mark_token = t->mark_choice = -1;
	t->mark_limit = l->ch->max_tokens + 1;
	t->mark_value = given;
	atomicOr(&l->shared->odd, LEAN_LOOK);
	if (bad_count)
		return;
	t->mark_token = (int32_t)lean_quotient(bad, l->a->by_topk);
	t->mark_choice = (int32_t)bad - t->mark_token * t->topk;
	t->mark_limit = lean_id_limit(d);
	t->mark_value = lean_id(l, bad);
}

/* Word i of the table behind the header: n entries, then weights. */
static __device__ __forceinline__ uint64_t table_word(const struct lean *l,
                                                      uint32_t i, uint32_t n)
{
	if (i < n) {
		const uint32_t slot = lean_entries(l, l->own)[i];

		return slot == LEAN_NO_SLOT ? 0xffffffffu : slot;
	}
	/* Before the first one, i is huge. */
	if (i - n < n && l->a->weights_travel)
		return __float_as_uint(
			((const float *)(l->smem + l->a->at.weights))[i - n]);
	return 0;
}

template <int32_t PARTS>
static __device__ __forceinline__ void
send_table_line(const struct lean *l, uint32_t line, uint64_t a, uint64_t b)
{
	const uint32_t n_ranks = (uint32_t)l->ch->n_ranks;

#pragma unroll 1
	for (uint32_t r = l->own + 1;
	     r < l->own + n_ranks + !(PARTS & LEAN_RECV); r++) {
		const uint32_t to = r < n_ranks ? r : r - n_ranks;

		line_store(l->a->table_to[to] + l->table_half +
		                   (size_t)line * LINE_BYTES,
		           l->team_lane, a, b, l->epoch);
	}
}

/* The own table to all peers; the first warp has made the header. */
template <int32_t PARTS>
static __device__ __forceinline__ void send_table(const struct lean *l,
                                                  uint32_t n)
{
	const uint32_t words = l->a->weights_travel ? 2 * n : n;
	const uint32_t n_lines = ((uint32_t)sizeof(struct ferry_table) +
	                          words * 4 + LINE_DATA - 1) /
	                         LINE_DATA;

	if (l->team == 0) {
		const uint64_t *head =
			(const uint64_t *)&l->shared->heads[l->own] +
			l->team_lane * 2;
		const bool used = l->team_lane < 4;

		send_table_line<PARTS>(l, 0, used ? head[0] : 0,
		                       used ? head[1] : 0);
	}
#pragma unroll 1
	for (uint32_t i = l->team ? l->team : LEAN_TEAMS; i < n_lines;
	     i += LEAN_TEAMS) {
		const uint32_t first = (i * LINE_DATA + l->team_lane * 16 -
		                        (uint32_t)sizeof(struct ferry_table)) /
		                       4;
		const bool before = i == 1 && l->team_lane == 0;
		const uint32_t w = before ? 0u - 2 : first;

		send_table_line<PARTS>(l, i,
		                       before ? 0
		                              : table_word(l, w, n) |
		                                        table_word(l, w + 1, n)
		                                                << 32,
		                       table_word(l, w + 2, n) |
		                               table_word(l, w + 3, n) << 32);
	}
}

/* For combine: by the clerk. */
static __device__ __forceinline__ void latch_batch(const struct lean *l,
                                                   uint32_t n)
{
	const struct ferry_cuda_op *op = &l->d->op;

	if (l->thread == 0)
		*op->own_count = l->shared->heads[l->own].n_tokens;
#pragma unroll 1
	for (uint32_t e = l->thread; e < n; e += LEAN_THREADS) {
		const uint32_t token = lean_quotient(e, l->a->by_topk);
		const size_t at = (size_t)token * l->ch->max_topk + e -
		                  token * l->a->by_topk.by;
		const uint32_t slot = lean_entries(l, l->own)[e];

		op->own_slots[at] = slot == LEAN_NO_SLOT ? -1 : (int32_t)slot;
		op->own_weights[at] =
			((const float *)(l->smem + l->a->at.weights))[e];
	}
}

#endif
