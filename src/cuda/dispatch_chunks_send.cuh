/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Own rows to the ranks that serve them: warps take chunks of rows from a
 * queue, load each row once, store it to every window that wants it, and raise
 * the chunks' flags at every rank outside the own group when these stores are
 * complete, which they become while the next chunks are being loaded.
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
	bool far = false;

	for (int32_t w = 0; w * 32 < a->ch.n_ranks; w++) {
		uint32_t bits = __shfl_sync(~0u, targets, row * MASK_WORDS + w);

		for (; bits && lane == 0; bits &= bits - 1) {
			const int32_t r = w * 32 + __ffs((int)bits) - 1;

			if (net_is_far(&a->ch, r)) {
				far = true;
				continue;
			}
			store_row(c, stage,
			          row_at(&a->ch, r, a->slot, c->half,
			                 b->carrier, b->first + row),
			          p);
		}
	}
	if (far)
		store_row(c, stage,
		          net_out_row(&a->ch, a->slot, c->half, b->first + row),
		          p);
}

/*
 * Rows of a batch that far ranks want, when they are complete in `out`: one
 * put for each.
 */
static __device__ inline void net_put_rows(const struct chunks *c,
                                           const struct batch *b,
                                           uint32_t targets, int32_t lane)
{
	const struct ferry_cuda_dispatch *a = c->a;
	struct wait w = wait_begin(&a->ch, FERRY_PHASE_DISPATCH_SEND, a->slot,
	                           c->epoch);
	struct net_put p;

	if (lane == 0)
		bulk_wait<0>();
	p.bytes = net_row_bytes(a);
	p.n_signals = net_pieces(&a->ch, p.bytes);
	p.counter = net_signal(&a->ch, a->slot, c->epoch, FERRY_COUNT_ROW,
	                       a->ch.rank);
	for (int32_t i = 0; i < b->n * MASK_WORDS; i++) {
		uint32_t bits = __shfl_sync(~0u, targets, i);
		const int32_t row = b->first + i / MASK_WORDS;

		for (; bits && lane == 0; bits &= bits - 1) {
			p.peer = i % MASK_WORDS * 32 + __ffs((int)bits) - 1;
			if (!net_is_far(&a->ch, p.peer))
				continue;
			p.to = net_offset(row_at(&a->ch, p.peer, a->slot,
			                         c->half, a->ch.rank, row));
			p.from = net_out_row(&a->ch, a->slot, c->half, row) -
			         a->ch.net.out;
			if (!net_put(&a->ch, &w, &p))
				break;
		}
	}
}

/* A warp that sends. */
struct sender {
	const struct chunks *c;
	struct mover *m;
	struct x_form form;
	uint32_t first, n_gone; /* chunks that are not flagged yet */
	bool open;              /* rows may follow the table */
};

/* When what has gone is complete at every rank, says so. */
static __device__ inline void raise_flags(struct sender *s)
{
	const struct chunks *c = s->c;
	const struct ferry_cuda_dispatch *a = c->a;

	const int32_t n_others = a->ch.n_ranks - 1;

	if (s->n_gone == 0)
		return;
	if (s->m->lane == 0)
		bulk_wait<0>();
	__syncwarp();
	for (int32_t i = s->m->lane; i < (int32_t)s->n_gone * n_others;
	     i += 32) {
		const int32_t chunk = i / n_others;
		const int32_t r =
			(a->ch.rank + 1 + i - chunk * n_others) % a->ch.n_ranks;

		if (!is_own_group(c, r) && !net_is_far(&a->ch, r))
			store_release_sys(
				row_flag_at(&a->ch, r, a->slot, c->half,
			                    a->ch.rank,
			                    (int32_t)s->first + chunk),
				c->epoch);
	}
	s->n_gone = 0;
}

/*
 * Rows before the table would fill the links, and the table, without which no
 * rank can deliver a thing, would wait in line behind them. For TOKEN, nobody
 * waits for it before the last row is there.
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
	raise_flags(s);
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
	}
	if (NET && some)
		net_put_rows(c, b, targets, m->lane);
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

/* Chunk i of those that mates carry and this rank serves. */
static __device__ inline void send_mates(struct sender *s, uint32_t i)
{
	const struct chunks *c = s->c;
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t mate = 1 + (int32_t)i / ch->row_chunks;
	const int32_t carrier =
		ch->group * ch->group_size + (ch->rank + mate) % ch->group_size;
	const int32_t first = (int32_t)i % ch->row_chunks * ch->row_chunk;

	send_rows(s, carrier, first,
	          min(first + ch->row_chunk,
	              carried_by(ch, carrier, c->n_tokens)));
}

/*
 * How many chunks to take next: several where many are left, so that a warp
 * seldom waits; in the end one, so that all warps end at the same time.
 */
static __device__ inline uint32_t share_of(const struct chunks *c,
                                           uint32_t left)
{
	const uint32_t most = BATCH_ROWS / (uint32_t)c->a->ch.row_chunk;

	return max(min(left / (uint32_t)c->all_senders, most), 1);
}

/* Number of this warp among those that send. */
static __device__ __forceinline__ uint32_t sender_of(const struct chunks *c)
{
	const uint32_t first =
		c->n_teams < (int32_t)gridDim.x ? (uint32_t)c->n_teams : 0;

	return (blockIdx.x - first) * (uint32_t)c->n_senders + threadIdx.x / 32;
}

/*
 * Until no chunk is left: first those that travel, then, for the TOKEN view,
 * those of mates.
 */
static __device__ inline void send_queue(const struct chunks *c,
                                         struct mover *m)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const uint32_t rows = (uint32_t)ch->row_chunk;
	const bool token = ch->layout == FERRY_TOKEN;
	const uint32_t own = ((uint32_t)c->own_rows + rows - 1) / rows;
	const uint32_t mates = token ? (uint32_t)ch->group_size - 1 : 0;
	const uint32_t all = own + mates * (uint32_t)ch->row_chunks;
	struct sender s = {c, m, x_form_of(c->a), 0, 0, token};
	uint32_t n = share_of(c, all);
	/* The first ones are dealt out: nobody waits for an answer. */
	const uint32_t dealt = n * (uint32_t)c->all_senders;
	uint32_t i = n * sender_of(c);

	while (i < all) {
		const uint32_t end = min(i + n, all);
		const uint32_t own_end = min(end, own);

		if (i < own_end) {
			send_rows(&s, ch->rank, (int32_t)(i * rows),
			          min((int32_t)(own_end * rows), c->own_rows));
			s.first = i;
			s.n_gone = own_end - i;
		}
		for (uint32_t k = max(i, own); k < end; k++)
			send_mates(&s, k - own);
		n = share_of(c, all - min(max(end, dealt), all));
		i = dealt + take_items(c, WORD_SEND, n, m->lane);
	}
	raise_flags(&s);
}

#endif
