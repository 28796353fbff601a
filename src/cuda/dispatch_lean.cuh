/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the lean dispatch kernel share: arguments, the threads of
 * a block, its shared memory, and how it ends where something is wrong. The
 * protocol is in dispatch_lean.cu.
 */
#ifndef FERRY_DISPATCH_LEAN_CUH
#define FERRY_DISPATCH_LEAN_CUH

#include "../proto/slot_state.h"
#include "../proto/table.h"
#include "cuda_args.h"
#include "dispatch_lean_trace.cuh"
#include "line.cuh"
#include "place.cuh"
#include "rows.cuh"
#include "table_form.cuh"
#include "wait.cuh"

enum {
	LEAN_THREADS = 512,
	LEAN_WARPS = LEAN_THREADS / 32,
	LEAN_TEAMS = LEAN_THREADS / LINE_LANES, /* a team moves a line */
	LEAN_CARRIER = LEAN_WARPS, /* TOKEN: the warp that carries rows */
	LEAN_RANKS = 8,
	LEAN_TOPK = 16,
	LEAN_ENTRIES = 8192, /* of all ranks */
	LEAN_NO_SLOT = 0xffff,
	LEAN_NOTHING = 0x7fffffff,
	LEAN_SMEM_BYTES = 200 << 10,
};

/* Division of numbers below 2^31 by one that is known at launch. */
struct lean_div {
	uint32_t by, factor, shift;
};

static inline struct lean_div lean_div_of(uint32_t by)
{
	struct lean_div d = {by, 0, 31};

	while ((uint64_t)1 << (d.shift - 31) < by)
		d.shift++;
	d.factor = (uint32_t)(((uint64_t)1 << d.shift) / by + 1);
	return d;
}

static __device__ __forceinline__ uint32_t lean_quotient(uint32_t n,
                                                         struct lean_div d)
{
	return (uint32_t)((uint64_t)n * d.factor >> d.shift);
}

/* Offsets in dynamic shared memory; rows come first. */
struct lean_layout {
	uint32_t row_stride;   /* [n_units][n_images] images of rows */
	uint32_t n_images;     /* of each rank; TOKEN: the own only */
	uint32_t entries;      /* uint16_t [n_ranks][entry_stride]: slots */
	uint32_t entry_stride; /* a multiple of 8 */
	uint32_t weights;      /* float: own, of the clerk */
	uint32_t counts;       /* uint32_t [n_expert_slots + 1]: of each */
	uint32_t rows;         /* int64_t [n_units][n_ranks][max_topk] */
	uint32_t bytes;
};

/* Made by launch. Halves of a slot lie `.._half` bytes apart. */
struct lean_args {
	unsigned char *table_to[LEAN_RANKS]; /* of this rank, on every rank */
	unsigned char *row_to[LEAN_RANKS];   /* its row 0 */
	unsigned char *table_in[LEAN_RANKS]; /* of every rank, here */
	unsigned char *row_in[LEAN_RANKS];
	uint64_t *flag_to[LEAN_RANKS]; /* TOKEN: of row 0, likewise */
	uint64_t *flag_in[LEAN_RANKS];
	size_t table_half, row_half, flag_half; /* flags: not in bytes */
	struct lean_layout at;
	uint32_t n_workers; /* blocks that move rows; block 0 sends the table */
	uint32_t n_units;   /* tokens of a worker: worker + i * n_workers */
	uint32_t row_lines, image_bytes;
	uint32_t row_bytes, scale_bytes; /* scales follow the payload */
	uint32_t n_rounds;               /* for the block to stage a row */
	uint32_t carry_bytes;            /* TOKEN: of a row, whole lines */
	uint32_t own_image;
	uint32_t weights_travel;
	struct lean_div by_topk, by_max_topk, by_ranks, by_table_lines;
	struct ferry_cuda_dispatch d;
};

enum lean_odd {
	LEAN_LOOK = 1,   /* there may be something to refuse */
	LEAN_FAILED = 2, /* a wait has ended in vain, or all is refused */
};

struct lean_shared {
	uint64_t epoch;
	uint32_t stop;      /* 1: the channel has ended, 2: not this phase */
	uint32_t state;     /* of the slot, as found */
	uint32_t bad;       /* first own entry whose id is bad */
	uint32_t odd;       /* bits of enum lean_odd */
	uint32_t bad_slots; /* ranks that named a slot that does not exist */
	uint32_t bad_rank;  /* lowest one without room */
	uint32_t late;      /* recv alone: a line of the row is not here yet */
	uint64_t own_rows;  /* recv alone: barrier of their loads */
	/* Of each rank: lines that must come, and in the upper half entries,
	 * so that who sees the one has the other. 0: nothing is known yet. */
	uint64_t tables[LEAN_RANKS];
	uint32_t n[LEAN_RANKS]; /* entries, for who comes behind a barrier */
	struct ferry_table heads[LEAN_RANKS];
	struct wait waits[LEAN_WARPS];
};

/*
 * Bits of PARTS of templates: as `parts` of the argument, and whether choices
 * go by quotas: by kernels of their own, so that others do not wait for it.
 */
enum {
	LEAN_SEND = FERRY_CUDA_SEND,
	LEAN_RECV = FERRY_CUDA_RECV,
	LEAN_BOTH = LEAN_SEND | LEAN_RECV,
	LEAN_QUOTA = 4,
};

/* A block of the kernel. */
struct lean {
	const struct lean_args *a;
	const struct ferry_cuda_dispatch *d;
	const struct ferry_cuda_channel *ch;
	struct lean_shared *shared;
	unsigned char *smem;
	uint64_t epoch;
	size_t table_half, row_half, flag_half; /* of this epoch */
	uint32_t thread, warp, lane, team, team_lane;
	uint32_t own; /* this rank */
	uint32_t worker;
	bool is_clerk, works;
	bool counts; /* rows of slots are wanted */
};

static __device__ __forceinline__ unsigned char *
lean_row(const struct lean *l, uint32_t unit, uint32_t source)
{
	return l->smem +
	       (unit * l->a->at.n_images + source) * l->a->at.row_stride;
}

static __device__ __forceinline__ unsigned char *
lean_own_row(const struct lean *l, uint32_t unit)
{
	return lean_row(l, unit, l->a->own_image);
}

/* The carrier does not take part in barriers behind the first. */
static __device__ __forceinline__ void lean_sync(void)
{
	block_sync(LEAN_THREADS);
}

static __device__ __forceinline__ bool lean_any(bool v)
{
	return block_any(LEAN_THREADS, v);
}

static __device__ __forceinline__ uint16_t *lean_entries(const struct lean *l,
                                                         uint32_t source)
{
	return (uint16_t *)(l->smem + l->a->at.entries) +
	       source * l->a->at.entry_stride;
}

static __device__ __forceinline__ uint32_t *lean_counts(const struct lean *l)
{
	return (uint32_t *)(l->smem + l->a->at.counts);
}

/* One more row of a slot, if it is one. */
static __device__ __forceinline__ void lean_count(const struct lean *l,
                                                  uint32_t slot)
{
	if (l->counts && slot < (uint32_t)l->ch->n_expert_slots)
		atomicAdd(&lean_counts(l)[slot], 1);
}

/* Own slots are those below own_expert_slots here. */
static __device__ __forceinline__ uint32_t lean_own_slot(const struct lean *l,
                                                         uint32_t slot)
{
	return slot - (uint32_t)l->ch->first_slot[l->own];
}

static __device__ __forceinline__ struct wait
lean_wait(const struct ferry_cuda_dispatch *d, int32_t phase, uint64_t epoch)
{
	return wait_begin(&d->ch, phase, d->slot, epoch);
}

/* After a look of a whole warp in vain; see wait_again_warp. */
static __device__ __forceinline__ bool
lean_again(const struct lean *l, uint32_t *n_looks, uint32_t peer)
{
	return wait_again_warp(&l->shared->waits[l->warp], n_looks,
	                       (int32_t)peer);
}

/* After a failure: by a whole block, and by every one that finds it. */
static __device__ __noinline__ void
lean_clear(const struct ferry_cuda_dispatch *d)
{
	const struct ferry_dispatch_out *out = &d->out;
	const int32_t n = d->ch.own_expert_slots;
	const int32_t s = (int32_t)threadIdx.x;

	/* Orders what another block wrote before it looked for a failure. */
	fence_sc_gpu();
	if (out->counts && s < n)
		out->counts[s] = 0;
	if (out->offsets && s <= n)
		out->offsets[s] = 0;
	if (s == 0 && out->n_rows)
		*out->n_rows = 0;
	if (s == 0 && out->n_dropped)
		*out->n_dropped = 0;
}

static __device__ __forceinline__ int32_t
lean_phase(const struct ferry_cuda_dispatch *d)
{
	return d->parts & FERRY_CUDA_SEND ? FERRY_PHASE_DISPATCH_SEND
	                                  : FERRY_PHASE_DISPATCH_RECV;
}

/* This block ends early; the host is told, if nobody has done so yet. */
static __device__ __noinline__ void lean_leave(const struct lean_args *a,
                                               const struct lean_shared *shared)
{
	const struct wait w =
		lean_wait(&a->d, lean_phase(&a->d), shared->epoch);

	if (threadIdx.x == 0)
		take_poison(&w, -1);
	lean_clear(&a->d);
}

/* Nothing is done: the channel has ended, or this phase does not come next. */
static __device__ __noinline__ void lean_stop(const struct lean_args *a,
                                              const struct lean_shared *shared)
{
	const struct wait w =
		lean_wait(&a->d, lean_phase(&a->d), shared->epoch);
	struct ferry_cuda_record r =
		record_of(FERRY_STATE, a->d.ch.rank, &w, FERRY_CUDA_BAD_ORDER);

	r.value = shared->state;
	if (threadIdx.x == 0 && shared->stop == 2)
		fail(&a->d.ch, &r);
	lean_leave(a, shared);
}

/* What is wrong with the form of a table? False: nothing. */
static __device__ inline bool lean_bad_form(const struct lean_args *a,
                                            const struct lean_shared *shared,
                                            int32_t rank,
                                            struct ferry_cuda_record *r)
{
	const struct ferry_table *t = &shared->heads[rank];
	const struct ferry_cuda_channel *ch = &a->d.ch;

	r->choice = wrong_field(ch, t, shared->epoch, &r->value);
	if (r->choice < 0 && shared->bad_slots >> rank & 1) {
		r->choice = FERRY_TABLE_SLOT;
		r->value = ch->n_expert_slots; /* or beyond */
	}
	r->root = rank;
	r->status = FERRY_PROTO;
	r->detail = FERRY_CUDA_BAD_TABLE;
	return r->choice >= 0;
}

static __device__ inline bool lean_marked(const struct lean_shared *shared,
                                          int32_t rank,
                                          struct ferry_cuda_record *r)
{
	const struct ferry_table *t = &shared->heads[rank];

	r->status = t->mark_status;
	r->root = rank;
	r->detail =
		t->mark_token < 0 ? FERRY_CUDA_BAD_COUNT : FERRY_CUDA_BAD_ID;
	r->token = t->mark_token;
	r->choice = t->mark_choice;
	r->value = t->mark_value;
	r->limit = t->mark_limit;
	return t->mark_status != 0;
}

/* Does a rank disagree with the first, or the first that has a placement? */
static __device__ inline bool lean_differs(const struct lean_args *a,
                                           const struct lean_shared *shared,
                                           int32_t rank,
                                           struct ferry_cuda_record *r)
{
	const struct ferry_table *t = &shared->heads[rank];
	int32_t placed = 0;

	r->status = FERRY_MISMATCH;
	r->root = rank;
	r->token = -1;
	r->choice = -1;
	while (placed + 1 < a->d.ch.n_ranks &&
	       !shared->heads[placed].placement_hash)
		placed++;
	if (t->hidden != shared->heads[0].hidden) {
		r->detail = FERRY_CUDA_BAD_HIDDEN;
		r->value = t->hidden;
		r->other = shared->heads[0].hidden;
		r->limit = 0;
		return true;
	}
	r->detail = FERRY_CUDA_BAD_PLACEMENT;
	r->value = (int64_t)t->placement_hash;
	r->other = (int64_t)shared->heads[placed].placement_hash;
	r->limit = placed;
	return t->placement_hash && r->value != r->other;
}

/*
 * Publishes the first thing to refuse, if any: all tables' forms, all marks,
 * then hidden and placement of each rank. By one thread.
 */
static __device__ __noinline__ bool
lean_refuses(const struct lean_args *a, const struct lean_shared *shared)
{
	const struct ferry_cuda_channel *ch = &a->d.ch;
	const struct wait w =
		lean_wait(&a->d, FERRY_PHASE_DISPATCH_RECV, shared->epoch);
	struct ferry_cuda_record r = record_of(FERRY_PROTO, -1, &w, 0);

	for (int32_t i = 0; i < 3 * ch->n_ranks; i++) {
		const int32_t kind = i / ch->n_ranks, rank = i % ch->n_ranks;

		if (kind == 0   ? lean_bad_form(a, shared, rank, &r)
		    : kind == 1 ? lean_marked(shared, rank, &r)
		                : lean_differs(a, shared, rank, &r)) {
			fail(ch, &r);
			return true;
		}
	}
	return false;
}

/* A rank lacks room. By one thread. */
static __device__ __noinline__ void lean_overflows(const struct lean_args *a,
                                                   const struct lean_shared *s,
                                                   const uint32_t *counts)
{
	const struct ferry_cuda_channel *ch = &a->d.ch;
	const int32_t rank = (int32_t)s->bad_rank;
	const struct wait w =
		lean_wait(&a->d, FERRY_PHASE_DISPATCH_RECV, s->epoch);
	struct ferry_cuda_record r =
		record_of(FERRY_OVERFLOW, rank, &w, FERRY_CUDA_NO_ROOM);

	for (int32_t i = ch->first_slot[rank]; i < ch->first_slot[rank + 1];
	     i++)
		if (counts[i] > r.value)
			r.value = counts[i];
	r.limit = (int32_t)(ch->padded_rows + 1);
	fail(ch, &r);
}

#endif
