/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_send by lines: rows, or sums of rows, to the ranks of the token's
 * group; by itself also sums of rows for the recv that comes later.
 */
#ifndef FERRY_COMBINE_LINES_SEND_CUH
#define FERRY_COMBINE_LINES_SEND_CUH

#include "combine_lines.cuh"

static __device__ __forceinline__ void
store_piece(const struct combine *c, unsigned char *line, bool upper, uint4 v)
{
	const uint64_t low = v.x | (uint64_t)v.y << 32;
	const uint64_t high = v.z | (uint64_t)v.w << 32;

	store_volatile_16(line, upper ? high : low,
	                  c->lane % LINE_LANES == LINE_LANES - 1 ? c->epoch
	                                                         : high);
}

/* Stores blocks of a row to all ranks of a group but this one. */
template <int WAY>
static __device__ __forceinline__ void
store_to_group(const struct combine *c, int32_t group, const struct item *item,
               int32_t first_choice, const struct piece *p, const uint4 *boxes)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t first = group * ch->group_size;

#pragma unroll 1
	for (int32_t r = first; r < first + ch->group_size; r++) {
		if (r == ch->rank)
			continue;
		unsigned char *at = back_row_of<WAY % N_HOWS>(c, r, item->token,
		                                              first_choice) +
		                    piece_offset(c, p);

#pragma unroll
		for (int j = 0; j < most_stripes<WAY>(); j++)
			if (j < item->n && has_line(c, p, j))
				store_piece(c,
				            at + j * STRIPE_LINES * LINE_BYTES,
				            p->upper, boxes[j * 32]);
	}
}

/* Leaves blocks of the own part to recv. */
template <int WAY>
static __device__ __forceinline__ void
keep_part(const struct combine *c, const struct item *item,
          const struct piece *p, const uint4 *boxes)
{
	unsigned char *part = kept_part(c->a, item->token) + p->at;

#pragma unroll
	for (int j = 0; j < most_stripes<WAY>(); j++)
		if (j < item->n && !p->upper && piece_bytes<WAY>(c, p, j) > 0)
			store_16(part + j * STRIPE_BYTES, boxes[j * 32]);
}

template <int DTYPE, int WAY>
static __device__ __forceinline__ bool
send_exact(const struct combine *c, struct choice x, int32_t group,
           const struct item *item, const struct piece *p, struct boxes *b)
{
	struct terms t;

#pragma unroll 1
	for (int32_t base = 0; base < (WAY == HOW_ANY ? c->a->topk : 1);
	     base += 32) {
		if (base)
			x = load_choice(c, group, item->token, base);
		if (!here_terms(c, &x, item->token, base, &t))
			return false;
#pragma unroll 1
		for (uint32_t left = t.all; left;) {
			uint32_t rows = first_rows(&left, BOXES / item->n);
			const uint4 *box = b->at;

			box_rows<DTYPE, WAY>(c, &t, rows, rows, item, p, b->at);
			tell_receivers(b);
			async_wait();
#pragma unroll 1
			for (; rows; box += item->n * 32)
				store_to_group<WAY>(c, group, item,
				                    base + next_lane(&rows), p,
				                    box);
		}
	}
	return true;
}

template <int DTYPE, int WAY>
static __device__ __forceinline__ bool
send_part(const struct combine *c, const struct choice *x, int32_t group,
          const struct item *item, const struct piece *p, struct boxes *b)
{
	const int32_t first =
		first_here<WAY % N_HOWS>(c, x, group, item->token);

	if (first < 0)
		return true;
	if (!box_part<DTYPE, WAY>(c, *x, group, item, p, b))
		return false;
	store_to_group<WAY>(c, group, item, first, p, b->at);
	if (group == c->a->ch.group && keeps_parts(c->a))
		keep_part<WAY>(c, item, p, b->at);
	return true;
}

/*
 * Items are numbered through all groups. x was loaded for the first item of
 * this warp, if that is of the first group.
 */
template <int DTYPE, int WAY>
static __device__ __forceinline__ bool
send_all(const struct combine *c, const struct crew *crew,
         const struct cut *cut, struct choice x, struct boxes *b)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	int32_t at = crew->first;
	bool loaded = true;

#pragma unroll 1
	for (int32_t i = 1; i <= ch->n_groups; i++) {
		const int32_t group = nth_group(c, i);

		if (!has_receivers(c, group) && !keeps_parts(c->a))
			continue;
		const int32_t n = c->shared->n_tokens[group] * cut->n_items;

#pragma unroll 1
		for (; at < n; at += crew->step) {
			const struct item item = item_of(cut, at);
			const struct piece p = piece_of<WAY>(c, item.stripe);

			if (!loaded)
				x = load_choice(c, group, item.token, 0);
			const struct choice now = x;

			loaded = at + crew->step < n;
			if (loaded)
				x = load_choice(
					c, group,
					item_of(cut, at + crew->step).token, 0);
			if (!(is_exact<WAY % N_HOWS>(c)
			              ? send_exact<DTYPE, WAY>(c, now, group,
			                                       &item, &p, b)
			              : send_part<DTYPE, WAY>(c, &now, group,
			                                      &item, &p, b)))
				return false;
		}
		at -= n;
		loaded = false;
	}
	return true;
}

#endif
