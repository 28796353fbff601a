/* SPDX-License-Identifier: Apache-2.0 */
/* Our own way to plan. */
#include "plan_inner.h"

void plan_portfolio(struct ferry_planner *pl)
{
	plan_freebalance(pl);
}
