/* SPDX-License-Identifier: Apache-2.0 */
/* See net_layout.h. */
#include "net_layout.h"

#include "../proto/sizes.h"

enum { PAGE_BYTES = 4096 };

/* The next array of a slot. */
static size_t take(size_t *end, int64_t a, int64_t b, size_t stride)
{
	const size_t offset = *end;

	*end = size_add(offset,
	                size_mul(size_mul((size_t)a, (size_t)b), stride));
	*end = size_round_up(*end, FERRY_ROW_ALIGN);
	return offset;
}

size_t ferry_net_out_offset(const struct ferry_window *window)
{
	return size_round_up(window->bytes, PAGE_BYTES);
}

size_t ferry_net_out_fill(struct ferry_cuda_channel *channel)
{
	const struct ferry_cuda_channel *c = channel;
	struct ferry_cuda_net *net = &channel->net;
	const int64_t tokens = (int64_t)c->n_groups * c->max_tokens;
	size_t end = 0;

	net->out_back_rows = c->combine == FERRY_EXACT ? c->max_topk : 1;
	net->out_table_offset = take(&end, 2, 1, c->table_stride);
	net->out_part_offset =
		take(&end, 2, c->table_parts, FERRY_TABLE_PART_BYTES);
	net->out_row_offset = take(&end, 2, c->cap, c->row_stride);
	net->out_back_offset =
		take(&end, tokens, net->out_back_rows, c->back_stride);
	net->out_slot_bytes = size_round_up(end, PAGE_BYTES);
	return size_mul(net->out_slot_bytes, (size_t)c->n_slots);
}

size_t ferry_net_mirror_bytes(const struct ferry_shape *shape,
                              const struct ferry_window *window)
{
	struct ferry_cuda_channel channel;

	ferry_cuda_channel_fill(&channel, shape, window, NULL);
	return size_add(ferry_net_out_offset(window),
	                ferry_net_out_fill(&channel));
}

size_t ferry_net_heap_bytes(const struct ferry_shape *shape,
                            const struct ferry_window *window,
                            uint32_t n_signals)
{
	struct ferry_cuda_channel channel;

	ferry_cuda_channel_fill(&channel, shape, window, NULL);
	return size_add(ferry_net_out_fill(&channel),
	                size_mul(n_signals, sizeof(uint64_t)));
}
