/* SPDX-License-Identifier: Apache-2.0 */
/* ferry bench --device cuda: from the options to the report. */
#include "gpu_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "json.h"
#include "nccl_api.h"

/* A rank that is lost shall not cost a minute of a GPU. */
enum { TIMEOUT_MS = 10000, FIGURE_REPLAYS = 100 };

static size_t tally_bytes(const struct gpu_bench *b)
{
	return (size_t)b->n_rows * (size_t)b->run->options->ranks *
	       sizeof(*b->tallies);
}

static size_t ns_bytes(const struct gpu_bench *b)
{
	return (size_t)b->n_rows * (size_t)b->run->options->ranks *
	       BENCH_N_PHASES * (size_t)b->iters * sizeof(*b->ns);
}

/* What a round has left, into its result. */
static void take_row(struct gpu_bench *b, int i, int round)
{
	const int32_t n = (int32_t)b->run->options->ranks;
	const struct gpu_tally *tallies = b->tallies + (size_t)i * (size_t)n;
	struct gpu_row *row = &b->rows[i];
	struct bench_result *result = &row->rounds[round];

	row->left_out |= !tallies[0].begun;
	for (int32_t r = 0; r < n; r++)
		row->failed |= tallies[0].begun && !tallies[r].good;
	if (row->failed || row->left_out)
		return;
	bench_summarize(result,
	                b->ns + (size_t)i * (size_t)n * BENCH_N_PHASES *
	                                (size_t)b->iters,
	                n, row->iters);
	for (int p = 0; p < BENCH_N_PHASES; p++) {
		struct bench_figure *f = &result->phase[p];

		f->wire_bytes = row->bytes.wire[p];
		row->host_us[p] = tallies[0].host_us[p];
		for (int32_t r = 0; r < n; r++)
			f->wrong += p == BENCH_PAIR
			                    ? tallies[r].wrong[0] +
			                              tallies[r].wrong[1]
			                    : tallies[r].wrong[p];
	}
	memcpy(row->path, tallies[0].path, sizeof(row->path));
	row->n_sms = tallies[0].n_sms;
}

static bool run_rounds(struct gpu_bench *b, const struct crew *crew)
{
	bool good = true;

	for (int round = 0; good && round < b->n_rounds; round++) {
		memset(b->tallies, 0, tally_bytes(b));
		good = crew_run(crew, gpu_bench_body, b) == EXIT_GOOD;
		for (int i = 0; good && i < b->n_rows; i++)
			take_row(b, i, round);
	}
	if (isatty(2))
		fputs("\r\033[K", stderr);
	return good;
}

static int finish(const struct gpu_bench *b)
{
	const char *json = b->run->options->json;
	bool failed = false;
	int64_t wrong = 0;

	if (json && !strcmp(json, "-")) {
		for (int i = 0; i < b->n_rows; i++)
			wrong += bench_merge(b->rows[i].rounds, b->n_rounds)
			                 .phase[BENCH_PAIR]
			                 .wrong;
	} else {
		wrong = gpu_print(b);
	}
	for (int i = 0; i < b->n_rows; i++)
		failed |= b->rows[i].failed;
	if (json && !json_write(gpu_json(b), json))
		return EXIT_FAILED;
	return failed || wrong ? EXIT_FAILED : EXIT_GOOD;
}

static int measure(struct gpu_bench *b, const struct crew *crew)
{
	gpu_rows_make(b);
	b->tallies = alloc_shared(tally_bytes(b));
	b->ns = alloc_shared(ns_bytes(b));
	b->shared = gpu_shared_make();
	const bool good = run_rounds(b, crew);

	snprintf(b->run->fabric, sizeof(b->run->fabric), "%.31s",
	         gpu_shared_fabric(b->shared));
	snprintf(b->nccl, sizeof(b->nccl), "%s", gpu_shared_nccl(b->shared));
	snprintf(b->nvshmem, sizeof(b->nvshmem), "%s",
	         gpu_shared_nvshmem(b->shared));
	const int status = good ? finish(b) : EXIT_FAILED;

	gpu_shared_free(b->shared);
	alloc_shared_free(b->ns, ns_bytes(b));
	alloc_shared_free(b->tallies, tally_bytes(b));
	gpu_rows_free(b);
	return status;
}

/* NULL, or why --baseline nccl cannot be had. */
static const char *baseline_missing(const struct gpu_bench *b)
{
	struct nccl_api api;

	if (b->run->options->ranks > b->facts.n_devices)
		return "NCCL wants a GPU for each rank";
	return nccl_open(&api);
}

int gpu_bench_main(struct bench_run *run, struct crew *crew)
{
	const struct bench_options *o = run->options;
	const bool figures = o->figures != BENCH_FIGURES_NONE;
	struct gpu_bench b = {
		.run = run,
		.graph = !o->no_graph,
		.iters = (int32_t)o->iters,
		.warmup = (int32_t)o->warmup,
		.n_rounds = figures ? 1 : (int32_t)o->rounds,
	};

	if (figures && b.iters < FIGURE_REPLAYS)
		b.iters = FIGURE_REPLAYS;
	crew->n_ranks = (int32_t)o->ranks;
	gpu_prepare();
	if (!gpu_facts_read(crew, true, &b.facts))
		return EXIT_FAILED;
	if (b.facts.n_devices < 1) {
		opt_complain(&bench_command, "--device cuda: %s",
		             b.facts.reason);
		return EXIT_NOT_HERE;
	}
	const char *why = o->baseline == BENCH_BASELINE_NCCL
	                          ? baseline_missing(&b)
	                          : NULL;

	if (why) {
		opt_complain(&bench_command, "--baseline nccl: %s", why);
		return EXIT_NOT_HERE;
	}
	crew->cuda = true;
	crew->fabric = o->fabric;
	crew->threads = !o->processes;
	crew->timeout_ms = getenv("FERRY_TIMEOUT_MS") ? 0 : TIMEOUT_MS;
	return measure(&b, crew);
}
