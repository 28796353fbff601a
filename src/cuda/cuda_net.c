/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_net.h. */
#include "cuda_net.h"

#include "../fabric/nvshmem_inner.h"
#include "../proto/channel.h"

enum { MAX_PUT_BYTES = 1 << 30 /* of NVSHMEM: a length has 32 bits here */ };

/* Data of the mirror in memory of the GPU: the network writes them there. */
static bool is_on_gpu(const struct ferry_segment *mirror)
{
	return mirror->peers[mirror->world->rank].caps & FERRY_CAP_DEVICE;
}

/*
 * Control and data of the mirror lie side by side, unless the GPU has data. A
 * process's is a file that others of the host map: it is registered.
 */
static cudaError_t map_mirror(struct cuda_net *net,
                              const struct ferry_segment *mirror,
                              unsigned char **address)
{
	struct ferry_mem *mem = mirror->mem;
	void *device = NULL;
	cudaError_t error;

	*address = mem->control;
	if (mem->is_gpus)
		return cudaSuccess;
	error = cudaHostRegister(
		mem->control,
		mem->control_bytes + (is_on_gpu(mirror) ? 0 : mem->data_bytes),
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

/* The mirror, the ring, tickets and counters as they were seen. */
static enum ferry_status take_all(struct cuda_net *net,
                                  const struct ferry_moe *moe,
                                  cudaStream_t stream, unsigned char **base)
{
	struct ferry_world *world = moe->world;
	cudaError_t error;

	FERRY_TRY(ferry_gpu_alloc_host(&world->ctx, world->gpu,
	                               sizeof(struct ferry_net_ring),
	                               &net->ring));
	error = map_mirror(net, moe->mirror, base);
	if (error == cudaSuccess)
		error = ferry_cuda_take(
			&net->tickets,
			sizeof(struct ferry_net_tickets) +
				ferry_window_n_signals(&moe->shape) *
					sizeof(struct ferry_net_seen),
			stream);
	if (error == cudaSuccess)
		return FERRY_OK;
	return ferry_cuda_fail(&world->ctx, error,
	                       "moe_open: mapping memory of the network");
}

enum ferry_status ferry_cuda_net_take(struct cuda_net *net,
                                      const struct ferry_moe *moe,
                                      struct ferry_cuda_channel *channel,
                                      cudaStream_t stream)
{
	const struct ferry_segment *mirror = moe->mirror;
	struct ferry_cuda_net *n = &channel->net;
	unsigned char *base = NULL;

	if (!mirror)
		return FERRY_OK;
	if (ferry_nvshmem_of(moe->world)) {
		take_heap(moe, channel);
		return FERRY_OK;
	}
	FERRY_TRY(take_all(net, moe, stream, &base));
	net->proxy.out_offset = ferry_net_out_offset(&moe->window);
	net->proxy.out_bytes = ferry_net_out_fill(channel);
	n->in = is_on_gpu(mirror) ? mirror->mem->data
	                          : base + mirror->data_offset;
	n->out = n->in + net->proxy.out_offset;
	n->counters =
		(const uint64_t *)(const void *)(base +
	                                         mirror->counters_offset +
	                                         mirror->first_signal *
	                                                 sizeof(uint64_t));
	n->port = ferry_gpu_address(net->ring);
	n->port_local = net->tickets;
	n->max_put = ferry_segment_max_put(moe->mirror);
	n->first_far = first_far(channel);
	return FERRY_OK;
}

enum ferry_status ferry_cuda_net_start(struct cuda_net *net,
                                       const struct ferry_moe *moe)
{
	if (!net->ring) /* there is no mirror, or it needs no proxy */
		return FERRY_OK;
	net->proxy.ring = ferry_gpu_address(net->ring);
	net->proxy.mirror = moe->mirror;
	net->proxy.segment = moe->segment;
	net->proxy.in_bytes = moe->window.bytes;
	return ferry_net_proxy_start(&net->proxy);
}

void ferry_cuda_net_give(struct cuda_net *net, const struct ferry_moe *moe,
                         cudaStream_t stream)
{
	ferry_cuda_give(net->tickets, stream);
	ferry_gpu_free(moe->world->gpu, net->ring);
	net->ring = NULL;
	if (net->registered)
		(void)cudaHostUnregister(net->registered);
	net->registered = NULL;
}
