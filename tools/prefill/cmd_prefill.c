/* SPDX-License-Identifier: Apache-2.0 */
/* ferry prefill: a language model on ranks that hold its experts, balanced. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../alloc.h"
#include "../commands.h"
#include "../shown.h"
#include "prefill.h"
#include "prefill_options.h"
#include "prefill_outputs.h"
#include "prefill_text.h"

/* Everything that a command has, from its first look at a file on. */
struct command {
	struct prefill_args args;
	struct prefill_job job;
	struct prefill_policies policies;
	struct lm_model model;
	struct prefill_text texts[OPT_LIST_MAX];
	char *names[OPT_LIST_MAX], *model_name; /* as they are shown */
	struct prefill_input input;
	struct prefill_shape shape;
	struct prefill_run runs[PREFILL_MAX_RUNS];
	struct prefill_run truth; /* --check */
	struct prefill_report report;
	bool quiet; /* JSON goes to stdout */
};

static bool fail(const struct fault *fault)
{
	fprintf(stderr, "ferry prefill: %s\n", fault->text);
	return false;
}

static bool check_model(const struct command *c, struct fault *fault)
{
	const struct lm_config *const config = &c->model.config;

	if (config->n_experts < c->args.ranks)
		return fault_set(fault,
		                 "%s has %d experts, --ranks is %" PRId64
		                 ", allowed is at most one rank an expert",
		                 c->args.model, config->n_experts,
		                 c->args.ranks);
	if (c->args.length > config->max_length)
		return fault_set(fault,
		                 "--length is %" PRId64
		                 ", %s has max_position_embeddings %d",
		                 c->args.length, c->args.model,
		                 config->max_length);
	return true;
}

static bool open_texts(struct command *c, struct fault *fault)
{
	const int32_t vocab = c->model.config.vocab;
	struct lm_tokenizer *tokenizer;
	bool good = lm_tokenizer_open(c->args.model, &tokenizer, fault);

	if (!good)
		return false;
	for (int i = 0; good && i < c->args.texts.n; i++)
		good = prefill_text_open(c->args.texts.values[i], tokenizer,
		                         vocab, &c->texts[i], fault);
	lm_tokenizer_close(tokenizer);
	return good;
}

static bool cut_texts(struct command *c, struct fault *fault)
{
	const struct prefill_args *const a = &c->args;
	const struct prefill_cut cut = {
		.order = (enum prefill_order)a->order,
		.batch = (int32_t)a->batch,
		.length = (int32_t)a->length,
		.max_steps = (int32_t)a->steps,
		.warm_up = (int32_t)a->warm_up,
	};

	prefill_text_shorten(c->texts, a->texts.n);
	for (int i = 0; i < a->texts.n; i++)
		c->texts[i].name = c->names[i] = shown_line(c->texts[i].name);
	return prefill_input_open(c->texts, a->texts.n, &cut, &c->input, fault);
}

static void make_shape(struct command *c)
{
	const struct lm_config *const config = &c->model.config;
	struct prefill_shape *const shape = &c->shape;

	*shape = (struct prefill_shape){
		.n_ranks = (int32_t)c->args.ranks,
		.n_layers = config->n_layers,
		.n_experts = config->n_experts,
		.topk = config->topk,
		.hidden = config->hidden,
		.vocab = config->vocab,
		.n_steps = c->input.n_steps,
		.n_sequences = c->input.n_sequences,
		.n_texts = c->args.texts.n,
		.batch = (int32_t)c->args.batch,
		.length = (int32_t)c->args.length,
		.replicas = (int32_t)c->args.replicas,
		.n_tokens = c->input.n_tokens,
		.all_logits = c->args.logits,
		.model = c->model_name,
		.texts = (const char *const *)c->names,
		.order = (enum prefill_order)c->args.order,
		.steps = c->input.steps,
	};
	for (int t = 0; t < LM_EXPERT_TENSORS; t++)
		shape->expert_bytes +=
			lm_expert_bytes(&c->model, (enum lm_expert_tensor)t);
	c->job.model = &c->model;
	c->job.shape = shape;
	c->job.tokens = c->input.tokens;
	c->job.first_token = c->input.first_token;
	c->job.first_sequence = c->input.first_sequence;
}

/* The last run that predicts, so that the record has predictions; or the last
 * of all. */
static int32_t recorded_run(const struct command *c)
{
	for (int32_t i = c->policies.n - 1; i >= 0; i--)
		if (c->policies.each[i] != FERRY_BALANCE_OFF &&
		    c->policies.each[i] != FERRY_BALANCE_EPLB)
			return i;
	return c->policies.n - 1;
}

static void open_runs(struct command *c)
{
	for (int32_t i = 0; i < c->policies.n; i++) {
		struct prefill_run *const run = &c->runs[i];

		prefill_run_open(&c->shape,
		                 c->args.record && i == recorded_run(c), run);
		run->policy = c->policies.each[i];
		run->name = prefill_policy_names[run->policy];
		prefill_input_name(&c->input, run);
	}
}

static bool run_alone(struct command *c)
{
	struct fault fault = {""};

	prefill_run_open(&c->shape, false, &c->truth);
	c->truth.name = "without ranks";
	prefill_input_name(&c->input, &c->truth);
	if (!prefill_run_alone(&c->job, &c->truth, &fault))
		return fail(&fault);
	c->job.start_loads = c->truth.loads;
	return true;
}

/* Runs one policy, compares its bits, and prints its layers. */
static int run_policy(struct command *c, struct prefill_run *run)
{
	const int status = prefill_run_ranks(&c->job, run);

	if (status != EXIT_GOOD)
		return status;
	c->job.start_loads = run->loads;
	prefill_compare(&c->shape, c->args.check ? &c->truth : &c->runs[0],
	                run);
	c->report.bits_equal = c->report.bits_equal && run->bits_equal;
	if (!c->quiet)
		prefill_print_run(&c->report, run);
	return EXIT_GOOD;
}

static bool write_outputs(const struct command *c)
{
	const struct prefill_args *const a = &c->args;
	const struct prefill_run *const last = &c->runs[c->policies.n - 1];
	const struct prefill_report *const report = &c->report;
	bool good = true;

	if (a->record)
		good &= prefill_write_record(report, &c->runs[recorded_run(c)],
		                             a->record);
	if (a->trace)
		good &= prefill_write_trace(report, last, a->trace);
	if (a->report)
		good &= prefill_write_html(report, a->report);
	if (a->json)
		good &= prefill_write_json(report, a->json);
	return good;
}

static int run(struct command *c)
{
	int status = EXIT_GOOD;

	if (!c->quiet)
		prefill_print_header(&c->report);
	if (c->args.check && !run_alone(c))
		return EXIT_FAILED;
	for (int32_t i = 0; status == EXIT_GOOD && i < c->policies.n; i++)
		status = run_policy(c, &c->runs[i]);
	if (status != EXIT_GOOD)
		return status;
	if (!c->quiet)
		prefill_print_totals(&c->report);
	const bool written = write_outputs(c);

	return written && c->report.bits_equal ? EXIT_GOOD : EXIT_FAILED;
}

/* Before the first run, which may be one of OFF. */
static bool check_memory(const struct command *c)
{
	struct fault fault = {""};

	for (int32_t i = 0; i < c->policies.n; i++)
		if (c->policies.each[i] != FERRY_BALANCE_OFF)
			return prefill_memory_check(&c->job, &fault) ||
			       fail(&fault);
	return true;
}

/* Model and texts are at hand. */
static int run_all(struct command *c, int argc, char **argv)
{
	make_shape(c);
	if (!check_memory(c))
		return EXIT_FAILED;
	open_runs(c);
	c->report = (struct prefill_report){
		.job = &c->job,
		.runs = c->runs,
		.n_runs = c->policies.n,
		.checked = c->args.check,
		.bits_equal = true,
		.argc = argc,
		.argv = argv,
	};
	c->quiet = c->args.json && !strcmp(c->args.json, "-");
	const int status = run(c);

	for (int32_t i = 0; i < c->policies.n; i++)
		prefill_run_close(&c->shape, &c->runs[i]);
	prefill_run_close(&c->shape, &c->truth);
	return status;
}

static int with_model(struct command *c, int argc, char **argv)
{
	struct fault fault = {""};
	int status = EXIT_FAILED;

	if (!prefill_outputs_spare(&c->args, &c->model))
		return EXIT_FAILED;
	c->model_name = shown_line(c->args.model);
	if (check_model(c, &fault) && open_texts(c, &fault) &&
	    cut_texts(c, &fault))
		status = run_all(c, argc, argv);
	else
		fail(&fault);
	prefill_input_close(&c->input);
	for (int i = 0; i < c->args.texts.n; i++) {
		prefill_text_close(&c->texts[i]);
		free(c->names[i]);
	}
	free(c->model_name);
	return status;
}

int cmd_prefill(int argc, char **argv)
{
	struct command *const c = alloc_or_exit(1, sizeof(*c));
	struct fault fault = {""};
	int status =
		prefill_options(argc, argv, &c->args, &c->job, &c->policies);

	if (status == OPT_GO_ON && !prefill_outputs_check(&c->args))
		status = EXIT_FAILED;
	if (status == OPT_GO_ON &&
	    !lm_model_open(c->args.model, &c->model, &fault)) {
		fail(&fault);
		status = EXIT_FAILED;
	}
	if (status == OPT_GO_ON) {
		status = with_model(c, argc, argv);
		lm_model_close(&c->model);
	}
	free(c);
	return status;
}
