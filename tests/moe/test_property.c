/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random channels, random batches, every byte compared with the oracle on
 * every rank.
 *
 * A failure prints the seed of its case: --seed S --count 1 repeats it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "random_case.h"
#include "run_args.h"

static void body(struct rank *rank)
{
	const struct random_case *c = rank->arg;
	struct drive *d =
		drive_open(rank, &c->config, c->placed ? &c->placement : NULL);

	for (int32_t i = 0; i < c->n_steps; i++) {
		struct drive_step step;
		bool combine;

		random_case_step(c, i, rank->rank, &step, &combine);
		if (combine)
			drive_run(d, random_case_slot(c, i), &step);
		else
			drive_dispatch(d, random_case_slot(c, i), &step);
	}
}

static void every_case_agrees(void **state)
{
	(void)state;
	const int n_cases = run_args.count ? run_args.count : 60;

	for (int i = 0; i < n_cases; i++) {
		/* The seed of case 0 is the given one: it can be repeated. */
		uint64_t rng = run_args.seed + (uint64_t)i;
		const uint64_t seed = rng;
		struct random_case c;

		random_case_make(&c, seed,
		                 (int32_t)(traffic_random(&rng) >> 20 & 7) + 1);
		random_case_print(&c);
		fflush(stdout);
		struct ranks how = run_args_ranks(c.config.n_ranks);

		how.arg = &c;
		ranks_run(&how, body);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_case_agrees),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
