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
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../boot/team.h"
#include "../core/clock.h"
#include "fd_post.h"
#include "p2p_queue.h"
#include "place.h"
#include "registry.h"
#include "shm_file.h"
#include "wrap.h"

enum {
	SCORE = 200,
	INNER_BYTES = 128, /* of a handle of the inner fabric */
	END_MS = 2000,     /* most time for copies at close */
};

_Static_assert(sizeof(struct ferry_shm_handle) <= INNER_BYTES,
               "a handle holds the inner one");

struct p2p_fabric {
	struct ferry_wrap wrap; /* inner: control */
	bool team;              /* ranks are threads of one team, or one */
	uint32_t *caps;         /* [n_ranks] */
};

/* Memory of a GPU, mapped once for all who refer to it. */
struct block {
	struct ferry_gpu_memory *memory;
	uint32_t n_refs;
};

struct handle {
	uint8_t inner[INNER_BYTES];
	uint64_t bytes;      /* of the GPU memory */
	struct block *block; /* team */
	struct ferry_fd_address address;
};

_Static_assert(sizeof(struct handle) <= FERRY_HANDLE_BYTES,
               "a handle must hold how to find a memory");

struct p2p_mem {
	struct ferry_wrap_mem wrap; /* inner: control */
	struct block *own;
	bool attached;
	struct block **blocks; /* [n_ranks], NULL: not mapped */
	struct ferry_fd_post post;
	struct ferry_p2p_queue *queue;
};

static struct p2p_fabric *p2p(const struct ferry_mem *mem)
{
	return (struct p2p_fabric *)mem->fabric;
}

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
		snprintf(reason, FERRY_REASON_BYTES, "ranks are on %d hosts",
		         world->n_nodes);
		return 0;
	}
	snprintf(reason, FERRY_REASON_BYTES, "all ranks have GPUs of one host");
	return SCORE;
}

/* What the own GPU can do to the memory of a peer. */
static enum ferry_status reach(struct p2p_fabric *f, int32_t peer)
{
	struct ferry_world *world = f->wrap.fabric.world;
	char reason[FERRY_GPU_REASON_BYTES];

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
	struct p2p_fabric *f = (struct p2p_fabric *)fabric;

	if (f->wrap.inner)
		f->wrap.inner->ops->close(f->wrap.inner);
	free(f->caps);
	free(f);
}

static enum ferry_status open_p2p(struct ferry_world *world,
                                  struct ferry_fabric **fabric)
{
	struct p2p_fabric *f = calloc(1, sizeof(*f));
	const struct ferry_fabric_ops *inner;
	enum ferry_status status;

	if (f)
		f->caps = calloc((size_t)world->n_ranks, sizeof(*f->caps));
	if (!f || !f->caps) {
		free(f);
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "p2p: state of %d peers", world->n_ranks);
	}
	f->wrap.fabric.ops = &ferry_fabric_p2p;
	f->wrap.fabric.world = world;
	f->team = is_team(world);
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

static enum ferry_status block_new(struct ferry_world *world, size_t bytes,
                                   uint32_t n_refs, struct block **block)
{
	struct block *b = calloc(1, sizeof(*b));
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

static void block_drop(struct ferry_world *world, struct block *block,
                       uint32_t n)
{
	if (!block || sub_seq_u32(&block->n_refs, n) != n)
		return;
	ferry_gpu_free(world->gpu, block->memory);
	free(block);
}

/* The blocks that this rank refers to: all of a team, even if not mapped. */
static void drop_all(struct p2p_mem *m)
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
	struct p2p_mem *m = (struct p2p_mem *)mem;
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
static enum ferry_status create(struct p2p_mem *m, struct handle *handle)
{
	struct ferry_mem *mem = &m->wrap.mem;
	struct ferry_world *world = mem->fabric->world;
	struct ferry_fabric *inner = p2p(mem)->wrap.inner;
	uint8_t inner_handle[FERRY_HANDLE_BYTES] = {0};
	const bool team = p2p(mem)->team;

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
	struct p2p_mem *m = calloc(1, sizeof(*m));
	struct handle own;
	enum ferry_status status;

	if (m)
		m->blocks =
			calloc((size_t)world->n_ranks, sizeof(struct block *));
	if (!m || !m->blocks) {
		free(m);
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "p2p: addresses of %d peers", world->n_ranks);
	}
	memset(&own, 0, sizeof(own));
	m->wrap.mem.ops = &ferry_fabric_p2p;
	m->wrap.mem.fabric = fabric;
	m->wrap.mem.control_bytes = control_bytes;
	m->wrap.mem.data_bytes = data_bytes;
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

static void read_handle(const uint8_t *handles, int32_t r,
                        struct handle *handle)
{
	memcpy(handle, handles + (size_t)r * FERRY_HANDLE_BYTES,
	       sizeof(*handle));
}

static enum ferry_status attach_inner(struct p2p_mem *m, const uint8_t *handles)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	const size_t n = (size_t)world->n_ranks;
	uint8_t *inner = calloc(n, FERRY_HANDLE_BYTES);
	enum ferry_status status;

	if (!inner)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "p2p: handles of %zu peers", n);
	for (size_t r = 0; r < n; r++)
		memcpy(inner + r * FERRY_HANDLE_BYTES,
		       handles + r * FERRY_HANDLE_BYTES, INNER_BYTES);
	status = ferry_wrap_mem_attach(&m->wrap.mem, inner);
	free(inner);
	return status;
}

/* From here on mem_destroy gives up one reference to each. */
static void learn_blocks(struct p2p_mem *m, const uint8_t *handles)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	struct handle handle;

	m->blocks[world->rank] = m->own;
	for (int32_t r = 0; p2p(&m->wrap.mem)->team && r < world->n_ranks;
	     r++) {
		read_handle(handles, r, &handle);
		m->blocks[r] = handle.block;
	}
	m->attached = true;
}

/* The first rank of its GPU: access is for all who share it, and given once. */
static bool is_first_of_gpu(const struct ferry_world *world)
{
	int32_t r = 0;

	while (!ferry_place_same_gpu(&world->places[r],
	                             &world->places[world->rank]))
		r++;
	return r == world->rank;
}

/* Threads: the blocks are there, and this GPU gets access to each. */
static enum ferry_status attach_team(struct p2p_mem *m)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;

	if (!is_first_of_gpu(world))
		return FERRY_OK;
	for (int32_t r = 0; r < world->n_ranks; r++)
		if (!ferry_place_same_gpu(&world->places[r],
		                          &world->places[world->rank]))
			FERRY_TRY(ferry_gpu_share(&world->ctx, world->gpu, r,
			                          m->blocks[r]->memory));
	return FERRY_OK;
}

/* Leaves a descriptor of the own memory with every peer. */
static enum ferry_status send_all(struct p2p_mem *m, const uint8_t *handles,
                                  uint64_t deadline)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	enum ferry_status status;
	struct handle handle;
	int fd;

	FERRY_TRY(
		ferry_gpu_export(&world->ctx, world->gpu, m->own->memory, &fd));
	status = FERRY_OK;
	for (int32_t r = 0; status == FERRY_OK && r < world->n_ranks; r++) {
		if (r == world->rank)
			continue;
		read_handle(handles, r, &handle);
		status = ferry_fd_post_send(&world->ctx, &handle.address,
		                            world->rank, r, fd, deadline);
	}
	close(fd);
	return status;
}

static enum ferry_status import(struct p2p_mem *m, int32_t r, int fd,
                                const uint8_t *handles)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	struct handle handle;
	struct block *block = calloc(1, sizeof(*block));
	enum ferry_status status;

	if (!block)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "p2p: record of a memory");
	read_handle(handles, r, &handle);
	if (handle.bytes < m->wrap.mem.data_bytes)
		status = ferry_fail(&world->ctx, FERRY_PROTO,
		                    "p2p: rank %d has %llu bytes, not %zu", r,
		                    (unsigned long long)handle.bytes,
		                    m->wrap.mem.data_bytes);
	else
		status = ferry_gpu_import(&world->ctx, world->gpu, r, fd,
		                          handle.bytes, &block->memory);
	if (status != FERRY_OK) {
		free(block);
		return status;
	}
	block->n_refs = 1;
	m->blocks[r] = block;
	return FERRY_OK;
}

static enum ferry_status import_all(struct p2p_mem *m, const uint8_t *handles,
                                    int *fds)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	enum ferry_status status = FERRY_OK;

	FERRY_TRY(ferry_fd_post_receive(&world->ctx, &m->post, world->rank,
	                                world->n_ranks, fds));
	for (int32_t r = 0; r < world->n_ranks; r++) {
		if (r == world->rank)
			continue;
		if (status == FERRY_OK)
			status = import(m, r, fds[r], handles);
		close(fds[r]);
	}
	return status;
}

/*
 * Processes: all leave their descriptors with all, agree that it is done, and
 * take what was left. So nobody waits for one who could not send.
 */
static enum ferry_status attach_processes(struct p2p_mem *m,
                                          const uint8_t *handles)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	const uint64_t deadline = ferry_deadline_ns(world->open_timeout_ms);
	int *fds = calloc((size_t)world->n_ranks, sizeof(*fds));
	enum ferry_status status;

	if (fds)
		status = send_all(m, handles, deadline);
	else
		status = ferry_fail(&world->ctx, FERRY_NOMEM,
		                    "p2p: descriptors of %d peers",
		                    world->n_ranks);
	status = ferry_agree(world->boot, status, NULL, NULL, 0, deadline);
	if (status == FERRY_OK)
		status = import_all(m, handles, fds);
	free(fds);
	return status;
}

static enum ferry_status mem_attach(struct ferry_mem *mem,
                                    const uint8_t *handles)
{
	struct p2p_mem *m = (struct p2p_mem *)mem;

	learn_blocks(m, handles);
	FERRY_TRY(attach_inner(m, handles));
	return p2p(mem)->team ? attach_team(m) : attach_processes(m, handles);
}

static void mem_seal(struct ferry_mem *mem)
{
	ferry_fd_post_close(&((struct p2p_mem *)mem)->post);
	ferry_wrap_mem_seal(mem);
}

static uint32_t caps(const struct ferry_mem *mem, int32_t peer)
{
	return p2p(mem)->caps[peer];
}

static void *data(const struct ferry_mem *mem, int32_t peer)
{
	const struct p2p_mem *m = (const struct p2p_mem *)mem;

	return ferry_gpu_address(m->blocks[peer]->memory);
}

static enum ferry_status put(struct ferry_mem *mem, int32_t peer, size_t offset,
                             const void *source, size_t bytes, uint32_t signal)
{
	struct p2p_mem *m = (struct p2p_mem *)mem;
	struct ferry_world *world = mem->fabric->world;

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
	return ferry_p2p_queue_empty(((struct p2p_mem *)mem)->queue);
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
	.mem_attach = mem_attach,
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
};
