/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping on a word of memory and waking who sleeps there. `shared`: the word
 * lies in memory of several processes.
 */
#ifndef FERRY_FUTEX_H
#define FERRY_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../core/clock.h"

/* Sleeps while *word is `value`, at most ns; may return early. */
static inline void futex_wait(uint32_t *word, uint32_t value, uint64_t ns,
                              bool shared)
{
	const struct timespec timeout = ferry_timespec(ns);
	const int op = shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;

	syscall(SYS_futex, word, op, value, &timeout, NULL, 0);
}

static inline void futex_wake_all(uint32_t *word, bool shared)
{
	const int op = shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE;

	syscall(SYS_futex, word, op, INT_MAX, NULL, NULL, 0);
}

#endif
