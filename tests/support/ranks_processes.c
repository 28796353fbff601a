/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as forked processes that meet as under ferry run. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/order.h"
#include "ranks_inner.h"

/* What ferry run gives to a rank; a different meeting point each run. */
static void environment(int32_t rank, int32_t n_ranks, const char *meeting)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", rank);
	setenv("FERRY_RANK", number, 1);
	snprintf(number, sizeof(number), "%d", n_ranks);
	setenv("FERRY_SIZE", number, 1);
	setenv("FERRY_RENDEZVOUS", meeting, 1);
	setenv("FERRY_SECRET", meeting, 1);
}

_Noreturn static void child(struct ranks_course *course, int32_t rank,
                            const char *meeting)
{
	struct ranks_runner *runner = calloc(1, sizeof(*runner));

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!runner)
		_exit(1);
	environment(rank, course->how->n_ranks, meeting);
	runner->rank = (struct rank){.rank = rank,
	                             .n_ranks = course->how->n_ranks,
	                             .kind = RANKS_PROCESSES,
	                             .n_gpus = course->how->n_gpus,
	                             .arg = course->how->arg,
	                             .shared = course->shared};
	runner->course = course;
	runner->verdict = &course->board->verdicts[rank];
	if (course->how->at_start)
		course->how->at_start(&runner->rank);
	ranks_runner_run(runner);
	const bool good =
		load_acquire_u32(&runner->verdict->state) == RANK_DONE;

	free(runner);
	fflush(NULL);
	/* exit, so that a sanitizer looks for leaks, when all went well. */
	if (good)
		exit(0);
	_exit(0);
}

static void verdict_of_exit(struct ranks_course *course, int32_t rank,
                            int status)
{
	struct ranks_verdict *v = &course->board->verdicts[rank];
	char text[128];

	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
	    course->how->killed & RANKS_BIT(rank)) {
		store_release_u32(&v->state, RANK_DEAD);
		return;
	}
	if (load_acquire_u32(&v->state) == RANK_FAILED)
		return;
	if (WIFSIGNALED(status))
		snprintf(text, sizeof(text), "the process died of signal %d",
		         WTERMSIG(status));
	else if (WEXITSTATUS(status))
		snprintf(text, sizeof(text), "the process exited with %d",
		         WEXITSTATUS(status));
	else
		return;
	ranks_verdict_fail(v, text);
}

static void hang(struct ranks_course *course, int32_t rank, pid_t pid)
{
	static const char *const where[] = {"before it began",
	                                    "opening the world", "in the body",
	                                    "closing the world"};
	struct ranks_verdict *v = &course->board->verdicts[rank];
	const uint32_t state = load_acquire_u32(&v->state);
	char text[128];

	snprintf(text, sizeof(text), "the process hangs %s",
	         state <= RANK_CLOSING ? where[state] : "at its end");
	/* It may have failed just now, and says more itself. */
	if (state != RANK_FAILED)
		ranks_verdict_fail(v, text);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void ranks_run_processes(struct ranks_course *course)
{
	static int n_runs;
	const int32_t n = course->how->n_ranks;
	pid_t pids[RANKS_MAX];
	int32_t n_left = n;
	char meeting[64];

	snprintf(meeting, sizeof(meeting), "unix:ferry-test-%d-%d",
	         (int)getpid(), n_runs++);
	fflush(NULL);
	for (int32_t r = 0; r < n; r++) {
		pids[r] = fork();
		if (pids[r] < 0)
			abort();
		if (pids[r] == 0)
			child(course, r, meeting);
	}
	while (n_left) {
		const bool late = ferry_now_ns() > course->limit_ns;

		for (int32_t r = 0; r < n; r++) {
			int status;

			if (pids[r] && waitpid(pids[r], &status, WNOHANG) > 0)
				verdict_of_exit(course, r, status);
			else if (pids[r] && late)
				hang(course, r, pids[r]);
			else
				continue;
			pids[r] = 0;
			n_left--;
		}
		nanosleep(&(struct timespec){0, 500000}, NULL);
	}
}
