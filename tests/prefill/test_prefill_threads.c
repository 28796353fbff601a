/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as threads, for ThreadSanitizer: the two threads of each rank, what
 * they hand each other, and the memory in which they leave their notes.
 */
#include "../cli/cli_cmocka.h"
#include "../support/test_seed.h"
#include "prefill_lab.h"

static const struct lab_input input = {3, 4, 10, false};

static void test_policies(void **state)
{
	struct tiny_shape tiny = TINY_SHAPE_INIT;
	struct lab lab;

	(void)state;
	lab_open(&lab, &tiny, &input);
	lab.job.budget_ns = -1;
	lab.job.eplb_every = 1;
	for (int32_t p = 0; p <= FERRY_BALANCE_EPLB_FERRY; p++)
		lab_check(&lab, &(struct lab_run){
					.policy = (enum ferry_balance_policy)p,
					.n_ranks = 3,
					.replicas = 1,
					.split = (enum ferry_split)(p % 3),
					.start = PREFILL_START_HOT,
					.threads = true,
				});
	lab_close(&lab);
}

/* More ranks than sequences: one has none to do. */
static void test_idle(void **state)
{
	struct tiny_shape tiny = TINY_SHAPE_INIT;
	struct lab lab;

	(void)state;
	lab_open(&lab, &tiny, &input);
	lab_check(&lab, &(struct lab_run){FERRY_BALANCE_FERRY, 5, 2,
	                                  FERRY_SPLIT_EXACT, PREFILL_START_EVEN,
	                                  true});
	lab_close(&lab);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policies),
		cmocka_unit_test(test_idle),
	};

	lab_seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
