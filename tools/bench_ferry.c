/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch and combine by Ferry, measured and checked on one rank. */
#include "bench_ferry.h"

#include <stdio.h>
#include <stdlib.h>

#include <ferry/trace.h>

#include "alloc.h"
#include "bench_rank.h"
#include "core/clock.h"
#include "opt.h"

/* What one rank leaves behind, beside its samples. */
struct bench_tally {
	uint64_t wire_bytes[BENCH_N_PHASES]; /* of all timed iterations */
	uint64_t host_bytes[BENCH_N_PHASES]; /* to other hosts */
	uint64_t table_bytes;                /* to other hosts */
	int32_t host;                        /* first rank of the own one */
	int64_t wrong[BENCH_N_PHASES];
	char fabric[32]; /* that the world chose */
};

struct bench_work {
	const struct bench_case *shape;
	int32_t iters, warmup;
	struct bench_tally *tallies; /* [n_ranks], shared */
	uint64_t *ns; /* [n_ranks][BENCH_N_PHASES][iters], shared */
};

/*
 * Iterations follow each other without a barrier, as layers of a model do: the
 * slowest rank of each iteration counts.
 */
static bool time_steps(struct bench_rank *rank, const struct bench_work *work)
{
	const size_t iters = (size_t)work->iters;
	uint64_t *const ns =
		work->ns + (size_t)rank->me->rank * BENCH_N_PHASES * iters;

	for (size_t i = 0; i < iters; i++) {
		const uint64_t start = ferry_now_ns();

		if (!bench_rank_dispatch(rank))
			return false;
		const uint64_t middle = ferry_now_ns();

		if (!bench_rank_combine(rank))
			return false;
		const uint64_t end = ferry_now_ns();

		ns[BENCH_DISPATCH * iters + i] = middle - start;
		ns[BENCH_COMBINE * iters + i] = end - middle;
		ns[BENCH_PAIR * iters + i] = end - start;
	}
	return true;
}

static bool read_stats(struct bench_rank *rank, struct ferry_moe_stats *stats)
{
	*stats = (struct ferry_moe_stats)FERRY_MOE_STATS_INIT;
	return crew_good(rank->me, ferry_moe_get_stats(rank->moe, stats),
	                 "statistics");
}

static bool time_counted(struct bench_rank *rank, const struct bench_work *work,
                         struct bench_tally *tally)
{
	struct ferry_moe_stats before, after;

	if (!read_stats(rank, &before))
		return false;
	crew_barrier(rank->me);
	if (!time_steps(rank, work) || !read_stats(rank, &after))
		return false;
	tally->wire_bytes[BENCH_DISPATCH] =
		after.wire_bytes_dispatch - before.wire_bytes_dispatch;
	tally->wire_bytes[BENCH_COMBINE] =
		after.wire_bytes_combine - before.wire_bytes_combine;
	tally->host_bytes[BENCH_DISPATCH] =
		after.host_bytes_dispatch - before.host_bytes_dispatch;
	tally->host_bytes[BENCH_COMBINE] =
		after.host_bytes_combine - before.host_bytes_combine;
	tally->table_bytes = after.host_bytes_tables - before.host_bytes_tables;
	return true;
}

static bool measure(struct bench_rank *rank, const struct bench_work *work)
{
	struct bench_tally *const tally = &work->tallies[rank->me->rank];

	/* Twice: summed rows lie where the view has its two halves in turn. */
	if (!bench_rank_step(rank, BENCH_CHECKED_STEP, tally->wrong) ||
	    !bench_rank_step(rank, BENCH_TIMED_STEP, NULL) ||
	    !bench_rank_step(rank, BENCH_TIMED_STEP, NULL))
		return false;
	for (int32_t i = 0; i < work->warmup; i++)
		if (!bench_rank_dispatch(rank) || !bench_rank_combine(rank))
			return false;
	if (!time_counted(rank, work, tally))
		return false;
	bench_rank_check(rank, BENCH_TIMED_STEP, tally->wrong);
	return true;
}

/* The shape as this world sees it. */
static bool run_shape(const struct crew_member *me,
                      const struct bench_work *work, struct ferry_world *world)
{
	struct bench_case shape = *work->shape;
	int32_t *host = bench_hosts_of(world);
	struct bench_rank rank;

	shape.host = host;
	work->tallies[me->rank].host = host[me->rank];
	const bool good = bench_rank_open(&rank, me, &shape, world) &&
	                  measure(&rank, work);

	bench_rank_close(&rank);
	free(host);
	return good;
}

static int ferry_body(const struct crew_member *me, void *arg)
{
	const struct bench_work *work = arg;
	struct ferry_world *world;

	if (!crew_open(me, 0, &world))
		return EXIT_FAILED;
	snprintf(work->tallies[me->rank].fabric, sizeof(work->tallies->fabric),
	         "%s", ferry_world_fabric(world));
	const bool good = run_shape(me, work, world);

	ferry_world_close(world);
	return good ? EXIT_GOOD : EXIT_FAILED;
}

static void add_tallies(struct bench_result *result,
                        const struct bench_work *work, int32_t n_ranks)
{
	struct bench_figure *const pair = &result->phase[BENCH_PAIR];

	for (int p = BENCH_DISPATCH; p <= BENCH_COMBINE; p++) {
		struct bench_figure *figure = &result->phase[p];

		for (int32_t r = 0; r < n_ranks; r++) {
			figure->wire_bytes += work->tallies[r].wire_bytes[p];
			figure->host_bytes += work->tallies[r].host_bytes[p];
			figure->wrong += work->tallies[r].wrong[p];
		}
		figure->wire_bytes /= (uint64_t)work->iters;
		figure->host_bytes /= (uint64_t)work->iters;
		pair->wire_bytes += figure->wire_bytes;
		pair->host_bytes += figure->host_bytes;
		pair->wrong += figure->wrong;
	}
}

static void add_hosts(struct bench_result *result,
                      const struct bench_work *work, int32_t n_ranks)
{
	int32_t *host = alloc_or_exit((size_t)n_ranks, sizeof(*host));

	for (int32_t r = 0; r < n_ranks; r++) {
		host[r] = work->tallies[r].host;
		result->n_hosts += host[r] == r;
		result->table_bytes += work->tallies[r].table_bytes;
	}
	result->table_bytes /= (uint64_t)work->iters;
	bench_count_host_bytes(work->shape, host, result->least_host_bytes);
	free(host);
}

bool bench_ferry_run(const struct crew *crew, const struct bench_case *c,
                     int32_t iters, int32_t warmup, struct bench_result *result,
                     char fabric[32])
{
	const size_t n = (size_t)crew->n_ranks;
	const size_t tally_bytes = n * sizeof(struct bench_tally);
	const size_t ns_bytes =
		n * BENCH_N_PHASES * (size_t)iters * sizeof(uint64_t);
	struct bench_work work = {
		.shape = c,
		.iters = iters,
		.warmup = warmup,
		.tallies = alloc_shared(tally_bytes),
		.ns = alloc_shared(ns_bytes),
	};

	const bool good = crew_run(crew, ferry_body, &work) == EXIT_GOOD;

	*result = (struct bench_result){0};
	if (good) {
		bench_summarize(result, work.ns, crew->n_ranks, iters);
		add_tallies(result, &work, crew->n_ranks);
		add_hosts(result, &work, crew->n_ranks);
		snprintf(fabric, 32, "%s", work.tallies[0].fabric);
	}
	alloc_shared_free(work.tallies, tally_bytes);
	alloc_shared_free(work.ns, ns_bytes);
	return good;
}
