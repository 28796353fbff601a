/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recv by itself is given (combine_lines_alone.cuh), where its slot
 * stands, and the blocks of a row that a lane loads, waits for, adds, writes.
 */
#ifndef FERRY_COMBINE_ALONE_CUH
#define FERRY_COMBINE_ALONE_CUH

#include "combine_lines.cuh"

/*
 * What is summed, as kernels are compiled: EXACT terms, the parts of any ranks,
 * or those of two ranks, whose places are known before the token's choices are.
 */
enum { ALONE_EXACT, ALONE_PARTS, ALONE_PAIR, N_ALONE };

/*
 * 128 tokens are an item for each warp, and EXACT takes 8.8 us with 4 terms at
 * once, 9.2 with 8 (one H200, 2026-12-01).
 */
enum {
	ALONE_STRIPES = 2,            /* of an item */
	ALONE_TERMS = 4,              /* whose blocks a warp loads at once */
	HALF_BYTES = BLOCK_BYTES / 2, /* of a block that two lanes have */
};

struct alone_args {
	/* Once for all. */
	struct ferry_cuda_slot *slot;
	const uint64_t *poison;
	const int32_t *n_tokens; /* of the own group */
	const int32_t *own_slots;
	const uint8_t *dropped;
	const unsigned char *back; /* of the slot, in the own window */
	const unsigned char *part; /* of token 0 */
	uint32_t back_token_bytes, part_bytes;
	int32_t topk, max_topk, max_tokens, row_bytes;
	int32_t last_line;        /* of a row */
	int32_t n_items;          /* of a token */
	uint64_t items_inverse;   /* times 2^32 */
	int32_t first_own, n_own; /* expert slots of this rank */
	int32_t early;
	int32_t plain; /* out is of combine_dtype, and there is no residual */
	struct ferry_combine_out out;
	/* EXACT: what own terms are found by. */
	const struct ferry_cuda_copy *copies; /* of own tokens */
	const float *own_weights;             /* NULL: all are 1 */
	const int64_t *offsets;               /* NULL: rows as in PADDED */
	const unsigned char *y;
	size_t y_stride, back_stride;
	int64_t padded_rows;
	/* Where something is missing or wrong, and more than two ranks. */
	struct ferry_cuda_combine a;
};

/* A term of the sum that a warp forms. */
struct alone_term {
	const unsigned char *row;
	float weight;
	int32_t source; /* 0: of y, or an own part; else lines of who, + 1: an
	                 * expert slot where EXACT, a rank */
};

struct alone_shared {
	struct alone_term terms[N_WARPS][32];
	int64_t offsets[KEPT_OFFSETS];
	uint64_t epoch;
	uint32_t state;
	int32_t n_tokens;
	bool broken;
	struct wait waits[N_WARPS]; /* ch NULL: not begun */
};

/* A warp at an item of N stripes, and where a lane's blocks are. */
template <int N> struct alone {
	const struct alone_args *t;
	struct alone_shared *s;
	struct alone_term *terms; /* of this warp */
	int32_t lane;
	int32_t token;
	/* In lines and in rows; of other blocks where a row has ended. */
	uint32_t line_at[N], row_at[N];
	bool upper;   /* has the upper half of a block in the second line */
	bool halved;  /* that, or the lower half in the first */
	bool last[N]; /* nothing of the row */
};

/* What a lane knows of choice `lane` of a token. */
struct alone_choice {
	int32_t slot; /* -1: nobody answers */
	struct choice here;
};

/* What one thread of a block looks at: all on its way when this returns. */
struct alone_look {
	uint64_t epoch, broken;
	uint32_t state, n_tokens;
};

static __device__ __forceinline__ struct alone_look
alone_look(const struct alone_args *t)
{
	struct alone_look look;

	look.epoch = load_relaxed_gpu(&t->slot->epoch);
	look.state = load_relaxed_gpu(&t->slot->state);
	look.broken = load_relaxed_sys(t->poison);
	look.n_tokens = load_relaxed_gpu((const uint32_t *)t->n_tokens);
	return look;
}

static __device__ __forceinline__ void alone_tell(struct alone_shared *s,
                                                  struct alone_look look)
{
	s->epoch = look.epoch;
	s->state = look.state;
	s->broken = look.broken != 0;
	s->n_tokens = (int32_t)look.n_tokens;
}

static __device__ __forceinline__ void
alone_load_offsets(const struct alone_args *t, struct alone_shared *s)
{
#pragma unroll 1
	for (int32_t i = (int32_t)threadIdx.x;
	     i < min(t->n_own, (int32_t)KEPT_OFFSETS); i += (int32_t)blockDim.x)
		s->offsets[i] = t->offsets[i];
}

/* All threads. False: the channel has ended. */
static __device__ __forceinline__ bool alone_goes(const struct alone_args *t,
                                                  const struct alone_shared *s)
{
	if (s->broken)
		return false;
	if (s->state == (uint32_t)FERRY_SLOT_COMBINE_SENT)
		return true;
	if (threadIdx.x == 0)
		fail_order(&t->a, s->epoch);
	return false;
}

/* The block that was the last to read the slot moves it on. One thread. */
static __device__ __forceinline__ void alone_advance(const struct alone_args *t,
                                                     uint32_t ticket)
{
	if (ticket != gridDim.x - 1)
		return;
	store_relaxed_gpu(&t->slot->tickets, 0);
	store_relaxed_gpu(&t->slot->state, (uint32_t)FERRY_SLOT_IDLE);
}

template <int N>
static __device__ __forceinline__ void alone_item(struct alone<N> *w,
                                                  int32_t at)
{
	const struct alone_args *t = w->t;
	const struct combine c = {&t->a, NULL, 0, 0, w->lane};
	struct piece p;

	w->token = (int32_t)((uint64_t)(uint32_t)at * t->items_inverse >> 32);
	p = piece_of<HOW_EXACT>(&c, (at - w->token * t->n_items) * N);
	w->token = min(w->token, t->max_tokens - 1);
	w->upper = p.upper;
	w->halved = w->lane % LINE_LANES == LINE_LANES - 1;
#pragma unroll
	for (int j = 0; j < N; j++) {
		const int32_t line = p.line + j * STRIPE_LINES;
		const int32_t at_j = p.at + j * STRIPE_BYTES;

		w->line_at[j] =
			(uint32_t)(min(line, t->last_line) * LINE_BYTES +
		                   w->lane % LINE_LANES * 16);
		w->last[j] = at_j >= t->row_bytes;
		w->row_at[j] = w->last[j] ? 0 : (uint32_t)at_j;
	}
}

/* What comes for the token, and its own part. */
template <int N>
static __device__ __forceinline__ const unsigned char *
alone_back(const struct alone<N> *w)
{
	return w->t->back +
	       (uint64_t)(uint32_t)w->token * w->t->back_token_bytes;
}

template <int N>
static __device__ __forceinline__ const unsigned char *
alone_part(const struct alone<N> *w)
{
	return w->t->part + (uint64_t)(uint32_t)w->token * w->t->part_bytes;
}

/* Blocks of a term: on their way when it returns. */
template <int N>
static __device__ __forceinline__ void alone_load(const struct alone<N> *w,
                                                  const unsigned char *row,
                                                  bool lines, uint4 v[N])
{
#pragma unroll
	for (int j = 0; j < N; j++) {
		uint64_t a, b;

		load_volatile_16(row + (lines ? w->line_at[j] : w->row_at[j]),
		                 &a, &b);
		v[j] = make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b,
		                  (uint32_t)(b >> 32));
	}
}

/* Are the lines there, those that this lane can tell of? */
template <int N>
static __device__ __forceinline__ bool
alone_there(const struct alone<N> *w, uint64_t epoch, const uint4 v[N])
{
	bool there = true;

#pragma unroll
	for (int j = 0; j < N; j++)
		there = there && v[j].z == (uint32_t)epoch &&
		        v[j].w == (uint32_t)(epoch >> 32);
	return there || !w->halved;
}

/* After a look in vain. False: the channel has ended. */
static __device__ __noinline__ bool
alone_again(const struct alone_args *t, struct alone_shared *s, int32_t peer)
{
	struct wait *wait = &s->waits[threadIdx.x / 32];
	bool goes_on = true;

	if (threadIdx.x % 32 == 0) {
		if (!wait->ch)
			*wait = wait_begin(&t->a.ch, FERRY_PHASE_COMBINE_RECV,
			                   t->a.slot, s->epoch);
		goes_on = wait_again(wait, peer);
	}
	return __all_sync(ALL_LANES, goes_on);
}

/* Of a source that some lanes miss, and others (0) do not. */
template <int KIND>
static __device__ __noinline__ bool alone_misses(const struct alone_args *t,
                                                 struct alone_shared *s,
                                                 int32_t missing)
{
	const int32_t lane =
		__ffs((int)__ballot_sync(ALL_LANES, missing != 0)) - 1;
	const int32_t who = __shfl_sync(ALL_LANES, missing, lane) - 1;

	return alone_again(
		t, s, KIND == ALONE_EXACT ? rank_of_slot(&t->a.ch, who) : who);
}

/*
 * Adds a term. Two lanes have halves of a block, which a line gives them where
 * others have the first half of theirs.
 */
template <int DTYPE, int N>
static __device__ __forceinline__ void
alone_add(const struct alone<N> *w, const uint4 v[N], bool lines, float weight,
          float acc[N][BLOCK_MOST])
{
	const bool upper = w->upper && !lines;

#pragma unroll
	for (int j = 0; j < N; j++)
		add_block<DTYPE>(acc[j],
		                 make_uint4(upper ? v[j].z : v[j].x,
		                            upper ? v[j].w : v[j].y, v[j].z,
		                            v[j].w),
		                 weight);
}

/* Brings the halves together, and writes. */
template <int DTYPE, int N>
static __device__ __forceinline__ void alone_finish(const struct alone<N> *w,
                                                    float acc[N][BLOCK_MOST])
{
	constexpr int n = HALF_BYTES / (DTYPE == FERRY_FP32 ? 4 : 2);
	const struct alone_args *t = w->t;
	unsigned char *out = (unsigned char *)t->out.out +
	                     (size_t)w->token * t->out.out_stride;

#pragma unroll
	for (int j = 0; j < N; j++) {
#pragma unroll
		for (int i = 0; i < n; i++) {
			const float upper = __shfl_down_sync(
				ALL_LANES, acc[j][i], LINE_LANES);

			if (w->halved)
				acc[j][n + i] = upper;
		}
		if (w->upper || w->last[j])
			continue;
		if (t->plain)
			store_16(out + w->row_at[j],
			         round_block<DTYPE>(acc[j]));
		else
			finish_block_to<DTYPE, true>(
				&t->out, t->a.ch.out_dtype, w->token,
				(int32_t)w->row_at[j], BLOCK_BYTES, acc[j]);
	}
}

#endif
