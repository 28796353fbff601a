/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of fabric nvshmem. A put of the host is NVSHMEM's put on a stream
 * of the module, and a signal of the inner fabric behind it.
 */
#include <stdlib.h>
#include <unistd.h>

#include "../core/clock.h"
#include "nvshmem_inner.h"
#include "place.h"

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

static struct ferry_nvshmem_fabric *fabric_of(const struct ferry_mem *mem)
{
	return (struct ferry_nvshmem_fabric *)mem->fabric;
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

void ferry_nvshmem_mem_destroy(struct ferry_mem *mem)
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

enum ferry_status ferry_nvshmem_mem_create(struct ferry_fabric *fabric,
                                           size_t control_bytes,
                                           size_t data_bytes,
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

enum ferry_status ferry_nvshmem_mem_attach(struct ferry_mem *mem,
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

void *ferry_nvshmem_data(const struct ferry_mem *mem, int32_t peer)
{
	const struct nvshmem_mem *m = (const struct nvshmem_mem *)mem;

	return is_self(mem, peer) ? mem->data : m->peers[peer];
}

/* The link to a peer's GPU, where kernels store to it. */
uint32_t ferry_nvshmem_caps(const struct ferry_mem *mem, int32_t peer)
{
	const struct ferry_world *world = mem->fabric->world;
	const struct ferry_place *place = &world->places[peer];
	char reason[FERRY_GPU_REASON_BYTES];
	uint32_t found = FERRY_CAP_ORDERED;

	if (ferry_place_same_host(place, &world->places[world->rank]))
		found |= FERRY_CAP_SAME_HOST;
	if (!ferry_nvshmem_data(mem, peer))
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

enum ferry_status ferry_nvshmem_put(struct ferry_mem *mem, int32_t peer,
                                    size_t offset, const void *source,
                                    size_t bytes, uint32_t signal)
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

bool ferry_nvshmem_flushed(struct ferry_mem *mem)
{
	const struct nvshmem_mem *m = (const struct nvshmem_mem *)mem;

	return !load_seq_u32(&m->n_under_way) && ferry_wrap_flushed(mem);
}
