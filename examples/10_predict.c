/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 10: before attention. Every rank runs the next layer's router early, counts
 * what it would choose, and the ranks sum up. A profile and measured links say
 * what fits under attention, so all plan the same swaps.
 *
 *     cc 10_predict.c $(pkg-config --cflags --libs ferry) -o 10_predict
 *     ferry run -n 4 -- ./10_predict
 *
 * prints
 *
 *     window 8500 us, of the fastest rank
 *     fullest rank: 348 of 800 choices
 *     after 2 swaps: 209, on all ranks the same
 */
#include "example.h"

enum { RANKS = 4, EXPERTS = 16, TOPK = 2, TOKENS = 100, LAYER = 3 };

/*
 * The model's own rule, here Qwen3's. What stands in for logits of h(l-1) likes
 * some experts. The last tokens are padding.
 */
static void count(int32_t rank, int32_t *counts)
{
	enum { N = TOKENS + 4 };
	float logits[N][EXPERTS];
	int32_t ids[N][TOPK];
	uint8_t valid[N];
	struct ferry_router router = FERRY_ROUTER_INIT;
	struct ferry_logits in = FERRY_LOGITS_INIT;
	struct ferry_ids chosen = FERRY_IDS_INIT;

	for (int t = 0; t < N; t++) {
		valid[t] = t < TOKENS;
		for (int e = 0; e < EXPERTS; e++)
			logits[t][e] =
				(float)((t * 7 + e * 13 + rank * 29) % 23) / 8 +
				(e < EXPERTS / 4 ? 0.25f : 0);
	}
	router.n_experts = EXPERTS;
	router.topk = TOPK;
	in.n_tokens = chosen.n_tokens = N;
	in.logits = logits;
	in.valid = valid;
	must(ferry_predict_topk(&router, &in, &ids[0][0], NULL));
	chosen.topk = TOPK;
	chosen.ids = ids;
	must(ferry_predict_counts(&chosen, EXPERTS, counts));
}

/* Profiled once for all layers: rank 2 attends a little faster. */
static int64_t window_of(int32_t rank)
{
	struct ferry_windows_config config = FERRY_WINDOWS_CONFIG_INIT;
	struct ferry_windows *windows;
	int64_t ns;

	config.n_layers = 8;
	config.margin_ns = 500000;
	must(ferry_windows_create(&config, &windows));
	must(ferry_windows_add(windows, 0, 2 * TOKENS, 512,
	                       rank == 2 ? 18000000 : 20000000));
	must(ferry_windows_get(windows, LAYER, TOKENS, 512, &ns));
	ferry_windows_destroy(windows);
	return ns;
}

struct setup {
	struct ferry_world *world;
	struct ferry_totals *totals;
	int64_t alpha_ns[RANKS * RANKS], ps_per_byte[RANKS * RANKS];
	int64_t loads[EXPERTS], window_ns;
	struct ferry_plan plan;
};

/* Sending never waits: counts of all ranks arrive while attention begins. */
static void sum_up(struct setup *s)
{
	struct ferry_totals_in in = FERRY_TOTALS_IN_INIT;
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;
	const int32_t rank = ferry_world_rank(s->world);
	int32_t counts[EXPERTS] = {0};

	count(rank, counts);
	in.n_experts = EXPERTS;
	in.counts = counts;
	in.window_ns = window_of(rank);
	in.tag = LAYER; /* who is at another layer is found out */
	must(ferry_totals_send(s->totals, &in));
	out.loads = s->loads;
	out.window_ns = &s->window_ns;
	must(ferry_totals_recv(s->totals, &out));
}

static void plan(struct setup *s)
{
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
	struct ferry_cost cost = FERRY_COST_INIT;
	struct ferry_placement *placement;
	struct ferry_planner *planner;

	config.n_experts = EXPERTS;
	config.n_ranks = RANKS;
	must(ferry_placement_create(&config, &placement));
	must(ferry_planner_create(EXPERTS, EXPERTS, RANKS, &planner));
	cost.n_ranks = RANKS;
	cost.alpha_ns = s->alpha_ns;
	cost.ps_per_byte = s->ps_per_byte;
	cost.all_bytes = 1000; /* a tiny expert */
	in.placement = placement;
	in.loads = s->loads;
	in.layer = LAYER;
	in.max_swaps = 2;
	in.cost = &cost;
	in.window_ns = s->window_ns;
	s->plan.size = sizeof(s->plan);
	must(ferry_plan_make(planner, &in, &s->plan));
	ferry_planner_destroy(planner);
	ferry_placement_destroy(placement);
}

int main(void)
{
	struct setup *s = allocate(1, sizeof(*s));
	uint64_t hash[RANKS];

	must(ferry_world_open(NULL, &s->world));
	need_ranks(RANKS, ferry_world_size(s->world));
	must(ferry_cost_measure(s->world, NULL, s->alpha_ns, s->ps_per_byte));
	must(ferry_totals_open(s->world, EXPERTS, &s->totals));
	sum_up(s);
	plan(s);
	must(ferry_world_allgather(s->world, &s->plan.hash, hash, 8));
	for (int r = 0; r < RANKS; r++)
		check(hash[r] == hash[0], "plans differ");
	if (ferry_world_rank(s->world) == 0)
		printf("window %lld us, of the fastest rank\n"
		       "fullest rank: %lld of %lld choices\n"
		       "after %d swaps: %lld, on all ranks the same\n",
		       (long long)s->window_ns / 1000,
		       (long long)s->plan.load_before, (long long)s->plan.total,
		       s->plan.n_moves, (long long)s->plan.load_after);
	ferry_totals_close(s->totals);
	ferry_world_close(s->world);
	free(s);
	return 0;
}
