/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of GPUs, pretended ones: experts are refused there, on all ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "experts_lab.h"

static void configure(const struct rank *rank,
                      struct ferry_world_config *config)
{
	config->device = FERRY_DEVICE_CUDA;
	config->cuda_device = rank->rank % 2 + 1;
}

static void refused(struct rank *rank)
{
	const struct lab_shape shape = lab_small(1, FERRY_EXPERTS_REMAP);
	struct lab lab;

	lab_make(&lab, rank, &shape);
	const enum ferry_status status = lab_try(&lab);

	lab_close(&lab);
	RANKS_STATUS(status, FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(), "CPU worlds only");
}

static void test_refused(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 3, .configure = configure},
	          refused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
