/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an operation stands when a combine kernel begins, and that it goes on
 * from there: the slot is read by all blocks, and moved on by the last one.
 */
#ifndef FERRY_COMBINE_BEGIN_CUH
#define FERRY_COMBINE_BEGIN_CUH

#include "combine_terms.cuh"

static __device__ __noinline__ void
fail_order(const struct ferry_cuda_combine *a, uint64_t epoch)
{
	const struct wait w = wait_begin(&a->ch,
	                                 a->parts & FERRY_CUDA_SEND
	                                         ? FERRY_PHASE_COMBINE_SEND
	                                         : FERRY_PHASE_COMBINE_RECV,
	                                 a->slot, epoch);
	const struct ferry_cuda_record r =
		record_of(FERRY_STATE, a->ch.rank, &w, FERRY_CUDA_BAD_ORDER);

	fail(&a->ch, &r);
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

	if (threadIdx.x == 0) {
		/* All on their way before the first is waited for. */
		const uint64_t epoch = load_relaxed_gpu(&a->op.slot->epoch);
		const uint32_t state = load_relaxed_gpu(&a->op.slot->state);
		const bool broken = is_broken(ch);

		s->epoch = epoch;
		s->state = state;
		s->broken = broken;
		s->stop_round = UINT32_MAX;
	}
#pragma unroll 1
	for (int32_t i = (int32_t)threadIdx.x; i < ch->n_groups;
	     i += (int32_t)blockDim.x)
		s->n_tokens[i] = a->op.n_tokens[i];
#pragma unroll 1
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
		if (threadIdx.x == blockDim.x - 1)
			c->ticket = add_relaxed_gpu(&a->op.slot->tickets, 1);
		return true;
	}
	if (threadIdx.x == 0)
		fail_order(a, c->epoch);
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

	if (threadIdx.x != blockDim.x - 1 || c->ticket != gridDim.x - 1)
		return;
	store_relaxed_gpu(&slot->tickets, 0);
	store_relaxed_gpu(&slot->state,
	                  c->a->parts & FERRY_CUDA_RECV
	                          ? (uint32_t)FERRY_SLOT_IDLE
	                          : (uint32_t)FERRY_SLOT_COMBINE_SENT);
}

#endif
