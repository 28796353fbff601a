/* SPDX-License-Identifier: Apache-2.0 */
/* How long it takes to open and close a world, and a channel in it. */
#include "bench_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/moe.h>

#include "alloc.h"
#include "bench_rank.h"
#include "core/clock.h"
#include "json.h"

static const char *const names[2] = {"open", "channel"};

/* One rank, one iteration; CLOCK_MONOTONIC is one clock for the host. */
struct stamps {
	uint64_t start;                        /* before the world opens */
	uint64_t world_open;                   /* and before the channel */
	uint64_t channel_closed, world_closed; /* world alone: second - first */
};

struct open_work {
	const struct bench_case *shape;
	int32_t iters;
	struct stamps *stamps; /* [iters][n_ranks], shared */
	char *fabric;          /* [32], shared */
};

static bool open_once(const struct crew_member *me,
                      const struct open_work *work, int32_t i)
{
	struct stamps *s = &work->stamps[i * me->crew->n_ranks + me->rank];
	struct ferry_moe_config config;
	struct ferry_world *world;
	struct ferry_moe *moe;

	bench_configure(work->shape, &config);
	crew_barrier(me);
	s->start = ferry_now_ns();
	if (!crew_open(me, i, &world))
		return false;
	s->world_open = ferry_now_ns();
	const bool good =
		crew_good(me, ferry_moe_open(world, &config, &moe), "channel");

	if (good)
		ferry_moe_close(moe);
	s->channel_closed = ferry_now_ns();
	if (me->rank == 0)
		snprintf(work->fabric, 32, "%s", ferry_world_fabric(world));
	ferry_world_close(world);
	s->world_closed = ferry_now_ns();
	return good;
}

static int open_body(const struct crew_member *me, void *arg)
{
	const struct open_work *work = arg;

	for (int32_t i = 0; i < work->iters; i++)
		if (!open_once(me, work, i))
			return EXIT_FAILED;
	return EXIT_GOOD;
}

/* Slowest rank's span; the world's without what the channel took. */
static void summarize(const struct stamps *s, int32_t n_ranks, double *world,
                      double *channel)
{
	*world = 0;
	*channel = 0;
	for (int32_t r = 0; r < n_ranks; r++) {
		const double inner =
			(double)(s[r].channel_closed - s[r].world_open) / 1e3;
		const double all =
			(double)(s[r].world_closed - s[r].start) / 1e3;

		*channel = inner > *channel ? inner : *channel;
		*world = all - inner > *world ? all - inner : *world;
	}
}

/* Runs the crew and fills us, which is [2][iters]: world, channel. */
static bool run_all(const struct crew *crew, const struct bench_case *c,
                    int32_t iters, double *us, char fabric[32])
{
	const size_t n = (size_t)crew->n_ranks * (size_t)iters;
	const size_t bytes = n * sizeof(struct stamps) + 32;
	struct stamps *stamps = alloc_shared(bytes);
	struct open_work work = {c, iters, stamps, (char *)(stamps + n)};

	const bool good = crew_run(crew, open_body, &work) == EXIT_GOOD;

	for (int32_t i = 0; good && i < iters; i++)
		summarize(stamps + (size_t)i * (size_t)crew->n_ranks,
		          crew->n_ranks, &us[i], &us[iters + i]);
	snprintf(fabric, 32, "%s", work.fabric);
	alloc_shared_free(stamps, bytes);
	return good;
}

static void print(const struct bench_run *run, const double *us)
{
	const int n = (int)run->options->iters;

	bench_print_header(run);
	printf("# times    slowest rank of each of %d openings and closings\n"
	       "#%7s %-9s %10s %10s %10s\n",
	       n, "ranks", "phase", "p50_us", "p99_us", "max_us");
	for (int i = 0; i < 2; i++)
		printf("%8d %-9s %10.1f %10.1f %10.1f\n",
		       (int)run->options->ranks, names[i],
		       bench_percentile(us + i * n, n, 0.5),
		       bench_percentile(us + i * n, n, 0.99),
		       bench_percentile(us + i * n, n, 1));
	puts("# 0 wrong");
}

static cJSON *to_json(const struct bench_run *run, const struct bench_case *c,
                      const double *us)
{
	const int n = (int)run->options->iters;
	cJSON *document = bench_json_document(run);

	for (int i = 0; i < 2; i++) {
		cJSON *row = bench_json_row(run, c, names[i], "ferry");

		json_add_rounded(row, "p50_us",
		                 bench_percentile(us + i * n, n, 0.5));
		json_add_rounded(row, "p99_us",
		                 bench_percentile(us + i * n, n, 0.99));
		json_add_rounded(row, "max_us",
		                 bench_percentile(us + i * n, n, 1));
		cJSON_AddItemToArray(cJSON_GetObjectItem(document, "rows"),
		                     row);
	}
	return document;
}

int bench_open_report(struct bench_run *run, const struct crew *crew)
{
	const struct bench_options *o = run->options;
	const struct bench_case c = bench_shape(o, 0);
	double *us = alloc_or_exit(2 * (size_t)o->iters, sizeof(*us));
	bool good = run_all(crew, &c, (int32_t)o->iters, us, run->fabric);

	if (good && !(o->json && !strcmp(o->json, "-")))
		print(run, us);
	if (good && o->json)
		good = json_write(to_json(run, &c, us), o->json);
	free(us);
	return good ? EXIT_GOOD : EXIT_FAILED;
}
