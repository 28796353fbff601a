/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of ferry bench: {schema, meta, rows}. */
#include <stdio.h>

#include "about.h"
#include "bench_report.h"
#include "cpu/kernels.h"
#include "json.h"

static void add_copy(cJSON *meta, const struct bench_copy *copy)
{
	cJSON *o = cJSON_AddObjectToObject(meta, "copy_bytes_per_s");

	for (int way = 0; way < BENCH_COPY_WAYS; way++)
		json_add_rounded(o, bench_copy_names[way],
		                 copy->bytes_per_s[way]);
	json_add_rounded(meta, "copy_block_bytes", (double)copy->block_bytes);
}

static void add_mpi(cJSON *meta, const struct bench_mpi_facts *mpi)
{
	cJSON *o;

	if (!*mpi->version)
		return;
	o = cJSON_AddObjectToObject(meta, "mpi");
	cJSON_AddStringToObject(o, "version", mpi->version);
	cJSON_AddStringToObject(o, "single_copy", mpi->single_copy);
	json_add_rounded(o, "exchange_bytes_per_s", mpi->bytes_per_s);
}

cJSON *bench_json_document(const struct bench_run *run)
{
	cJSON *document = json_document("ferry-bench-1");
	cJSON *meta = cJSON_AddObjectToObject(document, "meta");

	about_json(meta, run->argc, run->argv);
	cJSON_AddStringToObject(meta, "fabric", run->fabric);
	cJSON_AddStringToObject(meta, "bind",
	                        bench_bind_names[run->options->bind]);
	cJSON_AddStringToObject(meta, "pages",
	                        bench_pages_names[run->options->pages]);
	cJSON_AddStringToObject(meta, "kernels", ferry_kernels_at(0)->name);
	cJSON_AddArrayToObject(document, "rows");
	return document;
}

cJSON *bench_json_row(const struct bench_run *run, const struct bench_case *c,
                      const char *phase, const char *impl)
{
	const struct bench_options *o = run->options;
	cJSON *row = cJSON_CreateObject();

	cJSON_AddStringToObject(row, "phase", phase);
	cJSON_AddStringToObject(row, "impl", impl);
	cJSON_AddNumberToObject(row, "ranks", c->n_ranks);
	cJSON_AddNumberToObject(row, "tokens", c->tokens);
	cJSON_AddNumberToObject(row, "hidden", c->hidden);
	cJSON_AddNumberToObject(row, "topk", c->topk);
	cJSON_AddNumberToObject(row, "experts", c->experts);
	cJSON_AddStringToObject(row, "dtype", bench_dtype_name(c));
	cJSON_AddStringToObject(row, "combine",
	                        bench_combine_names[c->combine]);
	cJSON_AddStringToObject(row, "layout", bench_layout_names[c->layout]);
	cJSON_AddStringToObject(row, "routing",
	                        bench_routing_names[c->routing]);
	cJSON_AddNumberToObject(row, "iters", (double)o->iters);
	cJSON_AddNumberToObject(row, "rounds", (double)o->rounds);
	return row;
}

/* Beside raw writes. */
static void add_shares(cJSON *row, const struct bench_run *run,
                       const struct bench_cell *cell, int phase)
{
	json_add_ratio(row, "raw_share",
	               bench_raw_share(run, cell, phase, BENCH_LESS_NOTHING));
	json_add_ratio(row, "raw_share_floor",
	               bench_raw_share(run, cell, phase, BENCH_LESS_FLOOR));
	if (!cell->work)
		return;
	json_add_ratio(row, "raw_share_wire",
	               bench_raw_share(run, cell, phase, BENCH_LESS_WORK));
	json_add_rounded(row, "work_us", bench_work_us(run, cell, phase));
}

static cJSON *figure_row(const struct bench_run *run,
                         const struct bench_cell *cell, int phase, int impl)
{
	const int n_rounds = (int)run->options->rounds;
	const struct bench_result *rounds = cell->rounds[impl];
	const struct bench_result all = bench_merge(rounds, n_rounds);
	const struct bench_figure *f = &all.phase[phase];
	cJSON *row = bench_json_row(run, &cell->shape, bench_phase_names[phase],
	                            cell->impls[impl]);
	cJSON *each;

	json_add_rounded(row, "p50_us", f->p50_us);
	json_add_rounded(row, "p99_us", f->p99_us);
	json_add_rounded(row, "max_us", f->max_us);
	cJSON_AddNumberToObject(row, "wire_bytes", (double)f->wire_bytes);
	if (all.n_hosts > 1) {
		cJSON_AddNumberToObject(row, "hosts", all.n_hosts);
		cJSON_AddNumberToObject(row, "host_bytes",
		                        (double)f->host_bytes);
		cJSON_AddNumberToObject(row, "least_host_bytes",
		                        (double)all.least_host_bytes[phase]);
		cJSON_AddNumberToObject(row, "table_bytes",
		                        (double)all.table_bytes);
	}
	cJSON_AddNumberToObject(row, "logical_bytes",
	                        (double)cell->bytes.logical[phase]);
	json_add_rounded(row, "floor_us",
	                 (double)cell->bytes.floor[phase] / run->copy.best *
	                         1e6);
	cJSON_AddNumberToObject(row, "wrong", (double)f->wrong);
	if (run->options->raw && impl == 0)
		add_shares(row, run, cell, phase);
	each = cJSON_AddArrayToObject(row, "p50_us_rounds");
	for (int i = 0; i < n_rounds; i++)
		cJSON_AddItemToArray(
			each,
			cJSON_CreateNumber(rounds[i].phase[phase].p50_us));
	return row;
}

cJSON *bench_json(const struct bench_run *run)
{
	cJSON *document = bench_json_document(run);
	cJSON *meta = cJSON_GetObjectItem(document, "meta");
	cJSON *rows = cJSON_GetObjectItem(document, "rows");

	add_copy(meta, &run->copy);
	add_mpi(meta, &run->mpi);
	for (int i = 0; i < run->n_cells; i++)
		for (int p = 0; p < BENCH_N_PHASES; p++)
			for (int m = 0; m < run->cells[i].n_impls; m++)
				cJSON_AddItemToArray(
					rows,
					figure_row(run, &run->cells[i], p, m));
	return document;
}
