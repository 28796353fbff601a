/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 13: balance by hand. What the tokens of all ranks will choose is summed, a
 * plan moves experts, and a channel dispatches to where they are then: rows
 * meet the weights that ferry_experts_tensor finds. Sums keep their bits.
 *
 *     cc 13_balance.c $(pkg-config --cflags --libs ferry) -o 13_balance
 *     ferry run -n 2 -- ./13_balance
 *
 * prints
 *
 *     rows of the ranks, experts as opened: 44 20
 *     rows of the ranks, after 2 moves:     33 31
 *     the sums are the same bits
 */
#include <string.h>

#include "example.h"

enum { TOKENS = 16, HIDDEN = 64, TOPK = 2, EXPERTS = 4, SLOTS = 3, RANKS = 2 };

struct setup {
	struct ferry_world *world;
	struct ferry_moe *moe;
	struct ferry_experts *experts;
	struct ferry_totals *totals;
	struct ferry_planner *planner;
	float *rows;
	float x[TOKENS][HIDDEN];
	float sum[TOKENS][HIDDEN];
	int32_t ids[TOKENS][TOPK];
};

/* Two experts and a spare slot on each rank. */
static const int32_t slot_expert[] = {0, 1, -1, 2, 3, -1};
static const int32_t slots_of_rank[] = {SLOTS, SLOTS};
static const size_t tensor_bytes[] = {HIDDEN * sizeof(float)};

static struct ferry_placement *place(void)
{
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *placement;

	config.n_experts = EXPERTS;
	config.n_ranks = RANKS;
	config.expert_slots = slots_of_rank;
	config.slot_expert = slot_expert;
	must(ferry_placement_create(&config, &placement));
	return placement;
}

static void open_channel(struct setup *s)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;

	config.n_ranks = RANKS;
	config.max_tokens = TOKENS;
	config.hidden = HIDDEN;
	config.topk = TOPK;
	config.n_experts = EXPERTS;
	config.expert_slots = slots_of_rank; /* the spare ones too */
	config.dtype = FERRY_FP32;
	config.combine_dtype = FERRY_FP32;
	config.layout = FERRY_EXPERT_PACKED;
	must(ferry_moe_query(&config, &need));
	must(ferry_moe_open(s->world, &config, &s->moe));
	s->rows = allocate((size_t)need.recv_rows, need.row_bytes);
}

/* Expert e's weights are all 1 / (e + 1). */
static void open_experts(struct setup *s, const struct ferry_placement *first)
{
	struct ferry_experts_config config = FERRY_EXPERTS_CONFIG_INIT;
	const int32_t *mine = slot_expert + SLOTS * ferry_world_rank(s->world);

	config.n_layers = 1;
	config.placements = &first;
	config.n_tensors = 1;
	config.tensor_bytes = tensor_bytes;
	must(ferry_experts_open(s->world, &config, &s->experts));
	for (int32_t own = 0; own < SLOTS; own++) {
		float *w = ferry_experts_tensor(s->experts, 0, first, own, 0);

		for (int i = 0; i < HIDDEN && mine[own] >= 0; i++)
			w[i] = 1 / (float)(mine[own] + 1);
	}
}

static void open_all(struct setup *s, const struct ferry_placement *first)
{
	open_channel(s);
	open_experts(s, first);
	must(ferry_totals_open(s->world, EXPERTS, &s->totals));
	must(ferry_planner_create(EXPERTS, RANKS * SLOTS, RANKS, &s->planner));
	for (int t = 0; t < TOKENS; t++) {
		s->ids[t][0] = 0; /* the hot one */
		s->ids[t][1] = 1 + t % 3;
		for (int i = 0; i < HIDDEN; i++)
			s->x[t][i] = 1 / (float)(1 + t * HIDDEN + i);
	}
}

/* Before attention; s->ids would be ferry_predict_topk's. */
static int32_t balance(struct setup *s)
{
	struct ferry_ids ids = FERRY_IDS_INIT;
	struct ferry_totals_in own = FERRY_TOTALS_IN_INIT;
	struct ferry_totals_out all = FERRY_TOTALS_OUT_INIT;
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
	struct ferry_plan plan = {.size = sizeof(plan)};
	int32_t counts[EXPERTS] = {0};
	int64_t loads[EXPERTS];

	ids.n_tokens = TOKENS;
	ids.topk = TOPK;
	ids.ids = s->ids;
	must(ferry_predict_counts(&ids, EXPERTS, counts));
	own.n_experts = EXPERTS;
	own.counts = counts;
	all.loads = loads;
	must(ferry_totals_send(s->totals, &own));
	must(ferry_totals_recv(s->totals, &all));
	in.placement = ferry_experts_placement(s->experts, 0);
	in.loads = loads;
	in.max_copies = 1;
	must(ferry_plan_make(s->planner, &in, &plan));
	must(ferry_experts_start(s->experts, 0, &plan, NULL, NULL));
	/* Here attention runs. */
	must(ferry_experts_commit(s->experts, 0, NULL, NULL, NULL));
	return plan.n_moves;
}

/* Own slot s has the rows from offsets[s] on, and the weights of the
 * placement that they were dispatched with. */
static void run_experts(struct setup *s, const struct ferry_placement *with,
                        const int32_t *counts, const int64_t *offsets)
{
	for (int32_t own = 0; own < SLOTS; own++) {
		const float *w =
			ferry_experts_tensor(s->experts, 0, with, own, 0);
		float *row = s->rows + offsets[own] * HIDDEN;

		for (int32_t i = 0; i < counts[own] * HIDDEN; i++)
			row[i] *= w[i % HIDDEN];
	}
}

static void layer(struct setup *s, const char *what)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in back = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out sum = FERRY_COMBINE_OUT_INIT;
	int32_t counts[SLOTS];
	int64_t offsets[SLOTS + 1], n_rows, all[RANKS];

	in.n_tokens = TOKENS;
	in.x = s->x;
	in.topk_ids = s->ids;
	in.placement = ferry_experts_placement(s->experts, 0);
	out.rows = s->rows;
	out.counts = counts;
	out.offsets = offsets;
	out.n_rows = &n_rows;
	must(ferry_dispatch(s->moe, 0, &in, &out, NULL));
	run_experts(s, in.placement, counts, offsets);
	back.y = s->rows;
	back.layout = FERRY_FROM_PACKED;
	sum.out = s->sum;
	must(ferry_combine(s->moe, 0, &back, &sum, NULL));
	must(ferry_world_allgather(s->world, &n_rows, all, sizeof(n_rows)));
	if (ferry_world_rank(s->world) == 0)
		printf("rows of the ranks, %s %d %d\n", what, (int)all[0],
		       (int)all[1]);
}

int main(void)
{
	struct setup *s = allocate(1, sizeof(*s));
	struct ferry_placement *first = place();
	float before[TOKENS][HIDDEN];
	char what[32];

	must(ferry_world_open(NULL, &s->world));
	need_ranks(RANKS, ferry_world_size(s->world));
	open_all(s, first);
	layer(s, "experts as opened:");
	memcpy(before, s->sum, sizeof(before));
	snprintf(what, sizeof(what), "after %d moves:    ", (int)balance(s));
	layer(s, what);
	check(!memcmp(before, s->sum, sizeof(before)), "bits differ");
	if (ferry_world_rank(s->world) == 0)
		puts("the sums are the same bits");
	ferry_planner_destroy(s->planner);
	ferry_totals_close(s->totals);
	ferry_experts_close(s->experts);
	ferry_moe_close(s->moe);
	ferry_placement_destroy(first);
	ferry_world_close(s->world);
	free(s->rows);
	free(s);
	return 0;
}
