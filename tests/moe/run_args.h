/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On which fabric a test program runs, from its command line:
 * --fabric local|shm|wire|p2p|nvshmem, --processes (ranks are processes, not
 * threads),
 * --any-hosts (several, pretended, of programs that do that),
 * --options NAME=VALUE;..., --seed S, --count N (what N counts is the
 * program's affair), --seconds N.
 *
 * p2p: ranks have GPUs, in turn, and the program is skipped where there are
 * none. --path lines|chunks of channels that do not say, --fused: one call for
 * send and recv, --streams N: calls take N streams in turn, --gpus N: no more
 * than so many. --ranks N: of programs that try several numbers, this one.
 * --timeout-ms N: of waits.
 *
 * --hosts N: ranks are processes on hosts of network namespaces, and the
 * program is skipped where there can be none. --link D,J,L,T: these are joined
 * by a bad network with a delay of D us, up to J us more, and of a million
 * packets L lost and T doubled.
 */
#ifndef RUN_ARGS_H
#define RUN_ARGS_H

#include <ferry/moe_config.h>

#include "ranks.h"

struct run_args {
	const char *fabric;
	const char *options;
	enum ranks_kind kind;
	uint64_t seed; /* given, of the environment, or fresh; printed */
	int count;     /* 0: not given */
	int seconds;   /* 0: not given */
	enum ferry_device device;
	int32_t n_gpus;
	enum ferry_path path;
	bool fused;
	bool any_hosts; /* ranks pretend to be on hosts as they come */
	int streams;    /* of a rank */
	int ranks;      /* 0: not given */
	int timeout_ms;
	int hosts;        /* 0: all on this one */
	const char *link; /* NULL: a bridge */
	/*
	 * Set by a program before run_args_read: never more than 4 ranks, and
	 * so a context with fewer queues, which is sooner made.
	 */
	bool few_ranks;
};

/*
 * Ends the program with status 2 where it does not understand, and 77 where it
 * cannot run here.
 */
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

/* Are there GPUs? What differs there by contract asks. */
static inline bool run_on_gpus(void)
{
	return run_args.device == FERRY_DEVICE_CUDA;
}

#endif
