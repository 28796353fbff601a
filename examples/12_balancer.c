/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 12: the balancer. Two layers run for three steps in which tokens drift from
 * expert to expert. For each layer and step: predict, then attention, then
 * commit, which gives the placement to dispatch with; at the end observe.
 *
 *     cc 12_balancer.c $(pkg-config --cflags --libs ferry) -o 12_balancer
 *     ferry run -n 2 -- ./12_balancer
 *
 * prints
 *
 *     step 0 layer 0: fullest 1.67 of the mean, then 1.04: 0 swaps, 1 copies
 *     ...
 *     step 1 layer 1: fullest 1.79 of the mean, then 1.04: 0 swaps, 1 copies
 */
#include <string.h>

#include "example.h"

enum { LAYERS = 2, EXPERTS = 4, OWN_SLOTS = 3, STEPS = 3 };

static const size_t tensor_bytes[2] = {1 << 16, 256};

/* Two experts on each rank, and a slot for copies. */
static struct ferry_placement *place(void)
{
	static const int32_t slots[2] = {OWN_SLOTS, OWN_SLOTS};
	static const int32_t experts[2 * OWN_SLOTS] = {0, 1, -1, 2, 3, -1};
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *placement;

	config.n_experts = EXPERTS;
	config.n_ranks = 2;
	config.expert_slots = slots;
	config.slot_expert = experts;
	must(ferry_placement_create(&config, &placement));
	return placement;
}

static struct ferry_experts *open_experts(struct ferry_world *world,
                                          const struct ferry_placement *first)
{
	const struct ferry_placement *const all[LAYERS] = {first, first};
	struct ferry_experts_config config = FERRY_EXPERTS_CONFIG_INIT;
	struct ferry_experts *experts;

	config.n_layers = LAYERS;
	config.placements = all;
	config.n_tensors = 2;
	config.tensor_bytes = tensor_bytes;
	must(ferry_experts_open(world, &config, &experts));
	/* Here the weights are loaded to where ferry_experts_tensor says. */
	return experts;
}

/* What the own tokens choose: the favourite wanders. */
static void route(int32_t step, int32_t layer, int32_t counts[EXPERTS])
{
	static const int32_t loads[EXPERTS] = {150, 50, 30, 10};

	for (int32_t e = 0; e < EXPERTS; e++)
		counts[(e + step + layer) % EXPERTS] = loads[e];
}

static void print(int32_t step, int32_t layer,
                  const struct ferry_balancer_report *report)
{
	printf("step %d layer %d: fullest %.2f of the mean, then %.2f: "
	       "%d swaps, %d copies\n",
	       step, layer, (double)report->before_ppm * 1e-6,
	       (double)report->after_ppm * 1e-6, report->n_swaps,
	       report->n_copies);
}

static void run_layer(struct ferry_world *world,
                      struct ferry_balancer *balancer, int32_t step,
                      int32_t layer)
{
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	struct ferry_balancer_report report = FERRY_BALANCER_REPORT_INIT;
	const struct ferry_placement *placement;
	int32_t counts[EXPERTS];

	route(step, layer, counts); /* the router, run early */
	in.counts = counts;
	if (ferry_balancer_wants(balancer, layer))
		must(ferry_balancer_predict(balancer, layer, &in));
	/* Here attention runs; a second thread may have called predict. */
	must(ferry_balancer_commit(balancer, layer, &placement, &report));
	check(placement != NULL, "no placement");
	/* Here: true router, dispatch with placement, experts, combine. */
	must(ferry_balancer_observe(balancer, layer, counts));
	if (ferry_world_rank(world) == 0)
		print(step, layer, &report);
}

int main(void)
{
	struct ferry_balancer_config config = FERRY_BALANCER_CONFIG_INIT;
	struct ferry_balancer *balancer;
	struct ferry_world *world;

	must(ferry_world_open(NULL, &world));
	need_ranks(2, ferry_world_size(world));
	struct ferry_placement *first = place();
	struct ferry_experts *experts = open_experts(world, first);

	config.experts = experts;
	config.policy = FERRY_BALANCE_FERRY;
	must(ferry_balancer_open(world, &config, &balancer));
	for (int32_t step = 0; step < STEPS; step++)
		for (int32_t layer = 0; layer < LAYERS; layer++)
			run_layer(world, balancer, step, layer);
	ferry_balancer_close(balancer);
	ferry_experts_close(experts);
	ferry_placement_destroy(first);
	ferry_world_close(world);
	return 0;
}
