/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The case in which an engine hung (vllm#27209): 2 ranks, 64 experts, top-8,
 * hidden 2048, unequal numbers of tokens with empty batches between them. Ten
 * thousand dispatches and combines, all verified.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "drive.h"
#include "run_args.h"

static struct ferry_moe_config olmoe(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 16;
	c.hidden = 2048;
	c.topk = 8;
	c.n_experts = 64;
	c.layout = FERRY_EXPERT_PACKED;
	return c;
}

/* Mostly a few tokens, often none, at times all that fit. */
static int32_t n_tokens(uint64_t *rng)
{
	switch (traffic_random(rng) >> 32 & 7) {
	case 0:
	case 1:
	case 2:
		return 0;
	case 3:
	case 4:
		return 1;
	case 5:
	case 6:
		return 2;
	default:
		return traffic_chance(rng, 5) ? 16 : 3;
	}
}

static void body(struct rank *rank)
{
	const struct ferry_moe_config config = olmoe();
	const int n_steps = *(const int *)rank->arg;
	struct drive *d = drive_open(rank, &config, NULL);
	uint64_t rng = run_args.seed;

	for (int i = 0; i < n_steps; i++) {
		struct drive_step step = {.light = true};

		step.spec.seed = traffic_random(&rng);
		step.n_tokens[0] = n_tokens(&rng);
		step.n_tokens[1] = n_tokens(&rng);
		step.from = FERRY_FROM_PACKED;
		if (i % 3 == 2)
			drive_dispatch(d, 0, &step); /* combine left out */
		else
			drive_run(d, 0, &step);
	}
}

static void unequal_and_empty_batches(void **state)
{
	int n_steps = run_args.count ? run_args.count : 10000;
	struct ranks how = run_args_ranks(2);

	(void)state;
	how.arg = &n_steps;
	ranks_run(&how, body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unequal_and_empty_batches),
	};

	run_args.few_ranks = true;
	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
