/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ferry model, and its JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "about.h"
#include "json.h"
#include "model_run.h"

static const double PER_US = 1000; /* bytes per us of a GB/s */

static void print_link(const char *what, const struct model_link *l)
{
	printf("# %-8s %s: alpha %.2f us, %.2f GB/s", what, l->name,
	       l->alpha_us, l->bytes_per_us / PER_US);
	if (l->gap_us > 0)
		printf(", %.3f us a message", l->gap_us);
	printf("; %s\n", l->source);
}

static void print_head(const struct model_run *run)
{
	const struct model_machine *m = &run->machine;
	const struct model_options *o = run->options;
	const struct model_shape *s = &run->lines[0].shape;

	about_print();
	print_link("inside", &m->inside);
	print_link("between", &m->between);
	printf("# base     dispatch %.2f us, combine %.2f us; memory ",
	       m->base_us[0], m->base_us[1]);
	if (m->memory_bytes_per_us > 0)
		printf("%.0f GB/s of a rank\n",
		       m->memory_bytes_per_us / PER_US);
	else
		puts("not counted");
	printf("# shape    hidden %d, top-%d of %d, %s; rows once per %s, "
	       "combine %s%s\n",
	       s->hidden, s->topk, s->experts, model_dtype_names[s->fp8],
	       model_once_names[o->once], model_combine_names[o->combine],
	       s->tables ? ", tables to every rank" : ", no tables");
	if (run->trace_steps)
		printf("# routing  %s, %" PRId64
		       " steps%s; the busiest rank of each\n",
		       o->trace ? "of a trace" : "uniform, drawn",
		       run->trace_steps, o->trace ? " and layers" : "");
	else
		puts("# routing  uniform; expected bytes of a rank");
	puts("# latency  base + alpha + the largest of the three; serial: "
	     "their sum instead");
}

static void print_line(const struct model_line *line, int phase)
{
	const struct model_time *t = &line->time[phase];
	const struct model_load *l = &line->load[phase];

	printf("%6d %5d %7d %-9s %6.3f %6.3f %10.1f %10.1f %9.1f %9.1f %9.1f "
	       "%10.1f %10.1f %s\n",
	       line->shape.ranks, model_hosts(&line->shape), line->shape.tokens,
	       model_phase_names[phase], line->ranks_per_token,
	       line->hosts_per_token, l->inside_bytes / 1e3,
	       l->between_bytes / 1e3, t->inside_us, t->between_us,
	       t->memory_us, t->latency_us, t->serial_us, t->bound_by);
}

void model_print(const struct model_run *run)
{
	print_head(run);
	printf("#%5s %5s %7s %-9s %6s %6s %10s %10s %9s %9s %9s %10s %10s "
	       "%s\n",
	       "ranks", "hosts", "tokens", "phase", "ranks/", "hosts/",
	       "inside_kB", "between_kB", "inside_us", "betw_us", "memory_us",
	       "latency_us", "serial_us", "bound_by");
	for (int i = 0; i < run->n_lines; i++)
		for (int p = 0; p < MODEL_N_PHASES; p++)
			print_line(&run->lines[i], p);
}

void model_print_links(void)
{
	const struct model_link *l;

	printf("%-14s %9s %9s %9s  %s\n", "name", "alpha_us", "GB/s", "memory",
	       "source");
	for (int i = 0; (l = model_preset(i)); i++)
		printf("%-14s %9.2f %9.1f %9.0f  %s\n", l->name, l->alpha_us,
		       l->bytes_per_us / PER_US,
		       l->memory_bytes_per_us / PER_US, l->source);
}

static void add_link(cJSON *meta, const char *what, const struct model_link *l)
{
	cJSON *o = cJSON_AddObjectToObject(meta, what);

	cJSON_AddStringToObject(o, "name", l->name);
	json_add_rounded(o, "alpha_us", l->alpha_us);
	json_add_rounded(o, "bytes_per_s", l->bytes_per_us * 1e6);
	json_add_rounded(o, "gap_us", l->gap_us);
	json_add_rounded(o, "piece_bytes", l->piece_bytes);
	cJSON_AddStringToObject(o, "source", l->source);
}

static cJSON *line_json(const struct model_line *line, int phase)
{
	const struct model_shape *s = &line->shape;
	const struct model_load *l = &line->load[phase];
	const struct model_time *t = &line->time[phase];
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, "phase", model_phase_names[phase]);
	cJSON_AddNumberToObject(o, "ranks", s->ranks);
	cJSON_AddNumberToObject(o, "hosts", model_hosts(s));
	cJSON_AddNumberToObject(o, "tokens", s->tokens);
	cJSON_AddNumberToObject(o, "hidden", s->hidden);
	cJSON_AddNumberToObject(o, "topk", s->topk);
	cJSON_AddNumberToObject(o, "experts", s->experts);
	cJSON_AddStringToObject(o, "dtype", model_dtype_names[s->fp8]);
	cJSON_AddStringToObject(o, "once", model_once_names[s->once[phase]]);
	json_add_rounded(o, "row_bytes",
	                 model_row_bytes(s, (enum model_phase)phase));
	json_add_rounded(o, "table_bytes",
	                 model_table_bytes(s, (enum model_phase)phase));
	json_add_ratio(o, "ranks_per_token", line->ranks_per_token);
	json_add_ratio(o, "hosts_per_token", line->hosts_per_token);
	json_add_rounded(o, "inside_bytes", l->inside_bytes);
	json_add_rounded(o, "between_bytes", l->between_bytes);
	json_add_rounded(o, "memory_bytes", l->memory_bytes);
	json_add_rounded(o, "inside_messages", l->inside_messages);
	json_add_rounded(o, "between_messages", l->between_messages);
	json_add_rounded(o, "inside_us", t->inside_us);
	json_add_rounded(o, "between_us", t->between_us);
	json_add_rounded(o, "memory_us", t->memory_us);
	json_add_rounded(o, "alpha_us", t->alpha_us);
	json_add_rounded(o, "base_us", t->base_us);
	json_add_rounded(o, "latency_us", t->latency_us);
	json_add_rounded(o, "serial_us", t->serial_us);
	cJSON_AddStringToObject(o, "bound_by", t->bound_by);
	return o;
}

bool model_write_json(const struct model_run *run, const char *path)
{
	cJSON *document = json_document("ferry-model-1");
	cJSON *meta = cJSON_AddObjectToObject(document, "meta");
	cJSON *rows = cJSON_AddArrayToObject(document, "rows");

	about_json(meta, run->argc, run->argv);
	add_link(meta, "inside", &run->machine.inside);
	add_link(meta, "between", &run->machine.between);
	json_add_rounded(meta, "memory_bytes_per_s",
	                 run->machine.memory_bytes_per_us * 1e6);
	if (*run->measured)
		cJSON_AddStringToObject(meta, "measured", run->measured);
	cJSON_AddNumberToObject(meta, "trace_steps", (double)run->trace_steps);
	for (int i = 0; i < run->n_lines; i++)
		for (int p = 0; p < MODEL_N_PHASES; p++)
			cJSON_AddItemToArray(rows,
			                     line_json(&run->lines[i], p));
	return json_write(document, path);
}
