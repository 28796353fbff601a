/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric shm: ranks are processes of one host, a peer's memory is a mapping.
 * The kernel counts the mappings, so that neither a close nor a crash takes
 * memory away from somebody who still writes to it. Under a network it maps
 * only some of the peers.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "place.h"
#include "registry.h"
#include "segment.h"
#include "shm_file.h"

enum { SCORE = 50 };

struct shm_fabric {
	struct ferry_fabric fabric;
	enum ferry_reach reach;
	bool file;   /* named files instead of memfd */
	int *pidfds; /* [n_ranks], -1: none */
};

/* What is mapped of a rank. */
struct mapping {
	void *base; /* NULL: nothing */
	size_t bytes;
};

struct shm_mem {
	struct ferry_mem mem;
	struct ferry_shm_handle own;
	int fd;               /* -1: closed */
	struct mapping *maps; /* [n_ranks] */
};

_Static_assert(sizeof(struct ferry_shm_handle) <= FERRY_HANDLE_BYTES,
               "a handle must hold how to find a memory");

static size_t bytes_of(const struct ferry_mem *mem)
{
	return mem->control_bytes + mem->data_bytes;
}

static int probe_machine(char reason[FERRY_REASON_BYTES])
{
	const int fd = memfd_create("ferry", MFD_CLOEXEC);

	if (fd >= 0)
		close(fd);
	snprintf(reason, FERRY_REASON_BYTES, "%s",
	         fd >= 0 ? "for ranks that are processes of one host; memfd"
	                 : "for ranks that are processes of one host; files in "
	                   "/dev/shm");
	return SCORE;
}

static int probe(const struct ferry_world *world,
                 char reason[FERRY_REASON_BYTES])
{
	if (!world)
		return probe_machine(reason);
	if (world->n_nodes > 1) {
		ferry_place_say_hosts(world, reason, FERRY_REASON_BYTES);
		return 0;
	}
	snprintf(reason, FERRY_REASON_BYTES, "all ranks are on one host");
	return SCORE;
}

static bool same_proc(const struct ferry_world *world, int32_t peer)
{
	const uint64_t ns = world->places[world->rank].pid_ns;

	return ns && world->places[peer].pid_ns == ns;
}

static bool reaches(const struct shm_fabric *f, int32_t peer)
{
	const struct ferry_world *world = f->fabric.world;
	const struct ferry_place *own = &world->places[world->rank];

	switch (f->reach) {
	case FERRY_REACH_SELF:
		return peer == world->rank;
	case FERRY_REACH_HOST:
		return ferry_place_same_host(&world->places[peer], own);
	default:
		return ferry_place_same_machine(&world->places[peer], own);
	}
}

/* /proc/PID only means the same process within one pid namespace. */
static bool proc_is_shared(const struct shm_fabric *f)
{
	for (int32_t r = 0; r < f->fabric.world->n_ranks; r++)
		if (reaches(f, r) && !same_proc(f->fabric.world, r))
			return false;
	return true;
}

static bool wants_file(const struct shm_fabric *f)
{
	const char *shm = f->fabric.world->ctx.opt.shm;

	if (!strcmp(shm, "auto"))
		return !proc_is_shared(f);
	return !strcmp(shm, "file");
}

/*
 * A descriptor that tells of the peer's death. The pid is the peer's own one:
 * he answers after this, before the world is open.
 */
static enum ferry_status watch(struct shm_fabric *f, int32_t peer)
{
	struct ferry_world *world = f->fabric.world;
	const struct ferry_place *place = &world->places[peer];

	const struct ferry_place *own = &world->places[world->rank];

	f->pidfds[peer] = -1;
	if ((!reaches(f, peer) && !ferry_place_same_host(place, own)) ||
	    !same_proc(world, peer) || ferry_place_same_process(place, own))
		return FERRY_OK;
	f->pidfds[peer] = (int)syscall(SYS_pidfd_open, place->pid, 0);
	if (f->pidfds[peer] < 0 && errno == ESRCH)
		return ferry_fail(&world->ctx, FERRY_PEER,
		                  "shm: rank %d has died: no process %d", peer,
		                  place->pid);
	return FERRY_OK; /* without one, boot notices deaths */
}

static void close_shm(struct ferry_fabric *fabric)
{
	struct shm_fabric *f = (struct shm_fabric *)fabric;

	for (int32_t r = 0; f->pidfds && r < fabric->world->n_ranks; r++)
		/* NOLINTNEXTLINE(clang-analyzer-core.*): open has set all */
		if (f->pidfds[r] >= 0)
			close(f->pidfds[r]);
	free(f->pidfds);
	free(f);
}

enum ferry_status ferry_fabric_shm_open(struct ferry_world *world,
                                        enum ferry_reach reach,
                                        struct ferry_fabric **fabric)
{
	struct shm_fabric *f = calloc(1, sizeof(*f));
	enum ferry_status status = FERRY_OK;

	if (f)
		f->pidfds = calloc((size_t)world->n_ranks, sizeof(int));
	if (!f || !f->pidfds) {
		free(f);
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "shm: state of %d peers", world->n_ranks);
	}
	f->fabric.ops = &ferry_fabric_shm;
	f->fabric.world = world;
	f->reach = reach;
	f->file = wants_file(f);
	for (int32_t r = 0; r < world->n_ranks; r++)
		f->pidfds[r] = -1;
	for (int32_t r = 0; status == FERRY_OK && r < world->n_ranks; r++)
		status = watch(f, r);
	if (status != FERRY_OK) {
		close_shm(&f->fabric);
		return status;
	}
	*fabric = &f->fabric;
	return FERRY_OK;
}

static enum ferry_status open_shm(struct ferry_world *world,
                                  struct ferry_fabric **fabric)
{
	return ferry_fabric_shm_open(world, FERRY_REACH_HOST, fabric);
}

static void mem_seal(struct ferry_mem *mem)
{
	struct shm_mem *m = (struct shm_mem *)mem;

	if (m->fd < 0)
		return;
	ferry_shm_unlink(&m->own);
	close(m->fd);
	m->fd = -1;
}

static void mem_destroy(struct ferry_mem *mem)
{
	struct shm_mem *m = (struct shm_mem *)mem;

	mem_seal(mem);
	for (int32_t r = 0; r < mem->fabric->world->n_ranks; r++)
		if (m->maps[r].base)
			munmap(m->maps[r].base, m->maps[r].bytes);
	free(m->maps);
	free(m);
}

static enum ferry_status mem_create(struct ferry_fabric *fabric,
                                    size_t control_bytes, size_t data_bytes,
                                    struct ferry_mem **mem,
                                    uint8_t handle[FERRY_HANDLE_BYTES])
{
	struct ferry_world *world = fabric->world;
	struct shm_mem *m = calloc(1, sizeof(*m));
	enum ferry_status status;

	if (m)
		m->maps = calloc((size_t)world->n_ranks, sizeof(*m->maps));
	if (!m || !m->maps) {
		free(m);
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "shm: addresses of %d peers", world->n_ranks);
	}
	ferry_mem_init(&m->mem, fabric, control_bytes, data_bytes);
	struct mapping *own = &m->maps[world->rank];

	own->bytes = bytes_of(&m->mem);
	status = ferry_shm_make(&world->ctx, own->bytes,
	                        ((struct shm_fabric *)fabric)->file, &m->own,
	                        &m->fd, &own->base);
	if (status != FERRY_OK) {
		free(m->maps);
		free(m);
		return status;
	}
	m->mem.control = own->base;
	m->mem.data = (unsigned char *)m->mem.control + control_bytes;
	((struct ferry_segment_ctl *)m->mem.control)->shared = 1;
	memcpy(handle, &m->own, sizeof(m->own));
	*mem = &m->mem;
	return FERRY_OK;
}

/*
 * Can a peer's memory have that size? In a world of GPUs data may lie elsewhere
 * on one rank, and here on another (ofi_memory.c): nobody else uses them.
 */
static bool may_be(const struct ferry_mem *mem, uint64_t bytes)
{
	return mem->fabric->world->gpu ? bytes >= mem->control_bytes
	                               : bytes == bytes_of(mem);
}

static enum ferry_status mem_attach(struct ferry_mem *mem,
                                    const uint8_t *handles)
{
	const struct shm_fabric *f = (const struct shm_fabric *)mem->fabric;
	struct shm_mem *m = (struct shm_mem *)mem;
	struct ferry_world *world = mem->fabric->world;
	struct ferry_shm_handle handle;

	for (int32_t r = 0; r < world->n_ranks; r++) {
		if (r == world->rank || !reaches(f, r))
			continue;
		memcpy(&handle, handles + (size_t)r * FERRY_HANDLE_BYTES,
		       sizeof(handle));
		if (!may_be(mem, handle.bytes))
			return ferry_fail(&world->ctx, FERRY_PROTO,
			                  "shm: rank %d has %llu bytes, not "
			                  "%zu",
			                  r, (unsigned long long)handle.bytes,
			                  bytes_of(mem));
		m->maps[r].bytes = handle.bytes;
		FERRY_TRY(ferry_shm_find(&world->ctx, r, &handle,
		                         &m->maps[r].base));
	}
	return FERRY_OK;
}

static uint32_t caps(const struct ferry_mem *mem, int32_t peer)
{
	if (!((const struct shm_mem *)mem)->maps[peer].base)
		return 0;
	return ferry_fabric_caps_ldst(mem, peer);
}

static void *control(const struct ferry_mem *mem, int32_t peer)
{
	return ((const struct shm_mem *)mem)->maps[peer].base;
}

static bool dead(struct ferry_fabric *fabric, int32_t peer)
{
	const struct shm_fabric *f = (const struct shm_fabric *)fabric;
	struct ferry_boot *boot = fabric->world->boot;
	struct pollfd pollfd = {.fd = f->pidfds[peer], .events = POLLIN};

	if (boot->ops->dead(boot, peer))
		return true;
	return pollfd.fd >= 0 && poll(&pollfd, 1, 0) == 1;
}

const struct ferry_fabric_ops ferry_fabric_shm = {
	.size = sizeof(struct ferry_fabric_ops),
	.name = "shm",
	.summary = "ranks are processes of one host, shared memory",
	.probe = probe,
	.open = open_shm,
	.close = close_shm,
	.mem_create = mem_create,
	.mem_attach = mem_attach,
	.mem_seal = mem_seal,
	.mem_destroy = mem_destroy,
	.caps = caps,
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
