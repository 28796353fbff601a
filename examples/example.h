/* SPDX-License-Identifier: Apache-2.0 */
/* What the examples share: stop with the message when something fails. */
#ifndef FERRY_EXAMPLE_H
#define FERRY_EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>

#include <ferry/ferry.h>

static inline void must(enum ferry_status status)
{
	if (status == FERRY_OK)
		return;
	fprintf(stderr, "%s: %s\n", ferry_status_name(status),
	        ferry_last_error());
	exit(1);
}

/* An expectation of the example about its own result. */
static inline void check(int true_or_not, const char *what)
{
	if (true_or_not)
		return;
	fprintf(stderr, "wrong: %s\n", what);
	exit(1);
}

static inline void need_ranks(int n, int found)
{
	if (found == n)
		return;
	fprintf(stderr,
	        "this example needs %d ranks, not %d: ferry run -n %d -- "
	        "PROGRAM\n",
	        n, found, n);
	exit(1);
}

static inline void *allocate(size_t n, size_t bytes)
{
	void *memory = calloc(n ? n : 1, bytes);

	check(memory != NULL, "memory");
	return memory;
}

#endif
