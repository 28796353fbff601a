/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On which fabric a test program runs, from its command line:
 * --fabric local|shm|wire, --processes (ranks are processes, not threads),
 * --options NAME=VALUE;..., --seed S, --count N (what N counts is the
 * program's affair).
 */
#ifndef RUN_ARGS_H
#define RUN_ARGS_H

#include "ranks.h"

struct run_args {
	const char *fabric;
	const char *options;
	enum ranks_kind kind;
	uint64_t seed; /* given, of the environment, or fresh; printed */
	int count;     /* 0: not given */
};

/* Ends the program with status 2 where it does not understand. */
void run_args_read(int argc, char **argv);

extern struct run_args run_args;

/* Sanitizers make everything ten times slower. */
#ifdef FERRY_SANITIZED
enum { RUN_SLOW = 1 };
#else
enum { RUN_SLOW = 0 };
#endif

/* A run on this fabric; the rest is filled in by the test. */
struct ranks run_args_ranks(int32_t n_ranks);

#endif
