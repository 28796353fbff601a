/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch_send on the CPU.
 *
 * Does
 *	Tells every rank where the own batch's tokens go, and sends each token
 *	once to each rank outside the own group that serves one of its choices.
 *	Nobody asks for space: a row has its place by source and token.
 * Buffers
 *	table[half][self], every window: written here, read by the owner.
 *	row[half][self][token / g], windows of other groups: likewise. With a
 *	hierarchy one window of each other host, read by all its ranks that
 *	serve the token.
 *	row[half][self][...], own window, TOKEN layout only: the group's own
 *	tokens, for the view.
 *	stage, own window: rows on their way to peers that only a put reaches.
 *	Half is epoch & 1; that nobody still reads it is the protocol's proof.
 * Steps
 *	1. resolve and latch ids, weights and count into the own table
 *	2. table: put to every other rank; adds to counter TABLE[self] there,
 *	   release; acquired by dispatch_recv
 *	3. each token t with t % g == self % g: row stored or put; adds to
 *	   counter ROW[self] there, release; acquired by dispatch_recv. To
 *	   another host of a hierarchy: counter FAN[self, that rank] at all
 *	   ranks of its host
 *	4. kick: all of it arrives without further calls
 * Flags
 *	Counters only grow; one set for each epoch mod 4 (window.h).
 * Threads
 *	The caller's.
 * Waits
 *	For no peer; for room in the fabric's queue, bounded by the fabric.
 * Cost
 *	x is read once, whatever the number of destinations.
 */
#include <string.h>

#include "../core/bits.h"
#include "../core/dtype.h"
#include "cpu_flow.h"

/* What the later phases need to know of the caller's arguments. */
static void take_batch(const struct ferry_moe *moe, struct cpu_op *op,
                       const struct ferry_dispatch_in *in)
{
	const struct ferry_shape *shape = &moe->shape;
	const size_t hidden = (size_t)in->hidden;

	op->number = moe->slots[op->slot].n_dispatches - 1;
	op->epoch = moe->first_epoch + op->number;
	op->half = (uint32_t)(op->epoch & 1);
	op->topk = in->topk;
	op->hidden = in->hidden;
	op->row_bytes = hidden * ferry_dtype_bytes(shape->dtype);
	op->scale_bytes = ferry_shape_scale_bytes(shape, in->hidden);
	op->back_bytes = hidden * ferry_dtype_bytes(shape->combine_dtype);
	op->x = in->x;
	op->x_stride = in->x_stride;
	op->scales = in->scales;
	op->scales_stride = in->scales_stride;
}

static bool in_own_group(const struct ferry_shape *shape, int32_t rank)
{
	return ferry_shape_group(shape, rank) ==
	       ferry_shape_group(shape, shape->rank);
}

/* One more rank that gets a row of the own batch, at its usual place. */
static void add_dest(const struct ferry_moe *moe, const struct cpu_op *op,
                     int32_t token, int32_t rank)
{
	const struct ferry_shape *shape = &moe->shape;
	const struct ferry_hosts *hosts = &shape->hosts;
	struct cpu_dest *dest = &moe->engine->dest;

	dest->rank[dest->n] = rank;
	dest->signal[dest->n] =
		ferry_hosts_far(hosts, rank)
			? ferry_window_fan(shape, op->slot, op->epoch,
	                                   shape->rank, hosts->place[rank])
			: ferry_window_signal(shape, op->slot, op->epoch,
	                                      FERRY_COUNT_ROW, shape->rank);
	dest->offset[dest->n++] =
		ferry_window_row(&moe->window, shape, op->slot, op->half, rank,
	                         shape->rank, token / shape->group_size);
}

/*
 * The ranks outside the own group that serve a token; of those on another host
 * one, where all of them find the row.
 */
static void aim(const struct ferry_moe *moe, const struct cpu_op *op,
                int32_t token, const int32_t *slots)
{
	const struct ferry_shape *shape = &moe->shape;
	const struct ferry_hosts *hosts = &shape->hosts;
	uint64_t *mask = moe->engine->host_mask;
	int32_t far[FERRY_SUM_MAX], n_far = 0;
	struct cpu_ranks ranks;

	ferry_cpu_ranks_of(shape, slots, op->topk, &ranks);
	moe->engine->dest.n = 0;
	for (int32_t i = 0; i < ranks.n; i++) {
		const int32_t rank = ranks.rank[i];

		if (in_own_group(shape, rank))
			continue;
		if (!ferry_hosts_far(hosts, rank)) {
			add_dest(moe, op, token, rank);
			continue;
		}
		if (!mask[hosts->of[rank]])
			far[n_far++] = hosts->of[rank];
		mask[hosts->of[rank]] |= ferry_hosts_bit(hosts, rank);
	}
	for (int32_t i = 0; i < n_far; i++) {
		const int32_t place = ferry_hosts_landing(
			mask[far[i]], token / shape->group_size);

		mask[far[i]] = 0;
		add_dest(moe, op, token,
		         ferry_hosts_rank(hosts, far[i], place));
	}
}

static enum ferry_status
send_rows(struct ferry_moe *moe, const struct cpu_op *op, const int32_t *slots)
{
	const struct ferry_shape *shape = &moe->shape;
	const int32_t g = shape->group_size;
	struct cpu_flow flow;

	ferry_cpu_flow_begin(&flow, moe, op, FERRY_PHASE_DISPATCH_SEND);
	ferry_cpu_flow_expect(&flow,
	                      op->n_tokens / g *
	                              min_i64(op->topk, shape->n_ranks - g));
	for (int32_t t = shape->rank % g; t < op->n_tokens; t += g) {
		aim(moe, op, t, slots + (size_t)t * (size_t)op->topk);
		if (moe->engine->dest.n == 0)
			continue;
		const struct cpu_row row = ferry_cpu_token_row(moe, op, t);

		FERRY_TRY(ferry_cpu_flow_send(&flow, &row));
	}
	return ferry_cpu_flow_finish_send(&flow);
}

static bool served_here(const struct ferry_shape *shape, const int32_t *slots,
                        int32_t topk)
{
	for (int32_t k = 0; k < topk; k++)
		if (slots[k] >= 0 && shape->slot_rank[slots[k]] == shape->rank)
			return true;
	return false;
}

/* TOKEN layout: the group's own tokens into the view, as if they had come. */
static void keep_row(const struct ferry_moe *moe, const struct cpu_op *op,
                     int32_t token)
{
	const struct ferry_shape *shape = &moe->shape;
	const struct ferry_engine *e = moe->engine;
	const int32_t carrier = ferry_shape_carrier(
		shape, ferry_shape_group(shape, shape->rank), token);
	char *to = e->window + ferry_window_row(&moe->window, shape, op->slot,
	                                        op->half, shape->rank, carrier,
	                                        token / shape->group_size);
	const struct cpu_row row = ferry_cpu_token_row(moe, op, token);

	e->kernels->copy((void *[]){to}, 1, row.payload, op->row_bytes, false);
	if (op->scale_bytes)
		memcpy(to + shape->scale_offset, row.scales, op->scale_bytes);
}

static void keep_own_rows(const struct ferry_moe *moe, const struct cpu_op *op,
                          const int32_t *slots)
{
	const size_t topk = (size_t)op->topk;

	for (int32_t t = 0; t < op->n_tokens; t++)
		if (served_here(&moe->shape, slots + (size_t)t * topk,
		                op->topk))
			keep_row(moe, op, t);
}

enum ferry_status ferry_cpu_dispatch_send(struct ferry_moe *moe, int32_t slot,
                                          const struct ferry_dispatch_in *in,
                                          struct CUstream_st *stream)
{
	struct cpu_op *op = &moe->engine->ops[slot];

	(void)stream;
	take_batch(moe, op, in);
	const struct ferry_table *table = ferry_cpu_table_build(moe, op, in);
	const int32_t *slots = ferry_table_slots_const(table);

	op->n_tokens = table->n_tokens; /* none when it is marked */
	if (op->quantized)
		memset(op->is_quantized, 0, (size_t)op->n_tokens);
	FERRY_TRY(ferry_cpu_table_push(moe, op, table));
	FERRY_TRY(send_rows(moe, op, slots));
	if (moe->shape.layout == FERRY_TOKEN)
		keep_own_rows(moe, op, slots);
	moe->stats.tokens_sent += (uint64_t)op->n_tokens;
	return FERRY_OK;
}
