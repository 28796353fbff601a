/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan of a tiny problem, by trying all. */
#ifndef BRUTE_H
#define BRUTE_H

#include "plan_case.h"

enum { BRUTE_RANKS = 4, BRUTE_SLOTS = 12 };

/*
 * Load of the fullest rank after the best plan that budget and windows let.
 * At most BRUTE_RANKS ranks and BRUTE_SLOTS slots.
 */
int64_t brute_best(const struct plan_case *b);

#endif
