/* SPDX-License-Identifier: Apache-2.0 */
/* Wrapper fault: not there yet. */
#include "fabric_ops.h"
#include "world.h"

enum ferry_status ferry_fabric_wrap_fault(struct ferry_world *world,
                                          struct ferry_fabric *inner,
                                          struct ferry_fabric **fabric)
{
	(void)inner;
	(void)fabric;
	return ferry_fail(&world->ctx, FERRY_INTERNAL,
	                  "fault: not written yet");
}
