/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sender of bulk dispatch whose ring never runs dry: the targets of the next
 * rows are looked up, and their loads begin, while the last rows of this chunk
 * are being stored. send_queue of src/cuda begins anew with each batch.
 */
#ifndef CUDA_RUNG_STREAM_CUH
#define CUDA_RUNG_STREAM_CUH

#include "cuda/dispatch_chunks_send.cuh"

/* At most BATCH_ROWS rows that a warp sends, all of one chunk. */
struct cargo {
	struct batch b;
	uint32_t targets; /* of targets_of */
	uint32_t some;    /* lanes whose targets are not 0 */
	int32_t units;    /* 0: there is no more to send */
	int32_t chunk;    /* to flag when these have gone, -1: none */
};

struct stream {
	struct sender s;
	int32_t first, end; /* rows of the chunk at hand that are not taken */
	int32_t carrier, chunk;
	uint32_t unit; /* stored so far */
	int32_t ahead; /* units behind it that are being loaded */
};

/*
 * The next chunk of the queue: first those that travel, then, for the TOKEN
 * view, what mates carry and this rank serves. False: none is left.
 */
static __device__ inline bool take_chunk(struct stream *s)
{
	const struct chunks *c = s->s.c;
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const uint32_t chunks =
		(uint32_t)((c->own_rows + ch->row_chunk - 1) / ch->row_chunk);
	const uint32_t mates =
		ch->layout == FERRY_TOKEN ? (uint32_t)ch->group_size - 1 : 0;
	const uint32_t each = (uint32_t)ch->row_chunks;
	const uint32_t i = take_items(c, WORD_SEND, 1, s->s.m->lane);
	const bool own = i < chunks;
	const uint32_t rest = own ? 0 : i - chunks;

	if (!own && rest >= mates * each)
		return false;
	const int32_t place = own ? 0 : 1 + (int32_t)(rest / each);
	const int32_t chunk = (int32_t)(own ? i : rest % each);

	s->carrier = ch->group * ch->group_size +
	             (ch->rank + place) % ch->group_size;
	s->chunk = own ? chunk : -1;
	s->first = chunk * ch->row_chunk;
	s->end = min(s->first + ch->row_chunk,
	             carried_by(ch, s->carrier, c->n_tokens));
	return true;
}

static __device__ inline struct cargo take_cargo(struct stream *s)
{
	struct cargo g = {};

	while (s->first >= s->end)
		if (!take_chunk(s))
			return g;
	g.b.carrier = s->carrier;
	g.b.first = s->first;
	g.b.n = min((int32_t)BATCH_ROWS, s->end - s->first);
	s->first += g.b.n;
	g.chunk = s->first >= s->end ? s->chunk : -1;
	g.targets = targets_of(s->s.c, &g.b, s->s.m->lane);
	g.some = __ballot_sync(~0u, g.targets != 0);
	g.units = g.b.n * s->s.c->n_pieces;
	return g;
}

static __device__ __forceinline__ int32_t stage_of(const struct stream *s,
                                                   uint32_t ahead)
{
	return (int32_t)((s->unit + ahead) % (uint32_t)s->s.c->n_stages);
}

/*
 * Loads what fits into the ring behind unit u of `now`: its own units, then
 * those of `next`. `most` units may be on their way.
 */
static __device__ inline void load_ahead(struct stream *s,
                                         const struct cargo *now,
                                         const struct cargo *next, int32_t u,
                                         int32_t most)
{
	const struct chunks *c = s->s.c;

#pragma unroll 1
	for (; s->ahead < most; s->ahead++) {
		const int32_t i = u + s->ahead;
		const bool mine = i < now->units;
		const struct batch b = mine ? now->b : next->b;
		const uint32_t some = mine ? now->some : next->some;
		const int32_t unit = mine ? i : i - now->units;
		const int32_t row = unit / c->n_pieces;

		if (!mine && unit >= next->units)
			return;
		if (some >> (row * MASK_WORDS) & 0xf)
			load_x(c, s->s.m, &s->s.form,
			       stage_of(s, (uint32_t)s->ahead),
			       token_of_row(c, b.carrier, b.first + row),
			       unit - row * c->n_pieces);
	}
}

/* The chunk before, when all but the newest FLAG_UNITS units have gone. */
static __device__ inline void flag_before(struct sender *s)
{
	if (s->flag < 0)
		return;
	if (s->m->lane == 0)
		bulk_wait<FLAG_UNITS>();
	__syncwarp();
	raise_flags(s);
}

/*
 * A unit is one piece of one row, and one bulk group: while its stores are
 * read from shared memory, the units behind it are being loaded.
 */
static __device__ inline void send_unit(struct stream *s,
                                        const struct cargo *now,
                                        const struct cargo *next, int32_t u)
{
	const struct chunks *c = s->s.c;
	struct mover *m = s->s.m;
	const int32_t row = u / c->n_pieces, stage = stage_of(s, 0);
	const struct piece p = piece_of(c, u - row * c->n_pieces);

	if (s->ahead == 0) {
		mover_reuse(m);
		load_ahead(s, now, next, u, 1);
	}
	mover_await(m, stage);
	store_targets(c, &now->b, row, now->targets, stage_at(c, m, stage), &p,
	              m->lane);
	if (m->lane == 0) {
		bulk_commit();
		bulk_wait_read<1>();
	}
	__syncwarp();
	s->unit++;
	s->ahead--;
	load_ahead(s, now, next, u + 1, c->n_stages - 1);
}

/* As send_queue. */
static __device__ inline void send_stream(const struct chunks *c,
                                          struct mover *m)
{
	struct stream s = {
		{c, m, x_form_of(c->a), -1, false}, 0, 0, -1, -1, 0, 0};
	struct cargo now = take_cargo(&s), next = {};

	load_ahead(&s, &now, &next, 0, c->n_stages - 1);
	if (now.units)
		await_table_sent(&s.s);
	while (now.units) {
#pragma unroll 1
		for (int32_t u = 0; u < now.units; u++) {
			send_unit(&s, &now, &next, u);
			if (u == FLAG_UNITS - 1)
				flag_before(&s.s);
			if (u == 0)
				next = take_cargo(&s);
		}
		flush_flags(&s.s);
		s.s.flag = now.chunk;
		now = next;
		next.units = 0;
	}
	flush_flags(&s.s);
}

#endif
