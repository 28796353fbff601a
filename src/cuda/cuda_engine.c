/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA engine: its memory and kernels, all there when a channel is open,
 * and its table. Every call of CUDA here is one that a capture of another
 * thread does not mind, and that waits for no kernel.
 */
#include "cuda_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "../core/order.h"
#include "../fabric/nvshmem_inner.h"
#include "../fabric/segment_break.h"
#include "cuda_plan.h"

enum {
	DRAIN_NAP_US = 20,
	DRAIN_MORE_MS = 1000, /* beyond the longest wait of a kernel */
};

enum ferry_status ferry_cuda_break(struct ferry_engine *e,
                                   enum ferry_phase phase, int32_t slot,
                                   int error, const char *what)
{
	const struct ferry_moe *moe = e->moe;
	const cudaError_t cuda = (cudaError_t)error;
	const struct ferry_verdict verdict = {
		.status = cuda == cudaErrorMemoryAllocation ? FERRY_NOMEM
	                                                    : FERRY_CUDA,
		.root = moe->shape.rank,
		.phase = (int32_t)phase,
		.slot = slot,
		.epoch = moe->slots[slot].n_dispatches - 1,
		.token = -1,
	};
	char text[sizeof(((struct ferry_error *)0)->text)];

	(void)cudaGetLastError();
	snprintf(text, sizeof(text), "%s: slot %d: %s: %s (%s) (rank %d)",
	         ferry_phase_name(phase), slot, what, cudaGetErrorName(cuda),
	         cudaGetErrorString(cuda), moe->shape.rank);
	return ferry_segment_break(moe->segment, &verdict, text);
}

static enum ferry_status cuda_fail(struct ferry_engine *e, int error,
                                   const char *what)
{
	if (error == cudaSuccess)
		return FERRY_OK;
	return ferry_cuda_fail(&e->moe->world->ctx, (cudaError_t)error,
	                       "moe_open: %s", what);
}

/* Of a channel on this device: what its kernels occupy. */
struct fits {
	struct ferry_cuda_fit dispatch, combine;
	int32_t n_sms;
};

/*
 * All kernels, those of the other path and of other types too: what is launched
 * after a load, on any stream, starts when the kernels have ended that ran
 * before it. So the first channel loads for those that open while it waits.
 */
static enum ferry_status load_kernels(struct ferry_engine *e)
{
	static const enum ferry_path paths[] = {FERRY_PATH_LINES,
	                                        FERRY_PATH_CHUNKS};

	for (int i = 0; i < 2; i++) {
		FERRY_TRY(cuda_fail(e, ferry_cuda_dispatch_of(paths[i])->load(),
		                    "loading the dispatch kernels"));
		FERRY_TRY(cuda_fail(e, ferry_cuda_combine_of(paths[i])->load(),
		                    "loading the combine kernels"));
	}
	FERRY_TRY(cuda_fail(e, e->dispatch->load(),
	                    "loading the dispatch kernels"));
	return cuda_fail(e, e->combine->load(), "loading the combine kernels");
}

static enum ferry_status
measure_kernels(struct ferry_engine *e,
                const struct ferry_cuda_channel *channel, struct fits *fits)
{
	FERRY_TRY(cuda_fail(e, e->dispatch->measure(channel, &fits->dispatch),
	                    "measuring the dispatch kernel"));
	FERRY_TRY(cuda_fail(e, e->combine->measure(channel, &fits->combine),
	                    "measuring the combine kernel"));
	return cuda_fail(e,
	                 (int)cudaDeviceGetAttribute(
				 &fits->n_sms, cudaDevAttrMultiProcessorCount,
				 e->moe->world->cuda_device),
	                 "counting multiprocessors");
}

static int32_t ctas_of(const struct ferry_moe *moe, const struct fits *fits,
                       int32_t ctas_per_sm)
{
	const struct ferry_cuda_room room = {
		.n_sms = fits->n_sms,
		.n_ranks = moe->world->n_gpu_ranks,
		.n_slots = moe->shape.n_slots,
		.max_sms = moe->shape.max_sms,
		.ctas_per_sm = ctas_per_sm,
	};

	return ferry_cuda_plan_ctas(&room);
}

/* One kernel at a time: nothing else has to be resident beside it. */
static bool is_alone(const struct ferry_moe *moe)
{
	return moe->shape.n_slots == 1 && moe->world->n_gpu_ranks == 1;
}

static enum ferry_status plan(struct ferry_engine *e, const struct fits *fits)
{
	const struct ferry_moe *moe = e->moe;
	const bool alone = is_alone(moe);
	const int32_t least = (int32_t)min_i64(fits->dispatch.ctas_per_sm,
	                                       fits->combine.ctas_per_sm);

	e->dispatch_ctas =
		ctas_of(moe, fits, alone ? fits->dispatch.ctas_per_sm : least);
	e->combine_ctas =
		ctas_of(moe, fits, alone ? fits->combine.ctas_per_sm : least);
	if (e->dispatch_ctas > 0 && e->combine_ctas > 0)
		return FERRY_OK;
	return ferry_fail(&moe->world->ctx, FERRY_UNSUPPORTED,
	                  "moe_open: n_slots is %d with %d ranks on GPU %d: "
	                  "their kernels must be resident together, and it "
	                  "has room for %d blocks",
	                  moe->shape.n_slots, moe->world->n_gpu_ranks,
	                  moe->world->cuda_device, fits->n_sms * least);
}

/* A channel that opens zeroes its memory before kernels that do not run yet. */
static cudaError_t open_stream(cudaStream_t *stream)
{
	int least = 0, greatest = 0;
	cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);

	if (error == cudaSuccess)
		error = cudaStreamCreateWithPriority(
			stream, cudaStreamNonBlocking, greatest);
	return error;
}

static enum ferry_status take_memory(struct ferry_engine *e)
{
	const struct ferry_moe *moe = e->moe;
	void *local = NULL;

	FERRY_TRY(cuda_fail(e, (int)open_stream(&e->stream), "a stream"));
	FERRY_TRY(ferry_gpu_alloc_host(&moe->world->ctx, moe->world->gpu,
	                               sizeof(*e->host), &e->pinned));
	e->host = ferry_gpu_address(e->pinned);
	FERRY_TRY(cuda_fail(
		e, (int)ferry_cuda_take(&local, sizeof(*e->local), e->stream),
		"memory"));
	e->local = local;
	return cuda_fail(
		e,
		ferry_cuda_placements_init(&e->placements, &moe->shape,
	                                   ferry_placement_hash(moe->identity),
	                                   e->stream),
		"memory for placements");
}

/* Device addresses of all windows that stores reach. */
static void fill_channel(struct ferry_engine *e,
                         struct ferry_cuda_channel *channel)
{
	struct ferry_moe *moe = e->moe;
	const uint64_t grace = ferry_segment_grace_ns(moe->segment);

	ferry_cuda_channel_fill(channel, &moe->shape, &moe->window, NULL);
	for (int32_t r = 0; r < moe->shape.n_ranks; r++)
		channel->window[r] = ferry_segment_ptr(moe->segment, r);
	channel->early = is_alone(moe);
	channel->local = e->local;
	channel->host = e->host;
	channel->timeout_ns =
		(uint64_t)moe->world->timeout_ms * 1000000 - grace;
}

static enum ferry_status open_slots(struct ferry_engine *e,
                                    const struct ferry_cuda_channel *channel)
{
	const struct ferry_moe *moe = e->moe;
	const size_t dispatch = round_up(
		e->dispatch->scratch_bytes(channel, e->dispatch_ctas), 256);
	const size_t combine =
		e->combine->scratch_bytes(channel, e->combine_ctas);

	for (int32_t i = 0; i < moe->shape.n_slots; i++) {
		struct cuda_slot *s = &e->slots[i];

		FERRY_TRY(cuda_fail(e,
		                    ferry_cuda_op_create(
					    &s->op, channel, dispatch + combine,
					    moe->first_epoch, e->stream),
		                    "memory of a slot"));
		FERRY_TRY(cuda_fail(e, ferry_cuda_order_init(&s->order),
		                    "events of a slot"));
		ferry_cuda_args_prepare(e, i, channel, dispatch);
	}
	return FERRY_OK;
}

static enum ferry_status open_steps(struct ferry_engine *e)
{
	struct ferry_cuda_channel *channel = malloc(sizeof(*channel));
	struct fits fits = {.n_sms = 0};
	enum ferry_status status = FERRY_NOMEM;

	e->slots = calloc((size_t)e->moe->shape.n_slots, sizeof(*e->slots));
	if (!channel || !e->slots) {
		free(channel);
		return ferry_fail(&e->moe->world->ctx, FERRY_NOMEM,
		                  "moe_open: arguments of %d slots",
		                  e->moe->shape.n_slots);
	}
	status = take_memory(e);
	if (status == FERRY_OK) {
		fill_channel(e, channel);
		status = ferry_cuda_net_take(&e->net, e->moe, channel,
		                             e->stream);
	}
	if (status == FERRY_OK)
		status = load_kernels(e);
	if (status == FERRY_OK)
		status = measure_kernels(e, channel, &fits);
	if (status == FERRY_OK)
		status = plan(e, &fits);
	if (status == FERRY_OK)
		status = open_slots(e, channel);
	free(channel);
	return status;
}

/* What kernels no longer use. */
static void free_memory(struct ferry_engine *e)
{
	for (int32_t i = 0; e->slots && i < e->moe->shape.n_slots; i++) {
		ferry_cuda_op_destroy(&e->slots[i].op, e->stream);
		ferry_cuda_order_destroy(&e->slots[i].order);
	}
	ferry_cuda_placements_destroy(&e->placements);
	ferry_cuda_give(e->local, e->stream);
	ferry_gpu_free(e->moe->world->gpu, e->pinned);
	ferry_cuda_net_give(&e->net, e->moe, e->stream);
	if (e->stream)
		(void)cudaStreamDestroy(e->stream);
	free(e->slots);
}

static enum ferry_status check_device(const struct ferry_moe *moe)
{
	const int32_t compute = ferry_gpu_compute(moe->world->gpu);

	if (compute >= 90)
		return FERRY_OK;
	return ferry_fail(&moe->world->ctx, FERRY_UNSUPPORTED,
	                  "moe_open: GPU %d has compute capability %d.%d, "
	                  "channels need 9.0",
	                  moe->world->cuda_device, compute / 10, compute % 10);
}

static enum ferry_status open_on_device(struct ferry_moe *moe,
                                        struct ferry_engine *e)
{
	struct ferry_ctx *ctx = &moe->world->ctx;
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(ctx, moe->world->gpu, &scope));
	enum ferry_status status = open_steps(e);

	if (status == FERRY_OK)
		status = ferry_cuda_watch_start(e);
	if (status == FERRY_OK)
		status = ferry_cuda_net_start(&e->net, moe);
	if (status != FERRY_OK) {
		ferry_cuda_watch_stop(e);
		free_memory(e);
	}
	ferry_cuda_leave(&scope);
	return status;
}

/* Those of the path; others where some ranks are reached by a network only. */
static enum ferry_status choose_kernels(struct ferry_engine *e)
{
	const struct ferry_moe *moe = e->moe;
	const struct ferry_nvshmem_fabric *f = ferry_nvshmem_of(moe->world);
	const size_t args_bytes = sizeof(struct ferry_cuda_dispatch) +
	                          sizeof(struct ferry_cuda_combine);

	e->dispatch = moe->mirror ? &ferry_cuda_dispatch_net
	                          : ferry_cuda_dispatch_of(moe->shape.path);
	e->combine = moe->mirror ? &ferry_cuda_combine_net
	                         : ferry_cuda_combine_of(moe->shape.path);
	if (!moe->mirror || !f)
		return FERRY_OK;
	if (f->module->args_bytes != args_bytes)
		return ferry_fail(&moe->world->ctx, FERRY_UNSUPPORTED,
		                  "moe_open: kernels of libferry_nvshmem.so "
		                  "take %zu bytes of arguments, not %zu",
		                  f->module->args_bytes, args_bytes);
	e->dispatch = f->module->dispatch;
	e->combine = f->module->combine;
	return FERRY_OK;
}

static enum ferry_status open_cuda(struct ferry_moe *moe,
                                   struct ferry_engine **engine)
{
	struct ferry_engine *e;

	FERRY_TRY(check_device(moe));
	/* A second time where peers turned out to need another path. */
	FERRY_TRY(ferry_cuda_settle(&moe->world->ctx, &moe->shape));
	e = calloc(1, sizeof(*e));
	if (!e)
		return ferry_fail(&moe->world->ctx, FERRY_NOMEM,
		                  "moe_open: no memory for the engine");
	e->moe = moe;
	enum ferry_status status = choose_kernels(e);

	if (status == FERRY_OK)
		status = open_on_device(moe, e);

	if (status) {
		free(e);
		return status;
	}
	*engine = e;
	return FERRY_OK;
}

/* Are the kernels over that this channel's calls have launched? */
static bool drained(struct ferry_engine *e, uint64_t deadline)
{
	for (int32_t i = 0; i < e->moe->shape.n_slots; i++)
		while (!ferry_cuda_order_over(&e->slots[i].order)) {
			if (ferry_now_ns() >= deadline)
				return false;
			usleep(DRAIN_NAP_US);
		}
	return true;
}

/*
 * Kernels that wait see `stop`, and end; those behind them find the channel
 * broken. Nothing is freed under a kernel that has not ended, because its
 * stream does not get to it: then everything is left to the process.
 */
static bool close_cuda(struct ferry_engine *e)
{
	struct ferry_world *world = e->moe->world;
	const uint64_t deadline =
		ferry_deadline_ns(world->timeout_ms + DRAIN_MORE_MS);
	struct ferry_cuda_scope scope;

	store_release_u32(&e->host->stop, 1);
	ferry_cuda_watch_stop(e);
	if (ferry_cuda_enter(&world->ctx, world->gpu, &scope))
		return false;
	const bool over = drained(e, deadline);

	/* What kernels have sent leaves. */
	ferry_net_proxy_stop(&e->net.proxy);
	if (over)
		free_memory(e);
	ferry_cuda_leave(&scope);
	if (over)
		free(e);
	else
		ferry_log(&world->ctx, FERRY_LOG_ERROR,
		          "moe_close: kernels of the channel have not ended "
		          "after %lld ms: its memory is not freed",
		          (long long)world->timeout_ms + DRAIN_MORE_MS);
	return over;
}

const struct ferry_engine_ops ferry_engine_cuda = {
	.name = "cuda",
	.settle = ferry_cuda_settle,
	.query = ferry_cuda_query,
	.open = open_cuda,
	.close = close_cuda,
	.dispatch_send = ferry_cuda_dispatch_send,
	.dispatch_recv = ferry_cuda_dispatch_recv,
	.combine_send = ferry_cuda_combine_send,
	.combine_recv = ferry_cuda_combine_recv,
	.dispatch = ferry_cuda_dispatch_both,
	.combine = ferry_cuda_combine_both,
	.clear = ferry_cuda_clear,
};
