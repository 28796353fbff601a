/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proxy: a thread of the host that posts what kernels ask for, one for each
 * channel of a CUDA world over several hosts. It knows rings and puts, no GPU.
 */
#ifndef FERRY_NET_PROXY_H
#define FERRY_NET_PROXY_H

#include "../fabric/segment.h"
#include "net_ring.h"

struct ferry_net_proxy {
	struct ferry_net_ring *ring;
	struct ferry_segment *mirror;  /* by which rows travel */
	struct ferry_segment *segment; /* that ends when a put fails */
	size_t in_bytes;               /* of a window */
	size_t out_offset, out_bytes;  /* of `out`, in the mirror's data */
	uint64_t done;                 /* records taken */
	pthread_t thread;
	bool started;
	uint32_t closing;
	struct ferry_segment_ctl bell; /* rung by who launches a kernel */
};

/* What lies above `thread` is filled in, the rest zero. Errors: SYS. */
enum ferry_status ferry_net_proxy_start(struct ferry_net_proxy *proxy);
/*
 * Posts what the ring holds, and ends. Kernels are over, or will not be
 * waited for. Not started: nothing to do.
 */
void ferry_net_proxy_stop(struct ferry_net_proxy *proxy);

/* A kernel is about to be launched: no nap. */
static inline void ferry_net_proxy_wake(struct ferry_net_proxy *proxy)
{
	ferry_segment_ring(&proxy->bell);
}

#endif
