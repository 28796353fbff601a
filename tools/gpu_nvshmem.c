/* SPDX-License-Identifier: Apache-2.0 */
/* All-to-all by NVSHMEM, timed and checked; see gpu_nvshmem.h. */
#include "gpu_nvshmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "core/clock.h"
#include "fabric/nvshmem_inner.h"
#include "fabric/nvshmem_load.h"
#include "gpu_bytes.h"
#include "gpu_marks.h"

enum { CHECKED_BYTES = 1 << 20 /* at either end of a part */ };

/* The same number of bytes to and from each rank. */
struct exchange {
	struct gpu_nvshmem *nvshmem;
	size_t part_bytes;
	char *send, *recv; /* on the symmetric heap: a part for each rank */
};

struct both {
	struct exchange dispatch, combine;
};

static bool good(const struct gpu_nvshmem *n, int error, const char *why)
{
	if (error)
		fprintf(stderr, "%s: rank %d: nvshmem: %s\n",
		        n->seat->me->crew->name, n->seat->me->rank, why);
	return !error;
}

/* A PE beside the world's fabric. All ranks come here. */
static bool open_own(struct gpu_nvshmem *n, struct gpu_nvshmem_id *id)
{
	const struct crew_member *me = n->seat->me;
	char why[FERRY_NVSHMEM_WHY_BYTES];
	struct ferry_nvshmem_pe pe = {
		.device = n->seat->device,
		.rank = me->rank,
		.n_ranks = me->crew->n_ranks,
	};

	n->own = true;
	n->ops = ferry_nvshmem_load(&n->seat->world->ctx.opt, why);
	bool all = good(n, !n->ops, why);

	if (all && me->rank == 0)
		all = good(n, n->ops->unique_id(id->bytes, why), why);
	/* Who has none says so before anybody waits for it without a bound. */
	if (ferry_agree(n->seat->world->boot,
	                all ? FERRY_OK : FERRY_UNSUPPORTED, NULL, NULL, 0,
	                ferry_deadline_ns(n->seat->world->open_timeout_ms)))
		return false;
	memcpy(pe.id, id->bytes, sizeof(pe.id));
	return good(n, n->ops->open(&pe, &n->pe, why), why);
}

bool gpu_nvshmem_open(struct gpu_nvshmem *nvshmem, struct gpu_seat *seat,
                      struct gpu_nvshmem_id *id)
{
	const struct ferry_nvshmem_fabric *f = ferry_nvshmem_of(seat->world);

	*nvshmem = (struct gpu_nvshmem){.seat = seat};
	if (f) {
		nvshmem->ops = f->module;
		nvshmem->pe = f->pe;
	} else if (!open_own(nvshmem, id)) {
		return false;
	}
	const struct ferry_nvshmem_version v = nvshmem->ops->version();

	if (seat->me->rank == 0)
		snprintf(id->version, sizeof(id->version), "%d.%d.%d", v.major,
		         v.minor, v.patch);
	return true;
}

void gpu_nvshmem_close(struct gpu_nvshmem *nvshmem)
{
	if (nvshmem->own && nvshmem->pe)
		nvshmem->ops->close(nvshmem->pe);
}

/* Every expert of the rank that has most of them. */
static size_t part_of(const struct bench_case *c, size_t row_bytes)
{
	int32_t most = 0;

	for (int32_t r = 0; r < c->n_ranks; r++) {
		const int32_t n =
			bench_first_expert(c, r + 1) - bench_first_expert(c, r);

		most = n > most ? n : most;
	}
	/* Words, as NVSHMEM copies fastest. */
	return ((size_t)most * (size_t)c->tokens * row_bytes + 15) / 16 * 16;
}

static bool take_memory(struct both *b, struct gpu_nvshmem *n)
{
	const size_t larger = b->dispatch.part_bytes > b->combine.part_bytes
	                              ? b->dispatch.part_bytes
	                              : b->combine.part_bytes;
	const size_t bytes = larger * (size_t)n->seat->me->crew->n_ranks;
	char why[FERRY_NVSHMEM_WHY_BYTES];
	void *send = NULL, *recv = NULL;
	/* Collective: a rank that fails fails for all, or hangs. */
	const bool both =
		good(n, n->ops->alloc(n->pe, bytes, &send, why), why) &
		good(n, n->ops->alloc(n->pe, bytes, &recv, why), why);

	b->dispatch.nvshmem = b->combine.nvshmem = n;
	b->dispatch.send = b->combine.send = send;
	b->dispatch.recv = b->combine.recv = recv;
	return both;
}

static void give_memory(const struct both *b)
{
	const struct gpu_nvshmem *n = b->dispatch.nvshmem;

	n->ops->free(n->pe, b->dispatch.recv);
	n->ops->free(n->pe, b->dispatch.send);
}

static bool run(const struct exchange *e)
{
	const struct gpu_nvshmem *n = e->nvshmem;
	char why[FERRY_NVSHMEM_WHY_BYTES];

	return good(n,
	            n->ops->alltoall(n->pe, e->recv, e->send, e->part_bytes,
	                             n->seat->stream, why),
	            why);
}

static bool one_dispatch(void *arg, int32_t i)
{
	(void)i;
	return run(&((struct both *)arg)->dispatch);
}

static bool one_pair(void *arg, int32_t i)
{
	return one_dispatch(arg, i) && run(&((struct both *)arg)->combine);
}

static bool fill(const struct exchange *e)
{
	const struct gpu_seat *s = e->nvshmem->seat;
	const int32_t n_ranks = s->me->crew->n_ranks;
	cudaError_t error = cudaMemsetAsync(
		e->recv, 0, e->part_bytes * (size_t)n_ranks, s->stream);

	for (int32_t r = 0; error == cudaSuccess && r < n_ranks; r++)
		error = cudaMemsetAsync(e->send + (size_t)r * e->part_bytes,
		                        gpu_mark(s->me->rank, r), e->part_bytes,
		                        s->stream);
	if (error == cudaSuccess)
		error = cudaStreamSynchronize(s->stream);
	return gpu_good(s->me, error, "filling");
}

/* Both ends of every part. */
static bool check(const struct exchange *e, int64_t *wrong)
{
	const struct gpu_seat *s = e->nvshmem->seat;
	const size_t part =
		e->part_bytes < CHECKED_BYTES ? e->part_bytes : CHECKED_BYTES;
	bool fine = fill(e);

	crew_barrier(s->me);
	fine = fine && run(e) &&
	       gpu_good(s->me, cudaStreamSynchronize(s->stream), "check");
	for (int32_t r = 0; fine && r < s->me->crew->n_ranks; r++) {
		const char *at = e->recv + (size_t)r * e->part_bytes;

		fine = gpu_compare(s, at, part, r, wrong) &&
		       gpu_compare(s, at + e->part_bytes - part, part, r,
		                   wrong);
	}
	crew_barrier(s->me);
	return fine;
}

bool gpu_nvshmem_run(struct gpu_nvshmem *nvshmem, const struct bench_case *c,
                     const struct gpu_timing *timing, int64_t *wrong)
{
	/* One by one: what NVSHMEM does for a graph is its own affair. */
	struct gpu_timing plain = *timing;
	struct both b = {
		.dispatch.part_bytes = part_of(
			c, bench_row_bytes(c) + (size_t)bench_scales(c) * 4),
		.combine.part_bytes = part_of(c, (size_t)c->hidden * 2),
	};

	plain.graph = false;
	if (!take_memory(&b, nvshmem))
		return false;
	const bool fine =
		check(&b.dispatch, &wrong[BENCH_DISPATCH]) &&
		check(&b.combine, &wrong[BENCH_COMBINE]) &&
		gpu_time_ops(nvshmem->seat, one_dispatch, one_pair, &b, &plain);

	if (fine)
		give_memory(&b);
	return fine;
}
