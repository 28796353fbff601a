/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that want rows and nothing unusual with them, as serving engines make
 * them: on GPUs a kernel of its own takes those (src/cuda/dispatch_lean.cu),
 * which tests that ask for every output never see.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "drive.h"
#include "run_args.h"

enum {
	STEPS = 8,
	/* All outputs but scales, counts, offsets and index. */
	UNUSUAL = 0x1ef1,
};

#define N_OF(array) (sizeof(array) / sizeof(*(array)))

static struct ferry_moe_config plain(enum ferry_layout layout)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 3;
	c.topk = 2;
	c.n_experts = 8;
	c.layout = layout;
	return c;
}

/* Operations of rows of `hidden`, phases apart and in one call. */
static void run(struct rank *rank, const struct ferry_moe_config *config,
                int32_t hidden)
{
	struct drive *d = drive_open(rank, config, NULL);

	for (int i = 0; i < STEPS; i++) {
		struct drive_step step = {.leave = UNUSUAL, .light = true};

		step.fused = i % 2;
		step.from = config->layout == FERRY_EXPERT_PADDED
		                    ? FERRY_FROM_PADDED
		                    : FERRY_FROM_PACKED;
		step.spec.seed = run_args.seed + (uint64_t)i;
		step.spec.hidden = hidden;
		for (int32_t r = 0; r < rank->n_ranks; r++)
			step.n_tokens[r] = 3 - (r + i) % 3;
		drive_run(d, 0, &step);
	}
	drive_close(d);
}

/*
 * Between two ranks a block looks at the first 15360 bytes of a row before it
 * knows that it comes: nothing may end there.
 */
static void long_rows_body(struct rank *rank)
{
	static const int32_t sizes[] = {7680, 7688, 8192};

	for (int layout = 0; layout < 3; layout++)
		for (size_t i = 0; i < N_OF(sizes); i++) {
			struct ferry_moe_config config =
				plain((enum ferry_layout)layout);

			config.hidden = sizes[i];
			run(rank, &config, 0);
			config.hidden = 2 * sizes[i] / 128 * 128;
			config.dtype = FERRY_FP8_E4M3;
			config.scale_type = FERRY_SCALE_FP32;
			config.scale_block = 128;
			run(rank, &config, 0);
		}
}

static void long_rows(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, long_rows_body);
}

/* Rows shorter than the channel's, with scales behind them, or behind a gap. */
static void short_rows_body(struct rank *rank)
{
	for (int layout = 0; layout < 3; layout++)
		for (int quantise = 0; quantise < 2; quantise++) {
			struct ferry_moe_config config =
				plain((enum ferry_layout)layout);

			config.hidden = 2048;
			config.in_dtype =
				quantise ? FERRY_BF16 : FERRY_DTYPE_NONE;
			config.dtype = FERRY_FP8_E4M3;
			config.scale_type = FERRY_SCALE_FP32;
			config.scale_block = 128;
			run(rank, &config, 1024);
			run(rank, &config, 1536);
		}
}

static void short_rows(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, short_rows_body);
	how.n_ranks = 3;
	ranks_run(&how, short_rows_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_rows),
		cmocka_unit_test(short_rows),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
