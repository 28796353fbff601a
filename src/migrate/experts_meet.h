/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks know of each other when they end a plan: the record of every rank
 * says that it has staged, and that it has come to end the plan; records that
 * differ break the segment.
 */
#ifndef FERRY_EXPERTS_MEET_H
#define FERRY_EXPERTS_MEET_H

#include "experts_inner.h"

/* Has every rank staged what it sends? Does not wait. */
bool ferry_experts_is_staged(const struct ferry_experts *x,
                             const struct experts_flight *f);

/*
 * Waits for that; afterwards what came is visible to this thread, and all have
 * started the same. Errors: those of a wait; MISMATCH breaks the segment.
 */
enum ferry_status ferry_experts_wait_staged(struct ferry_experts *x,
                                            struct experts_flight *f);

/*
 * Nobody ends a plan before all have come to do so, in the same way: who dies
 * before that leaves all others where they were.
 */
enum ferry_status ferry_experts_meet(struct ferry_experts *x,
                                     struct experts_flight *f, bool commits);

#endif
