/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 09: the exact split. Expert 0 is on both ranks. Served in turn, its copies
 * leave rank 1 with more rows, where two other experts are. ferry_split counts
 * what the router has chosen, and both ranks get the same number.
 *
 *     cc 09_split.c $(pkg-config --cflags --libs ferry) -o 09_split
 *     ferry run -n 2 -- ./09_split
 *
 * prints
 *
 *     rows of the ranks, copies in turn: 28 36
 *     rows of the ranks, exactly split:  32 32
 *     the sums are the same bits
 */
#include <string.h>

#include "example.h"

enum { TOKENS = 16, HIDDEN = 64, TOPK = 2, EXPERTS = 4, SLOTS = 3 };

struct setup {
	struct ferry_world *world;
	struct ferry_moe *moe;
	struct ferry_placement *placement;
	float *rows;
	float x[TOKENS][HIDDEN];
	int32_t ids[TOKENS][TOPK];
	float sum[TOKENS][HIDDEN];
};

/* Expert in each of 3 slots of 2 ranks; -1: empty. */
static const int32_t slot_expert[] = {0, 1, -1, 0, 2, 3};
static const int32_t slots_of_rank[] = {SLOTS, SLOTS};

static void open_all(struct setup *s)
{
	struct ferry_placement_config map = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;

	map.n_experts = EXPERTS;
	map.n_ranks = 2;
	map.expert_slots = slots_of_rank;
	map.slot_expert = slot_expert;
	must(ferry_placement_create(&map, &s->placement));
	config.n_ranks = 2;
	config.max_tokens = TOKENS;
	config.hidden = HIDDEN;
	config.topk = TOPK;
	config.n_experts = EXPERTS;
	config.expert_slots = slots_of_rank;
	config.dtype = FERRY_FP32;
	config.combine_dtype = FERRY_FP32;
	config.layout = FERRY_EXPERT_PACKED;
	must(ferry_moe_query(&config, &need));
	must(ferry_moe_open(s->world, &config, &s->moe));
	s->rows = allocate((size_t)need.recv_rows, need.row_bytes);
}

/* Everybody wants expert 0, and one of the others. */
static void route(struct setup *s)
{
	for (int t = 0; t < TOKENS; t++) {
		s->ids[t][0] = 0;
		s->ids[t][1] = 1 + t % 3;
		for (int i = 0; i < HIDDEN; i++)
			s->x[t][i] = 1 / (float)(1 + t * HIDDEN + i);
	}
}

/* One layer; returns the rows that came to this rank. */
static int64_t layer(struct setup *s, const void *ids, enum ferry_id_kind kind)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in back = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out sum = FERRY_COMBINE_OUT_INIT;
	const int32_t *mine = slot_expert + SLOTS * ferry_world_rank(s->world);
	int32_t slot[TOKENS * EXPERTS * 2];
	int64_t n_rows;

	in.n_tokens = TOKENS;
	in.x = s->x;
	in.topk_ids = ids;
	in.id_kind = kind;
	in.placement = s->placement;
	out.rows = s->rows;
	out.row_expert_slot = slot;
	out.n_rows = &n_rows;
	must(ferry_dispatch(s->moe, 0, &in, &out, NULL));
	/* Expert e multiplies by 1 / (e + 1), wherever it is. */
	for (int64_t r = 0; r < n_rows; r++)
		for (int i = 0; i < HIDDEN; i++)
			s->rows[r * HIDDEN + i] /= (float)(mine[slot[r]] + 1);
	back.y = s->rows;
	back.layout = FERRY_FROM_PACKED;
	sum.out = s->sum;
	must(ferry_combine(s->moe, 0, &back, &sum, NULL));
	return n_rows;
}

static void report(struct setup *s, const char *what, int64_t n_rows)
{
	int64_t all[2];

	must(ferry_world_allgather(s->world, &n_rows, all, sizeof(n_rows)));
	if (ferry_world_rank(s->world) == 0)
		printf("rows of the ranks, %s %d %d\n", what, (int)all[0],
		       (int)all[1]);
}

int main(void)
{
	struct setup *s = allocate(1, sizeof(*s));
	struct ferry_splitter_config config = FERRY_SPLITTER_CONFIG_INIT;
	struct ferry_splitter *splitter;
	struct ferry_split_in in = FERRY_SPLIT_IN_INIT;
	struct ferry_split_out out = FERRY_SPLIT_OUT_INIT;
	float in_turn[TOKENS][HIDDEN];
	int32_t slots[TOKENS][TOPK];

	must(ferry_world_open(NULL, &s->world));
	need_ranks(2, ferry_world_size(s->world));
	open_all(s);
	config.max_tokens = TOKENS;
	config.topk = TOPK;
	config.max_experts = EXPERTS;
	config.max_expert_slots = 2 * SLOTS;
	must(ferry_splitter_open(s->world, &config, &splitter));
	route(s);
	report(s, "copies in turn:", layer(s, s->ids, FERRY_ID_LOGICAL));
	memcpy(in_turn, s->sum, sizeof(in_turn));
	in.n_tokens = TOKENS;
	in.ids = s->ids;
	in.placement = s->placement;
	out.slots = slots[0];
	must(ferry_split(splitter, 0, &in, &out));
	report(s, "exactly split: ", layer(s, slots, FERRY_ID_SLOT));
	check(!memcmp(in_turn, s->sum, sizeof(in_turn)), "bits differ");
	if (ferry_world_rank(s->world) == 0)
		puts("the sums are the same bits");
	ferry_splitter_close(splitter);
	ferry_moe_close(s->moe);
	ferry_placement_destroy(s->placement);
	ferry_world_close(s->world);
	free(s->rows);
	free(s);
	return 0;
}
