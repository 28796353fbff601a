/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 11: migration. Loads of a layer's experts are foreseen, a plan swaps two of
 * them, both ranks push weights while attention would run, and the commit
 * switches: the load evens out, and each expert is whole in its new place.
 *
 *     cc 11_migrate.c $(pkg-config --cflags --libs ferry) -o 11_migrate
 *     ferry run -n 2 -- ./11_migrate
 *
 * prints
 *
 *     version 0: the fullest rank has 190 of 240 tokens
 *     expert 1 to rank 1, expert 2 to rank 0
 *     version 1: the fullest rank has 120 of 240 tokens
 *     every expert is where its placement says
 */
#include <string.h>

#include "example.h"

enum { EXPERTS = 4, OWN_SLOTS = 2, LAYER = 0, TENSORS = 2 };

/* Weights and a scale: all tensors of an expert move together. */
static const size_t tensor_bytes[TENSORS] = {1 << 20, 4};

static struct ferry_experts *open_experts(struct ferry_world *world,
                                          const struct ferry_placement *first)
{
	struct ferry_experts_config config = FERRY_EXPERTS_CONFIG_INIT;
	struct ferry_experts *experts;

	config.n_layers = 1;
	config.placements = &first;
	config.n_tensors = TENSORS;
	config.tensor_bytes = tensor_bytes;
	must(ferry_experts_open(world, &config, &experts));
	return experts;
}

/* Every byte of expert e is e + 1: fills in, or compares. */
static void visit(struct ferry_world *world, struct ferry_experts *experts,
                  bool fill)
{
	const struct ferry_placement *p =
		ferry_experts_placement(experts, LAYER);

	for (int32_t i = 0; i < OWN_SLOTS; i++) {
		const int32_t slot = ferry_world_rank(world) * OWN_SLOTS + i;
		const int32_t expert = ferry_placement_expert(p, slot);

		for (int32_t t = 0; t < TENSORS; t++) {
			unsigned char *at =
				ferry_experts_tensor(experts, LAYER, p, i, t);

			if (fill)
				memset(at, expert + 1, tensor_bytes[t]);
			for (size_t b = 0; b < tensor_bytes[t]; b++)
				check(at[b] == expert + 1, "another expert");
		}
	}
}

static void report(struct ferry_world *world,
                   const struct ferry_placement *placement,
                   const int64_t *loads)
{
	int64_t ranks[2];

	must(ferry_rank_loads(placement, loads, ranks));
	if (ferry_world_rank(world) == 0)
		printf("version %d: the fullest rank has %d of %d tokens\n",
		       (int)ferry_placement_version(placement),
		       (int)(ranks[0] > ranks[1] ? ranks[0] : ranks[1]),
		       (int)(ranks[0] + ranks[1]));
}

/* What both ranks foresee for the layer decides what moves. */
static struct ferry_plan make_plan(const struct ferry_placement *placement,
                                   const int64_t *loads)
{
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
	struct ferry_plan plan = {.size = sizeof(plan)};
	struct ferry_planner *planner;

	must(ferry_planner_create(EXPERTS, EXPERTS, 2, &planner));
	in.placement = placement;
	in.loads = loads;
	in.layer = LAYER;
	must(ferry_plan_make(planner, &in, &plan));
	ferry_planner_destroy(planner);
	return plan;
}

int main(void)
{
	static const int64_t loads[EXPERTS] = {80, 110, 40, 10};
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *first;
	const struct ferry_placement *now;
	struct ferry_world *world;

	must(ferry_world_open(NULL, &world));
	need_ranks(2, ferry_world_size(world));
	config.n_experts = EXPERTS;
	config.n_ranks = 2;
	must(ferry_placement_create(&config, &first));
	struct ferry_experts *experts = open_experts(world, first);

	visit(world, experts, true);
	report(world, first, loads);
	const struct ferry_plan plan = make_plan(first, loads);

	if (ferry_world_rank(world) == 0)
		printf("expert %d to rank %d, expert %d to rank %d\n",
		       plan.moves[0].expert, plan.moves[0].to_rank,
		       plan.moves[0].other, plan.moves[0].from_rank);
	must(ferry_experts_start(experts, LAYER, &plan, NULL, NULL));
	/* Here attention runs; a second thread may have called start. */
	must(ferry_experts_commit(experts, LAYER, NULL, &now, NULL));
	report(world, now, loads);
	visit(world, experts, false);
	if (ferry_world_rank(world) == 0)
		puts("every expert is where its placement says");
	ferry_experts_close(experts);
	ferry_placement_destroy(first);
	ferry_world_close(world);
	return 0;
}
