/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_recv by lines in a launch of its own, for rows on multiples of 16 and
 * at most 32 choices. As a rule all has arrived by then, so that what counts
 * is what a warp does before its loads are on their way, and how many are:
 * terms are in registers, and the argument begins with what is needed first.
 */
#ifndef FERRY_COMBINE_LINES_ALONE_CUH
#define FERRY_COMBINE_LINES_ALONE_CUH

#include "combine_alone.cuh"

/*
 * Adds n terms in their order, waiting for those that come. False: the channel
 * has ended.
 */
template <int DTYPE, int KIND, int N>
static __device__ __forceinline__ bool
alone_sum(const struct alone<N> *w, int32_t n, float acc[N][BLOCK_MOST])
{
	const uint64_t epoch = w->s->epoch;

#pragma unroll 1
	for (int32_t base = 0; base < n; base += ALONE_TERMS) {
		const struct alone_term *terms = w->terms + base;
		uint4 v[ALONE_TERMS][N];

		for (;;) {
			int32_t missing = 0;

#pragma unroll
			for (int i = 0; i < ALONE_TERMS; i++)
				if (base + i < n)
					alone_load<N>(w, terms[i].row,
					              terms[i].source != 0,
					              v[i]);
#pragma unroll
			for (int i = 0; i < ALONE_TERMS; i++)
				if (base + i < n && terms[i].source &&
				    !alone_there<N>(w, epoch, v[i]))
					missing = terms[i].source;
			if (!__any_sync(ALL_LANES, missing != 0))
				break;
			if (!alone_misses<KIND>(w->t, w->s, missing))
				return false;
		}
#pragma unroll
		for (int i = 0; i < ALONE_TERMS; i++)
			if (base + i < n)
				alone_add<DTYPE, N>(w, v[i],
				                    terms[i].source != 0,
				                    terms[i].weight, acc);
	}
	return true;
}

static __device__ __forceinline__ struct choice
alone_copy(const struct alone_args *t, size_t i)
{
	const uint64_t copy = load_relaxed_gpu((const uint64_t *)&t->copies[i]);

	return {(int32_t)(uint32_t)copy, (int32_t)(copy >> 32), 1};
}

template <int KIND>
static __device__ __forceinline__ struct alone_choice
alone_choice(const struct alone_args *t, int32_t token, int32_t lane)
{
	const size_t i = (uint64_t)(uint32_t)token * (uint32_t)t->max_topk +
	                 (uint32_t)lane;
	struct alone_choice x = {-1, {-1, 0, 1}};

	if (lane >= t->topk)
		return x;
	x.slot = t->own_slots[i];
	if (KIND == ALONE_EXACT) {
		x.here = alone_copy(t, i);
		if (t->own_weights)
			x.here.weight = t->own_weights[i];
	}
	if (t->dropped && t->dropped[i])
		x.slot = -1;
	return x;
}

static __device__ __forceinline__ bool is_own_slot(const struct alone_args *t,
                                                   int32_t slot)
{
	return (uint32_t)(slot - t->first_own) < (uint32_t)t->n_own;
}

/* Row of y of a choice that is served here. */
template <int N>
static __device__ __forceinline__ const unsigned char *
alone_row(const struct alone<N> *w, const struct choice *x)
{
	const struct alone_args *t = w->t;
	int64_t row = x->index;

	if (!t->offsets)
		row += x->slot * t->padded_rows;
	else
		row += x->slot < KEPT_OFFSETS ? w->s->offsets[x->slot]
		                              : t->offsets[x->slot];
	return t->y + (size_t)row * t->y_stride;
}

/* The lanes' terms go to shared memory, in order. Returns how many. */
template <int N>
static __device__ __forceinline__ int32_t alone_share(const struct alone<N> *w,
                                                      bool has,
                                                      struct alone_term term)
{
	const uint32_t all = __ballot_sync(ALL_LANES, has);

	/* Also until other lanes have read those of the last item. */
	__syncwarp();
	if (has)
		w->terms[__popc(all & ((1u << w->lane) - 1))] = term;
	__syncwarp();
	return __popc(all);
}

/* The number of terms. -1: a row that is not there; the channel has ended. */
template <int N>
static __device__ __forceinline__ int32_t alone_exact(const struct alone<N> *w,
                                                      struct alone_choice x)
{
	const struct alone_args *t = w->t;
	const bool here = x.here.slot >= 0;
	const bool comes = x.slot >= 0 && !is_own_slot(t, x.slot);
	const bool bad =
		here &&
		(!t->y || (!t->offsets && x.here.index >= t->padded_rows));
	struct alone_term term = {NULL, x.here.weight, 0};

	if (comes) {
		term.row = alone_back(w) + (size_t)w->lane * t->back_stride;
		term.source = x.slot + 1;
	} else if (here) {
		term.row = alone_row(w, &x.here);
	}
	if (!__any_sync(ALL_LANES, bad))
		return alone_share(w, here || comes, term);
	if (bad)
		fail_row(&t->a, w->s->epoch, w->token, w->lane, x.here.index);
	return -1;
}

/* Parts: at most 32 choices, so at most 32 ranks. */
template <int N>
static __device__ __forceinline__ int32_t alone_parts(const struct alone<N> *w,
                                                      struct alone_choice x)
{
	const struct combine c = {&w->t->a, NULL, 0, 0, w->lane};
	const struct own_choice choice = {x.here, x.slot};
	struct rank_walk walk = walk_begin<HOW_REDUCED>(&c, &choice, w->token);
	struct terms s;

	reduced_terms(&c, &walk, w->token, &s);
	if (w->lane == s.own)
		return alone_share(w, true, {alone_part(w), 1, 0});
	return alone_share(w, s.all >> w->lane & 1, {s.row, 1, s.rank + 1});
}

/* What a warp needs of an item of two parts: on its way at once. */
template <int N> struct alone_pair {
	int32_t slot; /* of choice `lane` */
	uint4 own[N], other[N];
};

template <int N>
static __device__ __forceinline__ void alone_load_pair(const struct alone<N> *w,
                                                       struct alone_pair<N> *x)
{
	alone_load<N>(w, alone_back(w), true, x->other);
	alone_load<N>(w, alone_part(w), false, x->own);
	x->slot = alone_choice<ALONE_PAIR>(w->t, w->token, w->lane).slot;
}

/* Two terms from +0 on have the same sum in either order. */
template <int DTYPE, int N>
static __device__ __forceinline__ bool alone_sum_pair(const struct alone<N> *w,
                                                      struct alone_pair<N> *x,
                                                      float acc[N][BLOCK_MOST])
{
	const struct alone_args *t = w->t;
	const bool here = is_own_slot(t, x->slot);

	if (__any_sync(ALL_LANES, here))
		alone_add<DTYPE, N>(w, x->own, false, 1, acc);
	if (!__any_sync(ALL_LANES, x->slot >= 0 && !here))
		return true;
	while (!__all_sync(ALL_LANES,
	                   alone_there<N>(w, w->s->epoch, x->other))) {
		if (!alone_again(t, w->s, 1 - t->a.ch.rank))
			return false;
		alone_load<N>(w, alone_back(w), true, x->other);
	}
	alone_add<DTYPE, N>(w, x->other, true, 1, acc);
	return true;
}

/* Items at, at + step, ... of this warp; x and pair are those of the first. */
template <int DTYPE, int KIND, int N>
static __device__ __forceinline__ bool
alone_items(struct alone<N> w, int32_t at, struct alone_choice x,
            struct alone_pair<N> pair)
{
	const int32_t n = w.s->n_tokens * w.t->n_items;

#pragma unroll 1
	while (at < n) {
		float acc[N][BLOCK_MOST] = {{0}};

		if (KIND == ALONE_PAIR) {
			if (!alone_sum_pair<DTYPE, N>(&w, &pair, acc))
				return false;
		} else {
			const int32_t n_terms = KIND == ALONE_EXACT
			                                ? alone_exact(&w, x)
			                                : alone_parts(&w, x);

			if (n_terms < 0 ||
			    !alone_sum<DTYPE, KIND, N>(&w, n_terms, acc))
				return false;
		}
		alone_finish<DTYPE, N>(&w, acc);
		at += N_WARPS * (int32_t)gridDim.x;
		if (at >= n)
			break;
		alone_item<N>(&w, at);
		if (KIND == ALONE_PAIR)
			alone_load_pair<N>(&w, &pair);
		else
			x = alone_choice<KIND>(w.t, w.token, w.lane);
	}
	return true;
}

template <int DTYPE, int KIND>
static __device__ __forceinline__ void alone_receive(const struct alone_args *t,
                                                     struct alone_shared *s)
{
	constexpr int N = ALONE_STRIPES;
	const int32_t warp = (int32_t)threadIdx.x / 32;
	const int32_t at = warp * (int32_t)gridDim.x + (int32_t)blockIdx.x;
	/* The last warp has the fewest items. */
	const bool looks = threadIdx.x == N_WARPS * 32 - 32;
	struct alone<N> w;
	struct alone_choice x = {-1, {-1, 0, 1}};
	struct alone_pair<N> pair;
	struct alone_look look;
	uint32_t ticket = 0;

	if (looks)
		look = alone_look(t);
	w.t = t;
	w.s = s;
	w.terms = s->terms[warp];
	w.lane = (int32_t)threadIdx.x % 32;
	/* On the way before the slot is known; of some token if unused. */
	alone_item<N>(&w, at);
	if (KIND == ALONE_PAIR)
		alone_load_pair<N>(&w, &pair);
	else
		x = alone_choice<KIND>(t, w.token, w.lane);
	if (KIND == ALONE_EXACT && t->offsets)
		alone_load_offsets(t, s);
	if (w.lane == 0)
		s->waits[warp].ch = NULL;
	if (looks)
		alone_tell(s, look);
	__syncthreads();
	if (!alone_goes(t, s))
		return;
	if (looks)
		ticket = add_relaxed_gpu(&t->slot->tickets, 1);
	if (alone_items<DTYPE, KIND, N>(w, at, x, pair) && looks)
		alone_advance(t, ticket);
}

#endif
