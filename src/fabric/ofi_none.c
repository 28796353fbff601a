/* SPDX-License-Identifier: Apache-2.0 */
/* Fabrics ofi and shm+ofi in a build without libfabric: they say so. */
#include <stdio.h>

#include "registry.h"
#include "wrap.h"

static int probe(const struct ferry_world *world,
                 char reason[FERRY_REASON_BYTES])
{
	(void)world;
	snprintf(reason, FERRY_REASON_BYTES, "built without libfabric");
	return 0;
}

static enum ferry_status open_none(struct ferry_world *world,
                                   struct ferry_fabric **fabric)
{
	(void)fabric;
	return ferry_fail(&world->ctx, FERRY_UNSUPPORTED,
	                  "ofi: this ferry was built without libfabric");
}

#define SLOTS                                                                  \
	.size = sizeof(struct ferry_fabric_ops), .probe = probe,               \
	.open = open_none, .close = ferry_wrap_close,                          \
	.mem_create = ferry_wrap_mem_create,                                   \
	.mem_attach = ferry_wrap_mem_attach, .mem_seal = ferry_wrap_mem_seal,  \
	.mem_destroy = ferry_wrap_mem_destroy, .caps = ferry_wrap_caps,        \
	.control = ferry_wrap_control, .data = ferry_wrap_data,                \
	.max_put = ferry_wrap_max_put, .put = ferry_wrap_put,                  \
	.kick = ferry_wrap_kick, .flushed = ferry_wrap_flushed,                \
	.progress = ferry_wrap_progress, .dead = ferry_wrap_dead,              \
	.cut = ferry_wrap_cut

const struct ferry_fabric_ops ferry_fabric_ofi = {
	SLOTS,
	.name = "ofi",
	.summary = "networks, through libfabric",
};

const struct ferry_fabric_ops ferry_fabric_shm_ofi = {
	SLOTS,
	.name = "shm+ofi",
	.summary = "stores inside a host, libfabric between hosts",
};
