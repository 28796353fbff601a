/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric nvshmem: GPUs of any number of hosts, reached by whatever transport
 * NVSHMEM has. Each rank is a process and a PE.
 *
 * Control is host memory and belongs to an inner fabric for CPUs, the best one
 * for these ranks, so that waits, verdicts and deaths are its. Data lies on the
 * symmetric heap. Kernels store to peers whose memory NVSHMEM maps, unless
 * NVSHMEM_DIRECT is off, and put to the others; that is in the module, too. A
 * put of the host is NVSHMEM's put on a stream of the module, and a signal of
 * the inner fabric behind it.
 *
 * NVSHMEM's opening, closing and allocations wait for all ranks without a
 * bound. So all ranks say first, through boot and with a bound, that they will
 * come. After a failure nothing is freed and NVSHMEM is not closed: it stays,
 * and with it what it has of the GPU, to the end of the process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/clock.h"
#include "nvshmem_inner.h"
#include "nvshmem_load.h"
#include "place.h"
#include "registry.h"

enum {
	END_MS = 2000, /* most time for puts at close */
	NAP_US = 50,
};

struct nvshmem_mem {
	struct ferry_wrap_mem wrap; /* inner: control */
	int32_t block;              /* -1: none */
	void **peers;               /* [n_ranks] to store to, NULL: put */
	uint32_t n_under_way;       /* puts */
};

/* A put under way. */
struct flight {
	struct nvshmem_mem *mem;
	int32_t peer;
	uint32_t counter;
};

/* What ranks compare before NVSHMEM is opened. */
struct hello {
	uint8_t id[FERRY_NVSHMEM_ID_BYTES]; /* of rank 0 */
	struct ferry_nvshmem_version version;
	int32_t direct;
};

static struct ferry_nvshmem_fabric *fabric_of(const struct ferry_mem *mem)
{
	return (struct ferry_nvshmem_fabric *)mem->fabric;
}

static int probe_machine(char reason[FERRY_REASON_BYTES])
{
	struct ferry_options opt;

	if (!ferry_gpu_sighted(reason))
		return 0;
	if (ferry_options_read(NULL, NULL, &opt) != FERRY_OK) {
		snprintf(reason, FERRY_REASON_BYTES, "%s", ferry_last_error());
		return 0;
	}
	return ferry_nvshmem_load(&opt, reason) ? FERRY_SCORE_BY_NAME : 0;
}

static int probe(const struct ferry_world *world,
                 char reason[FERRY_REASON_BYTES])
{
	if (!world)
		return probe_machine(reason);
	for (int32_t a = 0; a < world->n_ranks; a++)
		for (int32_t b = 0; b < a; b++) {
			if (!ferry_place_same_process(&world->places[a],
			                              &world->places[b]))
				continue;
			snprintf(reason, FERRY_REASON_BYTES,
			         "ranks must be processes, and ranks %d and "
			         "%d are threads of one",
			         b, a);
			return 0;
		}
	snprintf(reason, FERRY_REASON_BYTES, "where its module is");
	return FERRY_SCORE_BY_NAME;
}

/* The best fabric that brings control to all ranks. */
static enum ferry_status open_inner(struct ferry_world *world,
                                    struct ferry_fabric **inner)
{
	const struct ferry_fabric_ops *best = NULL;
	char reason[FERRY_REASON_BYTES];
	int score = 0;

	for (int i = 0; ferry_fabrics[i]; i++) {
		const struct ferry_fabric_ops *ops = ferry_fabrics[i];
		const int s = ops->device == FERRY_DEVICE_CPU
		                      ? ops->probe(world, reason)
		                      : 0;

		if (s > score) {
			score = s;
			best = ops;
		}
	}
	if (best)
		return best->open(world, inner);
	return ferry_fail(&world->ctx, FERRY_UNSUPPORTED,
	                  "nvshmem: no fabric for control reaches all ranks");
}

/* What a rank does before it meets the others. */
static enum ferry_status prepare(struct ferry_nvshmem_fabric *f,
                                 struct hello *own)
{
	struct ferry_world *world = f->wrap.fabric.world;
	char why[FERRY_NVSHMEM_WHY_BYTES];

	f->module = ferry_nvshmem_load(&world->ctx.opt, why);
	if (!f->module)
		return ferry_fail(&world->ctx, FERRY_UNSUPPORTED, "nvshmem: %s",
		                  why);
	if (f->module->in_use())
		return ferry_fail(&world->ctx, FERRY_UNSUPPORTED,
		                  "nvshmem: NVSHMEM is already open in this "
		                  "process: a world of it is open, one has "
		                  "failed, or the program uses it itself");
	FERRY_TRY(open_inner(world, &f->wrap.inner));
	if (world->rank == 0 && f->module->unique_id(own->id, why))
		return ferry_fail(&world->ctx, FERRY_FABRIC,
		                  "nvshmem: a unique id: %s", why);
	own->version = f->module->version();
	own->direct = f->direct;
	return FERRY_OK;
}

static enum ferry_status compare(struct ferry_world *world,
                                 const struct hello *all)
{
	for (int32_t r = 1; r < world->n_ranks; r++) {
		const struct ferry_nvshmem_version *a = &all[0].version;
		const struct ferry_nvshmem_version *b = &all[r].version;

		if (a->major != b->major || a->minor != b->minor ||
		    a->patch != b->patch)
			return ferry_fail(&world->ctx, FERRY_MISMATCH,
			                  "nvshmem: rank %d has NVSHMEM "
			                  "%d.%d.%d, rank 0 has %d.%d.%d",
			                  r, b->major, b->minor, b->patch,
			                  a->major, a->minor, a->patch);
		if (all[r].direct != all[0].direct)
			return ferry_fail(&world->ctx, FERRY_MISMATCH,
			                  "nvshmem: NVSHMEM_DIRECT is %s on "
			                  "rank %d and %s on rank 0",
			                  all[r].direct ? "auto" : "off", r,
			                  all[0].direct ? "auto" : "off");
	}
	return FERRY_OK;
}

/* All are here, alive, and have the same NVSHMEM. */
static enum ferry_status open_pe(struct ferry_nvshmem_fabric *f,
                                 const struct hello *all)
{
	struct ferry_world *world = f->wrap.fabric.world;
	char why[FERRY_NVSHMEM_WHY_BYTES];
	struct ferry_nvshmem_pe pe = {
		.device = world->cuda_device,
		.rank = world->rank,
		.n_ranks = world->n_ranks,
	};

	FERRY_TRY(compare(world, all));
	memcpy(pe.id, all[0].id, sizeof(pe.id));
	if (f->module->open(&pe, &f->pe, why))
		return ferry_fail(&world->ctx, FERRY_FABRIC, "nvshmem: %s",
		                  why);
	return FERRY_OK;
}

static enum ferry_status open_steps(struct ferry_nvshmem_fabric *f)
{
	struct ferry_world *world = f->wrap.fabric.world;
	struct hello *all = calloc((size_t)world->n_ranks, sizeof(*all));
	struct hello own;
	enum ferry_status status;

	memset(&own, 0, sizeof(own));
	if (all)
		status = prepare(f, &own);
	else
		status = ferry_fail(&world->ctx, FERRY_NOMEM,
		                    "nvshmem: records of %d ranks",
		                    world->n_ranks);
	status = ferry_agree(world->boot, status, &own, all, sizeof(own),
	                     ferry_deadline_ns(world->open_timeout_ms));
	if (status == FERRY_OK)
		status = open_pe(f, all);
	free(all);
	return status;
}

/* May this rank take part in a collective end? */
static enum ferry_status is_well(const struct ferry_nvshmem_fabric *f)
{
	struct ferry_world *world = f->wrap.fabric.world;

	if (f->lost || load_seq_u32(&world->aborted) ||
	    world->error.status != FERRY_OK)
		return ferry_fail(&world->ctx, FERRY_ABORTED,
		                  "nvshmem: the world has failed");
	return FERRY_OK;
}

/* Waits for the others, at most open_timeout_ms: the end is collective. */
static void close_pe(struct ferry_nvshmem_fabric *f)
{
	struct ferry_world *world = f->wrap.fabric.world;
	const enum ferry_status status =
		ferry_agree(world->boot, is_well(f), NULL, NULL, 0,
	                    ferry_deadline_ns(world->open_timeout_ms));

	if (status == FERRY_OK) {
		f->module->close(f->pe);
		return;
	}
	ferry_log(&world->ctx, FERRY_LOG_WARN,
	          "nvshmem: it stays open to the end of the process, with its "
	          "heap: %s",
	          ferry_last_error());
	f->module->leave(f->pe);
}

static void close_nvshmem(struct ferry_fabric *fabric)
{
	struct ferry_nvshmem_fabric *f = (struct ferry_nvshmem_fabric *)fabric;

	if (f->pe)
		close_pe(f);
	if (f->wrap.inner)
		f->wrap.inner->ops->close(f->wrap.inner);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static enum ferry_status open_nvshmem(struct ferry_world *world,
                                      struct ferry_fabric **fabric)
{
	struct ferry_nvshmem_fabric *f = calloc(1, sizeof(*f));
	enum ferry_status status;

	if (!f)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "nvshmem: state of %zu bytes", sizeof(*f));
	f->wrap.fabric.ops = &ferry_fabric_nvshmem;
	f->wrap.fabric.world = world;
	f->direct = strcmp(world->ctx.opt.nvshmem_direct, "off") != 0;
	pthread_mutex_init(&f->lock, NULL);
	status = open_steps(f);
	if (status != FERRY_OK) {
		close_nvshmem(&f->wrap.fabric);
		return status;
	}
	*fabric = &f->wrap.fabric;
	return FERRY_OK;
}

/* False: puts are still under way. */
static bool wait_for_puts(const struct nvshmem_mem *m)
{
	const struct ferry_world *world = m->wrap.mem.fabric->world;
	const uint64_t deadline = ferry_deadline_ns(END_MS);

	while (load_seq_u32(&m->n_under_way)) {
		if (ferry_gpu_failed(world->gpu))
			return true; /* nothing arrives any more */
		if (ferry_now_ns() >= deadline)
			return false;
		usleep(NAP_US);
	}
	return true;
}

static void mem_free(struct nvshmem_mem *m)
{
	struct ferry_mem *inner = m->wrap.inner;

	if (m->block >= 0)
		ferry_nvshmem_give(fabric_of(&m->wrap.mem), m->block);
	if (inner)
		inner->ops->mem_destroy(inner);
	free(m->peers);
	free(m);
}

static void mem_destroy(struct ferry_mem *mem)
{
	struct nvshmem_mem *m = (struct nvshmem_mem *)mem;

	if (!wait_for_puts(m)) {
		ferry_log(&mem->fabric->world->ctx, FERRY_LOG_WARN,
		          "nvshmem: puts do not end; the memory of a segment "
		          "is left to the end of the process");
		fabric_of(mem)->lost = true;
		return;
	}
	mem_free(m);
}

static enum ferry_status create(struct nvshmem_mem *m,
                                uint8_t handle[FERRY_HANDLE_BYTES])
{
	struct ferry_mem *mem = &m->wrap.mem;
	struct ferry_nvshmem_fabric *f = fabric_of(mem);
	struct ferry_world *world = mem->fabric->world;
	struct ferry_fabric *inner = f->wrap.inner;

	m->peers = calloc((size_t)world->n_ranks, sizeof(*m->peers));
	if (!m->peers)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "nvshmem: addresses of %d peers",
		                  world->n_ranks);
	return inner->ops->mem_create(inner, mem->control_bytes, 0,
	                              &m->wrap.inner, handle);
}

static enum ferry_status mem_create(struct ferry_fabric *fabric,
                                    size_t control_bytes, size_t data_bytes,
                                    struct ferry_mem **mem,
                                    uint8_t handle[FERRY_HANDLE_BYTES])
{
	struct ferry_nvshmem_fabric *f = (struct ferry_nvshmem_fabric *)fabric;
	struct nvshmem_mem *m = calloc(1, sizeof(*m));
	enum ferry_status status;
	int32_t block = -1;

	if (m) {
		ferry_mem_init(&m->wrap.mem, fabric, control_bytes, data_bytes);
		m->block = -1;
		status = create(m, handle);
	} else {
		status = ferry_fail(&fabric->world->ctx, FERRY_NOMEM,
		                    "nvshmem: a record of %zu bytes",
		                    sizeof(*m));
	}
	status = ferry_nvshmem_take(f, status, data_bytes, &block);
	if (status != FERRY_OK) {
		if (m)
			mem_free(m);
		return status;
	}
	m->block = block;
	m->wrap.mem.control = m->wrap.inner->control;
	m->wrap.mem.data = f->blocks[block].memory;
	*mem = &m->wrap.mem;
	return FERRY_OK;
}

static enum ferry_status mem_attach(struct ferry_mem *mem,
                                    const uint8_t *handles)
{
	struct nvshmem_mem *m = (struct nvshmem_mem *)mem;
	struct ferry_nvshmem_fabric *f = fabric_of(mem);
	const struct ferry_world *world = mem->fabric->world;

	FERRY_TRY(ferry_wrap_mem_attach(mem, handles));
	for (int32_t r = 0; f->direct && r < world->n_ranks; r++)
		m->peers[r] = f->module->ptr(f->pe, mem->data, r);
	return FERRY_OK;
}

static bool is_self(const struct ferry_mem *mem, int32_t peer)
{
	return peer == mem->fabric->world->rank;
}

static void *data(const struct ferry_mem *mem, int32_t peer)
{
	const struct nvshmem_mem *m = (const struct nvshmem_mem *)mem;

	return is_self(mem, peer) ? mem->data : m->peers[peer];
}

/* The link to a peer's GPU, where kernels store to it. */
static uint32_t caps(const struct ferry_mem *mem, int32_t peer)
{
	const struct ferry_world *world = mem->fabric->world;
	const struct ferry_place *place = &world->places[peer];
	char reason[FERRY_GPU_REASON_BYTES];
	uint32_t found = FERRY_CAP_ORDERED;

	if (ferry_place_same_host(place, &world->places[world->rank]))
		found |= FERRY_CAP_SAME_HOST;
	if (!data(mem, peer))
		return found;
	return found | FERRY_CAP_DEVICE |
	       (ferry_gpu_reach(world->gpu, place->gpu, reason) &
	        FERRY_CAP_NVLINK);
}

/* The bytes are there: now the counter. A thread of the driver. */
static void arrived(void *arg)
{
	struct flight *flight = arg;
	struct nvshmem_mem *m = flight->mem;
	struct ferry_mem *inner = m->wrap.inner;

	/* What fails here is a wait that ends by its bound. */
	(void)inner->ops->put(inner, flight->peer, 0, NULL, 0, flight->counter);
	(void)inner->ops->kick(inner);
	free(flight);
	sub_seq_u32(&m->n_under_way, 1);
}

static enum ferry_status put_data(struct nvshmem_mem *m, void *to,
                                  const void *source, size_t bytes,
                                  const struct flight *what)
{
	struct ferry_nvshmem_fabric *f = fabric_of(&m->wrap.mem);
	struct ferry_ctx *ctx = &f->wrap.fabric.world->ctx;
	struct flight *flight = malloc(sizeof(*flight));
	char why[FERRY_NVSHMEM_WHY_BYTES];

	if (!flight)
		return ferry_fail(ctx, FERRY_NOMEM, "nvshmem: a put");
	*flight = *what;
	add_seq_u32(&m->n_under_way, 1);
	if (!f->module->put(f->pe, what->peer, to, source, bytes, arrived,
	                    flight, why))
		/* cppcheck-suppress memleak ; arrived frees it */
		return FERRY_OK;
	sub_seq_u32(&m->n_under_way, 1);
	free(flight);
	return ferry_fail(ctx, FERRY_CUDA, "nvshmem: a put of %zu bytes: %s",
	                  bytes, why);
}

static enum ferry_status put(struct ferry_mem *mem, int32_t peer, size_t offset,
                             const void *source, size_t bytes, uint32_t signal)
{
	struct nvshmem_mem *m = (struct nvshmem_mem *)mem;
	const struct flight what = {m, peer, signal};

	if (offset < mem->control_bytes ||
	    (bytes == 0 && !load_seq_u32(&m->n_under_way)))
		return ferry_wrap_put(mem, peer, bytes ? offset : 0, source,
		                      bytes, signal);
	return put_data(
		m, (unsigned char *)mem->data + offset - mem->control_bytes,
		source, bytes, &what);
}

static bool flushed(struct ferry_mem *mem)
{
	const struct nvshmem_mem *m = (const struct nvshmem_mem *)mem;

	return !load_seq_u32(&m->n_under_way) && ferry_wrap_flushed(mem);
}

const struct ferry_fabric_ops ferry_fabric_nvshmem = {
	.size = sizeof(struct ferry_fabric_ops),
	.name = "nvshmem",
	.summary = "ranks have GPUs of any hosts that NVSHMEM reaches",
	.device = FERRY_DEVICE_CUDA,
	.probe = probe,
	.open = open_nvshmem,
	.close = close_nvshmem,
	.mem_create = mem_create,
	.mem_attach = mem_attach,
	.mem_seal = ferry_wrap_mem_seal,
	.mem_destroy = mem_destroy,
	.caps = caps,
	.control = ferry_wrap_control,
	.data = data,
	.max_put = ferry_fabric_max_put_unbounded,
	.put = put,
	.kick = ferry_wrap_kick,
	.flushed = flushed,
	.progress = ferry_wrap_progress,
	.dead = ferry_wrap_dead,
};

struct ferry_nvshmem_fabric *ferry_nvshmem_of(const struct ferry_world *world)
{
	struct ferry_fabric *f = ferry_wrap_innermost(world->fabric);

	return f->ops == &ferry_fabric_nvshmem
	               ? (struct ferry_nvshmem_fabric *)f
	               : NULL;
}
