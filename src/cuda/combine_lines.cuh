/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of combine_lines.cu share: how rows are cut into items, and
 * which part of a line is whose.
 *
 * Two lines carry 15 blocks of the row, 240 bytes: lanes 0..6 of the first
 * line blocks 0..6, of the second line 7..13, and the two lanes 7 share block
 * 14, 8 bytes each. So all accesses to rows are of 16 bytes. A single last
 * line has its bytes in order. The four lines that a warp accesses with one
 * instruction are a stripe.
 */
#ifndef FERRY_COMBINE_LINES_CUH
#define FERRY_COMBINE_LINES_CUH

#include "combine_begin.cuh"
#include "combine_terms.cuh"
#include "line.cuh"

enum {
	N_WARPS = 16,
	THREADS = N_WARPS * 32,
	/*
	 * Who sends in a fused launch. REDUCED: so many warps of each block, so
	 * that 128 tokens are one item for each warp. EXACT: so many 16ths of
	 * the blocks; what receivers load would wait behind stores otherwise,
	 * which the wire takes at its own pace. 128 tokens take 30.9 us with 4
	 * and with 6, 31.4 with 8, 35.9 with 10 (two H200s, 2026-11-30).
	 */
	SEND_WARPS = 8,
	SEND_BLOCKS = 6,
	STRIPE_LINES = 32 / LINE_LANES,
	PAIR_BYTES = 2 * LINE_DATA,
	STRIPE_BYTES = STRIPE_LINES * LINE_DATA, /* of a row */
	SHARED_AT = 14 * BLOCK_BYTES,            /* the block of both lanes 7 */
	BOXES = 24, /* blocks of a lane in shared memory */
	BOX_BYTES = BOXES * THREADS * BLOCK_BYTES,
};

/*
 * A way of combining, as kernels are compiled: HOW_..., and + HOW_MANY where
 * items are large, for many tokens.
 */
enum { HOW_MANY = N_HOWS };

/* Most stripes of an item. */
template <int WAY> static __host__ __device__ constexpr int most_stripes(void)
{
	return WAY < HOW_MANY ? 1 : 4;
}

/* Terms of which a lane looks at its lines at once: all but EXACT have few. */
template <int WAY> static __host__ __device__ constexpr int most_terms(void)
{
	return WAY % N_HOWS == HOW_ANY || WAY % N_HOWS == HOW_EXACT ? 4 : 2;
}

/* What a warp of a crew has to do: every `step`-th item from `first` on. */
struct crew {
	bool sends;
	bool shares; /* the block with the other crew */
	int32_t first, step;
};

/* How tokens are cut into items: neighbouring stripes of their rows. */
struct cut {
	int32_t n_stripes, per_item;
	int32_t n_items; /* of a token */
};

struct item {
	int32_t token, stripe, n;
};

/*
 * A send by itself, for which nobody waits, also forms the own part of each
 * token, and leaves it where the recv by itself finds it: in op.scratch, rows
 * of whole blocks.
 */
static __host__ __device__ __forceinline__ size_t
kept_part_bytes(const struct ferry_cuda_channel *ch)
{
	const size_t bytes =
		(size_t)ch->max_hidden * (size_t)dtype_bytes(ch->combine_dtype);

	return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static __device__ __forceinline__ unsigned char *
kept_part(const struct ferry_cuda_combine *a, int32_t token)
{
	return (unsigned char *)a->op.scratch +
	       (size_t)token * kept_part_bytes(&a->ch);
}

static __device__ __forceinline__ bool
keeps_parts(const struct ferry_cuda_combine *a)
{
	return a->parts == FERRY_CUDA_SEND && a->ch.combine != FERRY_EXACT;
}

/*
 * As few stripes as there are warps for, so that few tokens are there soon;
 * else as many as fit the registers, since what is found out once for an item
 * costs more instructions than its data.
 */
template <int WAY>
static __device__ __forceinline__ struct cut
cut_of(const struct ferry_cuda_combine *a, const struct crew *crew)
{
	const int32_t n_lines =
		(int32_t)((a->row_bytes + LINE_DATA - 1) / LINE_DATA);
	const bool own = a->ch.group_size > 1 || keeps_parts(a);
	const int32_t n_groups = crew->sends ? a->ch.n_groups - !own : 1;
	const int32_t n_tokens = a->ch.max_tokens * n_groups;
	struct cut cut;

	cut.n_stripes = (n_lines + STRIPE_LINES - 1) / STRIPE_LINES;
	cut.per_item = 1;
	cut.n_items = cut.n_stripes;
#pragma unroll
	for (int most = 2; most <= most_stripes<WAY>(); most++) {
		if (n_tokens * cut.n_items <= crew->step)
			break;
		cut.per_item = most;
		cut.n_items = (cut.n_stripes + most - 1) / most;
	}
	return cut;
}

static __device__ __forceinline__ struct item item_of(const struct cut *cut,
                                                      int32_t i)
{
	struct item item;

	item.token = i / cut->n_items;
	item.stripe = (i - item.token * cut->n_items) * cut->per_item;
	item.n = min(cut->per_item, cut->n_stripes - item.stripe);
	return item;
}

/* What a lane has of a stripe; of the next one 4 lines, 480 bytes further. */
struct piece {
	int32_t line;
	int32_t at; /* of its block in the row */
	bool upper; /* its line has the upper half of the block */
};

template <int WAY>
static __device__ __forceinline__ struct piece piece_of(const struct combine *c,
                                                        int32_t stripe)
{
	const int32_t line = stripe * STRIPE_LINES + c->lane / LINE_LANES;
	const int32_t place = c->lane % LINE_LANES;
	const int32_t base = line / 2 * PAIR_BYTES;
	const bool second = line % 2;
	/* Rows of whole blocks: a single line has none of its lane 7. */
	const bool shared =
		place == LINE_LANES - 1 &&
		(WAY != HOW_ANY || (int32_t)c->a->row_bytes - base > LINE_DATA);
	struct piece p;

	p.line = line;
	p.at = base + (shared   ? SHARED_AT
	               : second ? (place + 7) * BLOCK_BYTES
	                        : place * BLOCK_BYTES);
	p.upper = shared && second;
	return p;
}

static __device__ __forceinline__ bool
has_line(const struct combine *c, const struct piece *p, int32_t stripe)
{
	return (p->line + stripe * STRIPE_LINES) * LINE_DATA <
	       (int32_t)c->a->row_bytes;
}

/* Bytes of the row in this lane's block, at most 16. */
template <int WAY>
static __device__ __forceinline__ int32_t piece_bytes(const struct combine *c,
                                                      const struct piece *p,
                                                      int32_t stripe)
{
	/* The block of a line that is not there is another lane's. */
	if (WAY == HOW_ANY && !has_line(c, p, stripe))
		return 0;
	return block_bytes(c, p->at + stripe * STRIPE_BYTES);
}

/* Byte of a row's lines that this lane accesses first. */
static __device__ __forceinline__ size_t piece_offset(const struct combine *c,
                                                      const struct piece *p)
{
	return (size_t)p->line * LINE_BYTES + c->lane % LINE_LANES * 16;
}

/* The box of a row among `rows`: n boxes each. */
static __device__ __forceinline__ uint4 *box_of(uint4 *boxes, uint32_t rows,
                                                int32_t row, int32_t n)
{
	return boxes + __popc(rows & ((1u << row) - 1)) * n * 32;
}

/* Rows that a warp looks for, or adds, at once. */
template <int WAY> static __host__ __device__ constexpr int rows_at_once(void)
{
	return WAY < HOW_MANY ? 4 : 2;
}

template <int DTYPE, int WAY>
static __device__ __forceinline__ void
box_row(const struct combine *c, const unsigned char *row,
        const struct item *item, const struct piece *p, uint4 *box)
{
#pragma unroll
	for (int j = 0; j < most_stripes<WAY>(); j++) {
		if (j >= item->n)
			break;
		const int32_t bytes = piece_bytes<WAY>(c, p, j);

		if (WAY == HOW_ANY)
			box[j * 32] = load_block<DTYPE, false>(row, bytes);
		else if (bytes > 0)
			async_load_16(box + j * 32, row + j * STRIPE_BYTES);
		else
			box[j * 32] = make_uint4(0, 0, 0, 0);
	}
}

/*
 * Blocks of this lane in shared memory, so that many rows are on their way at
 * no register: block j of row i is boxes[(i * n + j) * 32]. Those of `rows`
 * that are in `which`.
 */
template <int DTYPE, int WAY>
static __device__ __forceinline__ void
box_rows(const struct combine *c, const struct terms *t, uint32_t rows,
         uint32_t which, const struct item *item, const struct piece *p,
         uint4 *boxes)
{
	constexpr int U = rows_at_once<WAY>();

#pragma unroll 1
	while (which) {
		const unsigned char *row[U];
		int32_t from[U];

		/* No shuffle waits for a branch, nor for another shuffle. */
#pragma unroll
		for (int i = 0; i < U; i++) {
			from[i] = next_lane(&which);
			row[i] = row_of_lane(t, max(from[i], 0)) + p->at;
		}
#pragma unroll
		for (int i = 0; i < U; i++)
			if (from[i] >= 0)
				box_row<DTYPE, WAY>(
					c, row[i], item, p,
					box_of(boxes, rows, from[i], item->n));
	}
}

/*
 * Loads of what is to be sent go before those of own rows: the wire is what
 * takes long. Receivers wait until the senders of their block have told that
 * their first ones are on the way.
 */
struct boxes {
	uint4 *at;
	bool owes; /* to tell */
};

static __device__ __forceinline__ void tell_receivers(struct boxes *b)
{
	if (b->owes)
		team_arrive(1, THREADS);
	b->owes = false;
}

/* Adds boxed rows in order. */
template <int DTYPE, int WAY>
static __device__ __forceinline__ void
add_boxes(const struct terms *t, uint32_t rows, const struct item *item,
          const uint4 *boxes, float acc[][BLOCK_MOST])
{
	constexpr int U = rows_at_once<WAY>();

#pragma unroll 1
	while (rows) {
		const int32_t n = min(__popc(rows), U);
		float weight[U];

#pragma unroll
		for (int i = 0; i < U; i++) {
			const int32_t from = max(next_lane(&rows), 0);

			weight[i] = __shfl_sync(ALL_LANES, t->weight, from);
		}
#pragma unroll
		for (int j = 0; j < most_stripes<WAY>(); j++) {
			if (j >= item->n)
				break;
			uint4 v[U];

#pragma unroll
			for (int i = 0; i < U; i++)
				v[i] = boxes[(min(i, n - 1) * item->n + j) *
				             32];
#pragma unroll
			for (int i = 0; i < U; i++)
				if (i < n)
					add_block<DTYPE>(acc[j], v[i],
					                 weight[i]);
		}
		boxes += n * item->n * 32;
	}
}

/* Takes the first `most` out of `left`. */
static __device__ __forceinline__ uint32_t first_rows(uint32_t *left,
                                                      int32_t most)
{
	const uint32_t all = *left;

	if (__popc(all) <= most) {
		*left = 0;
		return all;
	}
#pragma unroll 1
	for (int32_t i = 0; i < most; i++)
		*left &= *left - 1;
	return all & ~*left;
}

/*
 * The part of a REDUCED sum that this rank forms, of the choices of a token
 * that are served here, into the first boxes; x is choice `lane`. Without any
 * the part means nothing. False: the channel has ended.
 */
template <int DTYPE, int WAY>
static __device__ __forceinline__ bool
box_part(const struct combine *c, struct choice x, int32_t group,
         const struct item *item, const struct piece *p, struct boxes *b)
{
	uint4 *boxes = b->at;
	float acc[most_stripes<WAY>()][BLOCK_MOST] = {{0}};
	struct terms t;

	if (is_presummed<WAY % N_HOWS>(c)) {
		if (!is_here<WAY % N_HOWS>(c, &x, group, item->token))
			return true;
		if (!c->a->in.y) {
			fail_row(c->a, c->epoch, item->token, -1, 0);
			return false;
		}
		t.row = presummed_row(c, group, item->token);
		box_rows<DTYPE, WAY>(c, &t, 1, 1, item, p, boxes);
		tell_receivers(b);
		async_wait();
		return true;
	}
#pragma unroll 1
	for (int32_t base = 0; base < (WAY == HOW_ANY ? c->a->topk : 1);
	     base += 32) {
		if (base)
			x = load_choice(c, group, item->token, base);
		if (!here_terms(c, &x, item->token, base, &t))
			return false;
#pragma unroll 1
		for (uint32_t left = t.all; left;) {
			const uint32_t rows =
				first_rows(&left, BOXES / item->n);

			box_rows<DTYPE, WAY>(c, &t, rows, rows, item, p, boxes);
			tell_receivers(b);
			async_wait();
			add_boxes<DTYPE, WAY>(&t, rows, item, boxes, acc);
		}
	}
#pragma unroll
	for (int j = 0; j < most_stripes<WAY>(); j++)
		if (j < item->n)
			boxes[j * 32] = round_block<DTYPE>(acc[j]);
	return true;
}

#endif
