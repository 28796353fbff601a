/* SPDX-License-Identifier: Apache-2.0 */
/* Wrapper trace: not there yet; and the public call that writes a trace. */
#include "../trace/events.h"
#include "fabric_ops.h"
#include "world.h"

enum ferry_status ferry_fabric_wrap_trace(struct ferry_world *world,
                                          struct ferry_fabric *inner,
                                          struct ferry_fabric **fabric)
{
	(void)inner;
	(void)fabric;
	return ferry_fail(&world->ctx, FERRY_INTERNAL,
	                  "trace: not written yet");
}

enum ferry_status ferry_trace_write(struct ferry_world *world, const char *path)
{
	if (!world)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "trace_write: world is NULL");
	if (!world->trace)
		return ferry_fail(&world->ctx, FERRY_UNSUPPORTED,
		                  "trace_write: the world was opened without "
		                  "FERRY_TRACE");
	return ferry_trace_save(&world->ctx, world->trace, path);
}
