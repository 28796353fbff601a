/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_channel.h: the pure half, in every build. */
#include "cuda_channel.h"

#include <string.h>

#include "../core/placement_inner.h"
#include "../proto/sizes.h"

enum { ARRAY_ALIGN = 256 }; /* of each array of a slot */

/* Expert slots of every rank where all have as many, 0 otherwise. */
static int32_t even_slots(const struct ferry_shape *shape)
{
	const int32_t n = shape->first_slot[1];

	for (int32_t r = 1; r < shape->n_ranks; r++)
		if (shape->first_slot[r + 1] - shape->first_slot[r] != n)
			return 0;
	return n;
}

static void fill_world(struct ferry_cuda_channel *c,
                       const struct ferry_shape *s)
{
	memcpy(c->first_slot, s->first_slot,
	       ((size_t)s->n_ranks + 1) * sizeof(*c->first_slot));
	c->n_ranks = s->n_ranks;
	c->rank = s->rank;
	c->group_size = s->group_size;
	c->n_groups = s->n_groups;
	c->group = ferry_shape_group(s, s->rank);
	c->row_sources = s->row_sources;
	c->max_tokens = s->max_tokens;
	c->cap = s->cap;
	c->max_hidden = s->hidden;
	c->max_topk = s->topk;
	c->n_experts = s->n_experts;
	c->n_expert_slots = s->n_expert_slots;
	c->own_expert_slots = s->own_expert_slots;
	c->even_slots = even_slots(s);
	c->n_slots = s->n_slots;
}

static void fill_choices(struct ferry_cuda_channel *c,
                         const struct ferry_shape *s)
{
	c->dtype = (int32_t)s->dtype;
	c->in_dtype = (int32_t)s->in_dtype;
	c->combine_dtype = (int32_t)s->combine_dtype;
	c->out_dtype = (int32_t)s->out_dtype;
	c->quantize = s->quantize;
	c->scale_type = (int32_t)s->scale_type;
	c->scale_block = s->scale_block;
	c->layout = (int32_t)s->layout;
	c->overflow = (int32_t)s->overflow;
	c->bad_id = (int32_t)s->bad_id;
	c->combine = (int32_t)s->combine;
	c->weight_use = (int32_t)s->weight_use;
	c->send_weights = s->send_weights;
	c->bounded = s->bounded;
	c->alignment = s->alignment;
	c->routed_scale = s->routed_scale;
	c->back_rows = s->back_rows;
	c->padded_rows = s->padded_rows;
	c->recv_rows = s->recv_rows;
	c->scale_offset = s->scale_offset;
}

static void fill_window(struct ferry_cuda_channel *c,
                        const struct ferry_window *w)
{
	c->slot_bytes = w->slot_bytes;
	c->poison_offset = w->poison_offset;
	c->table_offset = w->offset[FERRY_REGION_TABLE];
	c->row_offset = w->offset[FERRY_REGION_ROW];
	c->back_offset = w->offset[FERRY_REGION_BACK];
	c->table_part_offset = w->offset[FERRY_REGION_TABLE_PART];
	c->row_flag_offset = w->offset[FERRY_REGION_ROW_FLAG];
	c->back_flag_offset = w->offset[FERRY_REGION_BACK_FLAG];
	c->table_stride = w->table_stride;
	c->row_stride = w->row_stride;
	c->back_stride = w->back_stride;
	c->table_lines = w->table_lines;
	c->row_lines = w->row_lines;
	c->back_lines = w->back_lines;
	c->row_chunk = w->row_chunk;
	c->row_chunks = w->row_chunks;
	c->back_chunk = w->back_chunk;
	c->back_chunks = w->back_chunks;
	c->table_chunk = w->table_chunk;
	c->table_parts = w->table_parts;
}

void ferry_cuda_channel_fill(struct ferry_cuda_channel *channel,
                             const struct ferry_shape *shape,
                             const struct ferry_window *window,
                             unsigned char *const *windows)
{
	memset(channel, 0, sizeof(*channel));
	fill_world(channel, shape);
	fill_choices(channel, shape);
	fill_window(channel, window);
	for (int32_t r = 0; windows && r < shape->n_ranks; r++)
		channel->window[r] = windows[r];
}

size_t ferry_cuda_placement_words(int32_t n_experts, int32_t n_expert_slots)
{
	return (size_t)n_experts + 1 + 2 * (size_t)n_expert_slots;
}

void ferry_cuda_placement_copy(int32_t *words,
                               const struct ferry_placement *placement)
{
	const size_t n = (size_t)placement->n_experts + 1;
	const size_t used =
		(size_t)placement->first_replica[placement->n_experts];
	int32_t *const slots = words + n;

	memcpy(words, placement->first_replica, n * sizeof(*words));
	memcpy(slots, placement->replicas, used * sizeof(*slots));
	if (placement->start)
		memcpy(slots + placement->map.n_slots, placement->start,
		       used * sizeof(*placement->start));
}

struct ferry_cuda_placement
ferry_cuda_placement_at(const int32_t *words,
                        const struct ferry_placement *placement)
{
	const int32_t *const slots = words + placement->n_experts + 1;
	const void *const start = slots + placement->map.n_slots;

	return (struct ferry_cuda_placement){
		.hash = placement->hash,
		.first = words,
		.slots = slots,
		.start = placement->start ? start : NULL,
	};
}

/* The next array; base NULL: only its size counts. */
static void *take(unsigned char *base, size_t *end, size_t n, size_t bytes)
{
	const size_t offset = *end;

	*end = size_round_up(size_add(offset, size_mul(n, bytes)), ARRAY_ALIGN);
	return base ? base + offset : NULL;
}

size_t ferry_cuda_op_lay_out(struct ferry_cuda_op *op,
                             const struct ferry_cuda_channel *channel,
                             size_t scratch_bytes, unsigned char *base)
{
	const struct ferry_cuda_channel *c = channel;
	const size_t own = size_mul((size_t)c->max_tokens, (size_t)c->max_topk);
	const size_t all = size_mul((size_t)c->n_groups, own);
	const bool drops = c->bounded && c->overflow == FERRY_OVERFLOW_DROP;
	size_t end = 0;

	memset(op, 0, sizeof(*op));
	op->slot = take(base, &end, 1, sizeof(*op->slot));
	op->own_slots = take(base, &end, own, sizeof(*op->own_slots));
	op->own_weights = take(base, &end, own, sizeof(*op->own_weights));
	op->own_count = take(base, &end, 1, sizeof(*op->own_count));
	op->n_tokens =
		take(base, &end, (size_t)c->n_groups, sizeof(*op->n_tokens));
	op->copies = take(base, &end, all, sizeof(*op->copies));
	if (c->send_weights)
		op->weights = take(base, &end, all, sizeof(*op->weights));
	op->offsets = take(base, &end, (size_t)c->own_expert_slots + 1,
	                   sizeof(*op->offsets));
	if (drops)
		op->dropped = take(base, &end, own, sizeof(*op->dropped));
	if (c->net.max_put) {
		const size_t n = (size_t)c->n_ranks * FERRY_N_COUNTS;

		op->net_base = take(base, &end, n * FERRY_EPOCH_KEYS,
		                    sizeof(*op->net_base));
		op->net_due = take(base, &end, n * 2, sizeof(*op->net_due));
	}
	op->scratch = take(base, &end, scratch_bytes, 1);
	op->scratch_bytes = scratch_bytes;
	return end;
}

size_t ferry_cuda_op_bytes(const struct ferry_cuda_channel *channel,
                           size_t scratch_bytes)
{
	struct ferry_cuda_op op;

	return ferry_cuda_op_lay_out(&op, channel, scratch_bytes, NULL);
}
