/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel whose window takes more than 4 GiB of each rank: few tokens come,
 * to rows whose offsets 32 bits do not hold. Only what is written exists.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "drive.h"
#include "run_args.h"
#include "support/sparse_backing.h"

enum { N_RANKS = 2, MAX_TOKENS = 120000, STEPS = 4 };

static struct ferry_moe_config wide(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.n_ranks = N_RANKS;
	c.max_tokens = MAX_TOKENS;
	c.hidden = 7168;
	c.topk = 2;
	c.n_experts = 4;
	c.layout = FERRY_EXPERT_PACKED;
	c.max_recv_rows = 64;
	return c;
}

static void body(struct rank *rank)
{
	const struct ferry_moe_config config = wide();
	struct drive *d = drive_open(rank, &config, NULL);

	RANKS_CHECK(d->need.window_bytes > UINT64_C(6) << 30);
	for (int i = 0; i < STEPS; i++) {
		struct drive_step step = {.from = FERRY_FROM_PACKED,
		                          .light = true};

		step.spec.seed = run_args.seed + (uint64_t)i;
		for (int32_t r = 0; r < N_RANKS; r++)
			step.n_tokens[r] = 5 + i + r;
		drive_run(d, 0, &step);
	}
	drive_close(d);
}

static void rows_lie_beyond_4_gib(void **state)
{
	struct ranks how = run_args_ranks(N_RANKS);

	(void)state;
	ranks_run(&how, body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_lie_beyond_4_gib),
	};
	const struct ferry_moe_config config = wide();
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;

	run_args_read(argc, argv);
	if (ferry_moe_query(&config, &need) != FERRY_OK)
		return 1;
	/* And a stage, over a network. */
	sparse_backing_need(N_RANKS * (need.window_bytes / 10 * 13));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
