/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric p2p: ranks have GPUs of one host that load and store each other's
 * memory. Control is host memory, made by local or shm, which this fabric
 * wraps; data is device memory.
 */
#include <stdio.h>

#include "gpu.h"
#include "registry.h"
#include "wrap.h"

static int probe(const struct ferry_world *world,
                 char reason[FERRY_REASON_BYTES])
{
	if (!world) {
		ferry_gpu_sighted(reason);
		return 0;
	}
	snprintf(reason, FERRY_REASON_BYTES, "not written yet");
	return 0;
}

static enum ferry_status open_p2p(struct ferry_world *world,
                                  struct ferry_fabric **fabric)
{
	(void)fabric;
	return ferry_fail(&world->ctx, FERRY_INTERNAL, "p2p: not written yet");
}

const struct ferry_fabric_ops ferry_fabric_p2p = {
	.size = sizeof(struct ferry_fabric_ops),
	.name = "p2p",
	.summary = "ranks have GPUs that reach each other's memory",
	.device = FERRY_DEVICE_CUDA,
	.probe = probe,
	.open = open_p2p,
	.close = ferry_wrap_close,
	.mem_create = ferry_wrap_mem_create,
	.mem_attach = ferry_wrap_mem_attach,
	.mem_seal = ferry_wrap_mem_seal,
	.mem_destroy = ferry_wrap_mem_destroy,
	.caps = ferry_wrap_caps,
	.control = ferry_wrap_control,
	.data = ferry_wrap_data,
	.max_put = ferry_wrap_max_put,
	.put = ferry_wrap_put,
	.kick = ferry_wrap_kick,
	.flushed = ferry_wrap_flushed,
	.progress = ferry_wrap_progress,
	.dead = ferry_wrap_dead,
};
