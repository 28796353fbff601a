/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ten thousand steps of one world on several hosts, all verified: two channels
 * of other shapes, on two slots each, batches of random size and many empty
 * ones, combine left out at times.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "moe/drive.h"
#include "moe/run_args.h"

enum { N_CHANNELS = 2, N_SLOTS = 2, MAX_TOKENS = 12 };

static struct ferry_moe_config config_of(int channel)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = MAX_TOKENS;
	c.hidden = channel ? 24 : 96;
	c.topk = channel ? 2 : 4;
	c.n_experts = 16;
	c.n_slots = N_SLOTS;
	c.layout = FERRY_EXPERT_PACKED;
	c.combine = channel ? FERRY_REDUCED : FERRY_EXACT;
	return c;
}

static struct drive_step random_step(int32_t n_ranks, uint64_t *rng)
{
	struct drive_step step = {.light = true, .from = FERRY_FROM_PACKED};
	const bool all_empty = traffic_chance(rng, 2);

	step.spec.seed = traffic_random(rng);
	for (int32_t r = 0; r < n_ranks; r++)
		if (!all_empty && traffic_chance(rng, 60))
			step.n_tokens[r] = (int32_t)traffic_between(
				rng, 0,
				traffic_chance(rng, 5) ? MAX_TOKENS : 3);
	return step;
}

static void body(struct rank *rank)
{
	const int n_steps = *(const int *)rank->arg;
	const struct ferry_moe_config configs[N_CHANNELS] = {config_of(0),
	                                                     config_of(1)};
	struct drive *channels[N_CHANNELS];
	uint64_t rng = run_args.seed;

	for (int c = 0; c < N_CHANNELS; c++)
		channels[c] = drive_open(rank, &configs[c], NULL);
	for (int i = 0; i < n_steps; i++) {
		const struct drive_step step = random_step(rank->n_ranks, &rng);
		struct drive *d = channels[traffic_random(&rng) >> 40 & 1];
		const int32_t slot = (int32_t)(traffic_random(&rng) >> 40 & 1);

		if (traffic_chance(&rng, 30))
			drive_dispatch(d, slot, &step);
		else
			drive_run(d, slot, &step);
	}
}

static void random_steps(void **state)
{
	int n_steps = run_args.count ? run_args.count : 10000;
	struct ranks how = run_args_ranks(run_args.ranks ? run_args.ranks : 4);

	(void)state;
	how.arg = &n_steps;
	ranks_run(&how, body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_steps),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
