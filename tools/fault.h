/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was wrong with a file or with what is asked, in words for the user: who
 * finds it writes it, all callers pass false on, and the command prints it.
 */
#ifndef FERRY_FAULT_H
#define FERRY_FAULT_H

#include <stdbool.h>

struct fault {
	char text[512];
};

/* Writes the fault; returns false. */
__attribute__((format(printf, 2, 3))) bool fault_set(struct fault *fault,
                                                     const char *fmt, ...);

#ifdef __clang_analyzer__
/* The analyzer cannot see that it returns false. */
#define fault_set(...) (fault_set(__VA_ARGS__), false)
#endif

#endif
