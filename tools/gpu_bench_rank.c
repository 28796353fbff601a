/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of ferry bench --device cuda: every row, checked and timed. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "alloc.h"
#include "core/clock.h"
#include "core/order.h"
#include "gpu_bench.h"
#include "gpu_nccl.h"
#include "gpu_nvshmem.h"
#include "opt.h"

/* What all ranks have in common. */
struct gpu_shared {
	uint32_t n_failed; /* ranks that could not begin */
	uint32_t over;     /* rank 0 says that the time is over */
	struct nccl_id id;
	struct gpu_nvshmem_id nvshmem;
	char fabric[64], nccl[32];
};

struct gpu_shared *gpu_shared_make(void)
{
	return alloc_shared(sizeof(struct gpu_shared));
}

void gpu_shared_free(struct gpu_shared *shared)
{
	alloc_shared_free(shared, sizeof(*shared));
}

const char *gpu_shared_fabric(const struct gpu_shared *shared)
{
	return shared->fabric;
}

const char *gpu_shared_nccl(const struct gpu_shared *shared)
{
	return shared->nccl;
}

const char *gpu_shared_nvshmem(const struct gpu_shared *shared)
{
	return shared->nvshmem.version;
}

struct bench_rank_run {
	const struct gpu_bench *bench;
	struct gpu_seat seat;
	struct gpu_nccl nccl;
	struct gpu_nvshmem nvshmem;
};

/* A rank that cannot begin takes the others with it, not into a barrier. */
static bool all_good(const struct crew_member *me, struct gpu_shared *shared,
                     bool good)
{
	if (!good)
		add_seq_u32(&shared->n_failed, 1);
	crew_barrier(me);
	return load_seq_u32(&shared->n_failed) == 0;
}

static struct gpu_timing timing_of(const struct gpu_bench *b, int i,
                                   int32_t rank)
{
	const size_t n_ranks = (size_t)b->run->options->ranks;
	const size_t of_row = n_ranks * BENCH_N_PHASES * (size_t)b->iters;
	const size_t of_rank = BENCH_N_PHASES * (size_t)b->rows[i].iters;

	return (struct gpu_timing){
		.iters = b->rows[i].iters,
		.warmup = b->warmup,
		.chain = b->rows[i].chain,
		.graph = b->graph,
		.split_us = b->rows[i].split_us,
		.ns = b->ns + (size_t)i * of_row + (size_t)rank * of_rank,
	};
}

static bool measure_ferry(struct gpu_rank *rank, const struct gpu_timing *t,
                          struct gpu_tally *tally)
{
	/* Twice: summed rows lie where the view has its two halves in turn. */
	if (!gpu_rank_step(rank, BENCH_CHECKED_STEP, tally->wrong) ||
	    !gpu_rank_step(rank, BENCH_TIMED_STEP, NULL) ||
	    !gpu_rank_step(rank, BENCH_TIMED_STEP, NULL))
		return false;
	return (t->split_us ? gpu_time_split(rank, t)
	                    : gpu_time_host(rank, tally->host_us) &&
	                              gpu_time_phases(rank, t)) &&
	       gpu_rank_check(rank, BENCH_TIMED_STEP, tally->wrong);
}

/*
 * Ranks meet before anybody closes: freeing memory of a GPU may wait for all
 * of its kernels, and one of them for a peer.
 */
static bool run_ferry(struct bench_rank_run *r, int i,
                      const struct gpu_timing *t, struct gpu_tally *tally)
{
	const struct crew_member *me = r->seat.me;
	struct gpu_rank rank;
	bool good = gpu_rank_open(&rank, &r->seat, &r->bench->rows[i].shape);

	if (good && rank.need.path)
		snprintf(tally->path, sizeof(tally->path), "%s",
		         rank.need.path);
	tally->n_sms = rank.need.n_sms;
	crew_barrier(me);
	good = good && measure_ferry(&rank, t, tally);
	cudaStreamSynchronize(r->seat.stream);
	crew_barrier(me);
	gpu_rank_close(&rank);
	return good;
}

static bool run_row(struct bench_rank_run *r, int i, struct gpu_tally *tally)
{
	const struct gpu_row *row = &r->bench->rows[i];
	const struct gpu_timing t = timing_of(r->bench, i, r->seat.me->rank);

	if (row->impl == GPU_FERRY)
		return run_ferry(r, i, &t, tally);
	const bool good =
		row->impl == GPU_NVSHMEM_DENSE
			? gpu_nvshmem_run(&r->nvshmem, &row->shape, &t,
	                                  tally->wrong)
			: gpu_nccl_run(&r->nccl, &row->shape,
	                               gpu_row_is_dense(row), &t, tally->wrong);

	cudaStreamSynchronize(r->seat.stream);
	return good;
}

static void progress(const struct gpu_bench *b, int i)
{
	if (isatty(2))
		fprintf(stderr, "\r\033[Krow %d of %d: %d tokens, %s ", i + 1,
		        b->n_rows, b->rows[i].shape.tokens,
		        gpu_impl_names[b->rows[i].impl]);
}

static bool begin(struct bench_rank_run *r, const struct crew_member *me)
{
	const struct gpu_bench *b = r->bench;
	const int baseline = b->run->options->baseline;
	const bool nccl = baseline == BENCH_BASELINE_NCCL;
	const bool nvshmem = baseline == BENCH_BASELINE_NVSHMEM;

	if (!all_good(me, b->shared, gpu_seat_open(&r->seat, me)))
		return false;
	if (nccl &&
	    !all_good(me, b->shared,
	              gpu_nccl_open(&r->nccl, &r->seat, &b->shared->id)))
		return false;
	if (nvshmem && !all_good(me, b->shared,
	                         gpu_nvshmem_open(&r->nvshmem, &r->seat,
	                                          &b->shared->nvshmem)))
		return false;
	if (me->rank > 0)
		return true;
	snprintf(b->shared->fabric, sizeof(b->shared->fabric), "%s",
	         ferry_world_fabric(r->seat.world));
	if (nccl)
		nccl_version_text(&r->nccl.api, b->shared->nccl);
	return true;
}

/* Rank 0's clock ends it for all. */
static bool time_is_over(const struct gpu_bench *b,
                         const struct crew_member *me, uint64_t deadline)
{
	if (me->rank == 0 && b->run->options->limit &&
	    ferry_now_ns() > deadline)
		store_seq_u32(&b->shared->over, 1);
	crew_barrier(me);
	return load_seq_u32(&b->shared->over) != 0;
}

/*
 * Rows with a target, or those without. Large shapes come last in the table
 * and first here: memory then grows only once.
 */
static void run_rows(struct bench_rank_run *r, bool with_target,
                     uint64_t deadline)
{
	const struct gpu_bench *b = r->bench;
	const struct crew_member *me = r->seat.me;

	for (int i = b->n_rows - 1; i >= 0; i--) {
		struct gpu_tally *tally =
			&b->tallies[i * me->crew->n_ranks + me->rank];

		if (gpu_row_has_target(&b->rows[i]) != with_target)
			continue;
		if (time_is_over(b, me, deadline))
			return;
		if (me->rank == 0)
			progress(b, i);
		tally->begun = true;
		tally->good = run_row(r, i, tally);
	}
}

int gpu_bench_body(const struct crew_member *me, void *arg)
{
	struct bench_rank_run r = {.bench = arg};
	const uint64_t deadline =
		ferry_deadline_ns(r.bench->run->options->limit * 1000);
	const bool good = begin(&r, me);

	if (good) {
		run_rows(&r, true, deadline);
		run_rows(&r, false, deadline);
	}
	crew_barrier(me);
	gpu_nccl_close(&r.nccl);
	if (good)
		gpu_nvshmem_close(&r.nvshmem);
	gpu_seat_close(&r.seat);
	return good ? EXIT_GOOD : EXIT_FAILED;
}
