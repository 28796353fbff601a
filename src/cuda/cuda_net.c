/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_net.h. */
#include "cuda_net.h"

#include "../fabric/nvshmem_inner.h"
#include "../proto/channel.h"

enum { MAX_PUT_BYTES = 1 << 30 /* of NVSHMEM: a length has 32 bits here */ };

/* Control and data of the mirror lie side by side. */
static cudaError_t map_mirror(struct cuda_net *net,
                              const struct ferry_segment *mirror,
                              unsigned char **address)
{
	struct ferry_mem *mem = mirror->mem;
	void *device = NULL;
	cudaError_t error = cudaHostRegister(
		mem->control, mem->control_bytes + mem->data_bytes,
		cudaHostRegisterMapped | cudaHostRegisterPortable);

	if (error != cudaSuccess)
		return error;
	net->registered = mem->control;
	error = cudaHostGetDevicePointer(&device, mem->control, 0);
	*address = device;
	return error;
}

static int32_t first_far(const struct ferry_cuda_channel *channel)
{
	int32_t r = 0;

	while (r < channel->n_ranks && channel->window[r])
		r++;
	return r;
}

/* NVSHMEM: rows arrive in the window, and puts are the kernels' own. */
static void take_heap(const struct ferry_moe *moe,
                      struct ferry_cuda_channel *channel)
{
	struct ferry_cuda_net *n = &channel->net;
	const size_t out_bytes = ferry_net_out_fill(channel);

	n->in = channel->window[channel->rank];
	n->out = ferry_segment_base(moe->mirror);
	n->counters = (const uint64_t *)(const void *)(n->out + out_bytes);
	n->max_put = MAX_PUT_BYTES;
	n->first_far = first_far(channel);
}

int ferry_cuda_net_take(struct cuda_net *net, const struct ferry_moe *moe,
                        struct ferry_cuda_channel *channel, cudaStream_t stream)
{
	const struct ferry_segment *mirror = moe->mirror;
	struct ferry_cuda_net *n = &channel->net;
	unsigned char *base = NULL;
	cudaError_t error;

	if (!mirror)
		return cudaSuccess;
	if (ferry_nvshmem_of(moe->world)) {
		take_heap(moe, channel);
		return cudaSuccess;
	}
	error = map_mirror(net, mirror, &base);
	if (error == cudaSuccess)
		error = ferry_cuda_pin(moe->world->gpu, &net->ring,
		                       sizeof(struct ferry_net_ring));
	if (error == cudaSuccess)
		error = ferry_cuda_take(&net->tickets,
		                        sizeof(struct ferry_net_tickets),
		                        stream);
	if (error != cudaSuccess)
		return (int)error;
	net->proxy.out_offset = ferry_net_out_offset(&moe->window);
	net->proxy.out_bytes = ferry_net_out_fill(channel);
	n->in = base + mirror->data_offset;
	n->out = n->in + net->proxy.out_offset;
	n->counters =
		(const uint64_t *)(const void *)(base +
	                                         mirror->counters_offset +
	                                         mirror->first_signal *
	                                                 sizeof(uint64_t));
	n->port = net->ring.p;
	n->port_local = net->tickets;
	n->max_put = ferry_segment_max_put(moe->mirror);
	n->first_far = first_far(channel);
	return cudaSuccess;
}

enum ferry_status ferry_cuda_net_start(struct cuda_net *net,
                                       const struct ferry_moe *moe)
{
	if (!net->ring.p) /* there is no mirror, or it needs no proxy */
		return FERRY_OK;
	net->proxy.ring = net->ring.p;
	net->proxy.mirror = moe->mirror;
	net->proxy.segment = moe->segment;
	net->proxy.in_bytes = moe->window.bytes;
	return ferry_net_proxy_start(&net->proxy);
}

void ferry_cuda_net_give(struct cuda_net *net, const struct ferry_moe *moe,
                         cudaStream_t stream)
{
	ferry_cuda_give(net->tickets, stream);
	ferry_cuda_unpin(moe->world->gpu, &net->ring);
	if (net->registered)
		(void)cudaHostUnregister(net->registered);
	net->registered = NULL;
}
