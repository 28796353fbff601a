/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels of path "chunks" need of a network, and nothing else: to put
 * bytes of `out` into a far rank's window and raise one of its counters, and to
 * read own counters. Who compiles them defines FERRY_NET, and before it
 * includes the kernel a port: the two functions below (net_proxy.cuh is one;
 * a transport that kernels can drive themselves is another).
 *
 * A rank is *far* when stores do not reach its window: its address is NULL.
 * Near ranks are stored to, with flags, as without a network; so are the own
 * group's and the own host's. Without FERRY_NET nobody is far, and all of
 * this is gone at compile time.
 *
 * Counters are those of docs/protocol.md, "Flags": they only grow, by an
 * amount that both sides know; puts arrive in any order. What they must reach
 * is base (all earlier epochs with the same counters) + due (this epoch). due
 * is counted by dispatch_recv from the tables, and added to the base by the
 * next dispatch_send.
 */
#ifndef FERRY_NET_PORT_CUH
#define FERRY_NET_PORT_CUH

#include "../proto/window.h"
#include "place.cuh"
#include "wait.cuh"

#ifdef FERRY_NET
enum { NET = 1 };
#else
enum { NET = 0 };
#endif

struct net_put {
	int32_t peer;
	uint64_t to;        /* offset in its window */
	uint64_t from;      /* offset in ch->net.out */
	uint32_t bytes;     /* may be 0 */
	uint32_t counter;   /* ferry_window_signal */
	uint32_t n_signals; /* that it is raised by: net_pieces at least */
};

/*
 * The port, by one thread. What this thread knows to be written in `out`
 * (its own stores, complete bulk stores, and what a barrier or an acquire
 * brought it) is what the put reads. May wait for room in the own queue, never
 * for a peer. False: the channel has ended.
 */
#ifdef FERRY_NET
static __device__ bool net_put(const struct ferry_cuda_channel *ch,
                               struct wait *w, const struct net_put *put);
/* Acquires: what the puts that it counts brought to `in` can be read. */
static __device__ uint64_t net_counter(const struct ferry_cuda_channel *ch,
                                       uint32_t counter);
#else
static __device__ __forceinline__ bool
net_put(const struct ferry_cuda_channel *ch, struct wait *w,
        const struct net_put *put)
{
	return true;
}

static __device__ __forceinline__ uint64_t
net_counter(const struct ferry_cuda_channel *ch, uint32_t counter)
{
	return 0;
}
#endif

static __device__ __forceinline__ bool
net_is_far(const struct ferry_cuda_channel *ch, int32_t rank)
{
	return NET && !ch->window[rank];
}

/* Where what `source` writes to this address of the own window arrives. */
static __device__ __forceinline__ unsigned char *
net_from(const struct ferry_cuda_channel *ch, int32_t source, unsigned char *at)
{
	return net_is_far(ch, source) ? ch->net.in + (at - ch->window[ch->rank])
	                              : at;
}

/* The offset of an address that place.cuh gives of a far rank's window. */
static __device__ __forceinline__ uint64_t net_offset(const void *at)
{
	return (uint64_t)(uintptr_t)at;
}

/* Puts that `bytes` take, at least one. */
static __device__ __forceinline__ uint32_t
net_pieces(const struct ferry_cuda_channel *ch, size_t bytes)
{
	const size_t n = (bytes + ch->net.max_put - 1) / ch->net.max_put;

	return n ? (uint32_t)n : 1;
}

static __device__ __forceinline__ uint32_t
net_signal(const struct ferry_cuda_channel *ch, int32_t slot, uint64_t epoch,
           int32_t kind, int32_t source)
{
	const uint32_t key = (uint32_t)(epoch % FERRY_EPOCH_KEYS);
	const uint32_t set =
		((uint32_t)slot * FERRY_EPOCH_KEYS + key) * FERRY_N_COUNTS +
		(uint32_t)kind;

	return set * (uint32_t)ch->n_ranks + (uint32_t)source;
}

static __device__ __forceinline__ uint64_t *
net_base_at(const struct ferry_cuda_channel *ch, const struct ferry_cuda_op *op,
            uint64_t epoch, int32_t kind, int32_t source)
{
	const size_t set =
		(size_t)(epoch % FERRY_EPOCH_KEYS) * FERRY_N_COUNTS + kind;

	return op->net_base + set * ch->n_ranks + source;
}

static __device__ __forceinline__ uint32_t *
net_due_at(const struct ferry_cuda_channel *ch, const struct ferry_cuda_op *op,
           uint64_t epoch, int32_t kind, int32_t source)
{
	const size_t set = (size_t)(epoch & 1) * FERRY_N_COUNTS + kind;

	return op->net_due + set * ch->n_ranks + source;
}

/* Puts of a whole table, always as many: empty ones stand for what is not. */
static __device__ __forceinline__ uint32_t
net_table_puts(const struct ferry_cuda_channel *ch)
{
	return net_pieces(ch, ch->table_stride) +
	       net_pieces(ch, (size_t)ch->table_parts * FERRY_TABLE_PART_BYTES);
}

/* Bytes of a row of dispatch on its way: payload, scales, what is between. */
static __device__ __forceinline__ uint32_t
net_row_bytes(const struct ferry_cuda_dispatch *a)
{
	return (uint32_t)(a->scale_row_bytes
	                          ? a->ch.scale_offset + a->scale_row_bytes
	                          : a->row_bytes);
}

/* Where things lie in `out`. */
static __device__ __forceinline__ unsigned char *
net_out_slot(const struct ferry_cuda_channel *ch, int32_t slot)
{
	return ch->net.out + (size_t)slot * ch->net.out_slot_bytes;
}

static __device__ __forceinline__ unsigned char *
net_out_table(const struct ferry_cuda_channel *ch, int32_t slot, uint32_t half)
{
	return net_out_slot(ch, slot) + ch->net.out_table_offset +
	       half * ch->table_stride;
}

static __device__ __forceinline__ unsigned char *
net_out_part(const struct ferry_cuda_channel *ch, int32_t slot, uint32_t half,
             int32_t part)
{
	return net_out_slot(ch, slot) + ch->net.out_part_offset +
	       ((size_t)half * ch->table_parts + part) * FERRY_TABLE_PART_BYTES;
}

static __device__ __forceinline__ unsigned char *
net_out_row(const struct ferry_cuda_channel *ch, int32_t slot, uint32_t half,
            int32_t index)
{
	return net_out_slot(ch, slot) + ch->net.out_row_offset +
	       ((size_t)half * ch->cap + index) * ch->row_stride;
}

/* j: the choice, EXACT; otherwise 0. */
static __device__ __forceinline__ unsigned char *
net_out_back(const struct ferry_cuda_channel *ch, int32_t slot, int32_t group,
             int32_t token, int32_t j)
{
	const size_t row = ((size_t)group * ch->max_tokens + token) *
	                           ch->net.out_back_rows +
	                   j;

	return net_out_slot(ch, slot) + ch->net.out_back_offset +
	       row * ch->back_stride;
}

/*
 * Until all that a far rank sends of a kind in this epoch is here: base + due.
 * By one thread. False: the channel has ended.
 */
static __device__ inline bool net_await(const struct ferry_cuda_channel *ch,
                                        const struct ferry_cuda_op *op,
                                        struct wait *w, int32_t kind,
                                        int32_t source, uint32_t due)
{
	const uint64_t all = *net_base_at(ch, op, w->epoch, kind, source) + due;
	const uint32_t counter =
		net_signal(ch, w->slot, w->epoch, kind, source);

	while (net_counter(ch, counter) < all)
		if (!wait_again(w, source))
			return false;
	return true;
}

#endif
