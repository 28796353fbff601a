/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of bad input: each case is one assignment to something good; the
 * answer must be the status, and the message must hold the argument's name,
 * its value and what is allowed.
 */
#ifndef BAD_INPUT_H
#define BAD_INPUT_H

#include <ferry/moe.h>

#include "ranks.h"
#include "run_args.h"

/* The texts after `want` must all be in the message. */
#define CHECK_FAILS(call, want, ...)                                           \
	bad_input_check(call, want, __FILE__, __LINE__,                        \
	                (const char *const[]){__VA_ARGS__, NULL})

static inline void bad_input_check(enum ferry_status got,
                                   enum ferry_status want, const char *file,
                                   int line, const char *const *parts)
{
	if (got != want)
		ranks_fail_at(file, line, "%s, expected %s: %s",
		              ferry_status_name(got), ferry_status_name(want),
		              ferry_last_error());
	for (; *parts != NULL; parts++)
		ranks_text_at(file, line, ferry_last_error(), *parts);
}

static inline struct ferry_moe_config good_config(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.n_ranks = 4;
	c.max_tokens = 4;
	c.hidden = 8;
	c.topk = 2;
	c.n_experts = 6;
	return c;
}

static inline void ranks_of_one(ranks_body *body)
{
	struct ranks how = run_args_ranks(1);

	ranks_run(&how, body);
}

/* A cmocka test of a body on a world of one rank. */
#define CASE(body)                                                             \
	static void test_##body(void **state)                                  \
	{                                                                      \
		(void)state;                                                   \
		ranks_of_one(body);                                            \
	}

#endif
