/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of test programs that run on a fabric. */
#include "run_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run_args run_args = {.fabric = "local"};

void run_args_read(int argc, char **argv)
{
	bool seeded = false;

	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(argv[i], "--processes")) {
			run_args.kind = RANKS_PROCESSES;
			continue;
		}
		if (!value) {
			fprintf(stderr, "%s: %s?\n", argv[0], argv[i]);
			exit(2);
		}
		if (!strcmp(argv[i], "--fabric")) {
			run_args.fabric = value;
		} else if (!strcmp(argv[i], "--options")) {
			run_args.options = value;
		} else if (!strcmp(argv[i], "--count")) {
			run_args.count = atoi(value);
		} else if (!strcmp(argv[i], "--seed")) {
			run_args.seed = strtoull(value, NULL, 0);
			seeded = true;
		} else {
			fprintf(stderr, "%s: %s?\n", argv[0], argv[i]);
			exit(2);
		}
		i++;
	}
	if (!seeded)
		run_args.seed = ranks_seed();
}

struct ranks run_args_ranks(int32_t n_ranks)
{
	return (struct ranks){
		.kind = run_args.kind,
		.n_ranks = n_ranks,
		.fabric = run_args.fabric,
		.options = run_args.options,
		.timeout_ms = RUN_SLOW ? 100000 : 30000,
		.limit_ms = RUN_SLOW ? 240000 : 60000,
	};
}
