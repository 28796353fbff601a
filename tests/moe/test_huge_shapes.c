/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More tokens and more experts than 16 bits count. Lines do not serve them:
 * where they are asked for they say so, and the shape is tried with the path
 * left to the library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "drive.h"
#include "run_args.h"

/* What lines do not serve, and why. */
struct beyond_lines {
	struct ferry_moe_config config;
	int32_t n_tokens[2];
	const char *why;
};

static struct ferry_moe_config small(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 9;
	c.hidden = 16;
	c.topk = 2;
	c.n_experts = 8;
	c.layout = FERRY_EXPERT_PACKED;
	return c;
}

static void refused_body(struct rank *rank)
{
	const struct beyond_lines *beyond = rank->arg;
	struct ferry_moe_config config = beyond->config;
	struct ferry_moe *moe = NULL;

	config.path = FERRY_PATH_LINES;
	RANKS_STATUS(ferry_moe_open(rank->world, &config, &moe),
	             FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(), beyond->why);
	RANKS_CHECK(moe == NULL);
}

static void served_body(struct rank *rank)
{
	const struct beyond_lines *beyond = rank->arg;
	struct drive *d = drive_open(rank, &beyond->config, NULL);

	for (int i = 0; i < 2; i++) {
		struct drive_step step = {.from = FERRY_FROM_PACKED,
		                          .light = true};

		step.spec.seed = run_args.seed + (uint64_t)i;
		for (int32_t r = 0; r < 2; r++)
			step.n_tokens[r] = beyond->n_tokens[(r + i) % 2];
		drive_run(d, 0, &step);
	}
	drive_close(d);
}

static void run_beyond_lines(struct beyond_lines *beyond)
{
	const enum ferry_path path = run_args.path;
	struct ranks how = run_args_ranks(2);

	how.arg = beyond;
	if (path == FERRY_PATH_LINES) {
		ranks_run(&how, refused_body);
		run_args.path = FERRY_PATH_AUTO;
	}
	ranks_run(&how, served_body);
	run_args.path = path;
}

static void more_than_65536_tokens(void **state)
{
	struct beyond_lines beyond = {
		.config = small(),
		.n_tokens = {65537, 3},
		.why = "the tables of all ranks do not fit in shared memory",
	};

	(void)state;
	beyond.config.max_tokens = 65537;
	beyond.config.combine = FERRY_REDUCED;
	run_beyond_lines(&beyond);
}

static void more_than_65536_experts(void **state)
{
	struct beyond_lines beyond = {
		.config = small(),
		.n_tokens = {4, 9},
		.why = "lines serve at most 8192 expert slots",
	};

	(void)state;
	beyond.config.n_experts = 70000;
	beyond.config.topk = 6;
	run_beyond_lines(&beyond);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(more_than_65536_tokens),
		cmocka_unit_test(more_than_65536_experts),
	};

	run_args.few_ranks = true;
	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
