/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures while a channel opens: all ranks open it or none does, and all are
 * told why.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "drive.h"
#include "fabric/world.h"
#include "run_args.h"

static struct ferry_moe_config small(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 4;
	c.hidden = 256;
	c.topk = 3;
	c.n_experts = 8;
	return c;
}

static void use(struct rank *rank, struct drive *d)
{
	struct drive_step step = {0};

	step.spec.seed = run_args.seed;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		step.n_tokens[r] = 4;
	drive_run(d, 0, &step);
	drive_run(d, 0, &step);
}

/* One rank has another configuration: nobody opens, all are told what. */
static void config_body(struct rank *rank)
{
	struct ferry_moe_config config = small();
	struct ferry_moe *moe = NULL;

	if (rank->rank == 1)
		config.topk = 4;
	RANKS_STATUS(ferry_moe_open(rank->world, &config, &moe),
	             FERRY_MISMATCH);
	RANKS_CHECK(moe == NULL);
	RANKS_TEXT(ferry_last_error(), "topk is 4 on rank 1");
	RANKS_TEXT(ferry_last_error(), "3 on rank 0");
	/* An illegal one on one rank only. */
	config = small();
	if (rank->rank == 2)
		config.topk = 65;
	RANKS_STATUS(ferry_moe_open(rank->world, &config, &moe), FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "topk is 65");
	if (rank->rank != 2)
		RANKS_TEXT(ferry_last_error(), "rank 2");
	/* The world is as good as before. */
	config = small();
	use(rank, drive_open(rank, &config, NULL));
}

static void other_configurations_are_named(void **state)
{
	const struct ranks how = run_args_ranks(3);

	(void)state;
	ranks_run(&how, config_body);
}

/* A rank dies while the others open. */
static void open_death_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct ferry_moe *moe = NULL;

	use(rank, drive_open(rank, &config, NULL));
	ranks_meet(0, rank->n_ranks);
	if (rank->rank == 2) {
		nanosleep(&(struct timespec){0, 50000000}, NULL);
		ranks_die();
	}
	RANKS_STATUS(ferry_moe_open(rank->world, &config, &moe), FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "rank 2");
	RANKS_CHECK(moe == NULL);
}

static void a_death_at_open_is_named(void **state)
{
	struct ranks how = run_args_ranks(4);

	(void)state;
	how.killed = RANKS_BIT(2);
	ranks_run(&how, open_death_body);
}

/* A rank is missing when a channel opens. */
static void open_absent_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct ferry_moe *moe = NULL;

	/* Of the channel alone: a world on GPUs takes seconds to open. */
	rank->world->open_timeout_ms = 700;
	if (rank->rank != 2) {
		RANKS_STATUS(ferry_moe_open(rank->world, &config, &moe),
		             FERRY_TIMEOUT);
		RANKS_TEXT(ferry_last_error(),
		           "boot: rank 2 did not come within ");
		RANKS_CHECK(moe == NULL);
	}
	ranks_meet(0, rank->n_ranks);
}

static void a_rank_missing_at_open_is_named(void **state)
{
	const struct ranks how = run_args_ranks(3);

	(void)state;
	ranks_run(&how, open_absent_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_configurations_are_named),
		cmocka_unit_test(a_death_at_open_is_named),
		cmocka_unit_test(a_rank_missing_at_open_is_named),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
