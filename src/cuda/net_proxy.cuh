/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port of kernels whose puts a thread of the host posts: records in a ring
 * (net_ring.h), counters in control memory of the host.
 */
#ifndef FERRY_NET_PROXY_CUH
#define FERRY_NET_PROXY_CUH

#include "net_port.cuh"
#include "net_ring.h"

/* K2: the proxy takes records whatever peers do. False: it has ended. */
static __device__ __noinline__ bool
net_await_room(const struct ferry_net_ring *ring, uint64_t ticket,
               struct wait *w)
{
	while (load_acquire_sys(&ring->done) + FERRY_NET_RECORDS <= ticket)
		if (!wait_again(w, w->ch->rank))
			return false;
	return true;
}

static __device__ bool net_put(const struct ferry_cuda_channel *ch,
                               struct wait *w, const struct net_put *put)
{
	struct ferry_net_ring *ring = (struct ferry_net_ring *)ch->net.port;
	struct ferry_net_tickets *tickets =
		(struct ferry_net_tickets *)ch->net.port_local;
	const uint64_t ticket = add_relaxed_gpu(&tickets->next, 1);
	struct ferry_net_record *r = &ring->records[ticket % FERRY_NET_RECORDS];

	if (load_acquire_gpu(&tickets->done) + FERRY_NET_RECORDS <= ticket) {
		if (!net_await_room(ring, ticket, w))
			return false;
		/* It may go back a little, which costs another look. */
		store_release_gpu(&tickets->done,
		                  load_acquire_sys(&ring->done));
	}
	r->to = put->to;
	r->from = put->from;
	r->peer = (uint32_t)put->peer;
	r->bytes = put->bytes;
	r->counter = put->counter;
	r->n_signals = put->n_signals;
	fence_acq_rel_sys();
	store_release_sys(&r->seal, ticket + 1);
	return true;
}

static __device__ uint64_t net_counter(const struct ferry_cuda_channel *ch,
                                       uint32_t counter)
{
	struct ferry_net_seen *seen =
		(struct ferry_net_seen *)((struct ferry_net_tickets *)
	                                          ch->net.port_local +
	                                  1) +
		counter;

	if (load_relaxed_gpu(&seen->busy) ||
	    cas_acq_rel_gpu(&seen->busy, 0, 1) != 0)
		return load_acquire_gpu(&seen->value);
	const uint64_t value = load_acquire_sys(ch->net.counters + counter);

	/* Passes on what this look has acquired. */
	store_release_gpu(&seen->value, value);
	store_release_gpu(&seen->busy, 0);
	return value;
}

#endif
