/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine without a GPU, or a build without CUDA: worlds of GPUs are refused
 * with the reason, on all ranks, and worlds of the CPU are as ever.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/fabric.h>

#include "gpus.h"
#include "ranks.h"

static void expect_refusal(struct ferry_world_config *config, const char *text)
{
	struct ferry_world *world = NULL;

	assert_int_equal(ferry_world_open(config, &world), FERRY_UNSUPPORTED);
	if (!strstr(ferry_last_error(), text))
		fail_msg("'%s' lacks '%s'", ferry_last_error(), text);
	assert_null(world);
}

static void test_is_refused(void **state)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	const int32_t devices[] = {0, 1, 2, -5, 1000};

	(void)state;
	config.device = FERRY_DEVICE_CUDA;
	for (int i = 0; i < 5; i++) {
		config.cuda_device = devices[i];
		expect_refusal(&config, "world_open: a CUDA world ");
	}
	config.device = FERRY_DEVICE_CPU;
	config.fabric = "p2p";
	expect_refusal(&config, "fabric p2p: is for worlds on GPUs");
}

static void test_is_listed(void **state)
{
	struct ferry_fabric_info info = FERRY_FABRIC_INFO_INIT;

	(void)state;
	assert_true(ferry_fabric_get(0, &info));
	assert_string_equal(info.name, "p2p");
	assert_int_equal(info.score, 0);
	assert_true(strstr(info.reason, "no GPU") ||
	            strstr(info.reason, "built without CUDA"));
}

static void all_learn_it(struct rank *rank)
{
	RANKS_STATUS(rank->open_status, FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(), "a CUDA world ");
	if (rank->rank != 1)
		RANKS_TEXT(ferry_last_error(), "rank 1: ");
}

static void only_rank_1(const struct rank *rank,
                        struct ferry_world_config *config)
{
	if (rank->rank == 1)
		config->device = FERRY_DEVICE_CUDA;
}

static void test_all_learn_it(void **state)
{
	struct ranks how = {
		.n_ranks = 3,
		.configure = only_rank_1,
		.open_may_fail = true,
	};

	(void)state;
	ranks_run(&how, all_learn_it);
	how.kind = RANKS_PROCESSES;
	ranks_run(&how, all_learn_it);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_is_refused),
		cmocka_unit_test(test_is_listed),
		cmocka_unit_test(test_all_learn_it),
	};
	char reason[GPUS_REASON];

	if (gpus_count(reason)) {
		printf("skipped: this machine has a GPU: %s\n", reason);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
