/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Own rows to the ranks that serve them: warps take chunks of rows from a
 * queue, load each row once, store it to every window that wants it, and raise
 * the chunk's flag at every rank outside the own group.
 */
#ifndef FERRY_DISPATCH_CHUNKS_SEND_CUH
#define FERRY_DISPATCH_CHUNKS_SEND_CUH

#include "dispatch_chunks_stage.cuh"
#include "dispatch_chunks_table.cuh"

enum { MASK_WORDS = FERRY_CUDA_MAX_RANKS / 32 };

/* A batch: rows that a warp has in its ring at once. */
struct batch {
	int32_t carrier; /* rank that the rows are of */
	int32_t first, n;
};

static __device__ __forceinline__ int32_t token_of_row(const struct chunks *c,
                                                       int32_t carrier,
                                                       int32_t row)
{
	const int32_t g = c->a->ch.group_size;

	return row * g + carrier % g;
}

/* Ranks that get this row, as bits; of the own group only what is copied. */
static __device__ __forceinline__ uint32_t keep_targets(const struct chunks *c,
                                                        uint32_t bits,
                                                        int32_t word, bool mate)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t first = ch->group * ch->group_size;

	for (int32_t r = max(first, word * 32);
	     r < min(first + ch->group_size, word * 32 + 32); r++)
		if (r != ch->rank || ch->layout != FERRY_TOKEN)
			bits &= ~(1u << (r - word * 32));
	if (!mate)
		return bits;
	return ch->rank / 32 == word ? bits & 1u << ch->rank % 32 : 0;
}

/*
 * Lane row * MASK_WORDS + w gets the ranks 32 w .. 32 w + 31 that row `row` of
 * the batch goes to.
 */
static __device__ inline uint32_t
targets_of(const struct chunks *c, const struct batch *b, int32_t lane)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const int32_t words = (a->ch.n_ranks + 31) / 32;
	const int32_t topk = a->in.topk;
	const struct id_form f = id_form_of(&a->in);
	uint32_t mine = 0;

	for (int32_t from = 0; from < topk; from += 32) {
		int32_t slot[CHUNKS_MAX_STAGES];

#pragma unroll
		for (int32_t i = 0; i < CHUNKS_MAX_STAGES; i++) {
			const int32_t t =
				token_of_row(c, b->carrier, b->first + i);
			const int32_t k = from + lane;

			slot[i] = -1;
			if (i < b->n && k < topk)
				slot[i] = slot_of_id(a, id_at(&f, t, k), t, k);
		}
#pragma unroll
		for (int32_t i = 0; i < CHUNKS_MAX_STAGES; i++) {
			const int32_t r =
				slot[i] < 0 ? -1
					    : rank_of_slot(&a->ch, slot[i]);

			for (int32_t w = 0; w < words; w++) {
				const bool in = r >= 0 && r / 32 == w;
				const uint32_t bits = __reduce_or_sync(
					~0u, in ? 1u << r % 32 : 0);

				if (lane == i * MASK_WORDS + w)
					mine |= bits;
			}
		}
	}
	return keep_targets(c, mine, lane % MASK_WORDS,
	                    b->carrier != a->ch.rank);
}

/* One row from its stage to all ranks that want it. */
static __device__ inline void store_targets(const struct chunks *c,
                                            const struct batch *b, int32_t row,
                                            uint32_t targets,
                                            const unsigned char *stage,
                                            const struct piece *p, int32_t lane)
{
	const struct ferry_cuda_dispatch *a = c->a;

	for (int32_t w = 0; w * 32 < a->ch.n_ranks; w++) {
		uint32_t bits = __shfl_sync(~0u, targets, row * MASK_WORDS + w);

		for (; bits && lane == 0; bits &= bits - 1) {
			const int32_t r = w * 32 + __ffs((int)bits) - 1;

			store_row(c, stage,
			          row_at(&a->ch, r, a->slot, c->half,
			                 b->carrier, b->first + row),
			          p);
		}
	}
}

static __device__ inline void send_batch(const struct chunks *c,
                                         struct mover *m,
                                         const struct x_form *form,
                                         const struct batch *b)
{
	const uint32_t targets = targets_of(c, b, m->lane);
	const uint32_t some = __ballot_sync(~0u, targets != 0);

	for (int32_t index = 0; index < c->n_pieces; index++) {
		const struct piece p = piece_of(c, index);

		mover_reuse(m);
		for (int32_t i = 0; i < b->n; i++)
			if (some >> (i * MASK_WORDS) & 0xf)
				load_x(c, m, form, i,
				       token_of_row(c, b->carrier,
				                    b->first + i),
				       index);
		for (int32_t i = 0; i < b->n; i++) {
			mover_await(m, i);
			store_targets(c, b, i, targets, stage_at(c, m, i), &p,
			              m->lane);
		}
		if (m->lane == 0)
			bulk_commit();
	}
}

/* The rows of a chunk are complete at every rank: say so. */
static __device__ inline void raise_flags(const struct chunks *c,
                                          const struct mover *m, int32_t chunk)
{
	const struct ferry_cuda_dispatch *a = c->a;

	if (m->lane == 0)
		bulk_wait<0>();
	__syncwarp();
	for (int32_t i = m->lane; i < a->ch.n_ranks - 1; i += 32) {
		const int32_t r = (a->ch.rank + 1 + i) % a->ch.n_ranks;

		if (!is_own_group(c, r))
			store_release_sys(row_flag_at(&a->ch, r, a->slot,
			                              c->half, a->ch.rank,
			                              chunk),
			                  c->epoch);
	}
}

/* Rows [first, end) of a carrier, own or a mate. */
static __device__ inline void send_rows(const struct chunks *c, struct mover *m,
                                        const struct x_form *form,
                                        int32_t carrier, int32_t first,
                                        int32_t end)
{
	struct batch b;

	b.carrier = carrier;
	for (b.first = first; b.first < end; b.first += b.n) {
		b.n = min(c->n_stages, end - b.first);
		send_batch(c, m, form, &b);
	}
}

/*
 * Chunk after chunk until none is left: first those that travel, then, for
 * the TOKEN view, what mates carry and this rank serves.
 */
static __device__ inline void send_queue(const struct chunks *c,
                                         struct mover *m)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct x_form form = x_form_of(c->a);
	const uint32_t chunks =
		(uint32_t)((c->own_rows + ch->row_chunk - 1) / ch->row_chunk);
	const uint32_t mates =
		ch->layout == FERRY_TOKEN ? (uint32_t)ch->group_size - 1 : 0;
	const uint32_t each = (uint32_t)ch->row_chunks;

	for (;;) {
		const uint32_t i = take_items(c, WORD_SEND, 1, m->lane);
		const bool own = i < chunks;
		const uint32_t rest = own ? 0 : i - chunks;

		if (!own && rest >= mates * each)
			break;
		const int32_t place = own ? 0 : 1 + (int32_t)(rest / each);
		const int32_t carrier = ch->group * ch->group_size +
		                        (ch->rank + place) % ch->group_size;
		const int32_t chunk = (int32_t)(own ? i : rest % each);
		const int32_t first = chunk * ch->row_chunk;

		send_rows(c, m, &form, carrier, first,
		          min(first + ch->row_chunk,
		              carried_by(ch, carrier, c->n_tokens)));
		if (own)
			raise_flags(c, m, chunk);
	}
}

#endif
