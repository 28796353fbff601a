/* SPDX-License-Identifier: Apache-2.0 */
/* See lab_channel.h. */
#include "lab_channel.h"

#include <stdlib.h>

#include "core/bits.h"

enum { N_FLOWS = 2 };

static void open_splitter(struct lab_channel *channel, const struct lab *lab,
                          int32_t topk)
{
	struct ferry_splitter_config s = FERRY_SPLITTER_CONFIG_INIT;

	s.max_tokens = channel->n_tokens;
	s.topk = topk;
	s.max_experts = lab->shape.n_experts;
	s.max_expert_slots = ferry_placement_n_slots(lab->first[0]);
	s.n_slots = N_FLOWS;
	RANKS_OK(ferry_splitter_open(lab->rank->world, &s, &channel->splitter));
}

void lab_channel_open(struct lab_channel *channel, const struct lab *lab,
                      int32_t n_tokens, int32_t hidden, int32_t topk)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	const struct ferry_placement *first = lab->first[0];
	int32_t slots[RANKS_MAX];

	for (int32_t r = 0; r < lab->rank->n_ranks; r++)
		slots[r] = ferry_placement_first_slot(first, r + 1) -
		           ferry_placement_first_slot(first, r);
	c.n_ranks = lab->rank->n_ranks;
	c.max_tokens = n_tokens;
	c.hidden = hidden;
	c.topk = topk;
	c.n_experts = lab->shape.n_experts;
	c.expert_slots = slots;
	c.n_slots = N_FLOWS;
	c.dtype = FERRY_FP32;
	c.combine_dtype = FERRY_FP32;
	c.layout = FERRY_EXPERT_PACKED;
	channel->n_tokens = n_tokens;
	RANKS_OK(ferry_moe_query(&c, &need));
	RANKS_OK(ferry_moe_open(lab->rank->world, &c, &channel->moe));
	if (lab->shape.split == FERRY_SPLIT_EXACT)
		open_splitter(channel, lab, topk);
	for (int i = 0; i < N_FLOWS; i++) {
		struct lab_flow *flow = &channel->flows[i];

		flow->slot = i;
		flow->slots =
			calloc((size_t)(n_tokens * topk), sizeof(*flow->slots));
		flow->rows = calloc((size_t)need.recv_rows, need.row_bytes);
		flow->row_slot =
			calloc((size_t)need.recv_rows, sizeof(*flow->row_slot));
	}
}

void lab_channel_close(struct lab_channel *channel)
{
	ferry_moe_close(channel->moe);
	ferry_splitter_close(channel->splitter);
	for (int i = 0; i < N_FLOWS; i++) {
		free(channel->flows[i].slots);
		free(channel->flows[i].rows);
		free(channel->flows[i].row_slot);
	}
}

void lab_dispatch(struct lab_channel *channel, struct lab_flow *flow,
                  const int32_t *ids, const float *weights, const float *x)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_split_in split = FERRY_SPLIT_IN_INIT;
	struct ferry_split_out found = FERRY_SPLIT_OUT_INIT;

	in.topk_ids = ids;
	if (channel->splitter) {
		split.n_tokens = channel->n_tokens;
		split.ids = ids;
		split.placement = flow->placement;
		found.slots = flow->slots;
		RANKS_OK(ferry_split(channel->splitter, flow->slot, &split,
		                     &found));
		in.topk_ids = flow->slots;
		in.id_kind = FERRY_ID_SLOT;
	}
	in.n_tokens = channel->n_tokens;
	in.x = x;
	in.topk_weights = weights;
	in.placement = flow->placement;
	out.rows = flow->rows;
	out.row_expert_slot = flow->row_slot;
	out.n_rows = &flow->n_rows;
	RANKS_OK(ferry_dispatch(channel->moe, flow->slot, &in, &out, NULL));
}

void lab_combine_send(struct lab_channel *channel, struct lab_flow *flow)
{
	struct ferry_combine_in in = FERRY_COMBINE_IN_INIT;

	in.y = flow->rows;
	in.layout = FERRY_FROM_PACKED;
	RANKS_OK(ferry_combine_send(channel->moe, flow->slot, &in, NULL));
}

void lab_combine_recv(struct lab_channel *channel, struct lab_flow *flow,
                      float *sum)
{
	struct ferry_combine_out out = FERRY_COMBINE_OUT_INIT;

	out.out = sum;
	RANKS_OK(ferry_combine_recv(channel->moe, flow->slot, &out, NULL));
}

float lab_float(uint64_t *rng)
{
	return (float)((int64_t)rng_next(rng) >> 32) * 0x1p-31f;
}
