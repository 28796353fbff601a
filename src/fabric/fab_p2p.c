/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric p2p: ranks have GPUs of one host that load and store each other's
 * memory, or share a GPU.
 *
 * Control is host memory and belongs to an inner fabric, local or shm, that
 * this one wraps; so waits, verdicts and deaths are theirs. Data is memory of
 * the GPU. Threads of one team use one mapping of it, which has a reference
 * for each rank from the start, as in local. Processes pass descriptors and
 * map them; the driver counts these.
 *
 * A put of the host is a copy by the copy engine, behind which the counter is
 * raised. What goes to control is stored at once, and so may overtake: it is
 * verdicts.
 *
 * p2p+ofi, and for tests p2p+wire, are the same for ranks on several hosts:
 * control belongs to a network, which verdicts and signals take; memory of GPUs
 * is mapped among the ranks of a host, and nothing else is. What else travels
 * between hosts is the affair of who opens a segment on the network
 * (ferry_fabric_network).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../boot/team.h"
#include "../core/clock.h"
#include "p2p_inner.h"
#include "place.h"
#include "registry.h"

enum {
	SCORE = 200,
	NET_SCORE = 100,
	END_MS = 2000, /* most time for copies at close */
};

static bool is_team(const struct ferry_world *world)
{
	return world->n_ranks == 1 || ferry_boot_is_team(world->boot);
}

static int probe(const struct ferry_world *world,
                 char reason[FERRY_REASON_BYTES])
{
	if (!world)
		return ferry_gpu_sighted(reason) ? SCORE : 0;
	if (world->n_nodes > 1) {
		ferry_place_say_hosts(world, reason, FERRY_REASON_BYTES);
		return 0;
	}
	snprintf(reason, FERRY_REASON_BYTES, "all ranks have GPUs of one host");
	return SCORE;
}

/* What the network says of the world, or of this machine; then, GPUs. */
static int probe_over(const struct ferry_world *world,
                      const struct ferry_fabric_ops *network, int score,
                      char reason[FERRY_REASON_BYTES])
{
	char none[FERRY_GPU_REASON_BYTES];

	if (network->probe(world, reason) <= 0)
		return 0;
	if (!world && !ferry_gpu_sighted(none)) {
		snprintf(reason, FERRY_REASON_BYTES, "%s", none);
		return 0;
	}
	if (!world)
		return score;
	snprintf(reason, FERRY_REASON_BYTES, "GPUs of %d hosts",
	         world->n_nodes);
	return score;
}

static int probe_wire(const struct ferry_world *world,
                      char reason[FERRY_REASON_BYTES])
{
	return probe_over(world, &ferry_fabric_shm_wire, FERRY_SCORE_BY_NAME,
	                  reason);
}

/* The one for several hosts. */
static int probe_ofi(const struct ferry_world *world,
                     char reason[FERRY_REASON_BYTES])
{
	return probe_over(world, &ferry_fabric_shm_ofi,
	                  world && world->n_nodes > 1 ? NET_SCORE
	                                              : FERRY_SCORE_BY_NAME,
	                  reason);
}

/* What the own GPU can do to the memory of a peer. */
static enum ferry_status reach(struct ferry_p2p *f, int32_t peer)
{
	struct ferry_world *world = f->wrap.fabric.world;
	char reason[FERRY_GPU_REASON_BYTES];

	if (f->net && !ferry_place_same_host(&world->places[peer],
	                                     &world->places[world->rank]))
		return FERRY_OK;
	f->caps[peer] =
		ferry_gpu_reach(world->gpu, world->places[peer].gpu, reason);
	if (!f->caps[peer])
		return ferry_fail(&world->ctx, FERRY_UNSUPPORTED,
		                  "p2p: rank %d does not reach rank %d: %s",
		                  world->rank, peer, reason);
	f->caps[peer] |= FERRY_CAP_ORDERED | FERRY_CAP_SAME_HOST;
	return FERRY_OK;
}

static void close_p2p(struct ferry_fabric *fabric)
{
	struct ferry_p2p *f = (struct ferry_p2p *)fabric;

	if (f->wrap.inner)
		f->wrap.inner->ops->close(f->wrap.inner);
	free(f->caps);
	free(f);
}

/* network NULL: all ranks are on this host. */
static enum ferry_status open_as(struct ferry_world *world,
                                 const struct ferry_fabric_ops *ops,
                                 const struct ferry_fabric_ops *network,
                                 struct ferry_fabric **fabric)
{
	struct ferry_p2p *f = calloc(1, sizeof(*f));
	const struct ferry_fabric_ops *inner = network;
	enum ferry_status status;

	if (f)
		f->caps = calloc((size_t)world->n_ranks, sizeof(*f->caps));
	if (!f || !f->caps) {
		free(f);
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "p2p: state of %d peers", world->n_ranks);
	}
	f->wrap.fabric.ops = ops;
	f->wrap.fabric.world = world;
	f->team = is_team(world);
	f->net = network != NULL;
	if (!network)
		inner = f->team ? &ferry_fabric_local : &ferry_fabric_shm;
	status = inner->open(world, &f->wrap.inner);
	for (int32_t r = 0; status == FERRY_OK && r < world->n_ranks; r++)
		status = reach(f, r);
	if (status != FERRY_OK) {
		close_p2p(&f->wrap.fabric);
		return status;
	}
	*fabric = &f->wrap.fabric;
	return FERRY_OK;
}

static enum ferry_status open_p2p(struct ferry_world *world,
                                  struct ferry_fabric **fabric)
{
	return open_as(world, &ferry_fabric_p2p, NULL, fabric);
}

static enum ferry_status open_p2p_wire(struct ferry_world *world,
                                       struct ferry_fabric **fabric)
{
	return open_as(world, &ferry_fabric_p2p_wire, &ferry_fabric_shm_wire,
	               fabric);
}

static enum ferry_status open_p2p_ofi(struct ferry_world *world,
                                      struct ferry_fabric **fabric)
{
	return open_as(world, &ferry_fabric_p2p_ofi, &ferry_fabric_shm_ofi,
	               fabric);
}

struct ferry_fabric *ferry_fabric_network(struct ferry_fabric *fabric)
{
	struct ferry_fabric *const innermost = ferry_wrap_innermost(fabric);
	const struct ferry_p2p *f = (const struct ferry_p2p *)innermost;

	if (innermost->ops->close != close_p2p || !f->net)
		return NULL;
	return f->wrap.inner;
}

struct ferry_fabric *ferry_fabric_host(struct ferry_fabric *fabric)
{
	struct ferry_fabric *const innermost = ferry_wrap_innermost(fabric);

	if (innermost->ops->device == FERRY_DEVICE_CPU)
		return fabric;
	if (innermost->ops->close != close_p2p)
		return NULL;
	return ((const struct ferry_p2p *)innermost)->wrap.inner;
}

bool ferry_fabric_is_near(struct ferry_fabric *fabric)
{
	return ferry_wrap_innermost(fabric)->ops == &ferry_fabric_p2p;
}

static enum ferry_status block_new(struct ferry_world *world, size_t bytes,
                                   uint32_t n_refs,
                                   struct ferry_p2p_block **block)
{
	struct ferry_p2p_block *b = calloc(1, sizeof(*b));
	enum ferry_status status;

	if (!b)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "p2p: record of a memory");
	status = ferry_gpu_alloc(&world->ctx, world->gpu, bytes, &b->memory);
	if (status != FERRY_OK) {
		free(b);
		return status;
	}
	b->n_refs = n_refs;
	*block = b;
	return FERRY_OK;
}

static void block_drop(struct ferry_world *world, struct ferry_p2p_block *block,
                       uint32_t n)
{
	if (!block || sub_seq_u32(&block->n_refs, n) != n)
		return;
	ferry_gpu_free(world->gpu, block->memory);
	free(block);
}

/* The blocks that this rank refers to: all of a team, even if not mapped. */
static void drop_all(struct ferry_p2p_mem *m)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;

	if (!m->attached) {
		if (m->own)
			block_drop(world, m->own, m->own->n_refs);
		return;
	}
	for (int32_t r = 0; r < world->n_ranks; r++)
		block_drop(world, m->blocks[r], 1);
}

static void mem_destroy(struct ferry_mem *mem)
{
	struct ferry_p2p_mem *m = (struct ferry_p2p_mem *)mem;
	struct ferry_world *world = mem->fabric->world;
	struct ferry_mem *inner = m->wrap.inner;

	ferry_fd_post_close(&m->post);
	if (!ferry_p2p_queue_free(m->queue, ferry_deadline_ns(END_MS))) {
		ferry_log(&world->ctx, FERRY_LOG_WARN,
		          "p2p: copies do not end; the memory of a segment is "
		          "left to the end of the process");
		return;
	}
	drop_all(m);
	if (inner)
		inner->ops->mem_destroy(inner);
	free(m->blocks);
	free(m);
}

/* The parts of a memory, one after the other; mem_destroy takes what is. */
static enum ferry_status create(struct ferry_p2p_mem *m,
                                struct ferry_p2p_handle *handle)
{
	struct ferry_mem *mem = &m->wrap.mem;
	struct ferry_world *world = mem->fabric->world;
	struct ferry_fabric *inner = ferry_p2p_of(mem)->wrap.inner;
	uint8_t inner_handle[FERRY_HANDLE_BYTES] = {0};
	const bool team = ferry_p2p_of(mem)->team;

	FERRY_TRY(inner->ops->mem_create(inner, mem->control_bytes, 0,
	                                 &m->wrap.inner, inner_handle));
	memcpy(handle->inner, inner_handle, sizeof(handle->inner));
	mem->control = m->wrap.inner->control;
	FERRY_TRY(ferry_p2p_queue_new(&world->ctx, world->gpu, &m->queue));
	FERRY_TRY(block_new(world, mem->data_bytes,
	                    team ? (uint32_t)world->n_ranks : 1, &m->own));
	mem->data = ferry_gpu_address(m->own->memory);
	handle->block = m->own;
	handle->bytes = ferry_gpu_bytes(m->own->memory);
	if (!team)
		FERRY_TRY(ferry_fd_post_open(&world->ctx, &m->post));
	handle->address = m->post.address;
	return FERRY_OK;
}

static enum ferry_status mem_create(struct ferry_fabric *fabric,
                                    size_t control_bytes, size_t data_bytes,
                                    struct ferry_mem **mem,
                                    uint8_t handle[FERRY_HANDLE_BYTES])
{
	struct ferry_world *world = fabric->world;
	struct ferry_p2p_mem *m = calloc(1, sizeof(*m));
	struct ferry_p2p_handle own;
	enum ferry_status status;

	if (m)
		m->blocks = calloc((size_t)world->n_ranks,
		                   sizeof(struct ferry_p2p_block *));
	if (!m || !m->blocks) {
		free(m);
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "p2p: addresses of %d peers", world->n_ranks);
	}
	memset(&own, 0, sizeof(own));
	ferry_mem_init(&m->wrap.mem, fabric, control_bytes, data_bytes);
	m->post.socket = -1;
	status = create(m, &own);
	if (status != FERRY_OK) {
		mem_destroy(&m->wrap.mem);
		return status;
	}
	memcpy(handle, &own, sizeof(own));
	*mem = &m->wrap.mem;
	return FERRY_OK;
}

static void mem_seal(struct ferry_mem *mem)
{
	ferry_fd_post_close(&((struct ferry_p2p_mem *)mem)->post);
	ferry_wrap_mem_seal(mem);
}

static uint32_t caps(const struct ferry_mem *mem, int32_t peer)
{
	return ferry_p2p_of(mem)->caps[peer];
}

static void *data(const struct ferry_mem *mem, int32_t peer)
{
	const struct ferry_p2p_mem *m = (const struct ferry_p2p_mem *)mem;

	if (!ferry_p2p_is_near(mem, peer))
		return NULL;
	return ferry_gpu_address(m->blocks[peer]->memory);
}

/* Memory of a GPU that no store reaches: kernels have their own way. */
static enum ferry_status refuse_put(const struct ferry_mem *mem, int32_t peer)
{
	return ferry_fail(&mem->fabric->world->ctx, FERRY_UNSUPPORTED,
	                  "%s: memory of a GPU is put to ranks of the own host "
	                  "only, rank %d is on another one; channels reach it",
	                  mem->ops->name, peer);
}

/* To another host: what goes to control, and signals. */
static enum ferry_status put_net(struct ferry_mem *mem, int32_t peer,
                                 size_t offset, const void *source,
                                 size_t bytes, uint32_t signal)
{
	struct ferry_mem *inner = ferry_wrap_inner(mem);

	if (offset >= mem->control_bytes && bytes > 0)
		return refuse_put(mem, peer);
	return inner->ops->put(inner, peer, bytes ? offset : 0, source, bytes,
	                       signal);
}

static enum ferry_status put(struct ferry_mem *mem, int32_t peer, size_t offset,
                             const void *source, size_t bytes, uint32_t signal)
{
	struct ferry_p2p_mem *m = (struct ferry_p2p_mem *)mem;
	struct ferry_world *world = mem->fabric->world;

	if (!ferry_p2p_is_near(mem, peer))
		return put_net(mem, peer, offset, source, bytes, signal);
	if (offset < mem->control_bytes ||
	    (bytes == 0 && ferry_p2p_queue_empty(m->queue)))
		return ferry_fabric_put_ldst(m->wrap.inner, peer, offset,
		                             source, bytes, signal);
	const struct ferry_p2p_put request = {
		.to = (unsigned char *)data(mem, peer) + offset -
	              mem->control_bytes,
		.from = source,
		.bytes = bytes,
		.control = ferry_wrap_control(mem, peer),
		.counter = signal,
	};

	return ferry_p2p_queue_put(&world->ctx, m->queue, &request,
	                           mem->counters_offset,
	                           ferry_deadline_ns(world->timeout_ms));
}

static bool flushed(struct ferry_mem *mem)
{
	return ferry_p2p_queue_empty(((struct ferry_p2p_mem *)mem)->queue);
}

static bool flushed_net(struct ferry_mem *mem)
{
	return flushed(mem) && ferry_wrap_flushed(mem);
}

const struct ferry_fabric_ops ferry_fabric_p2p = {
	.size = sizeof(struct ferry_fabric_ops),
	.name = "p2p",
	.summary = "ranks have GPUs that reach each other's memory",
	.device = FERRY_DEVICE_CUDA,
	.probe = probe,
	.open = open_p2p,
	.close = close_p2p,
	.mem_create = mem_create,
	.mem_attach = ferry_p2p_attach,
	.mem_seal = mem_seal,
	.mem_destroy = mem_destroy,
	.caps = caps,
	.control = ferry_wrap_control,
	.data = data,
	.max_put = ferry_fabric_max_put_unbounded,
	.put = put,
	.kick = ferry_fabric_kick_nothing,
	.flushed = flushed,
	.progress = ferry_fabric_progress_none,
	.dead = ferry_wrap_dead,
	.cut = ferry_wrap_cut,
};

#define NET_SLOTS                                                              \
	.size = sizeof(struct ferry_fabric_ops), .device = FERRY_DEVICE_CUDA,  \
	.close = close_p2p, .mem_create = mem_create,                          \
	.mem_attach = ferry_p2p_attach, .mem_seal = mem_seal,                  \
	.mem_destroy = mem_destroy, .caps = caps,                              \
	.control = ferry_wrap_control, .data = data,                           \
	.max_put = ferry_fabric_max_put_unbounded, .put = put,                 \
	.kick = ferry_wrap_kick, .flushed = flushed_net,                       \
	.progress = ferry_fabric_progress_none, .dead = ferry_wrap_dead,       \
	.cut = ferry_wrap_cut

const struct ferry_fabric_ops ferry_fabric_p2p_wire = {
	NET_SLOTS,
	.name = "p2p+wire",
	.summary = "for tests: GPUs of several hosts, wire between them",
	.probe = probe_wire,
	.open = open_p2p_wire,
};

const struct ferry_fabric_ops ferry_fabric_p2p_ofi = {
	NET_SLOTS,
	.name = "p2p+ofi",
	.summary = "GPUs of several hosts, libfabric between them",
	.probe = probe_ofi,
	.open = open_p2p_ofi,
};
