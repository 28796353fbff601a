/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric local: ranks are threads of one process, a peer's memory is a
 * pointer.
 *
 * A memory has one reference for each rank from the start, which that rank
 * drops when it destroys its own memory. So a rank may close while others
 * still write to it, and it may be late to attach. References are given out
 * when all have attached or none has: a team's allgather ends the same way on
 * all ranks.
 *
 * In a world of GPUs control alone comes from here, but for the mirrors of
 * channels over several hosts: what has data is the GPU's to load and store,
 * where it can make such memory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../boot/team.h"
#include "../core/order.h"
#include "backing.h"
#include "place.h"
#include "registry.h"
#include "segment.h"

enum { SCORE = 100 };

/* Memory of one rank, known to all. */
struct block {
	struct ferry_gpu_memory *memory; /* NULL: pages */
	void *base;
	size_t bytes;
	uint32_t n_refs;
};

struct local_mem {
	struct ferry_mem mem;
	struct block *own;
	bool attached;
	struct block **blocks; /* [n_ranks], own too */
};

static struct local_mem *local(struct ferry_mem *mem)
{
	return (struct local_mem *)mem;
}

static int32_t n_ranks(const struct ferry_mem *mem)
{
	return mem->fabric->world->n_ranks;
}

static int probe(const struct ferry_world *world,
                 char reason[FERRY_REASON_BYTES])
{
	if (!world) {
		snprintf(reason, FERRY_REASON_BYTES,
		         "for ranks that are "
		         "threads of one process");
		return SCORE;
	}
	if (world->n_ranks > 1 && !ferry_boot_is_team(world->boot)) {
		snprintf(reason, FERRY_REASON_BYTES,
		         "ranks are not threads of one team");
		return 0;
	}
	if (world->n_nodes > 1) {
		ferry_place_say_hosts(world, reason, FERRY_REASON_BYTES);
		return 0;
	}
	snprintf(reason, FERRY_REASON_BYTES, "%s",
	         world->n_ranks > 1 ? "all ranks are threads of one team"
	                            : "a world of one rank");
	return SCORE;
}

static enum ferry_status open_local(struct ferry_world *world,
                                    struct ferry_fabric **fabric)
{
	struct ferry_fabric *f = calloc(1, sizeof(*f));

	if (!f)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "local: state of %zu bytes", sizeof(*f));
	f->ops = &ferry_fabric_local;
	f->world = world;
	*fabric = f;
	return FERRY_OK;
}

static void close_local(struct ferry_fabric *fabric)
{
	free(fabric);
}

static void block_free(const struct ferry_world *world, struct block *block)
{
	if (block->memory)
		ferry_gpu_free(world->gpu, block->memory);
	else
		munmap(block->base, block->bytes);
	free(block);
}

static enum ferry_status map_pages(struct ferry_world *world, struct block *b)
{
	int err;

	b->base = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->base == MAP_FAILED)
		return ferry_fail_errno(&world->ctx, FERRY_NOMEM, errno,
		                        "local: mmap of %zu bytes", b->bytes);
	err = ferry_backing_populate(b->base, b->bytes);
	if (!err || err == EINVAL)
		return FERRY_OK;
	munmap(b->base, b->bytes);
	return ferry_fail_errno(&world->ctx, FERRY_NOMEM, err,
	                        "local: %zu bytes", b->bytes);
}

static enum ferry_status map_for_gpu(struct ferry_world *world, struct block *b)
{
	FERRY_TRY(ferry_gpu_alloc_host(&world->ctx, world->gpu, b->bytes,
	                               &b->memory));
	b->base = ferry_gpu_address(b->memory);
	return FERRY_OK;
}

static enum ferry_status block_new(struct ferry_world *world, size_t bytes,
                                   bool for_gpu, struct block **block)
{
	enum ferry_status status;
	struct block *b;

	FERRY_TRY(ferry_backing_check(&world->ctx, "local", bytes));
	b = calloc(1, sizeof(*b));
	if (!b)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "local: record of a memory");
	b->bytes = bytes;
	b->n_refs = (uint32_t)world->n_ranks;
	status = for_gpu ? map_for_gpu(world, b) : map_pages(world, b);
	if (status != FERRY_OK) {
		free(b);
		return status;
	}
	*block = b;
	return FERRY_OK;
}

static enum ferry_status mem_create(struct ferry_fabric *fabric,
                                    size_t control_bytes, size_t data_bytes,
                                    struct ferry_mem **mem,
                                    uint8_t handle[FERRY_HANDLE_BYTES])
{
	struct ferry_world *world = fabric->world;
	const bool for_gpu = world->gpu && data_bytes > 0 &&
	                     ferry_gpu_has_host_memory(world->gpu);
	struct local_mem *m = calloc(1, sizeof(*m));
	enum ferry_status status;

	if (m)
		m->blocks =
			calloc((size_t)world->n_ranks, sizeof(struct block *));
	if (!m || !m->blocks)
		status = ferry_fail(&world->ctx, FERRY_NOMEM,
		                    "local: addresses of %d peers",
		                    world->n_ranks);
	else
		status = block_new(world, control_bytes + data_bytes, for_gpu,
		                   &m->own);
	if (status != FERRY_OK) {
		if (m)
			free(m->blocks);
		free(m);
		return status;
	}
	ferry_mem_init(&m->mem, fabric, control_bytes, data_bytes);
	m->mem.control = m->own->base;
	m->mem.data = (unsigned char *)m->own->base + control_bytes;
	m->mem.is_gpus = for_gpu;
	memcpy(handle, &m->own, sizeof(m->own));
	*mem = &m->mem;
	return FERRY_OK;
}

static enum ferry_status mem_attach(struct ferry_mem *mem,
                                    const uint8_t *handles)
{
	struct local_mem *m = local(mem);

	for (int32_t r = 0; r < n_ranks(mem); r++) {
		const uint8_t *handle =
			handles + (size_t)r * FERRY_HANDLE_BYTES;

		memcpy(&m->blocks[r], handle, sizeof(m->blocks[r]));
	}
	m->attached = true;
	return FERRY_OK;
}

static void mem_destroy(struct ferry_mem *mem)
{
	const struct ferry_world *world = mem->fabric->world;
	struct local_mem *m = local(mem);

	if (!m->attached)
		block_free(world, m->own);
	for (int32_t r = 0; m->attached && r < n_ranks(mem); r++)
		if (sub_seq_u32(&m->blocks[r]->n_refs, 1) == 1)
			block_free(world, m->blocks[r]);
	free(m->blocks);
	free(m);
}

static void *control(const struct ferry_mem *mem, int32_t peer)
{
	const struct local_mem *m = (const struct local_mem *)mem;

	return m->blocks[peer]->base;
}

static bool dead(struct ferry_fabric *fabric, int32_t peer)
{
	struct ferry_boot *boot = fabric->world->boot;

	return boot->ops->dead(boot, peer);
}

const struct ferry_fabric_ops ferry_fabric_local = {
	.size = sizeof(struct ferry_fabric_ops),
	.name = "local",
	.summary = "ranks are threads, memory of one process",
	.probe = probe,
	.open = open_local,
	.close = close_local,
	.mem_create = mem_create,
	.mem_attach = mem_attach,
	.mem_seal = ferry_fabric_seal_nothing,
	.mem_destroy = mem_destroy,
	.caps = ferry_fabric_caps_ldst,
	.control = control,
	.data = ferry_fabric_data_behind,
	.max_put = ferry_fabric_max_put_unbounded,
	.put = ferry_fabric_put_ldst,
	.kick = ferry_fabric_kick_nothing,
	.flushed = ferry_fabric_flushed_always,
	.progress = ferry_fabric_progress_none,
	.dead = dead,
	.cut = ferry_fabric_cut_never,
};
