/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry bench --device cuda prints, and its JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "about.h"
#include "gpu_bench.h"
#include "json.h"

static double floor_us(const struct gpu_bench *b, const struct gpu_row *row,
                       int phase)
{
	return gpu_floor_us(&row->bytes, phase, b->facts.store_bytes_per_s,
	                    b->facts.copy_bytes_per_s);
}

static double wire_us(const struct gpu_bench *b, const struct gpu_row *row,
                      int phase)
{
	return gpu_floor_us(&row->bytes, phase, b->facts.store_bytes_per_s, 0);
}

static double memory_us(const struct gpu_bench *b, const struct gpu_row *row,
                        int phase)
{
	return gpu_floor_us(&row->bytes, phase, 0, b->facts.copy_bytes_per_s);
}

/* Rows of recv behind other work have no pair and no floor. */
static int n_phases(const struct gpu_row *row)
{
	return row->split_us ? BENCH_PAIR : BENCH_N_PHASES;
}

static void print_header(const struct gpu_bench *b)
{
	const struct gpu_facts *f = &b->facts;
	const struct bench_options *o = b->run->options;

	about_print();
	printf("# gpu      %d x %s, %s\n", f->n_devices, f->name, f->reason);
	printf("# copy     %.0f GB/s read + written on one GPU; stores to "
	       "another GPU ",
	       f->copy_bytes_per_s / 1e9);
	if (f->store_bytes_per_s > 0)
		printf("%.1f GB/s, both directions at once\n",
		       f->store_bytes_per_s / 1e9);
	else
		printf("not measured: %s\n", f->link);
	printf("# ranks    %" PRId64 " %s on fabric %s; %s, %d replays, "
	       "%d rounds, seed %" PRId64 "\n",
	       o->ranks, o->processes ? "processes" : "threads", b->run->fabric,
	       b->graph ? "CUDA graphs" : "launched one by one", b->iters,
	       b->n_rounds, o->seed);
	if (*b->nccl)
		printf("# nccl     %s; exchange only: no packing, no sums, "
		       "counts known\n",
		       b->nccl);
	if (*b->nvshmem)
		printf("# nvshmem  %s; its alltoallmem on a stream, launched "
		       "one by one; exchange only\n",
		       b->nvshmem);
}

static void print_columns(void)
{
	puts("# times    of one operation in a chain, slowest rank; link_us "
	     "and mem_us: bytes\n"
	     "#          over the rates above; recv+N: what recv adds behind "
	     "N us of other work");
	printf("#%6s %-10s %-6s %-7s %-7s %-7s %4s %-9s %-10s %8s %8s %8s "
	       "%6s %10s %7s %7s %6s %6s %7s %5s %5s\n",
	       "tokens", "shape", "dtype", "layout", "combine", "path", "sms",
	       "phase", "impl", "p50_us", "p99_us", "max_us", "p99/50",
	       "wire_bytes", "link_us", "mem_us", "floor%", "host", "target",
	       "ratio", "wrong");
}

static void print_shape(const struct gpu_row *row)
{
	const struct bench_case *c = &row->shape;
	char shape[32];

	snprintf(shape, sizeof(shape), "%d/%d/%d", c->hidden, c->experts,
	         c->topk);
	printf("%7d %-10s %-6s %-7s %-7s %-7s %4d ", c->tokens, shape,
	       bench_dtype_name(c), bench_layout_names[c->layout],
	       bench_combine_names[c->combine], *row->path ? row->path : "-",
	       row->n_sms);
}

static void print_target(double target_us, double p50_us)
{
	if (target_us > 0)
		printf(" %7.1f %5.2f", target_us, p50_us / target_us);
	else
		printf(" %7s %5s", "-", "-");
}

static void print_figure(const struct gpu_bench *b, const struct gpu_row *row,
                         const struct bench_result *all, int phase)
{
	const struct bench_figure *f = &all->phase[phase];
	const double least = floor_us(b, row, phase);
	char name[16];

	print_shape(row);
	if (row->split_us)
		snprintf(name, sizeof(name), "%.1s:recv+%d",
		         bench_phase_names[phase], row->split_us);
	else
		snprintf(name, sizeof(name), "%s", bench_phase_names[phase]);
	printf("%-9s %-10s %8.2f %8.2f %8.2f %6.2f %10" PRIu64
	       " %7.2f %7.2f %6.1f %6.2f",
	       name, gpu_impl_names[row->impl], f->p50_us, f->p99_us, f->max_us,
	       f->p50_us > 0 ? f->p99_us / f->p50_us : 0, f->wire_bytes,
	       wire_us(b, row, phase), memory_us(b, row, phase),
	       f->p50_us > 0 && !row->split_us ? 100 * least / f->p50_us : 0,
	       row->host_us[phase]);
	print_target(row->target_us[phase], f->p50_us);
	printf(" %5" PRId64 "\n", f->wrong);
}

static void print_row(const struct gpu_bench *b, const struct gpu_row *row)
{
	const struct bench_result all = bench_merge(row->rounds, b->n_rounds);

	if (row->left_out)
		return;
	if (row->failed) {
		print_shape(row);
		printf("FAILED    %-10s\n", gpu_impl_names[row->impl]);
		return;
	}
	for (int phase = 0; phase < n_phases(row); phase++)
		print_figure(b, row, &all, phase);
}

/* "# 21 of 23 targets met", and what there was no time for. */
static void print_targets(const struct gpu_bench *b)
{
	int n = 0, n_met = 0, n_left_out = 0;

	for (int i = 0; i < b->n_rows; i++)
		n_left_out += b->rows[i].left_out;
	for (int i = 0; i < b->n_rows; i++)
		for (int p = 0; p < BENCH_N_PHASES; p++) {
			const struct gpu_row *row = &b->rows[i];
			const double p50 = bench_merge(row->rounds, b->n_rounds)
			                           .phase[p]
			                           .p50_us;

			if (row->target_us[p] <= 0 || row->left_out)
				continue;
			n++;
			n_met += p50 > 0 && p50 <= row->target_us[p];
		}
	if (n)
		printf("# %d of %d targets met\n", n_met, n);
	if (n_left_out)
		printf("# %d rows left out: the time was over\n", n_left_out);
}

int64_t gpu_print(const struct gpu_bench *b)
{
	int64_t wrong = 0;

	print_header(b);
	print_columns();
	for (int i = 0; i < b->n_rows; i++) {
		print_row(b, &b->rows[i]);
		wrong += bench_merge(b->rows[i].rounds, b->n_rounds)
		                 .phase[BENCH_PAIR]
		                 .wrong;
	}
	print_targets(b);
	printf("# %" PRId64 " wrong\n", wrong);
	return wrong;
}

static void add_facts(cJSON *meta, const struct gpu_bench *b)
{
	const struct gpu_facts *f = &b->facts;
	cJSON *gpu = cJSON_AddObjectToObject(meta, "gpu");
	cJSON *copy = cJSON_AddObjectToObject(meta, "copy_bytes_per_s");

	cJSON_AddStringToObject(meta, "device", "cuda");
	cJSON_AddStringToObject(gpu, "name", f->name);
	cJSON_AddNumberToObject(gpu, "count", f->n_devices);
	cJSON_AddStringToObject(gpu, "driver", f->reason);
	json_add_rounded(copy, "device", f->copy_bytes_per_s);
	json_add_rounded(meta, "store_bytes_per_s", f->store_bytes_per_s);
	cJSON_AddBoolToObject(meta, "graph", b->graph);
	cJSON_AddStringToObject(meta, "ranks_are",
	                        b->run->options->processes ? "processes"
	                                                   : "threads");
	if (*b->nccl)
		cJSON_AddStringToObject(meta, "nccl", b->nccl);
	if (*b->nvshmem)
		cJSON_AddStringToObject(meta, "nvshmem", b->nvshmem);
}

static void add_times(cJSON *json, const struct gpu_bench *b,
                      const struct gpu_row *row, int phase)
{
	const struct bench_result all = bench_merge(row->rounds, b->n_rounds);
	const struct bench_figure *f = &all.phase[phase];
	cJSON *each;

	json_add_rounded(json, "p50_us", f->p50_us);
	json_add_rounded(json, "p99_us", f->p99_us);
	json_add_rounded(json, "max_us", f->max_us);
	cJSON_AddNumberToObject(json, "wire_bytes", (double)f->wire_bytes);
	cJSON_AddNumberToObject(json, "logical_bytes",
	                        (double)row->logical.logical[phase]);
	json_add_rounded(json, "floor_us", floor_us(b, row, phase));
	json_add_rounded(json, "floor_wire_us", wire_us(b, row, phase));
	json_add_rounded(json, "floor_memory_us", memory_us(b, row, phase));
	cJSON_AddNumberToObject(json, "link_bytes",
	                        (double)row->bytes.link[phase]);
	cJSON_AddNumberToObject(json, "wrong", (double)f->wrong);
	each = cJSON_AddArrayToObject(json, "p50_us_rounds");
	for (int i = 0; i < b->n_rounds; i++)
		cJSON_AddItemToArray(
			each,
			cJSON_CreateNumber(row->rounds[i].phase[phase].p50_us));
	if (row->target_us[phase] > 0)
		json_add_rounded(json, "target_us", row->target_us[phase]);
}

static cJSON *figure_json(const struct gpu_bench *b, const struct gpu_row *row,
                          int phase)
{
	cJSON *json =
		bench_json_row(b->run, &row->shape, bench_phase_names[phase],
	                       gpu_impl_names[row->impl]);

	cJSON_ReplaceItemInObject(json, "iters",
	                          cJSON_CreateNumber(row->iters));
	cJSON_ReplaceItemInObject(json, "rounds",
	                          cJSON_CreateNumber(b->n_rounds));
	cJSON_AddNumberToObject(json, "chain", row->chain);
	if (row->impl == GPU_FERRY) {
		cJSON_AddStringToObject(json, "path", row->path);
		cJSON_AddNumberToObject(json, "max_sms", row->shape.max_sms);
		cJSON_AddNumberToObject(json, "sms", row->n_sms);
	}
	if (row->split_us)
		cJSON_AddNumberToObject(json, "split_us", row->split_us);
	if (row->host_us[phase] > 0)
		json_add_rounded(json, "host_us", row->host_us[phase]);
	if (row->failed)
		cJSON_AddTrueToObject(json, "failed");
	else
		add_times(json, b, row, phase);
	return json;
}

cJSON *gpu_json(const struct gpu_bench *b)
{
	cJSON *document = bench_json_document(b->run);
	cJSON *rows = cJSON_GetObjectItem(document, "rows");

	add_facts(cJSON_GetObjectItem(document, "meta"), b);
	for (int i = 0; i < b->n_rows; i++)
		for (int p = 0;
		     p < n_phases(&b->rows[i]) && !b->rows[i].left_out; p++)
			cJSON_AddItemToArray(rows,
			                     figure_json(b, &b->rows[i], p));
	return document;
}
