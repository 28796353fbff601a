/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time and deadlines in nanoseconds. */
#ifndef FERRY_CLOCK_H
#define FERRY_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ferry_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t ferry_deadline_ns(int64_t ms)
{
	return ferry_now_ns() + (uint64_t)ms * 1000000u;
}

static inline struct timespec ferry_timespec(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / 1000000000u),
		.tv_nsec = (long)(ns % 1000000000u),
	};
}

#endif
