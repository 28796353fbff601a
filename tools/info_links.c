/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry info --links: ferry_cost_measure on a crew of ranks, as matrices or as
 * JSON with the integers that a planner takes.
 */
#include "info_links.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/balance.h>

#include "about.h"
#include "alloc.h"
#include "build_info.h"
#include "fabric_choice.h"
#include "json.h"
#include "machine.h"

/* In memory that all ranks share; rank 0 fills it in. */
struct result {
	char fabric[64];
	int64_t tables[]; /* alpha_ns[R * R], ps_per_byte[R * R] */
};

struct work {
	const struct info_links *options;
	struct result *result;
};

static int body(const struct crew_member *me, void *arg)
{
	const struct work *work = arg;
	const size_t n = (size_t)work->options->n_ranks;
	struct ferry_cost_config config = FERRY_COST_CONFIG_INIT;
	struct ferry_world *world;

	if (!crew_open(me, 0, &world))
		return EXIT_FAILED;
	int64_t *own = alloc_or_exit(2 * n * n, sizeof(*own));
	config.max_bytes = work->options->max_bytes;
	config.rounds = (int32_t)work->options->rounds;
	const bool good = crew_good(
		me, ferry_cost_measure(world, &config, own, own + n * n),
		"measuring links");

	if (good && me->rank == 0) {
		memcpy(work->result->tables, own, 2 * n * n * sizeof(*own));
		snprintf(work->result->fabric, sizeof(work->result->fabric),
		         "%s", ferry_world_fabric(world));
	}
	ferry_world_close(world);
	free(own);
	return good ? EXIT_GOOD : EXIT_FAILED;
}

static void print_head(const struct info_links *o, const struct result *result)
{
	about_print();
	printf("# fabric   %s, %" PRId64 " ranks\n", result->fabric,
	       o->n_ranks);
	struct machine machine;

	printf("# puts     of up to %" PRId64 " bytes, fastest of %" PRId64
	       " rounds; %" PRId64 " pair%s at a time\n",
	       o->max_bytes, o->rounds, o->n_ranks / 2,
	       o->n_ranks / 2 == 1 ? "" : "s");
	machine_read(&machine);
	if (machine.n_usable_cpus < o->n_ranks)
		printf("# warning  %" PRId64 " ranks share %d CPUs: links look "
		       "slower than they are\n",
		       o->n_ranks, machine.n_usable_cpus);
}

static void print_columns(const char *what, int64_t n)
{
	printf("# %s, from row to column\n#%7s", what, "rank");
	for (int64_t b = 0; b < n; b++)
		printf(" %8" PRId64, b);
	putchar('\n');
}

static void print_matrices(const struct info_links *o,
                           const struct result *result)
{
	const int64_t n = o->n_ranks;
	const int64_t *alpha_ns = result->tables;
	const int64_t *ps = result->tables + n * n;

	print_columns("alpha, us", n);
	for (int64_t a = 0; a < n; a++) {
		printf("%8" PRId64, a);
		for (int64_t b = 0; b < n; b++)
			printf(" %8.2f", (double)alpha_ns[a * n + b] / 1e3);
		putchar('\n');
	}
	print_columns("bandwidth, GB/s", n);
	for (int64_t a = 0; a < n; a++) {
		printf("%8" PRId64, a);
		for (int64_t b = 0; b < n; b++)
			if (ps[a * n + b])
				printf(" %8.2f", 1e3 / (double)ps[a * n + b]);
			else
				printf(" %8s", "-");
		putchar('\n');
	}
}

static cJSON *matrix_json(const int64_t *values, int64_t n)
{
	cJSON *rows = cJSON_CreateArray();

	for (int64_t a = 0; a < n; a++) {
		cJSON *row = cJSON_CreateArray();

		for (int64_t b = 0; b < n; b++)
			cJSON_AddItemToArray(
				row,
				cJSON_CreateNumber((double)values[a * n + b]));
		cJSON_AddItemToArray(rows, row);
	}
	return rows;
}

static bool print_json(const struct info_links *o, const struct result *result)
{
	cJSON *document = json_document("ferry-links-1");
	cJSON *meta = cJSON_AddObjectToObject(document, "meta");
	const int64_t n = o->n_ranks;
	struct build_info build;
	struct machine machine;

	build_info_read(&build);
	machine_read(&machine);
	cJSON_AddStringToObject(meta, "version", build.version);
	cJSON_AddStringToObject(meta, "commit", build.commit);
	cJSON_AddStringToObject(meta, "fabric", result->fabric);
	cJSON_AddNumberToObject(meta, "ranks", (double)n);
	cJSON_AddNumberToObject(meta, "max_bytes", (double)o->max_bytes);
	cJSON_AddNumberToObject(meta, "rounds", (double)o->rounds);
	cJSON_AddItemToObject(meta, "machine", machine_json(&machine));
	cJSON_AddItemToObject(document, "alpha_ns",
	                      matrix_json(result->tables, n));
	cJSON_AddItemToObject(document, "ps_per_byte",
	                      matrix_json(result->tables + n * n, n));
	return json_write(document, "-");
}

int info_links(const struct opt_command *command, const struct info_links *o)
{
	const size_t n = (size_t)o->n_ranks;
	const size_t bytes =
		sizeof(struct result) + 2 * n * n * sizeof(int64_t);
	struct crew crew = {
		.name = command->name,
		.n_ranks = (int32_t)n,
		.bind = true,
	};
	int status = fabric_choose(command, o->fabric, &crew);

	if (status != OPT_GO_ON)
		return status;
	struct work work = {o, alloc_shared(bytes)};

	status = crew_run(&crew, body, &work);
	if (status == EXIT_GOOD && o->json) {
		status = print_json(o, work.result) ? EXIT_GOOD : EXIT_FAILED;
	} else if (status == EXIT_GOOD) {
		print_head(o, work.result);
		print_matrices(o, work.result);
	}
	alloc_shared_free(work.result, bytes);
	return status;
}
