/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same bits as without ranks, whatever the ranks, where experts begin, who
 * moves them, and how replicas share tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "../cli/cli_cmocka.h"
#include "../support/test_seed.h"
#include "prefill_lab.h"

enum { N_POLICIES = FERRY_BALANCE_EPLB_FERRY + 1, N_SPLITS = 3 };

static struct lab_run any_run(int32_t n_ranks)
{
	return (struct lab_run){
		.policy = (enum ferry_balance_policy)lab_draw(N_POLICIES),
		.n_ranks = n_ranks,
		.replicas = lab_draw(3),
		.split = (enum ferry_split)lab_draw(N_SPLITS),
		.start = lab_draw(2) ? PREFILL_START_HOT : PREFILL_START_EVEN,
	};
}

/* All ways to balance, with experts that ranks cannot have equally many of. */
static void test_policies(void **state)
{
	struct tiny_shape tiny = TINY_SHAPE_INIT;
	const struct lab_input input = {5, 4, 12, false};
	struct lab lab;

	(void)state;
	tiny.n_experts = 11;
	lab_open(&lab, &tiny, &input);
	for (int32_t p = 0; p < N_POLICIES; p++)
		for (int32_t i = 0; i < 1 + 2 * N_SPLITS; i++)
			lab_check(
				&lab,
				&(struct lab_run){
					.policy = (enum ferry_balance_policy)p,
					.n_ranks = 3,
					.replicas = (i + 2) / 3,
					.split = (enum ferry_split)(i % 3),
					.start = PREFILL_START_HOT,
					.threads = true,
				});
	lab_close(&lab);
}

/* More ranks than sequences, too: some are idle then. */
static void test_ranks(void **state)
{
	static const int32_t ranks[] = {1, 2, 3, 4, 8};
	struct tiny_shape tiny = TINY_SHAPE_INIT;
	const struct lab_input input = {3, 5, 20, false};
	struct lab lab;

	(void)state;
	tiny.n_experts = 10;
	tiny.topk = 3;
	lab_open(&lab, &tiny, &input);
	for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++)
		for (int32_t p = 0; p < N_POLICIES; p++) {
			struct lab_run how = any_run(ranks[i]);

			how.policy = (enum ferry_balance_policy)p;
			lab_check(&lab, &how);
		}
	lab_close(&lab);
}

static void try_shape(const struct tiny_shape *tiny, int32_t n_runs)
{
	const struct lab_input input = {4, 3, 40, true};
	struct lab lab;

	lab_open(&lab, tiny, &input);
	for (int32_t i = 0; i < n_runs; i++) {
		struct lab_run how = any_run(2 + lab_draw(3));

		lab.job.max_swaps = lab_draw(2);
		lab.job.max_copies = lab_draw(3) - 1;
		lab.job.threshold_ppm = lab_draw(2) * 1300000;
		lab.job.budget_ns = lab_draw(2) ? -1 : lab_draw(100000);
		lab.job.calibrate = lab_draw(2);
		lab.job.margin_ppm = lab_draw(3) * 500000;
		lab_check(&lab, &how);
	}
	lab_close(&lab);
}

static void test_shapes(void **state)
{
	struct tiny_shape tiny = TINY_SHAPE_INIT;

	(void)state;
	tiny.topk = 1;
	tiny.tied = false;
	tiny.expert_hidden = 13;
	try_shape(&tiny, 3);
	tiny = (struct tiny_shape)TINY_SHAPE_INIT;
	tiny.topk = 8;
	tiny.n_experts = 17;
	tiny.type = LM_F32;
	tiny.norm_topk = false;
	try_shape(&tiny, 3);
	tiny = (struct tiny_shape)TINY_SHAPE_INIT;
	tiny.type = LM_F16;
	tiny.hidden = 40;
	tiny.n_layers = 3;
	tiny.expert_hidden = 7;
	try_shape(&tiny, 3);
}

/* Puts in any order, by a thread, to ranks that load nothing of each other. */
static void test_wire(void **state)
{
	struct tiny_shape tiny = TINY_SHAPE_INIT;
	const struct lab_input input = {3, 4, 10, false};
	struct lab lab;

	(void)state;
	lab_open(&lab, &tiny, &input);
	lab.job.fabric = "wire";
	lab_check(&lab, &(struct lab_run){.policy = FERRY_BALANCE_EPLB_FERRY,
	                                  .n_ranks = 3,
	                                  .replicas = 1,
	                                  .split = FERRY_SPLIT_EXACT,
	                                  .start = PREFILL_START_HOT,
	                                  .threads = true});
	lab_close(&lab);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policies),
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_wire),
	};

	lab_seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
