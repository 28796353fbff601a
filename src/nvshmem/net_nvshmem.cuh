/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port of kernels that put by NVSHMEM: a put with signal is one call, and
 * counters are words of the symmetric heap. Windows lie there, too, so an own
 * address stands for that of every peer. Waits are not NVSHMEM's, which have no
 * bound, but those of wait.cuh.
 */
#ifndef FERRY_NET_NVSHMEM_CUH
#define FERRY_NET_NVSHMEM_CUH

#include <nvshmem.h>

#include "../cuda/net_port.cuh"

/*
 * K1: adds to the counter after the bytes, wherever they go; never waits for a
 * peer, but for room in the queue of the transport, which is NVSHMEM's affair.
 * The source may be read until the counter is seen.
 */
static __device__ __noinline__ bool net_put(const struct ferry_cuda_channel *ch,
                                            struct wait *w,
                                            const struct net_put *put)
{
	uint64_t *counters = (uint64_t *)ch->net.counters;

	(void)w;
	/* What others of this block have written is read by a NIC, or a GPU. */
	fence_acq_rel_sys();
	nvshmem_putmem_signal_nbi(ch->net.in + put->to, ch->net.out + put->from,
	                          put->bytes, counters + put->counter,
	                          put->n_signals, NVSHMEM_SIGNAL_ADD,
	                          put->peer);
	return true;
}

/*
 * K2: nvshmem_uint64_test does what a transport needs before the bytes can be
 * read; where the value is not there it has no effect.
 */
static __device__ __noinline__ uint64_t
net_counter(const struct ferry_cuda_channel *ch, uint32_t counter)
{
	uint64_t *const at = (uint64_t *)ch->net.counters + counter;
	const uint64_t seen = load_acquire_sys(at);

	(void)nvshmem_uint64_test(at, NVSHMEM_CMP_GE, seen);
	return seen;
}

#endif
