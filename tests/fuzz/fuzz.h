/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzzer is one function over bytes. libFuzzer drives it under clang with
 * FERRY_FUZZ=ON; fuzz_main.c drives it everywhere else, as an ordinary test
 * over the corpus and some thousand mutations of it.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_data);

/* Both drivers report an abort together with the input. */
#define FUZZ_CHECK(condition)                                                  \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%s:%d: %s is false\n", __FILE__,      \
			        __LINE__, #condition);                         \
			abort();                                               \
		}                                                              \
	} while (0)

#endif
