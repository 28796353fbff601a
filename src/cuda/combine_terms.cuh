/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both combine kernels do alike: which rows this rank sends for a token,
 * and which terms an own token's sum has. A warp works on one token at a time;
 * what belongs to its choices is spread over the lanes, choice base + lane, in
 * rounds of 32.
 */
#ifndef FERRY_COMBINE_TERMS_CUH
#define FERRY_COMBINE_TERMS_CUH

#include "../proto/slot_state.h"
#include "net_port.cuh"
#include "sum.cuh"
#include "wait.cuh"

enum {
	KEPT_OFFSETS = 512, /* of expert slots, in shared memory */
	IN_FLIGHT = 4,      /* rows of a token that a lane loads at once */
	NO_RANK = INT32_MAX,
};

/*
 * What a kernel is compiled for: one way of combining with rows on multiples
 * of 16 and at most 32 choices, or, HOW_ANY, whatever there is.
 */
enum { HOW_ANY, HOW_EXACT, HOW_REDUCED, HOW_PRESUMMED, N_HOWS };

static constexpr uint32_t ALL_LANES = 0xffffffff;

struct combine_shared {
	int64_t offsets[KEPT_OFFSETS];
	int32_t n_tokens[FERRY_CUDA_MAX_RANKS];
	uint64_t epoch;
	uint32_t state, broken;
	uint32_t stop_round; /* of a team, at which it gives up */
};

struct combine {
	const struct ferry_cuda_combine *a;
	struct combine_shared *shared;
	uint64_t epoch;
	uint32_t ticket; /* last thread: of this block, from 0 */
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
	int32_t slot;       /* in the world that answers, -1: nobody */
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

template <int HOW>
static __device__ __forceinline__ bool is_exact(const struct combine *c)
{
	return HOW == HOW_ANY ? c->a->ch.combine == FERRY_EXACT
	                      : HOW == HOW_EXACT;
}

template <int HOW>
static __device__ __forceinline__ bool is_presummed(const struct combine *c)
{
	return HOW == HOW_ANY ? c->a->in.layout == FERRY_FROM_PRESUMMED
	                      : HOW == HOW_PRESUMMED;
}

/* More choices than lanes? */
template <int HOW>
static __device__ __forceinline__ bool is_many(const struct combine *c)
{
	return HOW == HOW_ANY && c->a->topk > 32;
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
	struct own_choice x = {{-1, 0, 1}, -1};

	if (k >= c->a->topk)
		return x;
	x.slot = op->own_slots[i];
	if (op->dropped && op->dropped[i])
		x.slot = -1;
	x.here = load_copy(c, choice_index(c, c->a->ch.group, token, k));
	if (weighs(c))
		x.here.weight = op->own_weights[i];
	return x;
}

/* The rank that answers, NO_RANK: nobody. */
static __device__ __forceinline__ int32_t rank_of(const struct combine *c,
                                                  const struct own_choice *x)
{
	return x->slot < 0 ? (int32_t)NO_RANK
	                   : rank_of_slot(&c->a->ch, x->slot);
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
 * Where a row of this rank for a token of `receiver` goes in its window. j:
 * EXACT the choice, otherwise the first one that is served here.
 */
template <int HOW>
static __device__ __forceinline__ unsigned char *
back_row_of(const struct combine *c, int32_t receiver, int32_t token, int32_t j)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;

	if (!is_exact<HOW>(c))
		j = part_place(ch, ch->rank, receiver, j);
	return back_at(ch, receiver, c->a->slot, token, j);
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
	const int32_t rank = rank_of(c, x);
	const bool comes = rank != NO_RANK && rank != ch->rank;

	if (comes)
		t->row = net_from(ch, rank,
		                  back_at(ch, ch->rank, c->a->slot, token,
		                          base + c->lane));
	t->comes = __ballot_sync(ALL_LANES, comes);
	t->all |= t->comes;
	t->rank = rank;
	return true;
}

/* REDUCED: the ranks of a token. */
struct rank_walk {
	int32_t rank[2]; /* of choice lane, lane + 32; NO_RANK */
	int32_t last;    /* that had its turn */
};

template <int HOW>
static __device__ __forceinline__ struct rank_walk
walk_begin(const struct combine *c, const struct own_choice *x, int32_t token)
{
	struct rank_walk w = {{rank_of(c, x), NO_RANK}, -1};

	if (is_many<HOW>(c)) {
		const struct own_choice y = load_own_choice(c, token, 32);

		w.rank[1] = rank_of(c, &y);
	}
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
#pragma unroll 1
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
				t->row =
					net_from(ch, rank,
				                 back_at(ch, ch->rank,
				                         c->a->slot, token, j));
				t->rank = rank;
			}
		}
		t->all |= 1u << n;
	}
	return n > 0;
}

/* The first choice of a token that is served here, -1; x is choice `lane`. */
template <int HOW>
static __device__ __forceinline__ int32_t first_here(const struct combine *c,
                                                     const struct choice *x,
                                                     int32_t group,
                                                     int32_t token)
{
	const uint32_t low = __ballot_sync(ALL_LANES, x->slot >= 0);

	if (low || !is_many<HOW>(c))
		return __ffs((int)low) - 1;
	const struct choice y = load_choice(c, group, token, 32);

	const uint32_t high = __ballot_sync(ALL_LANES, y.slot >= 0);

	return high ? 31 + __ffs((int)high) : -1;
}

/* The groups after the own one, then the own if it has other ranks. */
static __device__ __forceinline__ int32_t nth_group(const struct combine *c,
                                                    int32_t n)
{
	return (c->a->ch.group + n) % c->a->ch.n_groups;
}

static __device__ __forceinline__ bool has_receivers(const struct combine *c,
                                                     int32_t group)
{
	return group != c->a->ch.group || c->a->ch.group_size > 1;
}

/* The next lane of *left, and takes it out; -1: none is left. */
static __device__ __forceinline__ int32_t next_lane(uint32_t *left)
{
	const int32_t lane = __ffs((int)*left) - 1;

	*left &= *left - 1;
	return lane;
}

static __device__ __forceinline__ int32_t block_bytes(const struct combine *c,
                                                      int32_t at)
{
	return max(0, min((int32_t)c->a->row_bytes - at, (int32_t)BLOCK_BYTES));
}

/* Is a token served here? x is choice `lane`. */
template <int HOW>
static __device__ __forceinline__ bool is_here(const struct combine *c,
                                               const struct choice *x,
                                               int32_t group, int32_t token)
{
	bool here = __any_sync(ALL_LANES, x->slot >= 0);

	if (!here && is_many<HOW>(c)) {
		const struct choice y = load_choice(c, group, token, 32);

		here = __any_sync(ALL_LANES, y.slot >= 0);
	}
	return here;
}

/* Host: the kernel that serves a call. */
static inline int how_of(const struct ferry_cuda_combine *a)
{
	if (!rows_are_wide(a) || a->topk > 32)
		return HOW_ANY;
	return a->ch.combine == FERRY_EXACT           ? HOW_EXACT
	       : a->in.layout == FERRY_FROM_PRESUMMED ? HOW_PRESUMMED
	                                              : HOW_REDUCED;
}

#endif
