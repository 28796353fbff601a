/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric nvshmem: GPUs of any number of hosts, reached by whatever transport
 * NVSHMEM has. Each rank is a process and a PE.
 *
 * Control is host memory and belongs to an inner fabric for CPUs, the best one
 * for these ranks, so that waits, verdicts and deaths are its. Data lies on the
 * symmetric heap. Kernels store to peers whose memory NVSHMEM maps, unless
 * NVSHMEM_DIRECT is off, and put to the others; that is in the module, too.
 * What a memory does is in nvshmem_mem.c; here are opening and closing.
 *
 * NVSHMEM's opening, closing and allocations wait for all ranks without a
 * bound. So all ranks say first, through boot and with a bound, that they will
 * come. After a failure nothing is freed and NVSHMEM is not closed: it stays,
 * and with it what it has of the GPU, to the end of the process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/clock.h"
#include "nvshmem_inner.h"
#include "nvshmem_load.h"
#include "place.h"
#include "registry.h"

/* What ranks compare before NVSHMEM is opened. */
struct hello {
	uint8_t id[FERRY_NVSHMEM_ID_BYTES]; /* of rank 0 */
	struct ferry_nvshmem_version version;
	int32_t direct;
};

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

const struct ferry_fabric_ops ferry_fabric_nvshmem = {
	.size = sizeof(struct ferry_fabric_ops),
	.name = "nvshmem",
	.summary = "ranks have GPUs of any hosts that NVSHMEM reaches",
	.device = FERRY_DEVICE_CUDA,
	.probe = probe,
	.open = open_nvshmem,
	.close = close_nvshmem,
	.mem_create = ferry_nvshmem_mem_create,
	.mem_attach = ferry_nvshmem_mem_attach,
	.mem_seal = ferry_wrap_mem_seal,
	.mem_destroy = ferry_nvshmem_mem_destroy,
	.caps = ferry_nvshmem_caps,
	.control = ferry_wrap_control,
	.data = ferry_nvshmem_data,
	.max_put = ferry_fabric_max_put_unbounded,
	.put = ferry_nvshmem_put,
	.kick = ferry_wrap_kick,
	.flushed = ferry_nvshmem_flushed,
	.progress = ferry_wrap_progress,
	.dead = ferry_wrap_dead,
	.cut = ferry_wrap_cut,
};

struct ferry_nvshmem_fabric *ferry_nvshmem_of(const struct ferry_world *world)
{
	struct ferry_fabric *f = ferry_wrap_innermost(world->fabric);

	return f->ops == &ferry_fabric_nvshmem
	               ? (struct ferry_nvshmem_fabric *)f
	               : NULL;
}
