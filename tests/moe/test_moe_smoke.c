/* SPDX-License-Identifier: Apache-2.0 */
/* The first things that must work: see smoke_pair.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run_args.h"
#include "smoke_pair.h"

static void close_moe(void *moe)
{
	ferry_moe_close(moe);
}

static struct ferry_moe *open_moe(struct rank *rank,
                                  const struct ferry_moe_config *config)
{
	struct ferry_moe *moe;

	/* Streams outlast the channel: what comes first ends last. */
	(void)rank_memory_of(rank, 1);
	RANKS_OK(ferry_moe_open(rank->world, config, &moe));
	ranks_defer(close_moe, moe);
	return moe;
}

/* What a test varies. */
struct variant {
	enum ferry_layout layout;
	enum ferry_combine_mode combine;
	int32_t group_size;
};

static void pairs(struct rank *rank)
{
	const struct variant *v = rank->arg;
	struct ferry_moe_config config = smoke_config(rank->n_ranks);

	config.layout = v->layout;
	config.combine = v->combine;
	config.path = run_args.path;
	config.device = run_args.device;
	struct ferry_moe *moe = open_moe(rank, &config);
	struct smoke_pair *p = smoke_open(rank, moe, &config, 0);

	for (int32_t turn = 0; turn < 20; turn++)
		smoke_run(p, turn,
		          (turn * 5 + rank->rank * 3) % (SMOKE_TOKENS + 1));
}

static void run_on(int32_t n_ranks)
{
	for (int i = 0; i < 4; i++) {
		struct variant v = {
			.layout = i & 1 ? FERRY_EXPERT_PACKED
		                        : FERRY_EXPERT_PADDED,
			.combine = i & 2 ? FERRY_REDUCED : FERRY_EXACT,
		};
		struct ranks how = run_args_ranks(n_ranks);

		how.arg = &v;
		ranks_run(&how, pairs);
	}
}

static void test_one_rank(void **state)
{
	(void)state;
	run_on(1);
}

static void test_two_ranks(void **state)
{
	(void)state;
	run_on(2);
}

static void test_three_ranks(void **state)
{
	(void)state;
	run_on(3);
}

static void test_five_ranks(void **state)
{
	(void)state;
	run_on(5);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_rank),
		cmocka_unit_test(test_two_ranks),
		cmocka_unit_test(test_three_ranks),
		cmocka_unit_test(test_five_ranks),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
