/* SPDX-License-Identifier: Apache-2.0 */
/* ferry model: latencies for machines that are not at hand. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "commands.h"
#include "job.h"
#include "model_run.h"

const char *const model_dtype_names[] = {"bf16", "fp8", NULL};
const char *const model_combine_names[] = {"exact", "reduced", "per-host",
                                           NULL};

#define AT(field) offsetof(struct model_options, field)

static const struct opt options[] = {
	{"ranks", 'n', OPT_LIST, AT(ranks), "LIST", "2,8,16,32,64", 1,
         JOB_MAX_RANKS, NULL, "ranks in all: 2,8 or 8:64:x2"},
	{"per-host", 'p', OPT_INT, AT(per_host), "N", "8", 1, JOB_MAX_RANKS,
         NULL, "ranks of a host"},
	{"tokens", 't', OPT_LIST, AT(tokens), "LIST", "128", 0, 1 << 20, NULL,
         "tokens of each rank"},
	{"hidden", 'H', OPT_INT, AT(hidden), "N", "7168", 1, 1 << 20, NULL,
         "elements of a row"},
	{"topk", 'k', OPT_INT, AT(topk), "K", "8", 1, 64, NULL,
         "experts of a token"},
	{"experts", 'e', OPT_INT, AT(experts), "N", "256", 1, 1 << 16, NULL,
         "experts of all ranks"},
	{"dtype", 'd', OPT_CHOICE, AT(dtype), "TYPE", "bf16", 0, 0,
         model_dtype_names,
         "rows that are dispatched; fp8: a scale for 128 elements"},
	{"once", 'o', OPT_CHOICE, AT(once), "PER", "host", 0, 0,
         model_once_names, "what a row is dispatched once for"},
	{"combine", 'c', OPT_CHOICE, AT(combine), "MODE", "exact", 0, 0,
         model_combine_names, "how expert outputs come back, as bf16"},
	{"no-tables", 0, OPT_FLAG, AT(no_tables), NULL, NULL, 0, 0, NULL,
         "count no routing tables, which others do not send"},
	{"inside", 'I', OPT_TEXT, AT(inside), "LINK", "nvlink-h200", 0, 0, NULL,
         "link of a rank inside of its host: a name of --links, or "
         "ALPHA_US,GB_PER_S[,GAP_US]"},
	{"between", 'B', OPT_TEXT, AT(between), "LINK", "cx7", 0, 0, NULL,
         "link of a rank to other hosts, likewise"},
	{"base", 'b', OPT_TEXT, AT(base), "D[,C]", NULL, 0, 0, NULL,
         "microseconds of dispatch, and of combine, without rows and alpha; "
         "that of --inside when not given"},
	{"memory", 'm', OPT_TEXT, AT(memory), "GB/S", NULL, 0, 0, NULL,
         "bytes that a rank reads and writes of its own memory; 0: no bound; "
         "that of --inside when not given"},
	{"trace", 'T', OPT_TEXT, AT(trace), "FILE", NULL, 0, 0, NULL,
         "routing of a recorded trace with ids of tokens, as ferry replay "
         "takes them, instead of uniform routing"},
	{"steps", 's', OPT_INT, AT(steps), "N", "0", 0, 100000, NULL,
         "draw so many steps of uniform routing and take the busiest rank of "
         "each, instead of what a rank expects; 0: not"},
	{"seed", 0, OPT_INT, AT(seed), "N", "1", 0, INT64_MAX, NULL,
         "with --steps: seed of what is drawn"},
	{"measure", 'M', OPT_FLAG, AT(measure), NULL, NULL, 0, 0, NULL,
         "measure --fabric on two ranks of this host: their link, inside or "
         "between, base and memory"},
	{"fabric", 'f', OPT_TEXT, AT(fabric), "NAME", NULL, 0, 0, NULL,
         "with --measure: fabric, as ferry info lists them; the best fit when "
         "not given"},
	{"links", 'L', OPT_FLAG, AT(links), NULL, NULL, 0, 0, NULL,
         "list the links that have names, and where their figures are from"},
	{"json", 'j', OPT_FILE, AT(json), "FILE", NULL, 0, 0, NULL,
         "write JSON too; without FILE to stdout, instead of the table"},
	{0},
};

const struct opt_command model_command = {
	.name = "ferry model",
	.summary = "latencies of dispatch and combine predicted from links",
	.options = options,
	.examples = "  ferry model --ranks 8:64:x2 --dtype fp8\n"
		    "  ferry model --ranks 16 --inside 1.25,365 --between "
		    "20,48 --combine per-host\n"
		    "  ferry model --links\n",
};

static int parse_link(const char *option, const char *text,
                      struct model_link *link)
{
	struct fault fault;

	if (model_link_parse(text, link, &fault))
		return OPT_GO_ON;
	return opt_complain(&model_command, "--%s is %s", option, fault.text);
}

static int parse_base(const struct model_options *o, struct model_machine *m)
{
	double given[MODEL_N_PHASES];
	const int n = o->base ? model_numbers(o->base, 1, 2, given) : 0;

	if (o->base && n == 0)
		return opt_complain(&model_command,
		                    "--base is '%s', allowed is D[,C] in "
		                    "microseconds, 0 or more",
		                    o->base);
	for (int p = 0; p < n; p++)
		m->base_us[p] = given[p];
	if (n == 1)
		m->base_us[MODEL_COMBINE] = given[0];
	return OPT_GO_ON;
}

static int parse_memory(const struct model_options *o, struct model_machine *m)
{
	double given;

	if (!o->memory)
		return OPT_GO_ON;
	if (!model_numbers(o->memory, 1, 1, &given))
		return opt_complain(&model_command,
		                    "--memory is '%s', allowed is GB/s, 0 or "
		                    "more",
		                    o->memory);
	m->memory_bytes_per_us = given * 1e3;
	return OPT_GO_ON;
}

/* What is measured comes first: options that are given count for more. */
static int parse_machine(struct model_run *run)
{
	const struct model_options *o = run->options;
	struct model_machine *const m = &run->machine;
	int status = parse_link("inside", o->inside, &m->inside);

	if (status == OPT_GO_ON)
		status = parse_link("between", o->between, &m->between);
	m->memory_bytes_per_us = m->inside.memory_bytes_per_us;
	memcpy(m->base_us, m->inside.base_us, sizeof(m->base_us));
	if (status == OPT_GO_ON && o->measure)
		status = model_measure(run);
	if (status == OPT_GO_ON)
		status = parse_base(o, m);
	if (status == OPT_GO_ON)
		status = parse_memory(o, m);
	return status;
}

static int check(const struct model_options *o)
{
	if (o->topk > o->experts)
		return opt_complain(&model_command,
		                    "--topk is %" PRId64
		                    ", allowed is at most the %" PRId64
		                    " of --experts",
		                    o->topk, o->experts);
	if (o->steps && o->trace)
		return opt_complain(&model_command,
		                    "--steps and --trace exclude each other");
	if (o->fabric && !o->measure)
		return opt_complain(&model_command, "--fabric needs --measure");
	return OPT_GO_ON;
}

static struct model_shape shape_at(const struct model_options *o, int64_t ranks,
                                   int64_t tokens)
{
	return (struct model_shape){
		.ranks = (int32_t)ranks,
		.per_host = (int32_t)o->per_host,
		.tokens = (int32_t)tokens,
		.hidden = (int32_t)o->hidden,
		.topk = (int32_t)o->topk,
		.experts = (int32_t)o->experts,
		.fp8 = o->dtype == 1,
		.tables = !o->no_tables,
		.once = {(enum model_once)o->once, (enum model_once)o->combine},
	};
}

static void expect(struct model_line *line)
{
	const struct model_shape *s = &line->shape;
	struct model_rows *rows =
		alloc_or_exit((size_t)s->ranks, sizeof(*rows));

	line->ranks_per_token = model_ranks_per_token(s);
	line->hosts_per_token = model_hosts_per_token(s);
	for (int p = 0; p < MODEL_N_PHASES; p++) {
		model_expect(s, (enum model_phase)p, rows);
		model_load_of(s, (enum model_phase)p, rows,
		              line->ranks_per_token, &line->load[p]);
	}
	free(rows);
}

static bool compute(struct model_run *run, struct model_line *line)
{
	const struct model_options *o = run->options;
	struct fault fault;

	if (o->steps > 0) {
		model_draw(line, o->steps, (uint64_t)o->seed);
		run->trace_steps = o->steps;
	} else if (!o->trace) {
		expect(line);
	} else if (!model_trace(o->trace, line, &run->trace_steps, &fault)) {
		opt_complain(&model_command, "%s", fault.text);
		return false;
	}
	for (int p = 0; p < MODEL_N_PHASES; p++)
		model_time_of(&line->shape, &run->machine, (enum model_phase)p,
		              &line->load[p], &line->time[p]);
	return true;
}

static int run_all(struct model_run *run)
{
	const struct model_options *o = run->options;
	const bool only_json = o->json && !strcmp(o->json, "-");

	for (int r = 0; r < o->ranks.n; r++)
		for (int t = 0; t < o->tokens.n; t++) {
			struct model_line *line = &run->lines[run->n_lines++];

			line->shape = shape_at(o, o->ranks.values[r],
			                       o->tokens.values[t]);
			if (!compute(run, line))
				return EXIT_FAILED;
		}
	if (!only_json)
		model_print(run);
	if (o->json && !model_write_json(run, o->json))
		return EXIT_FAILED;
	return EXIT_GOOD;
}

int cmd_model(int argc, char **argv)
{
	struct model_options o = {0};
	struct model_run *run = alloc_or_exit(1, sizeof(*run));
	int first;
	int status = opt_parse(&model_command, argc, argv, &o, &first);

	run->options = &o;
	run->argc = argc;
	run->argv = argv;
	if (status == OPT_GO_ON && o.links) {
		model_print_links();
		status = EXIT_GOOD;
	}
	if (status == OPT_GO_ON)
		status = check(&o);
	if (status == OPT_GO_ON)
		status = parse_machine(run);
	if (status == OPT_GO_ON)
		status = run_all(run);
	free(run);
	return status;
}
