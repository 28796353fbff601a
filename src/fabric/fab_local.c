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

static void block_free(struct block *block)
{
	munmap(block->base, block->bytes);
	free(block);
}

static enum ferry_status block_new(struct ferry_world *world, size_t bytes,
                                   struct block **block)
{
	struct block *b;
	void *base;
	int err;

	FERRY_TRY(ferry_backing_check(&world->ctx, "local", bytes));
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return ferry_fail_errno(&world->ctx, FERRY_NOMEM, errno,
		                        "local: mmap of %zu bytes", bytes);
	err = ferry_backing_populate(base, bytes);
	b = calloc(1, sizeof(*b));
	if (!b || (err && err != EINVAL)) {
		munmap(base, bytes);
		free(b);
		return ferry_fail_errno(&world->ctx, FERRY_NOMEM,
		                        err ? err : ENOMEM, "local: %zu bytes",
		                        bytes);
	}
	b->base = base;
	b->bytes = bytes;
	b->n_refs = (uint32_t)world->n_ranks;
	*block = b;
	return FERRY_OK;
}

static enum ferry_status mem_create(struct ferry_fabric *fabric,
                                    size_t control_bytes, size_t data_bytes,
                                    struct ferry_mem **mem,
                                    uint8_t handle[FERRY_HANDLE_BYTES])
{
	struct ferry_world *world = fabric->world;
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
		status = block_new(world, control_bytes + data_bytes, &m->own);
	if (status != FERRY_OK) {
		if (m)
			free(m->blocks);
		free(m);
		return status;
	}
	ferry_mem_init(&m->mem, fabric, control_bytes, data_bytes);
	m->mem.control = m->own->base;
	m->mem.data = (unsigned char *)m->own->base + control_bytes;
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
	struct local_mem *m = local(mem);

	if (!m->attached)
		block_free(m->own);
	for (int32_t r = 0; m->attached && r < n_ranks(mem); r++)
		if (sub_seq_u32(&m->blocks[r]->n_refs, 1) == 1)
			block_free(m->blocks[r]);
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
