/* SPDX-License-Identifier: Apache-2.0 */
/* See smoke_pair.h. */
#include "smoke_pair.h"

#include <stdlib.h>
#include <string.h>

#include "core/number.h"

struct ferry_moe_config smoke_config(int32_t n_ranks)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;

	config.n_ranks = n_ranks;
	config.max_tokens = SMOKE_TOKENS;
	config.hidden = SMOKE_HIDDEN;
	config.topk = SMOKE_TOPK;
	config.n_experts = SMOKE_EXPERTS;
	config.layout = FERRY_EXPERT_PACKED;
	return config;
}

static void *take(size_t n, size_t bytes)
{
	void *p = calloc(n ? n : 1, bytes);

	RANKS_CHECK(p);
	ranks_defer(free, p);
	return p;
}

/* Numbers so small that all sums of theirs are exact in bf16. */
static uint16_t value_of(int32_t rank, int32_t turn, int32_t token, int32_t i)
{
	return bf16_from_f32(
		(float)((rank * 31 + turn * 7 + token * 3 + i) % 17));
}

static int32_t id_of(int32_t rank, int32_t turn, int32_t token, int32_t choice)
{
	if ((rank + turn + token + choice) % 5 == 4)
		return -1;
	return (rank * 3 + turn + token * 5 + choice * 2) % SMOKE_EXPERTS;
}

static float weight_of(int32_t choice)
{
	return 1.0f / (float)(1 << choice);
}

struct smoke_pair *smoke_open(struct rank *rank, struct ferry_moe *moe,
                              const struct ferry_moe_config *config,
                              int32_t slot)
{
	struct smoke_pair *p = take(1, sizeof(*p));

	p->need = (struct ferry_moe_need)FERRY_MOE_NEED_INIT;
	RANKS_OK(ferry_moe_query(config, &p->need));
	p->moe = moe;
	p->slot = slot;
	p->rank = rank->rank;
	p->n_ranks = rank->n_ranks;
	const size_t n = (size_t)p->need.recv_rows;
	const size_t own = SMOKE_TOKENS;

	p->x = take(own * SMOKE_HIDDEN, sizeof(*p->x));
	p->out = take(own * SMOKE_HIDDEN, sizeof(*p->out));
	p->ids = take(own * SMOKE_TOPK, sizeof(*p->ids));
	p->weights = take(own * SMOKE_TOPK, sizeof(*p->weights));
	p->rows = take(n * SMOKE_HIDDEN, sizeof(*p->rows));
	p->row_source = take(n, sizeof(int32_t));
	p->row_token = take(n, sizeof(int32_t));
	p->row_slot = take(n, sizeof(int32_t));
	p->counts = take((size_t)p->need.max_expert_slots, sizeof(int32_t));
	p->offsets =
		take((size_t)p->need.max_expert_slots + 1, sizeof(int64_t));
	p->from = config->layout == FERRY_EXPERT_PADDED ? FERRY_FROM_PADDED
	                                                : FERRY_FROM_PACKED;
	return p;
}

static void point_at_buffers(struct smoke_pair *p)
{
	p->in = (struct ferry_dispatch_in)FERRY_DISPATCH_IN_INIT;
	p->in.n_tokens = p->n_tokens;
	p->in.x = p->x;
	p->in.topk_ids = p->ids;
	p->in.topk_weights = p->weights;
	p->dispatch_out = (struct ferry_dispatch_out)FERRY_DISPATCH_OUT_INIT;
	p->dispatch_out.rows = p->rows;
	p->dispatch_out.counts = p->counts;
	p->dispatch_out.offsets = p->offsets;
	p->dispatch_out.row_source = p->row_source;
	p->dispatch_out.row_token = p->row_token;
	p->dispatch_out.row_expert_slot = p->row_slot;
	p->dispatch_out.n_rows = &p->n_rows;
	p->combine_in = (struct ferry_combine_in)FERRY_COMBINE_IN_INIT;
	p->combine_in.y = p->rows;
	p->combine_in.layout = p->from;
	p->combine_out = (struct ferry_combine_out)FERRY_COMBINE_OUT_INIT;
	p->combine_out.out = p->out;
}

void smoke_fill(struct smoke_pair *p, int32_t turn, int32_t n_tokens)
{
	p->turn = turn;
	p->n_tokens = n_tokens;
	for (int32_t t = 0; t < n_tokens; t++) {
		for (int32_t i = 0; i < SMOKE_HIDDEN; i++)
			p->x[t * SMOKE_HIDDEN + i] =
				value_of(p->rank, turn, t, i);
		for (int32_t k = 0; k < SMOKE_TOPK; k++) {
			p->ids[t * SMOKE_TOPK + k] = id_of(p->rank, turn, t, k);
			p->weights[t * SMOKE_TOPK + k] = weight_of(k);
		}
	}
	point_at_buffers(p);
}

void smoke_check_rows(const struct smoke_pair *p)
{
	int64_t n = 0;

	for (int64_t row = 0; row < p->need.recv_rows; row++) {
		if (p->row_source[row] < 0)
			continue;
		n++;
		for (int32_t i = 0; i < SMOKE_HIDDEN; i++)
			RANKS_EQ(p->rows[row * SMOKE_HIDDEN + i],
			         value_of(p->row_source[row], p->turn,
			                  p->row_token[row], i));
	}
	RANKS_EQ(p->n_rows, n);
}

void smoke_check_out(const struct smoke_pair *p)
{
	for (int32_t t = 0; t < p->n_tokens; t++) {
		float weight = 0;

		for (int32_t k = 0; k < SMOKE_TOPK; k++)
			if (id_of(p->rank, p->turn, t, k) >= 0)
				weight += weight_of(k);
		for (int32_t i = 0; i < SMOKE_HIDDEN; i++) {
			const float x =
				f32_from_bf16(value_of(p->rank, p->turn, t, i));

			RANKS_EQ(p->out[t * SMOKE_HIDDEN + i],
			         bf16_from_f32(weight * x));
		}
	}
}

void smoke_run(struct smoke_pair *p, int32_t turn, int32_t n_tokens)
{
	smoke_fill(p, turn, n_tokens);
	RANKS_OK(ferry_dispatch(p->moe, p->slot, &p->in, &p->dispatch_out,
	                        NULL));
	smoke_check_rows(p);
	RANKS_OK(ferry_combine(p->moe, p->slot, &p->combine_in, &p->combine_out,
	                       NULL));
	smoke_check_out(p);
}
