/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seed of a test program's random data: fresh in every run and printed;
 * the first argument gives it again.
 */
#ifndef TEST_SEED_H
#define TEST_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t test_seed(int argc, char **argv)
{
	struct timespec now;

	timespec_get(&now, TIME_UTC);
	const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0)
	                               : (uint64_t)now.tv_sec * 1000000 +
	                                         (uint64_t)now.tv_nsec / 1000;

	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

#endif
