/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the planner share. */
#ifndef FERRY_PLAN_INNER_H
#define FERRY_PLAN_INNER_H

#include "problem.h"

struct ferry_planner {
	struct ferry_problem problem;
};

#endif
