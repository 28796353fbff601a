/* SPDX-License-Identifier: Apache-2.0 */
/* ferry bench: rounds of Ferry, the baseline and the yardstick, in turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "bench_baseline.h"
#include "bench_ferry.h"
#include "bench_open.h"
#include "bench_rank.h"
#include "bench_raw.h"
#include "bench_report.h"
#include "commands.h"
#include "core/options.h"
#include "fabric_choice.h"
#include "gpu_bench.h"
#include "json.h"

static void progress(const struct bench_case *c, int round, int n_rounds,
                     const char *what)
{
	if (isatty(2))
		fprintf(stderr, "\r\033[K%d tokens, round %d of %d: %s ",
		        c->tokens, round + 1, n_rounds, what);
}

static void progress_done(void)
{
	if (isatty(2))
		fputs("\r\033[K", stderr);
}

/*
 * Is Ferry's own work measured, too? It is the same over shm, unless ranks make
 * several hosts.
 */
static bool measures_work(const struct bench_options *o,
                          const struct crew *crew)
{
	struct ferry_options set;

	if (!o->raw || crew->threads || !crew->fabric ||
	    !strcmp(crew->fabric, "shm"))
		return false;
	return ferry_options_read(NULL, NULL, &set) == FERRY_OK &&
	       !set.ranks_per_host;
}

static void cell_make(struct bench_cell *cell, const struct bench_options *o,
                      const struct crew *crew, int i)
{
	*cell = (struct bench_cell){.shape = bench_shape(o, i), .n_impls = 1};
	bench_count_bytes(&cell->shape, &cell->bytes);
	cell->impls[0] = "ferry";
	if (o->raw)
		cell->impls[cell->n_impls++] = bench_raw_impl;
	for (int b = 0; bench_options_mpi(o) && b < 2; b++)
		cell->impls[cell->n_impls++] = bench_baseline_impls(o)[b];
	if (measures_work(o, crew)) {
		cell->work = cell->n_impls;
		cell->impls[cell->n_impls++] = "ferry-shm";
		cell->impls[cell->n_impls++] = "raw-shm";
	}
	for (int m = 0; m < cell->n_impls; m++)
		cell->rounds[m] = alloc_or_exit((size_t)o->rounds,
		                                sizeof(struct bench_result));
}

/* Ferry's own work: what it takes over shm, and the writes in that. */
static bool run_work(const struct bench_options *o, const struct crew *crew,
                     struct bench_cell *cell, int round)
{
	const int32_t iters = (int32_t)o->iters, warmup = (int32_t)o->warmup;
	struct crew shm = *crew;
	char fabric[32];

	shm.fabric = "shm";
	return bench_ferry_run(&shm, &cell->shape, iters, warmup,
	                       &cell->rounds[cell->work][round], fabric) &&
	       bench_raw_run(&shm, &cell->shape, iters, warmup,
	                     &cell->rounds[cell->work + 1][round]);
}

/* One round of one shape: Ferry, bare writes, own work, the baseline. */
static bool run_round(struct bench_run *run, const struct crew *crew,
                      struct bench_cell *cell, int round)
{
	const struct bench_options *o = run->options;
	const struct bench_case *c = &cell->shape;
	const int n_rounds = (int)o->rounds;

	progress(c, round, n_rounds, "ferry");
	if (!bench_ferry_run(crew, c, (int32_t)o->iters, (int32_t)o->warmup,
	                     &cell->rounds[0][round], run->fabric))
		return false;
	int next = 1;

	if (o->raw) {
		progress(c, round, n_rounds, "raw");
		if (!bench_raw_run(crew, c, (int32_t)o->iters,
		                   (int32_t)o->warmup,
		                   &cell->rounds[next++][round]))
			return false;
	}
	progress(c, round, n_rounds, "work");
	if (cell->work && !run_work(o, crew, cell, round))
		return false;
	if (!bench_options_mpi(o))
		return true;
	struct bench_result results[2];

	progress(c, round, n_rounds, "mpi");
	if (!bench_baseline_run(o, c, &run->mpi, results))
		return false;
	cell->rounds[next][round] = results[0];
	cell->rounds[next + 1][round] = results[1];
	return true;
}

/* Window against what it must hold at least: see docs/man/ferry-bench.1.md. */
static void weigh_window(struct bench_run *run, const struct bench_case *c)
{
	struct ferry_moe_config config;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	const size_t tokens = (size_t)c->tokens;
	const size_t peers = (size_t)c->n_ranks - 1;
	const size_t back = c->combine == FERRY_EXACT ? (size_t)c->topk
	                    : peers < (size_t)c->topk ? peers
	                                              : (size_t)c->topk;

	bench_configure(c, &config);
	if (ferry_moe_query(&config, &need))
		return;
	run->window_bytes = need.window_bytes;
	run->least_window_bytes =
		2 * peers * tokens * (need.row_bytes + need.scale_row_bytes) +
		tokens * back * (size_t)c->hidden * 2;
}

static int finish(const struct bench_run *run)
{
	const char *json = run->options->json;
	const bool only_json = json && !strcmp(json, "-");
	int64_t wrong = 0;

	if (!only_json)
		wrong = bench_print(run);
	for (int i = 0; only_json && i < run->n_cells; i++)
		for (int m = 0; m < run->cells[i].n_impls; m++)
			wrong += bench_merge(run->cells[i].rounds[m],
			                     (int)run->options->rounds)
			                 .phase[BENCH_PAIR]
			                 .wrong;
	if (json && !json_write(bench_json(run), json))
		return EXIT_FAILED;
	return wrong ? EXIT_FAILED : EXIT_GOOD;
}

/*
 * Rounds are the outer loop, so that a machine that drifts meanwhile hurts all
 * shapes and implementations alike.
 */
static int measure(struct bench_run *run, const struct crew *crew)
{
	const struct bench_options *o = run->options;
	bool good = true;

	run->n_cells = o->tokens.n;
	run->copies = alloc_or_exit((size_t)o->rounds, sizeof(*run->copies));
	for (int i = 0; i < run->n_cells; i++)
		cell_make(&run->cells[i], o, crew, i);
	for (int round = 0; good && round < o->rounds; round++) {
		progress(&run->cells[0].shape, round, (int)o->rounds, "copy");
		good = bench_copy_run(crew, o->copy_mib, &run->copies[round]);
		for (int i = 0; good && i < run->n_cells; i++)
			good = run_round(run, crew, &run->cells[i], round);
	}
	progress_done();
	if (good) {
		run->copy = bench_copy_merge(run->copies, (int)o->rounds);
		weigh_window(run, &run->cells[run->n_cells - 1].shape);
	}
	const int status = good ? finish(run) : EXIT_FAILED;

	for (int i = 0; i < run->n_cells; i++)
		for (int m = 0; m < run->cells[i].n_impls; m++)
			free(run->cells[i].rounds[m]);
	free(run->copies);
	return status;
}

int cmd_bench(int argc, char **argv)
{
	struct bench_options o = {0};
	struct bench_run run = {.options = &o, .argc = argc, .argv = argv};
	struct crew crew = {.name = bench_command.name};
	int first;

	if (argc > 1 && !strcmp(argv[1], "--model"))
		return cmd_model(argc - 1, argv + 1);
	int status = opt_parse(&bench_command, argc, argv, &o, &first);

	if (status == OPT_GO_ON)
		status = bench_options_check(&o);
	if (status == OPT_GO_ON && o.device == FERRY_DEVICE_CUDA)
		return gpu_bench_main(&run, &crew);
	if (status == OPT_GO_ON)
		status = fabric_choose(&bench_command, o.fabric, &crew);
	if (status != OPT_GO_ON)
		return status;
	if (bench_options_mpi(&o) && bench_baseline_missing()) {
		opt_complain(&bench_command, "--baseline: %s",
		             bench_baseline_missing());
		return EXIT_NOT_HERE;
	}
	crew.n_ranks = (int32_t)o.ranks;
	crew.bind = o.bind == BENCH_BIND_CORE;
	alloc_use_huge_pages(o.pages == BENCH_PAGES_HUGE);
	if (o.open)
		return bench_open_report(&run, &crew);
	return measure(&run, &crew);
}
