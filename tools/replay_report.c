/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry replay says, as text and as JSON. */
#include "replay_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "about.h"
#include "build_info.h"
#include "json.h"

static const char *const past_names[] = {"other tasks", "steps before",
                                         "step before", "all steps"};

static const char *const past_words[] = {"others", "past", "last", "all"};

/* Does any step have steps that history knows? */
static bool has_history(const struct replay_config *c)
{
	const struct route *const route = c->route;

	if (c->past != REPLAY_OTHERS)
		return c->past == REPLAY_ALL || route->n_steps > 1;
	for (int32_t i = 1; i < route->n_steps; i++)
		if (route->steps[i].task != route->steps[0].task)
			return true;
	return false;
}

static void print_history(const struct replay_config *c)
{
	printf("# history  knows the %s\n", past_names[c->past]);
	if (has_history(c))
		return;
	printf("#          but there are none: eplb knows nothing; %s help\n",
	       c->route->n_steps > 1 ? "--history past and last"
	                             : "more steps (--steps N, --draws N)");
}

static void print_budget(const struct replay_report *r)
{
	const struct replay_config *const c = r->config;

	fputs("# budget   ", stdout);
	if (r->args->swaps >= 0)
		printf("%" PRId64 " swaps", r->args->swaps);
	else
		fputs("any swaps", stdout);
	printf(", %d copies into each rank", c->replicas);
	if (c->cost)
		printf(", window %" PRId64 " us, experts of %" PRId64
		       " bytes at %" PRId64 " us + bytes / %" PRId64 " GB/s",
		       r->args->window_us, r->args->expert_bytes,
		       r->args->alpha_us, r->args->beta_gbps);
	putchar('\n');
}

static void print_columns(const struct replay_config *c)
{
	puts("# fullest rank over mean, over all steps and layers; bound: what "
	     "no plan beats;\n"
	     "# swaps, copies, fetched experts (eplb's new placements count "
	     "there alone) and MB\n"
	     "# of a layer in a step; improved: of those moved");
	if (!c->expert_bytes)
		puts("# MB needs --expert-bytes");
	puts("#\n"
	     "#               ratio                                        "
	     "           plan us    layers\n"
	     "# policy        mean    p95  worst  bound  swaps copies fetched "
	     "      MB    p50    p99 moved improved");
}

void replay_print_header(const struct replay_report *r)
{
	const struct replay_config *const c = r->config;
	const struct route *const route = c->route;
	struct build_info build;

	build_info_read(&build);
	printf("# ferry    %s, commit %s, %s\n", build.version, build.commit,
	       build.compiler);
	printf("# loads    %s: %d steps (%s), %d layers, %d experts\n",
	       r->source, route->n_steps, r->steps, route->n_layers,
	       route->n_experts);
	if (*r->note)
		printf("#          %s\n", r->note);
	printf("# ranks    %d, start %s, %s\n", c->n_ranks, r->start,
	       c->persist ? "each step from where the last one ended"
	                  : "each step from it");
	printf("# predict  %s; tokens of replicas shared by %s\n", r->predict,
	       balance_splits[c->split]);
	if (route->predicted && !c->use_predicted)
		puts("#          (the trace has predictions: --predict file)");
	print_history(c);
	print_budget(r);
	print_columns(c);
}

void replay_print_row(const struct replay_report *r,
                      const struct replay_row *row)
{
	char mb[24] = "-";

	if (r->config->expert_bytes)
		snprintf(mb, sizeof(mb), "%.2f", row->fetched_bytes_mean / 1e6);
	printf("  %-11s %6.3f %6.3f %6.3f %6.3f %6.2f %6.2f %7.2f %8s %6.1f "
	       "%6.1f %4.0f%% %7.1f%%\n",
	       replay_policy_names[row->policy], row->ratio_mean,
	       row->ratio_p95, row->ratio_worst, row->bound_mean,
	       row->swaps_mean, row->copies_mean, row->fetched_mean, mb,
	       row->plan_us_p50, row->plan_us_p99, 100 * row->moved_share,
	       100 * row->improved_share);
	fflush(stdout);
}

static void add_figures(cJSON *o, const struct replay_row *row)
{
	json_add_ratio(o, "ratio_mean", row->ratio_mean);
	json_add_ratio(o, "ratio_p95", row->ratio_p95);
	json_add_ratio(o, "ratio_worst", row->ratio_worst);
	json_add_ratio(o, "ratio_before_mean", row->before_mean);
	json_add_ratio(o, "bound_mean", row->bound_mean);
	json_add_ratio(o, "bound_gap_worst", row->bound_worst_gap);
	json_add_ratio(o, "moves_mean", row->moves_mean);
	json_add_ratio(o, "swaps_mean", row->swaps_mean);
	json_add_ratio(o, "copies_mean", row->copies_mean);
	json_add_ratio(o, "experts_fetched_mean", row->fetched_mean);
	json_add_ratio(o, "moved_bytes_mean", row->fetched_bytes_mean);
	json_add_ratio(o, "plan_us_p50", row->plan_us_p50);
	json_add_ratio(o, "plan_us_p99", row->plan_us_p99);
	json_add_ratio(o, "layers_moved_share", row->moved_share);
	json_add_ratio(o, "layers_improved_share", row->improved_share);
}

static void add_layers(cJSON *o, const char *name, const double *values,
                       int32_t n)
{
	cJSON *const array = cJSON_AddArrayToObject(o, name);

	for (int32_t i = 0; i < n; i++)
		cJSON_AddItemToArray(array, json_ratio(values[i]));
}

/* What was asked for; null: no limit. */
static void add_question(cJSON *meta, const struct replay_report *r)
{
	const struct replay_config *const c = r->config;
	cJSON *const budget = cJSON_AddObjectToObject(meta, "budget");

	if (r->args->swaps >= 0)
		cJSON_AddNumberToObject(budget, "swaps",
		                        (double)r->args->swaps);
	else
		cJSON_AddNullToObject(budget, "swaps");
	cJSON_AddNumberToObject(budget, "copies", c->replicas);
	cJSON_AddBoolToObject(budget, "fill", c->fill);
	if (c->cost)
		cJSON_AddNumberToObject(meta, "window_us",
		                        (double)r->args->window_us);
	else
		cJSON_AddNullToObject(meta, "window_us");
	cJSON_AddNumberToObject(meta, "expert_bytes", (double)c->expert_bytes);
	cJSON_AddStringToObject(meta, "predict", r->predict);
	cJSON_AddStringToObject(meta, "start", r->start);
	cJSON_AddStringToObject(meta, "history", past_words[c->past]);
	cJSON_AddStringToObject(meta, "split", balance_splits[c->split]);
	cJSON_AddNumberToObject(
		meta, "gamma",
		c->gamma_milli > 0 ? (double)c->gamma_milli / 1e3 : 0);
	cJSON_AddStringToObject(meta, "rule",
	                        c->rule == FERRY_RULE_SORTED ? "sorted"
	                                                     : "reselect");
	cJSON_AddNumberToObject(meta, "seed", (double)r->args->seed);
}

static void add_meta(cJSON *document, const struct replay_report *r)
{
	const struct replay_config *const c = r->config;
	cJSON *const meta = cJSON_AddObjectToObject(document, "meta");

	about_json(meta, r->argc, r->argv);
	cJSON_AddStringToObject(meta, "loads", r->source);
	if (*r->note)
		cJSON_AddStringToObject(meta, "note", r->note);
	cJSON_AddNumberToObject(meta, "steps", c->route->n_steps);
	cJSON_AddNumberToObject(meta, "layers", c->route->n_layers);
	cJSON_AddNumberToObject(meta, "experts", c->route->n_experts);
	cJSON_AddNumberToObject(meta, "ranks", c->n_ranks);
	add_question(meta, r);
}

bool replay_write_json(const struct replay_report *r,
                       const struct replay_row *rows, int n_rows)
{
	cJSON *const document = json_document("ferry-replay-1");

	add_meta(document, r);
	/* Those of the first, so that a script for one needs no loop. */
	add_figures(document, &rows[0]);
	cJSON *const array = cJSON_AddArrayToObject(document, "rows");

	for (int i = 0; i < n_rows; i++) {
		cJSON *const o = cJSON_CreateObject();

		cJSON_AddStringToObject(o, "policy",
		                        replay_policy_names[rows[i].policy]);
		add_figures(o, &rows[i]);
		add_layers(o, "layer_ratio_before", rows[i].layer_before,
		           r->config->route->n_layers);
		add_layers(o, "layer_ratio", rows[i].layer_ratio,
		           r->config->route->n_layers);
		cJSON_AddItemToArray(array, o);
	}
	return json_write(document, "-");
}
