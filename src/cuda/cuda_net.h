/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel over several hosts: its mirror becomes memory that the GPU maps,
 * kernels get a ring, and a proxy reads it.
 */
#ifndef FERRY_CUDA_NET_H
#define FERRY_CUDA_NET_H

#include "cuda_memory.h"
#include "net_layout.h"
#include "net_proxy.h"

struct ferry_moe;

struct cuda_net {
	struct ferry_gpu_memory *ring;
	void *tickets;    /* of the GPU */
	void *registered; /* the mirror, NULL: it is not */
	struct ferry_net_proxy proxy;
};

/*
 * Fills channel->net, where moe has a mirror. On the current device. What was
 * made is there also when it fails. Errors: NOMEM, CUDA.
 */
enum ferry_status ferry_cuda_net_take(struct cuda_net *net,
                                      const struct ferry_moe *moe,
                                      struct ferry_cuda_channel *channel,
                                      cudaStream_t stream);
/* The proxy; nothing to do without a mirror. */
enum ferry_status ferry_cuda_net_start(struct cuda_net *net,
                                       const struct ferry_moe *moe);
/* No kernel uses it, and the proxy has ended. */
void ferry_cuda_net_give(struct cuda_net *net, const struct ferry_moe *moe,
                         cudaStream_t stream);

#endif
