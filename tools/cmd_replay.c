/* SPDX-License-Identifier: Apache-2.0 */
/* ferry replay: a routing trace under policies of placing experts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "balance_args.h"
#include "commands.h"
#include "core/nearest.h"
#include "replay.h"
#include "replay_report.h"

struct replay_args {
	struct balance_args common; /* first */
	const char *policy, *predict, *steps, *start;
	int history;
	bool persist, json;
};

#define AT(field)     offsetof(struct replay_args, field)
#define COMMON(field) BALANCE_AT(field)

static const char *const history_names[] = {"others", "past", "last", "all",
                                            NULL};
static const char *const rule_names[] = {"sorted", "reselect", NULL};

static const struct opt options[] = {
	{"trace", 't', OPT_TEXT, COMMON(trace), "FILE", NULL, 0, 0, NULL,
         "table of loads (.csv), ids with index (.bin, .idx.csv), ids or loads "
         "(.safetensors), loads (.json)"},
	{"generate", 'g', OPT_TEXT, COMMON(generate), "HOW", NULL, 0, 0, NULL,
         "loads out of a generator instead: lognormal:SIGMA, zipf:RATIO of the "
         "fullest expert to the mean, maps:FOLDER fitted to EPLB's maps"},
	{"experts", 'e', OPT_INT, COMMON(experts), "N", "0", 0,
         ROUTE_MAX_EXPERTS, NULL,
         "experts of a trace that does not say (0: highest id + 1), or to "
         "generate (0: 128)"},
	{"layers", 'l', OPT_INT, COMMON(layers), "N", "0", 0, ROUTE_MAX_LAYERS,
         NULL,
         "layers of a .bin whose index does not say, or to generate (0: 1)"},
	{"draws", 0, OPT_INT, COMMON(draws), "N", "100", 1, 1 << 20, NULL,
         "steps to generate"},
	{"steps", 'S', OPT_TEXT, AT(steps), "HOW", "by-task", 0, 0, NULL,
         "by-task: one step a task; N: tasks in steps of N tokens; mixed, "
         "mixed:N: the same, but data sets (tasks) take turns"},
	{"ranks", 'n', OPT_INT, COMMON(ranks), "N", "8", 1, BALANCE_MAX_RANKS,
         NULL, "ranks that hold the experts"},
	{"policy", 'p', OPT_TEXT, AT(policy), "LIST", "all", 0, 0, NULL,
         "of fixed, eplb, freebalance, ferry, with commas; all"},
	{"swaps", 's', OPT_INT, COMMON(swaps), "N", NULL, 0, FERRY_PLAN_MOVES,
         NULL, "most swaps of a layer in a step; all that pay when not given"},
	{"window-us", 'w', OPT_INT, COMMON(window_us), "US", "0", 0, 1 << 30,
         NULL, "time for transfers of a layer; 0: they cost nothing"},
	{"expert-bytes", 'b', OPT_INT, COMMON(expert_bytes), "BYTES", "0", 0,
         INT64_C(1) << 40, NULL, "size of an expert"},
	{"alpha-us", 'a', OPT_INT, COMMON(alpha_us), "US", "5", 0, 1 << 20,
         NULL, "time of a transfer apart from its bytes"},
	{"beta-gbps", 'B', OPT_INT, COMMON(beta_gbps), "GB/S", "365", 1, 1000,
         NULL, "rate of a transfer, of each direction"},
	{"replicas", 'm', OPT_INT, COMMON(copies), "M", "0", 0, 1 << 10, NULL,
         "spare slots of each rank: for copies that last a step, for more "
         "replicas with eplb; freebalance leaves them empty"},
	{"fill", 0, OPT_FLAG, COMMON(fill), NULL, NULL, 0, 0, NULL,
         "ferry: copies into all spare slots, also where predicted loads are "
         "even without: the exact split repairs more"},
	{"split", 0, OPT_CHOICE, COMMON(split), "RULE", "exact", 0, 0,
         balance_splits,
         "who serves the tokens of a replicated expert: even; quota, by "
         "predicted loads; exact, by the true ones"},
	{"predict", 'P', OPT_TEXT, AT(predict), "HOW", "exact", 0, 0, NULL,
         "exact; noise:H, each assignment right with probability H, else any "
         "expert; file, what the trace predicts"},
	{"start", 0, OPT_TEXT, AT(start), "PLACE", "contiguous", 0, 0, NULL,
         "contiguous; eplb, from history; or a file with a placement"},
	{"history", 'H', OPT_CHOICE, AT(history), "WHICH", "others", 0, 0,
         history_names,
         "steps that eplb knows: those of the other tasks, those before, the "
         "one before, all"},
	{"persist", 0, OPT_FLAG, AT(persist), NULL, NULL, 0, 0, NULL,
         "a step starts from where swaps of the last one led, not from the "
         "start placement"},
	{"gamma", 0, OPT_TEXT, COMMON(gamma), "X", "0.5", 0, 0, NULL,
         "freebalance: weight of the variance, in 1/mean; 0: none"},
	{"rule", 0, OPT_CHOICE, COMMON(rule), "RULE", "reselect", 0, 0,
         rule_names,
         "freebalance: candidates sorted once, or selected again after each "
         "swap"},
	{"threshold", 0, OPT_TEXT, COMMON(threshold), "X", NULL, 0, 0, NULL,
         "leave layers alone whose ratio is below this"},
	{"tight-bound", 0, OPT_FLAG, COMMON(tight_bound), NULL, NULL, 0, 0,
         NULL, "the bound knows the budget, too; slow"},
	{"seed", 'r', OPT_INT, COMMON(seed), "N", "1", 0, INT64_MAX, NULL,
         "seed of generator and noise"},
	{"json", 'j', OPT_FLAG, AT(json), NULL, NULL, 0, 0, NULL,
         "JSON instead of the table"},
	{0},
};

/* Of ferry prefill and ferry plan. */
static const struct opt_elsewhere elsewhere[] = {{"balance", "policy"},
                                                 {"copies", "replicas"},
                                                 {"loads", "trace"},
                                                 {NULL, NULL}};

static const struct opt_command command = {
	.name = "ferry replay",
	.summary = "a routing trace under policies of placing experts",
	.options = options,
	.examples =
		"  ferry replay --trace trace.safetensors --ranks 8 --swaps 2\n"
		"  ferry replay --generate lognormal:1.4 --experts 128 "
		"--layers "
		"4\n"
		"  ferry replay --trace loads.csv --policy ferry --replicas 2 "
		"--json\n",
	.elsewhere = elsewhere,
};

static void progress(enum replay_policy policy, int32_t layer, int32_t n_layers)
{
	if (isatty(2))
		fprintf(stderr, "\r\033[K%s: layer %d of %d ",
		        replay_policy_names[policy], layer + 1, n_layers);
}

static void progress_done(void)
{
	if (isatty(2))
		fputs("\r\033[K", stderr);
}

/* Policies by name into policies[]; 0 after a complaint. */
static int parse_policies(const char *text, enum replay_policy *policies)
{
	int n = 0;

	if (!strcmp(text, "all"))
		text = "fixed,eplb,freebalance,ferry";
	for (;;) {
		const size_t bytes = strcspn(text, ",");
		int p = 0, i = 0;

		while (p < REPLAY_N_POLICIES &&
		       (strlen(replay_policy_names[p]) != bytes ||
		        memcmp(text, replay_policy_names[p], bytes) != 0))
			p++;
		while (i < n && policies[i] != (enum replay_policy)p)
			i++;
		if (p == REPLAY_N_POLICIES || i < n) {
			opt_complain(&command,
			             "--policy has '%.*s', allowed are fixed "
			             "(ferry prefill's off), eplb, "
			             "freebalance, ferry, each once, or all",
			             (int)bytes, text);
			return 0;
		}
		policies[n++] = (enum replay_policy)p;
		if (!text[bytes])
			return n;
		text += bytes + 1;
	}
}

static int parse_steps(const char *text, struct route_ask *ask)
{
	const char *tokens = text;

	ask->mixed = !strncmp(text, "mixed", 5);
	if (!strcmp(text, "by-task") || !strcmp(text, "mixed"))
		return OPT_GO_ON;
	if (ask->mixed && text[5] == ':')
		tokens = text + 6;
	if (opt_parse_int(tokens, &ask->step_tokens) && ask->step_tokens > 0 &&
	    ask->step_tokens <= INT32_MAX)
		return OPT_GO_ON;
	return opt_complain(&command,
	                    "--steps is '%s', allowed is by-task, mixed, a "
	                    "number of tokens, or mixed:NUMBER",
	                    text);
}

static int parse_predict(const char *text, struct replay_config *config)
{
	config->keep_ppm = 1000000;
	config->use_predicted = !strcmp(text, "file");
	if (config->use_predicted || !strcmp(text, "exact"))
		return OPT_GO_ON;
	if (!strncmp(text, "noise:", 6) &&
	    balance_decimal(text + 6, 1000000, &config->keep_ppm) &&
	    config->keep_ppm <= 1000000)
		return OPT_GO_ON;
	return opt_complain(&command,
	                    "--predict is '%s', allowed is exact, noise:0..1, "
	                    "file",
	                    text);
}

/* Checks a placement from a file against the trace. */
static int check_given(const struct replay_args *args,
                       const struct route *route,
                       const struct ferry_placement *given)
{
	if (ferry_placement_n_ranks(given) == args->common.ranks &&
	    ferry_placement_n_experts(given) == route->n_experts)
		return OPT_GO_ON;
	return opt_complain(
		&command,
		"--start %s has %d ranks and %d experts, --ranks is "
		"%" PRId64 ", the loads have %d experts",
		args->start, ferry_placement_n_ranks(given),
		ferry_placement_n_experts(given), args->common.ranks,
		route->n_experts);
}

static int parse_start(const struct replay_args *args,
                       const struct route *route, struct replay_config *config,
                       struct ferry_placement **given)
{
	config->start = REPLAY_CONTIGUOUS;
	if (!strcmp(args->start, "contiguous"))
		return OPT_GO_ON;
	config->start = REPLAY_HISTORY;
	if (!strcmp(args->start, "eplb"))
		return OPT_GO_ON;
	config->start = REPLAY_GIVEN;
	*given = balance_placement(&command, args->start);
	config->given = *given;
	return *given ? check_given(args, route, *given) : EXIT_FAILED;
}

static bool run_one(const struct replay_config *config,
                    enum replay_policy policy, struct replay_row *row)
{
	const struct route *const route = config->route;
	struct fault fault;
	struct replay_cell *const cells =
		alloc_or_exit((size_t)route->n_steps * (size_t)route->n_layers,
	                      sizeof(*cells));
	const bool good = replay_run(config, policy, cells, &fault) &&
	                  replay_summarise(config, policy, cells, row, &fault);

	progress_done();
	if (!good)
		fprintf(stderr, "ferry replay: %s: %s\n",
		        replay_policy_names[policy], fault.text);
	free(cells);
	return good;
}

static int run_all(const struct replay_report *report, bool json,
                   const enum replay_policy *policies, int n)
{
	struct replay_row rows[REPLAY_N_POLICIES] = {0};
	bool good = true;

	if (!json)
		replay_print_header(report);
	for (int i = 0; good && i < n; i++) {
		good = run_one(report->config, policies[i], &rows[i]);
		if (good && !json)
			replay_print_row(report, &rows[i]);
	}
	if (good && json)
		good = replay_write_json(report, rows, n);
	for (int i = 0; i < n; i++)
		replay_row_free(&rows[i]);
	return good ? EXIT_GOOD : EXIT_FAILED;
}

/* With the trace at hand and all options understood. */
static int run(const struct replay_args *args, struct replay_report *report,
               struct replay_config *config, const enum replay_policy *policies,
               int n)
{
	struct balance_numbers numbers;
	struct ferry_placement *given = NULL;
	int status = balance_numbers(&command, &args->common, &numbers);

	if (status == OPT_GO_ON)
		status = balance_check_ranks(&command, &args->common,
		                             config->route->n_experts);
	if (status == OPT_GO_ON)
		status = parse_start(args, config->route, config, &given);
	if (status == OPT_GO_ON) {
		struct ferry_cost *const half =
			numbers.cost ? balance_cost(&args->common, true) : NULL;

		config->max_swaps = numbers.max_swaps;
		config->cost = numbers.cost;
		config->half_duplex = half;
		config->window_ns = numbers.window_ns;
		config->threshold_ppm = numbers.threshold_ppm;
		config->gamma_milli = numbers.gamma_milli;
		report->config = config;
		status = run_all(report, args->json, policies, n);
		free(half);
	}
	balance_numbers_free(&numbers);
	ferry_placement_destroy(given);
	return status;
}

static void configure(const struct replay_args *args,
                      struct replay_config *config)
{
	const struct balance_args *const c = &args->common;

	config->n_ranks = (int32_t)c->ranks;
	config->replicas = (int32_t)c->copies;
	config->split = (enum ferry_split)c->split;
	config->expert_bytes = c->expert_bytes;
	config->past = (enum replay_past)args->history;
	config->persist = args->persist;
	config->fill = c->fill;
	config->rule = c->rule ? FERRY_RULE_RESELECT : FERRY_RULE_SORTED;
	config->tight_bound = c->tight_bound;
	config->seed = (uint64_t)c->seed;
	config->progress = progress;
}

/* All that needs no look at the loads; EXIT_USAGE after a complaint. */
static int parse(const struct replay_args *args, struct route_ask *ask,
                 struct replay_config *config, enum replay_policy *policies,
                 int *n)
{
	ask->n_experts = (int32_t)args->common.experts;
	ask->n_layers = (int32_t)args->common.layers;
	configure(args, config);
	if (args->common.fill && !args->common.copies)
		return opt_complain(&command,
		                    "--fill needs spare slots: --replicas");
	*n = parse_policies(args->policy, policies);
	if (!*n || parse_steps(args->steps, ask) != OPT_GO_ON ||
	    parse_predict(args->predict, config) != OPT_GO_ON)
		return EXIT_USAGE;
	return OPT_GO_ON;
}

static int complain_predicted(const struct replay_args *args,
                              const char *source)
{
	return opt_complain(
		&command, "--predict file: %s has no predicted_ids%s", source,
		args->common.trace ? "; ferry prefill records them of a run "
				     "with freebalance or ferry"
				   : "");
}

int cmd_replay(int argc, char **argv)
{
	struct replay_args args = {.common.swaps = -1};
	struct replay_config config = {0};
	struct route route = {0};
	struct route_ask ask = {0};
	enum replay_policy policies[REPLAY_N_POLICIES];
	char note[160];
	int first, n = 0;
	int status = opt_parse(&command, argc, argv, &args, &first);

	if (status == OPT_GO_ON)
		status = parse(&args, &ask, &config, policies, &n);
	if (status != OPT_GO_ON)
		return status;
	status = balance_source(&command, &args.common, &ask, &route, note,
	                        sizeof(note));
	if (status != OPT_GO_ON)
		return status;
	config.route = &route;
	if (route.slot_expert)
		snprintf(note, sizeof(note),
		         "slot_expert of the loads is not used: experts begin "
		         "as --start says");
	struct replay_report report = {
		.args = &args.common,
		.source = args.common.trace ? args.common.trace
	                                    : args.common.generate,
		.note = note,
		.start = args.start,
		.predict = args.predict,
		.steps = args.steps,
		.argc = argc,
		.argv = argv,
	};

	if (config.use_predicted && !route.predicted)
		status = complain_predicted(&args, report.source);
	else
		status = run(&args, &report, &config, policies, n);
	route_close(&route);
	return status;
}
