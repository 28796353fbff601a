/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of ranks: the run, a rank's course, threads, processes.
 */
#ifndef RANKS_INNER_H
#define RANKS_INNER_H

#include <setjmp.h>

#include "ranks.h"

enum ranks_state {
	RANK_WAITING,
	RANK_OPENING,
	RANK_IN_BODY,
	RANK_CLOSING,
	RANK_DONE,
	RANK_FAILED,
	RANK_DEAD,
};

/* In memory that all ranks share. */
struct ranks_verdict {
	uint32_t state;
	uint64_t when_ns;
	char text[900]; /* "file:line: message" of a failure */
};

enum { RANKS_MEETINGS = 16, RANKS_DEFERRED = 32 };

struct ranks_board {
	uint32_t meetings[RANKS_MEETINGS];
	struct ranks_verdict verdicts[RANKS_MAX];
};

/* One run of a body. */
struct ranks_course {
	const struct ranks *how;
	ranks_body *body;
	struct ranks_board *board;
	struct ferry_team *team; /* threads */
	void *shared;
	uint64_t meet_ns;  /* ranks_meet gives up: before it is a hang */
	uint64_t limit_ns; /* time of the hang */
};

/* One rank on its way. */
struct ranks_runner {
	struct rank rank; /* first */
	struct ranks_course *course;
	struct ranks_verdict *verdict;
	jmp_buf end_of_body;
	int n_deferred;
	struct {
		void (*fn)(void *);
		void *arg;
	} deferred[RANKS_DEFERRED];
};

/* Opens the world, runs the body, closes. In the rank's thread or process. */
void ranks_runner_run(struct ranks_runner *runner);
/* What is left to be done for a thread that died. */
void ranks_runner_bury(struct ranks_runner *runner);

void ranks_run_threads(struct ranks_course *course);
void ranks_run_processes(struct ranks_course *course);

void ranks_verdict_fail(struct ranks_verdict *verdict, const char *text);

#endif
