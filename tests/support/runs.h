/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One test program over several settings: every test once for each, with both
 * in its name. Include cmocka.h first.
 */
#ifndef RUNS_H
#define RUNS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { RUNS_MAX = 256 };

struct runs {
	int n;
	struct CMUnitTest tests[RUNS_MAX];
	char names[RUNS_MAX][64]; /* cmocka keeps pointers to them */
};

/* Is it asked for? argv[1]: part of a name, or "!" and what is left out. */
static inline bool runs_wanted(const char *name, int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";

	return *part == '!' ? !strstr(name, part + 1) : !!strstr(name, part);
}

/* The test gets `setting` as its initial state. */
static inline void runs_add(struct runs *runs, const char *name,
                            CMUnitTestFunction test, const char *setting_name,
                            const void *setting)
{
	assert_true(runs->n < RUNS_MAX);
	char *const own = runs->names[runs->n];

	snprintf(own, sizeof(runs->names[0]), "%s, %s", name, setting_name);
	runs->tests[runs->n++] = (struct CMUnitTest){
		.name = own,
		.test_func = test,
		.initial_state = (void *)(uintptr_t)setting,
	};
}

/* Runs them all; what main returns. */
static inline int runs_go(struct runs *runs, const char *group)
{
	return _cmocka_run_group_tests(group, runs->tests, (size_t)runs->n,
	                               NULL, NULL);
}

#endif
