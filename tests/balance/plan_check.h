/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a plan is one, by arithmetic of its own. */
#ifndef PLAN_CHECK_H
#define PLAN_CHECK_H

#include <ferry/plan.h>

/*
 * Fails the cmocka test unless the plan of `in` is disjoint, keeps every budget
 * and number, is made of placements all along, never makes the fullest rank
 * fuller, tells its loads, gains and bound as they are, and leaves a layer
 * below the threshold alone.
 */
void plan_check(const struct ferry_plan_in *in, const struct ferry_plan *plan);

/* Plans, or fails the test, and checks the plan. */
void plan_and_check(struct ferry_planner *planner,
                    const struct ferry_plan_in *in, struct ferry_plan *plan);

#endif
