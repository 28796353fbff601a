/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of a wrapper that does nothing. */
#include "wrap.h"

#include <stdio.h>
#include <stdlib.h>

static struct ferry_fabric *inner_of(const struct ferry_fabric *fabric)
{
	return ((const struct ferry_wrap *)fabric)->inner;
}

struct ferry_fabric *ferry_wrap_innermost(struct ferry_fabric *fabric)
{
	while (fabric->ops->probe == ferry_wrap_probe)
		fabric = inner_of(fabric);
	return fabric;
}

/* Wrappers are named, never chosen: only their inner fabric is probed. */
int ferry_wrap_probe(const struct ferry_world *world,
                     char reason[FERRY_REASON_BYTES])
{
	(void)world;
	snprintf(reason, FERRY_REASON_BYTES, "a wrapper");
	return 0;
}

enum ferry_status ferry_wrap_open(struct ferry_world *world,
                                  struct ferry_fabric **fabric)
{
	(void)fabric;
	return ferry_fail(&world->ctx, FERRY_UNSUPPORTED,
	                  "world_open: a wrapper needs a fabric behind it");
}

void ferry_wrap_close(struct ferry_fabric *fabric)
{
	struct ferry_fabric *inner = inner_of(fabric);

	inner->ops->close(inner);
	free(fabric);
}

enum ferry_status ferry_wrap_mem_create(struct ferry_fabric *fabric,
                                        size_t control_bytes, size_t data_bytes,
                                        struct ferry_mem **mem,
                                        uint8_t handle[FERRY_HANDLE_BYTES])
{
	struct ferry_fabric *inner = inner_of(fabric);
	struct ferry_wrap_mem *m =
		calloc(1, ((const struct ferry_wrap *)fabric)->mem_bytes);
	enum ferry_status status;

	if (!m)
		return ferry_fail(&fabric->world->ctx, FERRY_NOMEM,
		                  "%s: state of a memory", fabric->ops->name);
	status = inner->ops->mem_create(inner, control_bytes, data_bytes,
	                                &m->inner, handle);
	if (status != FERRY_OK) {
		free(m);
		return status;
	}
	ferry_mem_init(&m->mem, fabric, control_bytes, data_bytes);
	m->mem.control = m->inner->control;
	m->mem.data = m->inner->data;
	m->mem.is_gpus = m->inner->is_gpus;
	*mem = &m->mem;
	return FERRY_OK;
}

enum ferry_status ferry_wrap_mem_attach(struct ferry_mem *mem,
                                        const uint8_t *handles)
{
	struct ferry_mem *inner = ferry_wrap_inner(mem);

	inner->counters_offset = mem->counters_offset;
	inner->n_signals = mem->n_signals;
	inner->fan_first = mem->fan_first;
	inner->fan_end = mem->fan_end;
	return inner->ops->mem_attach(inner, handles);
}

void ferry_wrap_mem_seal(struct ferry_mem *mem)
{
	struct ferry_mem *inner = ferry_wrap_inner(mem);

	inner->ops->mem_seal(inner);
}

void ferry_wrap_mem_destroy(struct ferry_mem *mem)
{
	struct ferry_mem *inner = ferry_wrap_inner(mem);

	inner->ops->mem_destroy(inner);
	free(mem);
}

uint32_t ferry_wrap_caps(const struct ferry_mem *mem, int32_t peer)
{
	const struct ferry_mem *inner = ferry_wrap_inner(mem);

	return inner->ops->caps(inner, peer);
}

void *ferry_wrap_control(const struct ferry_mem *mem, int32_t peer)
{
	const struct ferry_mem *inner = ferry_wrap_inner(mem);

	return inner->ops->control(inner, peer);
}

void *ferry_wrap_data(const struct ferry_mem *mem, int32_t peer)
{
	const struct ferry_mem *inner = ferry_wrap_inner(mem);

	return inner->ops->data(inner, peer);
}

size_t ferry_wrap_max_put(const struct ferry_mem *mem)
{
	const struct ferry_mem *inner = ferry_wrap_inner(mem);

	return inner->ops->max_put(inner);
}

enum ferry_status ferry_wrap_put(struct ferry_mem *mem, int32_t peer,
                                 size_t offset, const void *source,
                                 size_t bytes, uint32_t signal)
{
	struct ferry_mem *inner = ferry_wrap_inner(mem);

	return inner->ops->put(inner, peer, offset, source, bytes, signal);
}

enum ferry_status ferry_wrap_kick(struct ferry_mem *mem)
{
	struct ferry_mem *inner = ferry_wrap_inner(mem);

	return inner->ops->kick(inner);
}

bool ferry_wrap_flushed(struct ferry_mem *mem)
{
	struct ferry_mem *inner = ferry_wrap_inner(mem);

	return inner->ops->flushed(inner);
}

bool ferry_wrap_progress(struct ferry_mem *mem)
{
	struct ferry_mem *inner = ferry_wrap_inner(mem);

	return inner->ops->progress(inner);
}

bool ferry_wrap_dead(struct ferry_fabric *fabric, int32_t peer)
{
	struct ferry_fabric *inner = inner_of(fabric);

	return inner->ops->dead(inner, peer);
}

bool ferry_wrap_cut(struct ferry_mem *mem, int32_t peer,
                    char why[FERRY_REASON_BYTES])
{
	struct ferry_mem *inner = ferry_wrap_inner(mem);

	return inner->ops->cut(inner, peer, why);
}
