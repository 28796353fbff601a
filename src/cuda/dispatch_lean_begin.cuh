/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a block of the lean dispatch kernel begins: who it is, what it clears,
 * and what the slot and the poison say.
 */
#ifndef FERRY_DISPATCH_LEAN_BEGIN_CUH
#define FERRY_DISPATCH_LEAN_BEGIN_CUH

#include "dispatch_lean.cuh"

/* The thread that reads the slot. */
enum { LEAN_READER = LEAN_THREADS - 32 };

static __device__ __forceinline__ struct lean
lean_begin(const struct lean_args *a, struct lean_shared *shared,
           unsigned char *smem)
{
	struct lean l;

	l.a = a;
	l.d = &a->d;
	l.ch = &a->d.ch;
	l.shared = shared;
	l.smem = smem;
	l.epoch = 0;
	l.table_half = l.row_half = l.flag_half = 0;
	l.thread = threadIdx.x;
	l.warp = threadIdx.x / 32;
	l.lane = threadIdx.x % 32;
	l.team = threadIdx.x / LINE_LANES;
	l.team_lane = threadIdx.x % LINE_LANES;
	l.own = (uint32_t)a->d.ch.rank;
	l.is_clerk = blockIdx.x == 0;
	l.counts = l.is_clerk || a->d.ch.layout != FERRY_EXPERT_PADDED;
	l.works = blockIdx.x > 0 || gridDim.x == 1;
	l.worker = blockIdx.x > 0 ? blockIdx.x - 1 : 0;
	return l;
}

/* What the block adds up and finds out. */
static __device__ __forceinline__ void clear_shared(const struct lean *l)
{
#pragma unroll 1
	for (uint32_t s = l->thread;
	     l->counts && s < (uint32_t)l->ch->n_expert_slots;
	     s += LEAN_THREADS)
		lean_counts(l)[s] = 0;
	if (l->thread < LEAN_RANKS)
		l->shared->tables[l->thread] = 0;
	if (l->thread == LEAN_READER) {
		l->shared->bad = LEAN_NOTHING;
		l->shared->odd = 0;
		l->shared->bad_slots = 0;
		l->shared->late = 0;
		l->shared->bad_rank = LEAN_NOTHING;
	}
	lean_sync();
}

/* Loads of the slot, which are looked at when the row has been staged. */
struct lean_slot {
	uint64_t broken, epoch;
	uint32_t state;
};

static __device__ __forceinline__ void look_at_slot(const struct lean *l,
                                                    struct lean_slot *s)
{
	if (l->thread != LEAN_READER)
		return;
	s->broken = load_relaxed_sys(&poison_of(l->ch, l->ch->rank)->any);
	s->epoch = load_relaxed_gpu(&l->d->op.slot->epoch);
	s->state = load_relaxed_gpu(&l->d->op.slot->state);
}

template <int32_t PARTS>
static __device__ __forceinline__ void tell_slot(const struct lean *l,
                                                 const struct lean_slot *s)
{
	if (l->thread != LEAN_READER)
		return;
	l->shared->epoch = s->epoch + (PARTS & LEAN_SEND);
	l->shared->state = s->state;
	if (PARTS & LEAN_SEND)
		l->shared->stop = s->broken                           ? 1
		                  : s->state == FERRY_SLOT_IDLE       ? 0
		                  : s->state == FERRY_SLOT_DISPATCHED ? 0
		                                                      : 2;
	else
		l->shared->stop = s->broken                              ? 1
		                  : s->state == FERRY_SLOT_DISPATCH_SENT ? 0
		                                                         : 2;
}

static __device__ __forceinline__ void take_epoch(struct lean *l)
{
	l->epoch = l->shared->epoch;
	if (l->epoch & 1) {
		l->table_half = l->a->table_half;
		l->row_half = l->a->row_half;
		l->flag_half = l->a->flag_half;
	}
}

#endif
