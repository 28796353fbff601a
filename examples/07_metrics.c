/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 07: what a channel did: counters, Prometheus text, and a trace of events for
 * ui.perfetto.dev.
 *
 *     cc 07_metrics.c $(pkg-config --cflags --libs ferry) -o 07_metrics
 *     FERRY_TRACE=/tmp/trace-%r.json ferry run -n 2 -- ./07_metrics
 *
 * prints the metrics of rank 0, such as
 *
 *     ferry_dispatches_total{channel="example",rank="0"} 10
 */
#include <string.h>

#include "example.h"

enum { TOKENS = 32, HIDDEN = 512, TOPK = 4, EXPERTS = 16, STEPS = 10 };

static struct ferry_moe *open_channel(struct ferry_world *world, void **rows)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	struct ferry_moe *moe;

	config.n_ranks = ferry_world_size(world);
	config.max_tokens = TOKENS;
	config.hidden = HIDDEN;
	config.topk = TOPK;
	config.n_experts = EXPERTS;
	config.combine = FERRY_REDUCED;
	must(ferry_moe_query(&config, &need));
	must(ferry_moe_open(world, &config, &moe));
	*rows = allocate((size_t)need.recv_rows, need.row_bytes);
	return moe;
}

static void step(struct ferry_moe *moe, void *rows, int n)
{
	static uint16_t x[TOKENS][HIDDEN], y[TOKENS][HIDDEN];
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in back = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out sum = FERRY_COMBINE_OUT_INIT;
	int32_t ids[TOKENS][TOPK];

	for (int i = 0; i < TOKENS * TOPK; i++)
		ids[i / TOPK][i % TOPK] = (i * 7 + n) % EXPERTS;
	in.n_tokens = TOKENS;
	in.x = x;
	in.topk_ids = ids;
	out.rows = rows;
	must(ferry_dispatch(moe, 0, &in, &out, NULL));
	back.y = rows;
	sum.out = y;
	must(ferry_combine(moe, 0, &back, &sum, NULL));
}

static void show(const struct ferry_moe *moe, int32_t rank)
{
	struct ferry_moe_stats stats = FERRY_MOE_STATS_INIT;
	char text[8192];

	must(ferry_moe_get_stats(moe, &stats));
	check(stats.n_dispatches == STEPS, "dispatches");
	check(stats.tokens_sent == (uint64_t)STEPS * TOKENS, "tokens");
	check(ferry_moe_metrics(moe, "example", text, sizeof(text)) <
	              sizeof(text),
	      "length");
	if (rank == 0)
		fputs(text, stdout);
}

int main(void)
{
	struct ferry_world *world;
	void *rows;

	must(ferry_world_open(NULL, &world));
	struct ferry_moe *moe = open_channel(world, &rows);

	for (int n = 0; n < STEPS; n++)
		step(moe, rows, n);
	show(moe, ferry_world_rank(world));
	free(rows);
	ferry_moe_close(moe);
	ferry_world_close(world); /* writes the trace, if one was asked for */
	return 0;
}
