/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routing table of a batch: ids are resolved to expert slots, weights are
 * latched, and the whole is pushed to every other rank. A bad id makes it a
 * table without tokens that carries the refusal as a mark.
 */
#include <string.h>

#include "../core/bits.h"
#include "../core/number.h"
#include "cpu_engine.h"

static int64_t id_at(const struct ferry_dispatch_in *in, int32_t token,
                     int32_t choice)
{
	const char *ids =
		(const char *)in->topk_ids + (size_t)token * in->ids_stride;
	int64_t wide;
	int32_t narrow;

	if (in->id_type == FERRY_ID_INT64) {
		memcpy(&wide, ids + (size_t)choice * sizeof(wide),
		       sizeof(wide));
		return wide;
	}
	memcpy(&narrow, ids + (size_t)choice * sizeof(narrow), sizeof(narrow));
	return narrow;
}

static int64_t id_limit(const struct ferry_shape *shape,
                        const struct ferry_dispatch_in *in)
{
	return in->id_kind == FERRY_ID_SLOT ? shape->n_expert_slots
	                                    : shape->n_experts;
}

/* Expert slot of an id in range. Mates of a group get the same. */
static int32_t resolve(const struct ferry_shape *shape,
                       const struct ferry_dispatch_in *in, int32_t id,
                       int32_t token, int32_t choice)
{
	if (in->id_kind == FERRY_ID_SLOT || !in->placement)
		return id;
	const int32_t carrier = ferry_shape_carrier(
		shape, ferry_shape_group(shape, shape->rank), token);

	return ferry_placement_resolve(in->placement, id, carrier, token,
	                               choice);
}

static void mark(struct ferry_table *table, int32_t token, int32_t choice,
                 int64_t value, int64_t limit)
{
	table->mark_status = FERRY_RANGE;
	table->mark_token = token;
	table->mark_choice = choice;
	table->mark_value = value;
	table->mark_limit = (int32_t)limit;
	table->n_tokens = 0;
	table->has_weights = 0;
}

/* False, and a mark, where an id is bad and the policy calls that an error. */
static bool resolve_token(const struct ferry_shape *shape,
                          const struct ferry_dispatch_in *in, int32_t token,
                          struct ferry_table *table)
{
	const int64_t limit = id_limit(shape, in);
	int32_t *slots =
		ferry_table_slots(table) + (size_t)token * (size_t)table->topk;

	for (int32_t k = 0; k < table->topk; k++) {
		const int64_t id = id_at(in, token, k);

		if (id >= 0 && id < limit) {
			slots[k] = resolve(shape, in, (int32_t)id, token, k);
			continue;
		}
		if (id != -1 && shape->bad_id == FERRY_BAD_ID_ERROR) {
			mark(table, token, k, id, limit);
			table->mark_is_slot = in->id_kind == FERRY_ID_SLOT;
			return false;
		}
		slots[k] = FERRY_NO_SLOT;
	}
	return true;
}

/* Weights of a token, 0 where masked: what stands there must not leak. */
static void latch_weights(const struct ferry_shape *shape,
                          const struct ferry_dispatch_in *in, int32_t token,
                          const int32_t *slots, float *weights)
{
	const char *given = (const char *)in->topk_weights;

	if (given)
		given += (size_t)token * in->weights_stride;
	for (int32_t k = 0; k < in->topk; k++) {
		float w = 1;

		if (given)
			memcpy(&w, given + (size_t)k * sizeof(w), sizeof(w));
		weights[k] = slots[k] < 0 ? 0 : w * shape->routed_scale;
	}
}

static void latch_all_weights(const struct ferry_moe *moe, struct cpu_op *op,
                              const struct ferry_dispatch_in *in,
                              struct ferry_table *table)
{
	const struct ferry_shape *shape = &moe->shape;
	const size_t n = (size_t)in->n_tokens * (size_t)in->topk;
	const int32_t *slots = ferry_table_slots_const(table);

	op->weights = NULL;
	if (!in->topk_weights && shape->routed_scale == 1)
		return;
	float *weights = shape->send_weights
	                         ? (float *)(ferry_table_slots(table) + n)
	                         : op->weights_heap;

	for (int32_t t = 0; t < in->n_tokens; t++) {
		const size_t at = (size_t)t * (size_t)in->topk;

		latch_weights(shape, in, t, slots + at, weights + at);
	}
	op->weights = weights;
	table->has_weights = shape->send_weights;
}

static uint64_t content_hash(const struct cpu_op *op,
                             const struct ferry_table *table)
{
	const size_t n = (size_t)table->n_tokens * (size_t)table->topk;
	const int32_t *slots = ferry_table_slots_const(table);
	uint64_t h = hash_u64((uint64_t)table->n_tokens, (uint64_t)table->topk);

	/* Weights of 0 and none at all, which means 1, are not the same. */
	h = hash_u64(h, op->weights != NULL);
	for (size_t i = 0; i < n; i++) {
		const uint32_t w = op->weights ? f32_bits(op->weights[i]) : 0;

		h = hash_u64(h, (uint64_t)(uint32_t)slots[i] << 32 | w);
	}
	return h;
}

/* 0 stands for "none": nothing to compare with. */
static uint64_t placement_hash(const struct ferry_moe *moe,
                               const struct ferry_dispatch_in *in)
{
	if (in->id_kind == FERRY_ID_SLOT)
		return 0;
	if (in->placement)
		return ferry_placement_hash(in->placement);
	if (in->n_tokens == 0 || !moe->identity)
		return 0;
	return ferry_placement_hash(moe->identity);
}

static void fill_header(const struct ferry_moe *moe, const struct cpu_op *op,
                        const struct ferry_dispatch_in *in,
                        struct ferry_table *table)
{
	*table = (struct ferry_table){
		.epoch = op->epoch,
		.placement_hash = placement_hash(moe, in),
		.n_tokens = in->n_tokens,
		.topk = in->topk,
		.hidden = in->hidden,
	};
}

struct ferry_table *ferry_cpu_table_build(struct ferry_moe *moe,
                                          struct cpu_op *op,
                                          const struct ferry_dispatch_in *in)
{
	struct ferry_table *table = cpu_own_table(moe, op);

	fill_header(moe, op, in, table);
	if (in->n_tokens > moe->shape.max_tokens || in->n_tokens < 0) {
		mark(table, -1, -1, in->n_tokens,
		     (int64_t)moe->shape.max_tokens + 1);
		return table;
	}
	for (int32_t t = 0; t < in->n_tokens; t++)
		if (!resolve_token(&moe->shape, in, t, table))
			return table;
	latch_all_weights(moe, op, in, table);
	if (moe->shape.group_size > 1)
		table->content_hash = content_hash(op, table);
	return table;
}

/* At most this much of a table travels, in this many puts: always as many. */
uint64_t ferry_cpu_table_puts(const struct ferry_moe *moe)
{
	const size_t max_put = ferry_segment_max_put(moe->segment);

	return (moe->shape.table_bytes - 1) / max_put + 1;
}

static enum ferry_status push_to(struct ferry_moe *moe, const struct cpu_op *op,
                                 const struct ferry_table *table, int32_t rank)
{
	const struct ferry_shape *shape = &moe->shape;
	const size_t used = ferry_table_bytes(table->n_tokens, table->topk,
	                                      table->has_weights);
	const size_t max_put = ferry_segment_max_put(moe->segment);
	const size_t offset = ferry_window_table(&moe->window, shape, op->slot,
	                                         op->half, shape->rank);
	const uint32_t signal = ferry_window_signal(
		shape, op->slot, op->epoch, FERRY_COUNT_TABLE, shape->rank);
	size_t done = 0;

	for (uint64_t i = ferry_cpu_table_puts(moe); i > 0; i--) {
		const size_t left = used - done;
		const size_t piece = left < max_put ? left : max_put;

		FERRY_TRY(ferry_segment_put(moe->segment, rank, offset + done,
		                            (const char *)table + done, piece,
		                            signal));
		done += piece;
	}
	return FERRY_OK;
}

enum ferry_status ferry_cpu_table_push(struct ferry_moe *moe,
                                       const struct cpu_op *op,
                                       const struct ferry_table *table)
{
	const int32_t n_ranks = moe->shape.n_ranks;

	for (int32_t i = 1; i < n_ranks; i++) {
		const int32_t rank = (moe->shape.rank + i) % n_ranks;

		FERRY_TRY(push_to(moe, op, table, rank));
		if (moe->engine->peers[rank].abroad)
			moe->stats.host_bytes_tables +=
				ferry_table_bytes(table->n_tokens, table->topk,
			                          table->has_weights);
	}
	return FERRY_OK;
}
