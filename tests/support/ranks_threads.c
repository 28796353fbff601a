/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of one team. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/clock.h"
#include "core/order.h"
#include "ranks_inner.h"

static void *thread(void *arg)
{
	ranks_runner_run(arg);
	return NULL;
}

static bool join_until(pthread_t id, uint64_t limit_ns)
{
	const uint64_t now_ns = ferry_now_ns();
	const uint64_t left_ns = limit_ns > now_ns ? limit_ns - now_ns : 0;
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	const uint64_t ns = (uint64_t)at.tv_nsec + left_ns % 1000000000u;
	at.tv_sec += (time_t)(left_ns / 1000000000u + ns / 1000000000u);
	at.tv_nsec = (long)(ns % 1000000000u);
	return pthread_timedjoin_np(id, NULL, &at) == 0;
}

/*
 * A thread cannot be ended from outside, and what it holds is no longer safe:
 * the whole program ends.
 */
_Noreturn static void hang(const struct ranks_course *course)
{
	static const char *const states[] = {
		"has not begun",    "opens the world", "is in the body",
		"closes the world", "is done",         "has failed",
		"is dead"};

	for (int32_t r = 0; r < course->how->n_ranks; r++) {
		struct ranks_verdict *v = &course->board->verdicts[r];

		fprintf(stderr, "ranks: hang: rank %d %s %s\n", r,
		        states[load_acquire_u32(&v->state)], v->text);
	}
	abort();
}

void ranks_run_threads(struct ranks_course *course)
{
	const int32_t n = course->how->n_ranks;
	struct ranks_runner *runners = calloc((size_t)n, sizeof(*runners));
	pthread_t ids[RANKS_MAX];

	if (!runners || ferry_team_create(n, &course->team))
		abort();
	for (int32_t r = 0; r < n; r++) {
		runners[r].rank = (struct rank){.rank = r,
		                                .n_ranks = n,
		                                .kind = RANKS_THREADS,
		                                .n_gpus = course->how->n_gpus,
		                                .arg = course->how->arg,
		                                .shared = course->shared};
		runners[r].course = course;
		runners[r].verdict = &course->board->verdicts[r];
		if (pthread_create(&ids[r], NULL, thread, &runners[r]))
			abort();
	}
	for (int32_t r = 0; r < n; r++)
		if (!join_until(ids[r], course->limit_ns))
			hang(course);
	for (int32_t r = 0; r < n; r++)
		ranks_runner_bury(&runners[r]);
	ferry_team_destroy(course->team);
	free(runners);
}
