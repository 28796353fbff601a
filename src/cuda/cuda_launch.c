/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The phases: each patches the arguments of its slot and launches one kernel,
 * in the order of the slot's phases. Nothing here allocates, locks, waits or
 * reads memory of the GPU; pointers of the caller are passed on and never
 * looked at.
 */
#include "cuda_engine.h"

#include <string.h>

#include "../core/bits.h"
#include "../core/dtype.h"

/* A phase on its way to a stream. */
struct launch {
	struct ferry_engine *e;
	struct cuda_slot *slot;
	int32_t index; /* of the slot */
	enum ferry_phase phase;
	cudaStream_t stream;
	unsigned long long capture; /* 0: none */
	bool pushed;                /* another device was current */
};

/*
 * The device of the channel becomes current, where another is. As in
 * ferry_cuda_enter its context is pushed: a thread that never chose a device
 * would get a context on GPU 0 by setting it back.
 */
static cudaError_t enter_device(struct launch *l)
{
	const struct ferry_world *world = l->e->moe->world;
	int current;
	cudaError_t error = cudaGetDevice(&current);

	if (error != cudaSuccess || current == world->cuda_device)
		return error;
	error = (cudaError_t)world->gpu->driver.CtxPushCurrent(
		world->gpu->context);
	l->pushed = error == cudaSuccess;
	return error;
}

static void leave_device(const struct launch *l)
{
	CUcontext context;

	if (l->pushed)
		(void)l->e->moe->world->gpu->driver.CtxPopCurrent(&context);
}

static struct launch begin(struct ferry_moe *moe, int32_t slot,
                           enum ferry_phase phase, struct CUstream_st *stream,
                           int *error)
{
	struct launch l = {
		.e = moe->engine,
		.slot = &moe->engine->slots[slot],
		.index = slot,
		.phase = phase,
		.stream = stream,
	};

	if (l.e->net.proxy.started)
		ferry_net_proxy_wake(&l.e->net.proxy);
	*error = (int)enter_device(&l);
	if (*error == cudaSuccess)
		*error = ferry_cuda_order_before(&l.slot->order, stream,
		                                 &l.capture);
	return l;
}

/* The kernel is on its stream, or has failed to get there. */
static enum ferry_status end(const struct launch *l, int error)
{
	const char *what = "launching its kernel";

	if (error == cudaSuccess) {
		error = ferry_cuda_order_after(&l->slot->order, l->stream,
		                               l->capture);
		what = "ordering its streams";
	}
	leave_device(l);
	if (error == cudaSuccess)
		return FERRY_OK;
	return ferry_cuda_break(l->e, l->phase, l->index, error, what);
}

static int32_t scales_of(const struct ferry_shape *shape, int32_t hidden)
{
	switch (shape->scale_type) {
	case FERRY_SCALE_FP32:
	case FERRY_SCALE_UE8M0:
		return (int32_t)div_up(hidden, shape->scale_block);
	case FERRY_SCALE_BYTES:
		return 1;
	case FERRY_SCALE_NONE:
		break;
	}
	return 0;
}

/* The placement of a batch; none where there is nothing to compare. */
static int take_placement(const struct launch *l,
                          const struct ferry_dispatch_in *in)
{
	struct ferry_cuda_placement *found = &l->slot->dispatch.placement;
	int error = cudaSuccess;

	if (in->id_kind == FERRY_ID_LOGICAL)
		error = ferry_cuda_placement_get(l->e, in->placement,
		                                 l->capture != 0, found);
	else
		memset(found, 0, sizeof(*found));
	if (in->n_tokens == 0 && !in->placement)
		found->hash = 0;
	return error;
}

/* What a send leaves for its recv. */
static int patch_send(const struct launch *l,
                      const struct ferry_dispatch_in *in)
{
	const struct ferry_shape *shape = &l->e->moe->shape;
	struct ferry_cuda_dispatch *args = &l->slot->dispatch;

	args->in = *in;
	args->row_bytes = (size_t)in->hidden * ferry_dtype_bytes(shape->dtype);
	args->scale_row_bytes = ferry_shape_scale_bytes(shape, in->hidden);
	args->n_scales = scales_of(shape, in->hidden);
	memset(&args->out, 0, sizeof(args->out));
	return take_placement(l, in);
}

/* One launch of what there are arguments for: in sends, out receives. */
enum ferry_status ferry_cuda_dispatch_both(struct ferry_moe *moe, int32_t slot,
                                           const struct ferry_dispatch_in *in,
                                           const struct ferry_dispatch_out *out,
                                           struct CUstream_st *stream)
{
	int error;
	const struct launch l = begin(moe, slot,
	                              in ? FERRY_PHASE_DISPATCH_SEND
	                                 : FERRY_PHASE_DISPATCH_RECV,
	                              stream, &error);
	struct ferry_cuda_dispatch *args = &l.slot->dispatch;

	if (in && error == cudaSuccess)
		error = patch_send(&l, in);
	if (out)
		args->out = *out;
	args->parts = (in ? FERRY_CUDA_SEND : 0) | (out ? FERRY_CUDA_RECV : 0);
	if (error == cudaSuccess)
		error = l.e->dispatch->launch(args, l.e->dispatch_ctas, stream);
	if (in && in->n_tokens > 0)
		moe->stats.tokens_sent += (uint64_t)in->n_tokens;
	if (out)
		moe->stats.n_dispatches++;
	return end(&l, error);
}

enum ferry_status ferry_cuda_dispatch_send(struct ferry_moe *moe, int32_t slot,
                                           const struct ferry_dispatch_in *in,
                                           struct CUstream_st *stream)
{
	return ferry_cuda_dispatch_both(moe, slot, in, NULL, stream);
}

enum ferry_status ferry_cuda_dispatch_recv(struct ferry_moe *moe, int32_t slot,
                                           const struct ferry_dispatch_out *out,
                                           struct CUstream_st *stream)
{
	return ferry_cuda_dispatch_both(moe, slot, NULL, out, stream);
}

static void patch_combine(const struct launch *l,
                          const struct ferry_combine_in *in)
{
	const struct ferry_moe *moe = l->e->moe;
	const struct ferry_slot *slot = &moe->slots[l->index];
	struct ferry_cuda_combine *args = &l->slot->combine;

	args->hidden = slot->hidden;
	args->topk = slot->topk;
	args->in = *in;
	args->row_bytes = (size_t)slot->hidden *
	                  ferry_dtype_bytes(moe->shape.combine_dtype);
	memset(&args->out, 0, sizeof(args->out));
}

enum ferry_status ferry_cuda_combine_both(struct ferry_moe *moe, int32_t slot,
                                          const struct ferry_combine_in *in,
                                          const struct ferry_combine_out *out,
                                          struct CUstream_st *stream)
{
	int error;
	const struct launch l =
		begin(moe, slot,
	              in ? FERRY_PHASE_COMBINE_SEND : FERRY_PHASE_COMBINE_RECV,
	              stream, &error);
	struct ferry_cuda_combine *args = &l.slot->combine;

	if (in)
		patch_combine(&l, in);
	if (out)
		args->out = *out;
	args->parts = (in ? FERRY_CUDA_SEND : 0) | (out ? FERRY_CUDA_RECV : 0);
	if (error == cudaSuccess)
		error = l.e->combine->launch(args, l.e->combine_ctas, stream);
	if (out)
		moe->stats.n_combines++;
	return end(&l, error);
}

enum ferry_status ferry_cuda_combine_send(struct ferry_moe *moe, int32_t slot,
                                          const struct ferry_combine_in *in,
                                          struct CUstream_st *stream)
{
	return ferry_cuda_combine_both(moe, slot, in, NULL, stream);
}

enum ferry_status ferry_cuda_combine_recv(struct ferry_moe *moe, int32_t slot,
                                          const struct ferry_combine_out *out,
                                          struct CUstream_st *stream)
{
	return ferry_cuda_combine_both(moe, slot, NULL, out, stream);
}

/* On an arm of failure: what cannot be cleared is left. */
static void clear(void *p, size_t bytes, cudaStream_t stream)
{
	if (p)
		(void)cudaMemsetAsync(p, 0, bytes, stream);
}

void ferry_cuda_clear(struct ferry_moe *moe,
                      const struct ferry_dispatch_out *out,
                      struct CUstream_st *stream)
{
	const size_t n_slots = (size_t)moe->shape.own_expert_slots;
	struct launch l = {.e = moe->engine};

	if (enter_device(&l) != cudaSuccess)
		return;
	clear(out->counts, n_slots * sizeof(*out->counts), stream);
	clear(out->offsets, (n_slots + 1) * sizeof(*out->offsets), stream);
	clear(out->n_rows, sizeof(*out->n_rows), stream);
	clear(out->n_dropped, sizeof(*out->n_dropped), stream);
	leave_device(&l);
}

void ferry_cuda_args_prepare(struct ferry_engine *e, int32_t slot,
                             const struct ferry_cuda_channel *channel,
                             size_t dispatch_scratch)
{
	struct cuda_slot *s = &e->slots[slot];

	s->dispatch.ch = *channel;
	s->dispatch.slot = slot;
	s->dispatch.op = s->op;
	s->dispatch.op.scratch_bytes = dispatch_scratch;
	s->combine.ch = *channel;
	s->combine.slot = slot;
	s->combine.op = s->op;
	s->combine.op.scratch =
		(unsigned char *)s->op.scratch + dispatch_scratch;
	s->combine.op.scratch_bytes -= dispatch_scratch;
}
