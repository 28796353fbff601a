/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU engine: its memory, allocated once when a channel opens, and its
 * table. Nothing is allocated later.
 */
#include "cpu_engine.h"

#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../fabric/place.h"
#include "../proto/sizes.h"

static bool drops(const struct ferry_shape *shape)
{
	return shape->bounded && shape->overflow == FERRY_OVERFLOW_DROP;
}

/* Weights that do not travel with the table are latched on the heap. */
static size_t weights_bytes(const struct ferry_shape *shape)
{
	return shape->send_weights
	               ? 0
	               : (size_t)shape->max_tokens * (size_t)shape->topk *
	                         sizeof(float);
}

static size_t dropped_bytes(const struct ferry_shape *shape)
{
	return drops(shape) ? (size_t)shape->max_tokens * (size_t)shape->topk
	                    : 0;
}

/* Quantised rows are kept: they are wanted for others and for oneself. */
static size_t quantized_bytes(const struct ferry_shape *shape)
{
	return shape->quantize ? (size_t)shape->max_tokens * shape->row_stride
	                       : 0;
}

/* Places on this host where rows of another one may land; at least 1. */
static size_t places_of(const struct ferry_shape *shape)
{
	return shape->hosts.n ? (size_t)shape->hosts.most_ranks : 1;
}

static size_t n_wanted(const struct ferry_shape *shape)
{
	return shape->hosts.n
	               ? (size_t)shape->n_groups * (size_t)shape->max_tokens
	               : 0;
}

static size_t op_bytes(const struct ferry_shape *shape)
{
	const size_t flags =
		shape->quantize ? (size_t)shape->max_tokens * sizeof(bool) : 0;

	return size_add(
		ferry_route_heap_bytes(shape),
		sizeof(struct cpu_op) + weights_bytes(shape) +
			dropped_bytes(shape) + quantized_bytes(shape) + flags +
			(size_t)shape->n_groups * sizeof(struct ferry_table *));
}

static size_t rank_bytes(void)
{
	const struct ferry_engine *e = NULL;

	return sizeof(*e->peers) + sizeof(*e->sources) + sizeof(*e->sent) +
	       sizeof(*e->back) + sizeof(*e->dest.rank) +
	       sizeof(*e->dest.offset) + sizeof(*e->dest.signal) +
	       sizeof(*e->to) + 2 * sizeof(*e->items);
}

static enum ferry_status query(const struct ferry_shape *shape,
                               struct ferry_moe_need *need)
{
	const size_t once = sizeof(struct ferry_engine) +
	                    (size_t)shape->n_ranks * rank_bytes() +
	                    ferry_window_n_signals(shape) * sizeof(uint64_t) +
	                    (size_t)shape->n_expert_slots * sizeof(int64_t) +
	                    shape->back_stride;

	need->path = "counts";
	need->heap_bytes = size_add(
		once, size_mul((size_t)shape->n_slots, op_bytes(shape)));
	if (need->heap_bytes <= PTRDIFF_MAX)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_RANGE,
	                  "moe_config: the heap exceeds 2^63 bytes: n_ranks "
	                  "%d, max_tokens %d, topk %d, n_slots %d",
	                  shape->n_ranks, shape->max_tokens, shape->topk,
	                  shape->n_slots);
}

/* Zeroed; a size of 0 gives memory too, so that NULL means failure. */
static void *allocate(size_t n, size_t bytes)
{
	return calloc(n ? n : 1, bytes ? bytes : 1);
}

/* Rows are built and copied there: on their own cache lines. */
static char *allocate_row(size_t stride)
{
	return aligned_alloc(FERRY_ROW_ALIGN,
	                     round_up(stride, FERRY_ROW_ALIGN));
}

static bool allocate_arrays(struct ferry_engine *e,
                            const struct ferry_shape *shape)
{
	const size_t n_ranks = (size_t)shape->n_ranks;
	const size_t n_places = places_of(shape);

	e->peers = allocate(n_ranks, sizeof(*e->peers));
	e->ops = allocate((size_t)shape->n_slots, sizeof(*e->ops));
	e->targets =
		allocate(ferry_window_n_signals(shape), sizeof(*e->targets));
	e->sources = allocate(n_ranks * n_places + cpu_n_sums(shape),
	                      sizeof(*e->sources));
	e->n_places = (int32_t)n_places;
	e->sent = allocate(n_ranks, sizeof(*e->sent));
	e->back = allocate(n_ranks, sizeof(*e->back));
	e->dest.rank = allocate(n_ranks, sizeof(*e->dest.rank));
	e->dest.offset = allocate(n_ranks, sizeof(*e->dest.offset));
	e->dest.signal = allocate(n_ranks, sizeof(*e->dest.signal));
	e->to = allocate(n_ranks, sizeof(*e->to));
	e->items = allocate(2 * n_ranks * n_places, sizeof(*e->items));
	e->host_mask = allocate((size_t)shape->hosts.n, sizeof(*e->host_mask));
	e->slot_rows =
		allocate((size_t)shape->n_expert_slots, sizeof(*e->slot_rows));
	e->part = allocate_row(shape->back_stride);
	return e->peers && e->ops && e->targets && e->sources && e->sent &&
	       e->back && e->dest.rank && e->dest.offset && e->dest.signal &&
	       e->to && e->items && e->host_mask && e->slot_rows && e->part;
}

static bool allocate_op(struct cpu_op *op, const struct ferry_shape *shape)
{
	const size_t max_tokens = (size_t)shape->max_tokens;

	op->tables = allocate((size_t)shape->n_groups, sizeof(*op->tables));
	op->weights_heap = allocate(weights_bytes(shape), 1);
	if (drops(shape))
		op->dropped = allocate(dropped_bytes(shape), 1);
	if (shape->quantize) {
		op->quantized = allocate(max_tokens, shape->row_stride);
		op->is_quantized = allocate(max_tokens, sizeof(bool));
	}
	op->landings.wanted =
		allocate(n_wanted(shape), sizeof(*op->landings.wanted));
	op->landings.rows = allocate(
		shape->hosts.n ? (size_t)shape->n_ranks * places_of(shape) : 0,
		sizeof(*op->landings.rows));
	return op->tables && op->weights_heap && op->landings.wanted &&
	       op->landings.rows && (op->dropped || !drops(shape)) &&
	       ((op->quantized && op->is_quantized) || !shape->quantize);
}

static enum ferry_status open_op(struct cpu_op *op,
                                 const struct ferry_shape *shape)
{
	FERRY_TRY(ferry_route_init(&op->route, shape));
	if (!allocate_op(op, shape))
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "moe_open: no memory for an operation of "
		                  "%zu bytes",
		                  op_bytes(shape));
	return FERRY_OK;
}

static void close_op(struct cpu_op *op)
{
	ferry_route_destroy(&op->route);
	free(op->tables);
	free(op->weights_heap);
	free(op->dropped);
	free(op->quantized);
	free(op->is_quantized);
	free(op->landings.wanted);
	free(op->landings.rows);
}

static bool close_cpu(struct ferry_engine *e)
{
	for (int32_t i = 0; e->ops && i < e->n_ops; i++)
		close_op(&e->ops[i]);
	free(e->peers);
	free(e->ops);
	free(e->targets);
	free(e->sources);
	free(e->sent);
	free(e->back);
	free(e->dest.rank);
	free(e->dest.offset);
	free(e->dest.signal);
	free(e->host_mask);
	free(e->to);
	free(e->items);
	free(e->slot_rows);
	free(e->part);
	free(e);
	return true;
}

static enum ferry_status open_ops(struct ferry_engine *e,
                                  const struct ferry_shape *shape)
{
	e->n_ops = shape->n_slots;
	for (int32_t i = 0; i < e->n_ops; i++) {
		e->ops[i].slot = i;
		FERRY_TRY(open_op(&e->ops[i], shape));
	}
	return FERRY_OK;
}

static void look_at_peers(struct ferry_engine *e, const struct ferry_moe *moe)
{
	const struct ferry_place *places = moe->world->places;

	for (int32_t r = 0; r < moe->shape.n_ranks; r++) {
		const uint32_t caps = ferry_segment_caps(moe->segment, r);

		if (caps & FERRY_CAP_LDST)
			e->peers[r].base = ferry_segment_ptr(moe->segment, r);
		e->peers[r].ordered = caps & FERRY_CAP_ORDERED;
		e->peers[r].abroad = !ferry_place_same_host(
			&places[r], &places[moe->shape.rank]);
	}
}

static enum ferry_status fill_engine(struct ferry_engine *e,
                                     struct ferry_moe *moe)
{
	const char *isa = moe->world->ctx.opt.isa;

	if (!allocate_arrays(e, &moe->shape))
		return ferry_fail(&moe->world->ctx, FERRY_NOMEM,
		                  "moe_open: no memory for %d ranks, %d "
		                  "expert slots and rows of %zu bytes",
		                  moe->shape.n_ranks, moe->shape.n_expert_slots,
		                  moe->shape.row_stride);
	FERRY_TRY(open_ops(e, &moe->shape));
	e->kernels = ferry_kernels_get(isa);
	if (!e->kernels)
		return ferry_fail(&moe->world->ctx, FERRY_UNSUPPORTED,
		                  "moe_open: FERRY_ISA is %s, which this "
		                  "machine or build has not",
		                  isa);
	e->window = ferry_segment_base(moe->segment);
	look_at_peers(e, moe);
	return FERRY_OK;
}

static enum ferry_status open_cpu(struct ferry_moe *moe,
                                  struct ferry_engine **engine)
{
	struct ferry_engine *e = calloc(1, sizeof(*e));

	if (!e)
		return ferry_fail(&moe->world->ctx, FERRY_NOMEM,
		                  "moe_open: no memory for the engine");
	const enum ferry_status status = fill_engine(e, moe);

	if (status) {
		close_cpu(e);
		return status;
	}
	*engine = e;
	return FERRY_OK;
}

/*
 * The fused calls are the two phases one after the other. Taking turns within
 * combine (send some rows, sum what has come) was 15 % slower: rows then come
 * out of the other core's cache (2 ranks, 128 tokens, hidden 7168, top-8; AMD
 * EPYC of 2 cores, November 2026).
 */
static enum ferry_status dispatch_cpu(struct ferry_moe *moe, int32_t slot,
                                      const struct ferry_dispatch_in *in,
                                      const struct ferry_dispatch_out *out,
                                      struct CUstream_st *stream)
{
	FERRY_TRY(ferry_cpu_dispatch_send(moe, slot, in, stream));
	return ferry_cpu_dispatch_recv(moe, slot, out, stream);
}

static enum ferry_status combine_cpu(struct ferry_moe *moe, int32_t slot,
                                     const struct ferry_combine_in *in,
                                     const struct ferry_combine_out *out,
                                     struct CUstream_st *stream)
{
	FERRY_TRY(ferry_cpu_combine_send(moe, slot, in, stream));
	return ferry_cpu_combine_recv(moe, slot, out, stream);
}

/* The one path of a CPU is in the shape already. */
static enum ferry_status settle(struct ferry_ctx *ctx,
                                struct ferry_shape *shape)
{
	(void)ctx;
	(void)shape;
	return FERRY_OK;
}

static void clear(struct ferry_moe *moe, const struct ferry_dispatch_out *out,
                  struct CUstream_st *stream)
{
	const size_t n_slots = (size_t)moe->shape.own_expert_slots;

	(void)stream;
	if (out->counts)
		memset(out->counts, 0, n_slots * sizeof(*out->counts));
	if (out->offsets)
		memset(out->offsets, 0, (n_slots + 1) * sizeof(*out->offsets));
	if (out->n_rows)
		*out->n_rows = 0;
	if (out->n_dropped)
		*out->n_dropped = 0;
}

const struct ferry_engine_ops ferry_engine_cpu = {
	.name = "cpu",
	.settle = settle,
	.query = query,
	.open = open_cpu,
	.close = close_cpu,
	.dispatch_send = ferry_cpu_dispatch_send,
	.dispatch_recv = ferry_cpu_dispatch_recv,
	.combine_send = ferry_cpu_combine_send,
	.combine_recv = ferry_cpu_combine_recv,
	.dispatch = dispatch_cpu,
	.combine = combine_cpu,
	.clear = clear,
};
