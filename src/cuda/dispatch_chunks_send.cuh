/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Own rows to the ranks that serve them: warps take chunks of rows from a
 * queue, load each row once, store it to every window that wants it, and raise
 * the chunk's flag at every rank outside the own group, a few rows later, so
 * that the ring does not run empty meanwhile.
 */
#ifndef FERRY_DISPATCH_CHUNKS_SEND_CUH
#define FERRY_DISPATCH_CHUNKS_SEND_CUH

#include "dispatch_chunks_stage.cuh"
#include "dispatch_chunks_table.cuh"

static_assert(8 * (FERRY_CUDA_MAX_RANKS / 32) <= 32,
              "the lanes hold the targets of a batch");

enum {
	MASK_WORDS = FERRY_CUDA_MAX_RANKS / 32,
	BATCH_ROWS = 8, /* whose targets the lanes hold */
	FLAG_UNITS = 3, /* units of the next chunk before a flag is raised */
};

/* Neighbouring rows of a carrier. */
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
 * at most BATCH_ROWS goes to.
 */
static __device__ inline uint32_t
targets_of(const struct chunks *c, const struct batch *b, int32_t lane)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const int32_t words = (a->ch.n_ranks + 31) / 32;
	const int32_t topk = a->in.topk;
	const struct id_form f = id_form_of(&a->in);
	uint32_t mine = 0;

#pragma unroll 1
	for (int32_t i = 0; i < b->n * topk; i += 32) {
		/* Lanes have entries of the batch, whatever their rows. */
		const int32_t row = (i + lane) / topk;
		const int32_t k = i + lane - row * topk;
		const int32_t t = token_of_row(c, b->carrier, b->first + row);
		const int32_t s =
			row < b->n ? slot_of_id(a, id_at(&f, t, k), t, k) : -1;
		const int32_t r = s < 0 ? -1 : rank_of_slot(&a->ch, s);
		const int32_t last = min((i + 31) / topk, b->n - 1);

#pragma unroll 1
		for (int32_t j = i / topk * words; j < (last + 1) * words;
		     j++) {
			const int32_t q = j / words, w = j - q * words;
			const bool in = row == q && r >= 0 && r / 32 == w;
			const uint32_t bits =
				__reduce_or_sync(~0u, in ? 1u << r % 32 : 0);

			if (lane == q * MASK_WORDS + w)
				mine |= bits;
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

/* A warp that sends. */
struct sender {
	const struct chunks *c;
	struct mover *m;
	struct x_form form;
	int32_t flag; /* chunk that has gone and is not flagged yet, -1 */
	bool open;    /* the table is on its way: rows may follow */
};

/* The rows of a chunk are complete at every rank: say so. */
static __device__ inline void raise_flags(struct sender *s)
{
	const struct chunks *c = s->c;
	const struct ferry_cuda_dispatch *a = c->a;

	for (int32_t i = s->m->lane; i < a->ch.n_ranks - 1; i += 32) {
		const int32_t r = (a->ch.rank + 1 + i) % a->ch.n_ranks;

		if (!is_own_group(c, r))
			store_release_sys(row_flag_at(&a->ch, r, a->slot,
			                              c->half, a->ch.rank,
			                              s->flag),
			                  c->epoch);
	}
	s->flag = -1;
}

/*
 * Rows before the table would fill the links, and the table, without which no
 * rank can do a thing, would wait in line behind them.
 */
static __device__ inline void await_table_sent(struct sender *s)
{
	const struct chunks *c = s->c;

	if (s->open)
		return;
	if (s->m->lane == 0)
		await_word(c, WORD_TABLED,
		           (uint32_t)parts_of(&c->a->ch, c->n_tokens));
	__syncwarp();
	s->open = true;
}

static __device__ inline void load_unit(struct sender *s, const struct batch *b,
                                        uint32_t some, int32_t unit)
{
	const struct chunks *c = s->c;
	const int32_t row = unit / c->n_pieces;

	if (unit < b->n * c->n_pieces && some >> (row * MASK_WORDS) & 0xf)
		load_x(c, s->m, &s->form, unit % c->n_stages,
		       token_of_row(c, b->carrier, b->first + row),
		       unit - row * c->n_pieces);
}

/*
 * At most BATCH_ROWS rows of one carrier. A unit is one piece of one row, and
 * one bulk group: while its stores are read from shared memory, the units
 * behind it are being loaded.
 */
static __device__ inline void send_batch(struct sender *s,
                                         const struct batch *b)
{
	const struct chunks *c = s->c;
	struct mover *m = s->m;
	const uint32_t targets = targets_of(c, b, m->lane);
	const uint32_t some = __ballot_sync(~0u, targets != 0);
	const int32_t units = b->n * c->n_pieces;
	const int32_t ahead = c->n_stages - 1;

	mover_reuse(m);
#pragma unroll 1
	for (int32_t u = 0; u < ahead; u++)
		load_unit(s, b, some, u);
	await_table_sent(s);
#pragma unroll 1
	for (int32_t u = 0; u < units; u++) {
		const int32_t row = u / c->n_pieces, stage = u % c->n_stages;
		const struct piece p = piece_of(c, u - row * c->n_pieces);

		mover_await(m, stage);
		store_targets(c, b, row, targets, stage_at(c, m, stage), &p,
		              m->lane);
		if (m->lane == 0) {
			bulk_commit();
			bulk_wait_read<1>();
		}
		__syncwarp();
		load_unit(s, b, some, u + ahead);
		if (u != FLAG_UNITS - 1 || s->flag < 0)
			continue;
		if (m->lane == 0)
			bulk_wait<FLAG_UNITS>();
		__syncwarp();
		raise_flags(s);
	}
}

/* What has gone and is not flagged yet. */
static __device__ inline void flush_flags(struct sender *s)
{
	if (s->flag < 0)
		return;
	if (s->m->lane == 0)
		bulk_wait<0>();
	__syncwarp();
	raise_flags(s);
}

/* Rows [first, end) of a carrier, own or a mate. */
static __device__ inline void send_rows(struct sender *s, int32_t carrier,
                                        int32_t first, int32_t end)
{
	struct batch b;

	b.carrier = carrier;
	for (b.first = first; b.first < end; b.first += b.n) {
		b.n = min((int32_t)BATCH_ROWS, end - b.first);
		send_batch(s, &b);
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
	const uint32_t chunks =
		(uint32_t)((c->own_rows + ch->row_chunk - 1) / ch->row_chunk);
	const uint32_t mates =
		ch->layout == FERRY_TOKEN ? (uint32_t)ch->group_size - 1 : 0;
	const uint32_t each = (uint32_t)ch->row_chunks;
	struct sender s = {c, m, x_form_of(c->a), -1, false};

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

		send_rows(&s, carrier, first,
		          min(first + ch->row_chunk,
		              carried_by(ch, carrier, c->n_tokens)));
		flush_flags(&s);
		s.flag = own ? chunk : -1;
	}
	flush_flags(&s);
}

#endif
