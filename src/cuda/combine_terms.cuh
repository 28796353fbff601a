/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both combine kernels do alike: where an operation stands, which rows
 * this rank sends for a token, and which terms an own token's sum has. A warp
 * works on one token at a time; what belongs to its choices is spread over the
 * lanes, choice base + lane, in rounds of 32.
 */
#ifndef FERRY_COMBINE_TERMS_CUH
#define FERRY_COMBINE_TERMS_CUH

#include "../proto/slot_state.h"
#include "place.cuh"
#include "sum.cuh"
#include "wait.cuh"

enum {
	KEPT_OFFSETS = 512, /* of expert slots, in shared memory */
	IN_FLIGHT = 4,      /* rows of a token that a lane loads at once */
	NO_RANK = INT32_MAX,
};

static constexpr uint32_t ALL_LANES = 0xffffffff;

struct combine_shared {
	int64_t offsets[KEPT_OFFSETS];
	int32_t n_tokens[FERRY_CUDA_MAX_RANKS];
	uint64_t epoch;
	uint32_t state, broken;
};

struct combine {
	const struct ferry_cuda_combine *a;
	const struct combine_shared *shared;
	uint64_t epoch;
	uint32_t ticket; /* thread 0: of this block, from 0 */
	int32_t lane;
};

/* A choice of a token, as its rank knows it. */
struct choice {
	int32_t slot, index; /* struct ferry_cuda_copy; slot -1: not here */
	float weight;        /* that REDUCED sums with */
};

/* A choice of an own token. */
struct own_choice {
	struct choice here; /* weight: also that EXACT sums with */
	int32_t rank;       /* that answers, NO_RANK: nobody */
};

/* Up to 32 terms of a sum, one of each lane. */
struct terms {
	uint32_t all;   /* bits of the lanes that have one */
	uint32_t comes; /* of them, those that a peer sends */
	int32_t own;    /* lane of the one that is there already, -1 */
	const unsigned char *row;
	float weight;
	int32_t rank;
};

static __device__ __forceinline__ int32_t half_of(const struct combine *c)
{
	return (int32_t)(c->epoch & 1);
}

static __device__ __forceinline__ size_t choice_index(const struct combine *c,
                                                      int32_t group,
                                                      int32_t token, int32_t k)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;

	return ((size_t)group * (size_t)ch->max_tokens + (size_t)token) *
	               (size_t)ch->max_topk +
	       (size_t)k;
}

static __device__ __forceinline__ bool weighs(const struct combine *c)
{
	return c->a->ch.weight_use == FERRY_WEIGHT_OUTPUT;
}

static __device__ __forceinline__ struct choice
load_copy(const struct combine *c, size_t i)
{
	const uint64_t copy =
		load_relaxed_gpu((const uint64_t *)&c->a->op.copies[i]);

	return {(int32_t)(uint32_t)copy, (int32_t)(copy >> 32), 1};
}

/* Choice base + lane of a token that arrived. */
static __device__ __forceinline__ struct choice
load_choice(const struct combine *c, int32_t group, int32_t token, int32_t base)
{
	const int32_t k = base + c->lane;
	const size_t i = choice_index(c, group, token, k);
	struct choice x = {-1, 0, 1};

	if (k >= c->a->topk)
		return x;
	x = load_copy(c, i);
	if (c->a->op.weights && weighs(c))
		x.weight = c->a->op.weights[i];
	return x;
}

/* Choice base + lane of an own token. */
static __device__ __forceinline__ struct own_choice
load_own_choice(const struct combine *c, int32_t token, int32_t base)
{
	const struct ferry_cuda_op *op = &c->a->op;
	const int32_t k = base + c->lane;
	const size_t i = choice_index(c, 0, token, k);
	struct own_choice x = {{-1, 0, 1}, NO_RANK};

	if (k >= c->a->topk)
		return x;
	const int32_t slot = op->own_slots[i];
	const bool dropped = op->dropped && op->dropped[i];

	x.here = load_copy(c, choice_index(c, c->a->ch.group, token, k));
	if (weighs(c))
		x.here.weight = op->own_weights[i];
	if (slot >= 0 && !dropped)
		x.rank = rank_of_slot(&c->a->ch, slot);
	return x;
}

/*
 * Reads where the slot stands, with all threads of the block. False: the
 * channel has ended, return.
 */
static __device__ inline bool combine_begin(struct combine *c,
                                            struct combine_shared *s)
{
	const struct ferry_cuda_combine *a = c->a;
	const struct ferry_cuda_channel *ch = &a->ch;
	const bool packed = a->in.layout == FERRY_FROM_PACKED;

	if (threadIdx.x == 0)
		s->epoch = load_relaxed_gpu(&a->op.slot->epoch);
	if (threadIdx.x == 1)
		s->state = load_relaxed_gpu(&a->op.slot->state);
	if (threadIdx.x == 2)
		s->broken = is_broken(ch);
	for (int32_t i = (int32_t)threadIdx.x; i < ch->n_groups;
	     i += (int32_t)blockDim.x)
		s->n_tokens[i] = a->op.n_tokens[i];
	for (int32_t i = (int32_t)threadIdx.x;
	     packed && i < min(ch->own_expert_slots, (int32_t)KEPT_OFFSETS);
	     i += (int32_t)blockDim.x)
		s->offsets[i] = a->op.offsets[i];
	__syncthreads();
	c->epoch = s->epoch;
	if (s->broken)
		return false;
	if (s->state == (a->parts & FERRY_CUDA_SEND
	                         ? (uint32_t)FERRY_SLOT_DISPATCHED
	                         : (uint32_t)FERRY_SLOT_COMBINE_SENT)) {
		if (threadIdx.x == 0)
			c->ticket = add_relaxed_gpu(&a->op.slot->tickets, 1);
		return true;
	}
	const struct wait w = wait_begin(ch,
	                                 a->parts & FERRY_CUDA_SEND
	                                         ? FERRY_PHASE_COMBINE_SEND
	                                         : FERRY_PHASE_COMBINE_RECV,
	                                 a->slot, c->epoch);
	const struct ferry_cuda_record r =
		record_of(FERRY_STATE, ch->rank, &w, FERRY_CUDA_BAD_ORDER);

	if (threadIdx.x == 0)
		fail(ch, &r);
	return false;
}

/*
 * The block that was the last to read the slot moves it on. Relaxed: every
 * block's branch on the state came before its ticket. Called after the sends,
 * so that nobody waits for the ticket.
 */
static __device__ __forceinline__ void combine_advance(const struct combine *c)
{
	struct ferry_cuda_slot *slot = c->a->op.slot;

	if (threadIdx.x != 0 || c->ticket != gridDim.x - 1)
		return;
	store_relaxed_gpu(&slot->tickets, 0);
	store_relaxed_gpu(&slot->state,
	                  c->a->parts & FERRY_CUDA_RECV
	                          ? (uint32_t)FERRY_SLOT_IDLE
	                          : (uint32_t)FERRY_SLOT_COMBINE_SENT);
}

static __device__ __noinline__ void fail_row(const struct ferry_cuda_combine *a,
                                             uint64_t epoch, int32_t token,
                                             int32_t choice, int64_t index)
{
	const struct wait w =
		wait_begin(&a->ch, FERRY_PHASE_COMBINE_SEND, a->slot, epoch);
	struct ferry_cuda_record r =
		record_of(FERRY_INVAL, a->ch.rank, &w, FERRY_CUDA_NO_ROOM);

	r.token = token;
	r.choice = choice;
	r.value = index + 1;
	r.limit = a->in.y ? (int32_t)min(a->ch.padded_rows + 1,
	                                 (int64_t)INT32_MAX)
	                  : 1;
	fail(&a->ch, &r);
}

/*
 * The expert output of a choice that is served here: a row of y. Sets *bad if
 * the caller's y has no such row.
 */
static __device__ __forceinline__ const unsigned char *
expert_row(const struct combine *c, const struct choice *x, bool *bad)
{
	const struct ferry_cuda_combine *a = c->a;
	int64_t row = x->index;

	*bad = false;
	if (x->slot < 0)
		return NULL;
	*bad = !a->in.y;
	if (a->in.layout == FERRY_FROM_PADDED) {
		*bad = *bad || row >= a->ch.padded_rows;
		row += (int64_t)x->slot * a->ch.padded_rows;
	} else {
		row += x->slot < KEPT_OFFSETS ? c->shared->offsets[x->slot]
		                              : a->op.offsets[x->slot];
	}
	return (const unsigned char *)a->in.y + (size_t)row * a->in.y_stride;
}

/* The caller's own sum of a token, PRESUMMED. */
static __device__ __forceinline__ const unsigned char *
presummed_row(const struct combine *c, int32_t group, int32_t token)
{
	const int64_t row = view_row_of(&c->a->ch, c->epoch & 1, group, token);

	return (const unsigned char *)c->a->in.y +
	       (size_t)row * c->a->in.y_stride;
}

/*
 * Rows of y that a token has here, as terms of choices base..base+31. False:
 * there is no such row; the channel has ended.
 */
static __device__ __forceinline__ bool here_terms(const struct combine *c,
                                                  const struct choice *x,
                                                  int32_t token, int32_t base,
                                                  struct terms *t)
{
	bool bad;

	t->row = expert_row(c, x, &bad);
	t->all = __ballot_sync(ALL_LANES, x->slot >= 0);
	t->comes = 0;
	t->own = -1;
	t->weight = x->weight;
	t->rank = c->a->ch.rank;
	if (!__any_sync(ALL_LANES, bad))
		return true;
	if (bad)
		fail_row(c->a, c->epoch, token, base + c->lane, x->index);
	return false;
}

static __device__ __forceinline__ const unsigned char *
row_of_lane(const struct terms *t, int32_t lane)
{
	return (const unsigned char *)__shfl_sync(
		ALL_LANES, (unsigned long long)t->row, lane);
}

/* Place among `back` of the part that `rank` sends to `receiver`. */
static __device__ __forceinline__ int32_t
part_place(const struct ferry_cuda_channel *ch, int32_t rank, int32_t receiver,
           int32_t first_choice)
{
	/* Both are free of clashes, and both sides know them. */
	return ch->back_rows == ch->n_ranks - 1 ? rank - (rank > receiver)
	                                        : first_choice;
}

/*
 * EXACT: choices base..base+31 of an own token, those that are kept. False:
 * the channel has ended.
 */
static __device__ __forceinline__ bool exact_terms(const struct combine *c,
                                                   const struct own_choice *x,
                                                   int32_t token, int32_t base,
                                                   struct terms *t)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;

	if (!here_terms(c, &x->here, token, base, t))
		return false;
	const bool comes = x->rank != NO_RANK && x->rank != ch->rank;

	if (comes)
		t->row = back_at(ch, ch->rank, c->a->slot, token,
		                 base + c->lane);
	t->comes = __ballot_sync(ALL_LANES, comes);
	t->all |= t->comes;
	t->rank = x->rank;
	return true;
}

/* REDUCED: the ranks of a token. */
struct rank_walk {
	int32_t rank[2]; /* of choice lane, lane + 32; NO_RANK */
	int32_t last;    /* that had its turn */
};

static __device__ __forceinline__ struct rank_walk
walk_begin(const struct combine *c, const struct own_choice *x, int32_t token)
{
	struct rank_walk w = {{x->rank, NO_RANK}, -1};

	if (c->a->topk > 32)
		w.rank[1] = load_own_choice(c, token, 32).rank;
	return w;
}

/* The next rank, ascending, and its first choice; NO_RANK: no more. */
static __device__ __forceinline__ int32_t next_rank(struct rank_walk *w,
                                                    int32_t *choice)
{
	const int32_t a = w->rank[0] > w->last ? w->rank[0] : NO_RANK;
	const int32_t b = w->rank[1] > w->last ? w->rank[1] : NO_RANK;
	const int32_t rank = __reduce_min_sync(ALL_LANES, min(a, b));
	const uint32_t first = __ballot_sync(ALL_LANES, a == rank);
	const uint32_t second = __ballot_sync(ALL_LANES, b == rank);

	*choice = first ? __ffs((int)first) - 1 : 31 + __ffs((int)second);
	w->last = rank;
	return rank;
}

/* The next up to 32 ranks of an own token, as terms. False: no more. */
static __device__ __forceinline__ bool reduced_terms(const struct combine *c,
                                                     struct rank_walk *w,
                                                     int32_t token,
                                                     struct terms *t)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	int32_t n = 0;

	*t = {0, 0, -1, NULL, 1, NO_RANK};
	for (; n < 32; n++) {
		int32_t choice;
		const int32_t rank = next_rank(w, &choice);

		if (rank == NO_RANK)
			break;
		if (rank == ch->rank) {
			t->own = n;
		} else {
			const int32_t j =
				part_place(ch, rank, ch->rank, choice);

			t->comes |= 1u << n;
			if (c->lane == n) {
				t->row = back_at(ch, ch->rank, c->a->slot,
				                 token, j);
				t->rank = rank;
			}
		}
		t->all |= 1u << n;
	}
	return n > 0;
}

/* The next lane of *left, and takes it out; -1: none is left. */
static __device__ __forceinline__ int32_t next_lane(uint32_t *left)
{
	const int32_t lane = __ffs((int)*left) - 1;

	*left &= *left - 1;
	return lane;
}

/* Adds rows of y, all there: `at` and `bytes` are of this lane's block. */
template <int DTYPE, bool WIDE, int N>
static __device__ __forceinline__ void add_rows(float acc[BLOCK_MOST],
                                                const struct terms *t,
                                                int32_t at, int32_t bytes)
{
	for (uint32_t left = t->all; left;) {
		int32_t from[N];
		uint4 v[N];

#pragma unroll
		for (int i = 0; i < N; i++) {
			from[i] = next_lane(&left);
			if (from[i] >= 0)
				v[i] = load_block<DTYPE, WIDE>(
					row_of_lane(t, from[i]) + at, bytes);
		}
#pragma unroll
		for (int i = 0; i < N; i++)
			if (from[i] >= 0)
				add_block<DTYPE>(acc, v[i],
				                 __shfl_sync(ALL_LANES,
				                             t->weight,
				                             from[i]));
	}
}

/*
 * This lane's block of the part of a REDUCED sum that this rank forms, of the
 * choices of a token that are served here; x is choice `lane`. *any: there is
 * one. False: the channel has ended.
 */
template <int DTYPE, bool WIDE>
static __device__ __forceinline__ bool
part_block(const struct combine *c, struct choice x, int32_t group,
           int32_t token, int32_t at, int32_t bytes, bool *any, uint4 *part)
{
	float acc[BLOCK_MOST] = {0};
	struct terms t;

	*any = false;
	for (int32_t base = 0; base < c->a->topk; base += 32) {
		if (base)
			x = load_choice(c, group, token, base);
		if (c->a->in.layout == FERRY_FROM_PRESUMMED) {
			*any = *any || __any_sync(ALL_LANES, x.slot >= 0);
			continue;
		}
		if (!here_terms(c, &x, token, base, &t))
			return false;
		*any = *any || t.all;
		add_rows<DTYPE, WIDE, 2 * IN_FLIGHT>(acc, &t, at, bytes);
	}
	if (c->a->in.layout != FERRY_FROM_PRESUMMED)
		*part = round_block<DTYPE>(acc);
	else if (*any)
		*part = load_block<DTYPE, WIDE>(
			presummed_row(c, group, token) + at, bytes);
	return true;
}

#endif
