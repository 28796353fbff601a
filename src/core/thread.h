/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the library, which are few: no signal of the process is delivered
 * to them, and their conditions go by the monotonic clock.
 */
#ifndef FERRY_THREAD_H
#define FERRY_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "clock.h"

/* 0 or an errno. Signals are for the caller's threads. */
static inline int ferry_thread_start(pthread_t *thread, void *(*run)(void *),
                                     void *arg)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	const int err = pthread_create(thread, NULL, run, arg);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

static inline void ferry_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* False when when_ns has passed; UINT64_MAX: no limit. */
static inline bool ferry_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                   uint64_t when_ns)
{
	const struct timespec at = ferry_timespec(when_ns);

	if (when_ns == UINT64_MAX)
		return pthread_cond_wait(cond, lock) == 0;
	return pthread_cond_timedwait(cond, lock, &at) != ETIMEDOUT;
}

#endif
