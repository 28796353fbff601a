/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrapper trace: records every put and kick as an event of the world's trace.
 * And the public call that writes a trace, since a world owns it.
 */
#include <stdlib.h>

#include "../trace/events.h"
#include "wrap.h"

static enum ferry_status put(struct ferry_mem *mem, int32_t peer, size_t offset,
                             const void *source, size_t bytes, uint32_t signal)
{
	struct ferry_trace *trace = mem->fabric->world->trace;
	struct ferry_trace_event event = {
		.name = "put",
		.category = "fabric",
		.begin_ns = ferry_trace_begin(trace),
		.bytes = bytes,
		.slot = -1,
		.peer = peer,
	};
	const enum ferry_status status =
		ferry_wrap_put(mem, peer, offset, source, bytes, signal);

	ferry_trace_end(trace, &event);
	return status;
}

static enum ferry_status kick(struct ferry_mem *mem)
{
	struct ferry_trace *trace = mem->fabric->world->trace;
	struct ferry_trace_event event = {
		.name = "kick",
		.category = "fabric",
		.begin_ns = ferry_trace_begin(trace),
		.slot = -1,
		.peer = -1,
	};
	const enum ferry_status status = ferry_wrap_kick(mem);

	ferry_trace_end(trace, &event);
	return status;
}

static const struct ferry_fabric_ops trace_ops = {
	.size = sizeof(struct ferry_fabric_ops),
	.name = "trace",
	.summary = "wrapper that records puts and kicks",
	.probe = ferry_wrap_probe,
	.open = ferry_wrap_open,
	.close = ferry_wrap_close,
	.mem_create = ferry_wrap_mem_create,
	.mem_attach = ferry_wrap_mem_attach,
	.mem_seal = ferry_wrap_mem_seal,
	.mem_destroy = ferry_wrap_mem_destroy,
	.caps = ferry_wrap_caps,
	.control = ferry_wrap_control,
	.data = ferry_wrap_data,
	.max_put = ferry_wrap_max_put,
	.put = put,
	.kick = kick,
	.flushed = ferry_wrap_flushed,
	.progress = ferry_wrap_progress,
	.dead = ferry_wrap_dead,
	.cut = ferry_wrap_cut,
};

enum ferry_status ferry_fabric_wrap_trace(struct ferry_world *world,
                                          struct ferry_fabric *inner,
                                          struct ferry_fabric **fabric)
{
	struct ferry_wrap *wrap = calloc(1, sizeof(*wrap));

	if (!wrap)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "trace: state of %zu bytes", sizeof(*wrap));
	wrap->fabric.ops = &trace_ops;
	wrap->fabric.world = world;
	wrap->inner = inner;
	wrap->mem_bytes = sizeof(struct ferry_wrap_mem);
	*fabric = &wrap->fabric;
	return FERRY_OK;
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
