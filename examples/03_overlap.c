/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 03: two micro-batches in flight, on slots 0 and 1: while one is computed,
 * the other travels. Ranks are threads here, which needs no launcher.
 *
 *     cc 03_overlap.c $(pkg-config --cflags --libs ferry) -pthread -o overlap
 *     ./overlap
 *
 * prints
 *
 *     3 threads, 20 layers, 2 micro-batches: 120 sums are right
 */
#include <pthread.h>

#include "example.h"

enum { RANKS = 3, LAYERS = 20, BATCHES = 2 };
enum { TOKENS = 8, HIDDEN = 64, TOPK = 3, EXPERTS = 9, ROWS = 512 };

struct rank {
	pthread_t thread;
	struct ferry_team *team;
	int32_t number;
	int n_right;
};

struct batch {
	float x[TOKENS][HIDDEN];
	float rows[ROWS][HIDDEN];
	int32_t ids[TOKENS][TOPK];
	float weights[TOKENS][TOPK];
};

static struct ferry_moe *open_channel(struct ferry_world *world)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	struct ferry_moe *moe;

	config.n_ranks = RANKS;
	config.max_tokens = TOKENS;
	config.hidden = HIDDEN;
	config.topk = TOPK;
	config.n_experts = EXPERTS;
	config.n_slots = BATCHES;
	config.dtype = FERRY_FP32;
	config.combine_dtype = FERRY_FP32;
	config.layout = FERRY_EXPERT_PADDED;
	must(ferry_moe_query(&config, &need));
	check(need.recv_rows <= ROWS, "rows");
	must(ferry_moe_open(world, &config, &moe));
	return moe;
}

static void send(struct ferry_moe *moe, int32_t slot, struct batch *batch,
                 int layer)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;

	for (int i = 0; i < TOKENS * TOPK; i++) {
		batch->ids[i / TOPK][i % TOPK] = (i + layer) % EXPERTS;
		batch->weights[i / TOPK][i % TOPK] = i % TOPK ? 0.25f : 0.5f;
	}
	in.n_tokens = TOKENS;
	in.x = batch->x;
	in.topk_ids = batch->ids;
	in.topk_weights = &batch->weights[0][0];
	must(ferry_dispatch_send(moe, slot, &in, NULL));
}

/* Experts that change nothing: then a layer changes nothing either. */
static void compute(struct ferry_moe *moe, int32_t slot, struct batch *batch)
{
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in back = FERRY_COMBINE_IN_INIT;

	out.rows = batch->rows;
	must(ferry_dispatch_recv(moe, slot, &out, NULL));
	back.y = batch->rows;
	back.layout = FERRY_FROM_PADDED;
	must(ferry_combine_send(moe, slot, &back, NULL));
}

static void receive(struct ferry_moe *moe, int32_t slot, struct batch *batch)
{
	struct ferry_combine_out sum = FERRY_COMBINE_OUT_INIT;

	sum.out = batch->x;
	must(ferry_combine_recv(moe, slot, &sum, NULL));
}

static void run_layers(struct ferry_moe *moe, struct rank *me)
{
	struct batch *batch = allocate(BATCHES, sizeof(*batch));

	for (int b = 0; b < BATCHES; b++)
		for (int i = 0; i < TOKENS * HIDDEN; i++)
			batch[b].x[i / HIDDEN][i % HIDDEN] = (float)(b + i);
	for (int layer = 0; layer < LAYERS; layer++) {
		for (int b = 0; b < BATCHES; b++)
			send(moe, b, &batch[b], layer);
		for (int b = 0; b < BATCHES; b++)
			compute(moe, b, &batch[b]);
		for (int b = 0; b < BATCHES; b++) {
			receive(moe, b, &batch[b]);
			me->n_right +=
				batch[b].x[1][2] == (float)(b + HIDDEN + 2);
		}
	}
	free(batch);
}

static void *rank_main(void *arg)
{
	struct rank *me = arg;
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world;

	config.team = me->team;
	config.rank = me->number;
	must(ferry_world_open(&config, &world));
	struct ferry_moe *moe = open_channel(world);
	run_layers(moe, me);
	ferry_moe_close(moe);
	ferry_world_close(world);
	return NULL;
}

int main(void)
{
	struct rank ranks[RANKS] = {0};
	struct ferry_team *team;
	int n_right = 0;

	must(ferry_team_create(RANKS, &team));
	for (int32_t r = 0; r < RANKS; r++) {
		ranks[r].team = team;
		ranks[r].number = r;
		pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]);
	}
	for (int r = 0; r < RANKS; r++) {
		pthread_join(ranks[r].thread, NULL);
		n_right += ranks[r].n_right;
	}
	ferry_team_destroy(team);
	check(n_right == RANKS * LAYERS * BATCHES, "sums");
	printf("%d threads, %d layers, %d micro-batches: %d sums are right\n",
	       RANKS, LAYERS, BATCHES, n_right);
	return 0;
}
