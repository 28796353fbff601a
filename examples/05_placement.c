/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 05: replicas. Everybody wants expert 0, so a placement puts a copy of it on
 * every rank; the load evens out, and the sums stay the same, bit for bit.
 *
 *     cc 05_placement.c $(pkg-config --cflags --libs ferry) -o 05_placement
 *     ferry run -n 2 -- ./05_placement
 *
 * prints
 *
 *     rows of the ranks, expert 0 once:      44 20, imbalance 1.38
 *     rows of the ranks, expert 0 on both:   28 36, imbalance 1.12
 *     the sums are the same bits
 */
#include <string.h>

#include "example.h"

enum { TOKENS = 16, HIDDEN = 64, TOPK = 2, EXPERTS = 4, SLOTS = 3 };

struct setup {
	struct ferry_world *world;
	struct ferry_moe *moe;
	float *rows;
	float x[TOKENS][HIDDEN];
	float sum[TOKENS][HIDDEN];
};

/* Expert in each of 3 slots of 2 ranks; -1: empty. */
static const int32_t once[] = {0, 1, -1, 2, 3, -1};
static const int32_t twice[] = {0, 1, -1, 0, 2, 3};
static const int32_t slots_of_rank[] = {SLOTS, SLOTS};

static struct ferry_placement *build(const int32_t *slot_expert)
{
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *placement;

	config.n_experts = EXPERTS;
	config.n_ranks = 2;
	config.expert_slots = slots_of_rank;
	config.slot_expert = slot_expert;
	must(ferry_placement_create(&config, &placement));
	return placement;
}

static void open_channel(struct setup *s)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;

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

/* One layer under a placement; returns the rows that came to this rank. */
static int64_t layer(struct setup *s, const struct ferry_placement *placement)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in back = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out sum = FERRY_COMBINE_OUT_INIT;
	const int32_t rank = ferry_world_rank(s->world);
	float weights[TOKENS][TOPK];
	int32_t ids[TOKENS][TOPK], slot[TOKENS * EXPERTS * 2];
	int64_t n_rows;

	for (int t = 0; t < TOKENS; t++) {
		ids[t][0] = 0; /* the hot one */
		ids[t][1] = 1 + t % 3;
		weights[t][0] = 0.7f;
		weights[t][1] = 0.3f;
	}
	in.n_tokens = TOKENS;
	in.x = s->x;
	in.topk_ids = ids;
	in.topk_weights = &weights[0][0];
	in.placement = placement;
	out.rows = s->rows;
	out.row_expert_slot = slot;
	out.n_rows = &n_rows;
	must(ferry_dispatch(s->moe, 0, &in, &out, NULL));

	/* Expert e multiplies by 1 / (e + 1), wherever it is. */
	for (int64_t r = 0; r < n_rows; r++)
		for (int i = 0; i < HIDDEN; i++)
			s->rows[r * HIDDEN + i] /=
				(float)(ferry_placement_expert(
						placement,
						rank * SLOTS + slot[r]) +
			                1);
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
		printf("rows of the ranks, expert 0 %-9s %3lld %lld, "
		       "imbalance %.2f\n",
		       what, (long long)all[0], (long long)all[1],
		       2.0 * (double)(all[0] > all[1] ? all[0] : all[1]) /
		               (double)(all[0] + all[1]));
}

int main(void)
{
	struct setup *s = allocate(1, sizeof(*s));
	struct ferry_placement *placement = build(once);
	float before[TOKENS][HIDDEN];

	must(ferry_world_open(NULL, &s->world));
	need_ranks(2, ferry_world_size(s->world));
	open_channel(s);
	for (int i = 0; i < TOKENS * HIDDEN; i++)
		s->x[i / HIDDEN][i % HIDDEN] = 1 / (float)(1 + i);
	report(s, "once:", layer(s, placement));
	memcpy(before, s->sum, sizeof(before));
	ferry_placement_destroy(placement);

	placement = build(twice);
	report(s, "on both:", layer(s, placement));
	check(!memcmp(before, s->sum, sizeof(before)), "bits differ");
	if (ferry_world_rank(s->world) == 0)
		puts("the sums are the same bits");
	ferry_placement_destroy(placement);
	ferry_moe_close(s->moe);
	ferry_world_close(s->world);
	free(s->rows);
	free(s);
	return 0;
}
