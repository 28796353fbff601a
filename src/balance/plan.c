/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's memory, and the way through a plan. */
#include "plan_inner.h"

#include <stdlib.h>
#include <string.h>

#include "../core/ctx.h"

enum ferry_status ferry_planner_create(int32_t max_experts, int32_t max_slots,
                                       int32_t max_ranks,
                                       struct ferry_planner **planner)
{
	if (!planner)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "planner_create: planner is NULL");
	struct ferry_planner *const p = calloc(1, sizeof(*p));

	if (!p)
		return ferry_fail(NULL, FERRY_NOMEM, "planner: %zu bytes",
		                  sizeof(*p));
	const enum ferry_status status = ferry_problem_init(
		&p->problem, max_experts, max_slots, max_ranks);

	if (status) {
		free(p);
		return status;
	}
	*planner = p;
	return FERRY_OK;
}

void ferry_planner_destroy(struct ferry_planner *planner)
{
	if (!planner)
		return;
	ferry_problem_destroy(&planner->problem);
	free(planner);
}
