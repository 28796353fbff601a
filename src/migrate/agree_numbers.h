/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that must be equal on all ranks of a collective open. */
#ifndef FERRY_AGREE_NUMBERS_H
#define FERRY_AGREE_NUMBERS_H

#include "../fabric/world.h"

enum { FERRY_AGREE_NUMBERS = 32 };

struct ferry_agreed {
	const char *name; /* in the text of a difference */
	int64_t value;
};

/*
 * ferry_agree over the status of the own work, and then a comparison of own[n],
 * n <= FERRY_AGREE_NUMBERS, which count where all ranks bring FERRY_OK.
 * Errors: those that ranks bring, MISMATCH (naming call, number and ranks),
 * NOMEM, those of ferry_agree.
 */
enum ferry_status ferry_agree_numbers(struct ferry_world *world,
                                      const char *call, enum ferry_status mine,
                                      const struct ferry_agreed *own,
                                      int32_t n);

#ifdef __clang_analyzer__
/* As ferry_agree: who brings a failure gets that failure. */
#define ferry_agree_numbers(world, call, mine, ...)                            \
	((mine) == FERRY_OK                                                    \
	         ? ferry_agree_numbers(world, call, mine, __VA_ARGS__)         \
	         : (ferry_agree_numbers(world, call, mine, __VA_ARGS__),       \
	            (mine)))
#endif

#endif
