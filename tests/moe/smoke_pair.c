/* SPDX-License-Identifier: Apache-2.0 */
/* See smoke_pair.h. */
#include "smoke_pair.h"

#include <stdlib.h>

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

/* In the order of buffer_bytes. */
enum { X, OUT, ROWS, IDS, WEIGHTS, COUNTS, OFFSETS, SOURCE, TOKEN, SLOT, N };

static void release(void *pair)
{
	struct smoke_pair *p = pair;

	for (int i = 0; i < SMOKE_BUFFERS; i++)
		mirror_drop(p->memory, &p->buffers[i]);
	free(p);
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

static void make_buffers(struct smoke_pair *p)
{
	const size_t n = (size_t)p->need.recv_rows;
	const size_t slots = (size_t)p->need.max_expert_slots;
	const size_t row = SMOKE_HIDDEN * sizeof(*p->x);
	const size_t choices = SMOKE_TOKENS * SMOKE_TOPK;
	const size_t bytes[SMOKE_BUFFERS] = {
		[X] = SMOKE_TOKENS * row,
		[OUT] = SMOKE_TOKENS * row,
		[ROWS] = n * row,
		[IDS] = choices * sizeof(*p->ids),
		[WEIGHTS] = choices * sizeof(*p->weights),
		[COUNTS] = slots * sizeof(*p->counts),
		[OFFSETS] = (slots + 1) * sizeof(*p->offsets),
		[SOURCE] = n * sizeof(*p->row_source),
		[TOKEN] = n * sizeof(*p->row_token),
		[SLOT] = n * sizeof(*p->row_slot),
		[N] = sizeof(*p->n_rows),
	};

	for (int i = 0; i < SMOKE_BUFFERS; i++) {
		p->buffers[i] = mirror_make(p->memory, bytes[i], bytes[i]);
		mirror_fill(p->memory, &p->buffers[i], 0, p->stream);
	}
	p->x = (void *)p->buffers[X].host;
	p->out = (void *)p->buffers[OUT].host;
	p->rows = (void *)p->buffers[ROWS].host;
	p->ids = (void *)p->buffers[IDS].host;
	p->weights = (void *)p->buffers[WEIGHTS].host;
	p->counts = (void *)p->buffers[COUNTS].host;
	p->offsets = (void *)p->buffers[OFFSETS].host;
	p->row_source = (void *)p->buffers[SOURCE].host;
	p->row_token = (void *)p->buffers[TOKEN].host;
	p->row_slot = (void *)p->buffers[SLOT].host;
	p->n_rows = (void *)p->buffers[N].host;
}

struct smoke_pair *smoke_open(struct rank *rank, struct ferry_moe *moe,
                              const struct ferry_moe_config *config,
                              int32_t slot)
{
	struct rank_memory *memory = rank_memory_of(rank, 1);
	struct smoke_pair *p = calloc(1, sizeof(*p));

	RANKS_CHECK(p);
	p->memory = memory;
	ranks_defer(release, p);
	p->stream = rank_memory_stream(memory, 0);
	p->need = (struct ferry_moe_need)FERRY_MOE_NEED_INIT;
	RANKS_OK(ferry_moe_query(config, &p->need));
	p->moe = moe;
	p->slot = slot;
	p->rank = rank->rank;
	p->n_ranks = rank->n_ranks;
	p->from = config->layout == FERRY_EXPERT_PADDED ? FERRY_FROM_PADDED
	                                                : FERRY_FROM_PACKED;
	make_buffers(p);
	return p;
}

static void point_at_buffers(struct smoke_pair *p)
{
	const struct mirror *b = p->buffers;

	p->in = (struct ferry_dispatch_in)FERRY_DISPATCH_IN_INIT;
	p->in.n_tokens = p->n_tokens;
	p->in.x = b[X].device;
	p->in.topk_ids = b[IDS].device;
	p->in.topk_weights = (void *)b[WEIGHTS].device;
	p->dispatch_out = (struct ferry_dispatch_out)FERRY_DISPATCH_OUT_INIT;
	p->dispatch_out.rows = b[ROWS].device;
	p->dispatch_out.counts = (void *)b[COUNTS].device;
	p->dispatch_out.offsets = (void *)b[OFFSETS].device;
	p->dispatch_out.row_source = (void *)b[SOURCE].device;
	p->dispatch_out.row_token = (void *)b[TOKEN].device;
	p->dispatch_out.row_expert_slot = (void *)b[SLOT].device;
	p->dispatch_out.n_rows = (void *)b[N].device;
	p->combine_in = (struct ferry_combine_in)FERRY_COMBINE_IN_INIT;
	p->combine_in.y = b[ROWS].device;
	p->combine_in.layout = p->from;
	p->combine_out = (struct ferry_combine_out)FERRY_COMBINE_OUT_INIT;
	p->combine_out.out = b[OUT].device;
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
	RANKS_EQ(*p->n_rows, n);
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

enum ferry_status smoke_dispatch(struct smoke_pair *p)
{
	enum ferry_status status;

	mirror_push(p->memory, &p->buffers[X], p->stream);
	mirror_push(p->memory, &p->buffers[IDS], p->stream);
	mirror_push(p->memory, &p->buffers[WEIGHTS], p->stream);
	status = ferry_dispatch(p->moe, p->slot, &p->in, &p->dispatch_out,
	                        p->stream);
	for (int i = ROWS; i <= N; i++)
		if (i != IDS && i != WEIGHTS)
			mirror_pull(p->memory, &p->buffers[i], p->stream);
	rank_memory_sync(p->memory, p->stream);
	return status ? status : ferry_moe_poll(p->moe, NULL);
}

enum ferry_status smoke_combine(struct smoke_pair *p)
{
	const enum ferry_status status = ferry_combine(
		p->moe, p->slot, &p->combine_in, &p->combine_out, p->stream);

	mirror_pull(p->memory, &p->buffers[OUT], p->stream);
	rank_memory_sync(p->memory, p->stream);
	return status ? status : ferry_moe_poll(p->moe, NULL);
}

void smoke_run(struct smoke_pair *p, int32_t turn, int32_t n_tokens)
{
	smoke_fill(p, turn, n_tokens);
	RANKS_OK(smoke_dispatch(p));
	smoke_check_rows(p);
	RANKS_OK(smoke_combine(p));
	smoke_check_out(p);
}
