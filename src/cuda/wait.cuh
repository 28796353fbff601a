/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one bounded wait of device code, and what happens when it gives up. A
 * kernel polls its own line or flag and calls wait_again after each look in
 * vain:
 *
 *	struct wait w = wait_begin(ch, phase, slot, epoch);
 *	while (load_acquire_sys(flag) != epoch)
 *		if (!wait_again(&w, peer))
 *			return false;
 *
 * Who gives up, or finds an error in a table, calls fail: the record goes to
 * every rank's window and to the host, once for this rank. After that every
 * wait of the channel, on all ranks, ends, and every kernel ends at its start.
 */
#ifndef FERRY_WAIT_CUH
#define FERRY_WAIT_CUH

#include "cuda_args.h"
#include "order.cuh"

enum {
	WAIT_LOOK = 64,        /* polls between looks at poison, a power of 2 */
	WAIT_LOOK_HOST = 4096, /* between looks at host memory and clock */
	WAIT_TELL_NS = 4000000, /* waits that the watcher learns of */
};

static __device__ __forceinline__ struct ferry_cuda_poison *
poison_of(const struct ferry_cuda_channel *ch, int32_t rank)
{
	return (struct ferry_cuda_poison *)(ch->window[rank] +
	                                    ch->poison_offset);
}

/* Has the channel ended? One load of own memory: the first of every kernel. */
static __device__ __forceinline__ bool
is_broken(const struct ferry_cuda_channel *ch)
{
	return load_relaxed_sys(&poison_of(ch, ch->rank)->any) != 0;
}

static __device__ inline void copy_record(struct ferry_cuda_record *to,
                                          const struct ferry_cuda_record *from)
{
	volatile uint64_t *t = (volatile uint64_t *)to;
	const volatile uint64_t *f = (const volatile uint64_t *)from;

	for (int i = 0; i < 7; i++)
		t[i] = f[i];
	store_release_sys(&to->seal, 1);
}

/*
 * Publishes a failure that this rank has found. Any number of threads may
 * call it; the first one counts. Returns at once.
 */
static __device__ __noinline__ void fail(const struct ferry_cuda_channel *ch,
                                         const struct ferry_cuda_record *record)
{
	if (cas_acq_rel_gpu(&ch->local->failing, 0, 1) != 0)
		return;
	copy_record(&ch->host->record, record);
	for (int32_t i = 0; i < ch->n_ranks; i++) {
		const int32_t r = (ch->rank + i) % ch->n_ranks;
		struct ferry_cuda_poison *p = poison_of(ch, r);

		if (!ch->window[r]) /* far: the hosts tell each other */
			continue;
		copy_record(&p->of[ch->rank], record);
		store_release_sys(&p->any, 1);
	}
}

struct wait {
	const struct ferry_cuda_channel *ch;
	uint64_t begin_ns; /* 0: the clock has not been read yet */
	uint64_t epoch;
	uint32_t n_looks;
	int32_t phase, slot;
};

static __device__ __forceinline__ struct wait
wait_begin(const struct ferry_cuda_channel *ch, int32_t phase, int32_t slot,
           uint64_t epoch)
{
	struct wait w;

	w.ch = ch;
	w.begin_ns = 0;
	w.epoch = epoch;
	w.n_looks = 0;
	w.phase = phase;
	w.slot = slot;
	return w;
}

static __device__ inline struct ferry_cuda_record
record_of(int32_t status, int32_t root, const struct wait *w, int32_t detail)
{
	struct ferry_cuda_record r;

	r.status = status;
	r.root = root;
	r.phase = w->phase;
	r.slot = w->slot;
	r.token = -1;
	r.choice = -1;
	r.limit = 0;
	r.detail = detail;
	r.value = 0;
	r.epoch = w->epoch;
	r.other = 0;
	r.seal = 1;
	return r;
}

/*
 * The own host learns that the channel has ended elsewhere, and for whom this
 * rank waited (-1: for nobody). A kernel that finds is_broken at its start
 * calls it once before it returns, so that who waits for the kernel and then
 * asks the channel is told.
 */
static __device__ __noinline__ void take_poison(const struct wait *w,
                                                int32_t peer)
{
	const struct ferry_cuda_channel *ch = w->ch;
	const struct ferry_cuda_record r =
		record_of(FERRY_TIMEOUT, peer, w, FERRY_CUDA_ASKED);

	if (cas_acq_rel_gpu(&ch->local->failing, 0, 1) == 0)
		copy_record(&ch->host->record, &r);
}

/* The slow look: host memory and the clock. */
static __device__ __noinline__ bool wait_look_far(struct wait *w, int32_t peer)
{
	const struct ferry_cuda_channel *ch = w->ch;
	const uint64_t now = global_ns();

	if (load_relaxed_sys(&ch->host->stop)) {
		const struct ferry_cuda_record r =
			record_of(FERRY_ABORTED, -1, w, FERRY_CUDA_STOPPED);

		/* The host knows why; the peers' hosts have told them. */
		cas_acq_rel_gpu(&ch->local->failing, 0, 1);
		copy_record(&poison_of(ch, ch->rank)->of[ch->rank], &r);
		store_release_sys(&poison_of(ch, ch->rank)->any, 1);
		return false;
	}
	if (!w->begin_ns)
		w->begin_ns = now;
	if (now - w->begin_ns > WAIT_TELL_NS)
		store_release_sys(&ch->host->waiting,
		                  ((uint32_t)peer + 1) |
		                          (uint32_t)w->phase << 8 |
		                          (uint32_t)w->slot << 16);
	if (now - w->begin_ns <= ch->timeout_ns)
		return true;
	const struct ferry_cuda_record r =
		record_of(FERRY_TIMEOUT, peer, w, FERRY_CUDA_WAITED);

	fail(ch, &r);
	return false;
}

/* After a look in vain. False: the channel has ended, return. */
static __device__ __forceinline__ bool wait_again(struct wait *w, int32_t peer)
{
	const uint32_t n = ++w->n_looks;

	if (n % WAIT_LOOK)
		return true;
	if (is_broken(w->ch)) {
		take_poison(w, peer);
		return false;
	}
	return n % WAIT_LOOK_HOST ? true : wait_look_far(w, peer);
}

static __device__ __noinline__ bool wait_look_warp(struct wait *w, int32_t peer)
{
	bool goes_on = true;

	if (threadIdx.x % 32 == 0) {
		w->n_looks += WAIT_LOOK - 1;
		goes_on = wait_again(w, peer);
	}
	return __all_sync(0xffffffffu, goes_on);
}

/*
 * The same for a whole warp that looks together, with one wait in shared
 * memory; `peer` is lane 0's. False on all lanes: the channel has ended.
 */
static __device__ __forceinline__ bool
wait_again_warp(struct wait *w, uint32_t *n_looks, int32_t peer)
{
	if (++*n_looks % WAIT_LOOK)
		return true;
	return wait_look_warp(w, peer);
}

#endif
