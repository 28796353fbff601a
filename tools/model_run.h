/* SPDX-License-Identifier: Apache-2.0 */
/* Among the files of ferry model: options, one line of its table, sources. */
#ifndef FERRY_MODEL_RUN_H
#define FERRY_MODEL_RUN_H

#include "ep_model.h"
#include "opt.h"

struct model_options {
	struct opt_list ranks, tokens;
	int64_t per_host, hidden, topk, experts;
	int dtype, once, combine; /* indices into their names */
	int64_t steps, seed;
	const char *inside, *between, *base, *memory;
	const char *trace, *fabric;
	bool no_tables, links, measure;
	const char *json; /* "-": stdout, instead of the table */
};

extern const struct opt_command model_command;
extern const char *const model_dtype_names[];
extern const char *const model_combine_names[];

/* One shape, both phases. */
struct model_line {
	struct model_shape shape;
	double ranks_per_token, hosts_per_token;
	struct model_load load[MODEL_N_PHASES];
	struct model_time time[MODEL_N_PHASES];
};

struct model_run {
	const struct model_options *options;
	int argc;
	char **argv;
	struct model_machine machine;
	char measured[32];   /* the fabric; empty: nothing was measured */
	int64_t trace_steps; /* recorded or drawn; 0: expected bytes */
	int n_lines;
	struct model_line lines[OPT_LIST_MAX * OPT_LIST_MAX];
};

/*
 * Spread and loads of a line as a recorded trace has them: means over its
 * layers and steps of ranks * tokens. Sets the shape's topk and experts.
 */
bool model_trace(const char *path, struct model_line *line, int64_t *n_steps,
                 struct fault *fault);

/* The same of n_steps of uniform routing, drawn. */
void model_draw(struct model_line *line, int64_t n_steps, uint64_t seed);

/*
 * Measures the fabric on two ranks of this host: a link inside of hosts where
 * memory is shared, and otherwise one between. An exit status, or OPT_GO_ON.
 */
int model_measure(struct model_run *run);

/* The table on stdout; the document. */
void model_print(const struct model_run *run);
void model_print_links(void);
bool model_write_json(const struct model_run *run, const char *path);

#endif
