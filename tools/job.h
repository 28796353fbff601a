/* SPDX-License-Identifier: Apache-2.0 */
/*
 * N ranks as child processes of this one, from the first fork to the last
 * exit: their environment, signals, output, and what happens when one fails.
 * `ferry run` executes a program in them; check and bench call a function.
 */
#ifndef FERRY_JOB_H
#define FERRY_JOB_H

#include <stdbool.h>
#include <stdint.h>

enum { JOB_MAX_RANKS = 4096 };

struct job_config {
	const char *name; /* before messages on stderr: "ferry run" */
	int32_t n_ranks;
	bool tag;         /* prefix the lines of each rank with its number */
	int64_t grace_ms; /* from the first failure until SIGTERM */
	/* In the child, with its environment set; returns its exit status. */
	int (*child)(void *arg, int32_t rank);
	void *arg;
};

/*
 * Starts the ranks with FERRY_RANK, FERRY_SIZE, and a random FERRY_RENDEZVOUS
 * and FERRY_SECRET, and returns when all have ended: 0, or the exit status of
 * the first that failed, 128 + n after signal n. HUP, INT, QUIT, TERM, USR1
 * and USR2 are passed on to all. They die with this process.
 */
int job_run(const struct job_config *config);

#endif
