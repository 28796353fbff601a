/* SPDX-License-Identifier: Apache-2.0 */
/* ferry plan: which experts to move for the loads of one layer, and why. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "balance_args.h"
#include "commands.h"
#include "core/clock.h"
#include "plan_report.h"

struct plan_args {
	struct balance_args common; /* first */
	const char *placement, *out;
	const char *speed;
	int64_t step, layer;
	bool json;
};

#define AT(field)     offsetof(struct plan_args, field)
#define COMMON(field) BALANCE_AT(field)

static const char *const rule_names[] = {"portfolio", "sorted", "reselect",
                                         NULL};

static const struct opt options[] = {
	{"loads", 'l', OPT_TEXT, COMMON(trace), "FILE", NULL, 0, 0, NULL,
         "loads of the experts: .csv, where a line of numbers is a layer; "
         ".json "
         "{\"loads\": [numbers, or an array a layer]}; or a trace as ferry "
         "replay takes it"},
	{"generate", 'g', OPT_TEXT, COMMON(generate), "HOW", NULL, 0, 0, NULL,
         "loads out of a generator instead: lognormal:SIGMA, zipf:RATIO of the "
         "fullest expert to the mean, maps:FOLDER fitted to EPLB's maps"},
	{"experts", 'e', OPT_INT, COMMON(experts), "N", "0", 0,
         ROUTE_MAX_EXPERTS, NULL,
         "experts of a trace that does not say (0: highest id + 1), or to "
         "generate (0: 128)"},
	{"step", 0, OPT_INT, AT(step), "N", "0", 0, 1 << 20, NULL,
         "step of a trace"},
	{"layer", 0, OPT_INT, AT(layer), "N", "0", 0, ROUTE_MAX_LAYERS - 1,
         NULL, "layer of the loads"},
	{"ranks", 'n', OPT_INT, COMMON(ranks), "N", NULL, 1, BALANCE_MAX_RANKS,
         NULL,
         "ranks that hold the experts; 8, or those of --placement, when not "
         "given"},
	{"placement", 'p', OPT_TEXT, AT(placement), "FILE", NULL, 0, 0, NULL,
         "where the experts are, as --out writes it; default: slot_expert of "
         "the loads, else as many experts on each rank, in order"},
	{"swaps", 's', OPT_INT, COMMON(swaps), "N", NULL, 0, FERRY_PLAN_MOVES,
         NULL, "most swaps; all that pay when not given"},
	{"copies", 'm', OPT_INT, COMMON(copies), "M", "0", 0, 1 << 10, NULL,
         "copies into each rank, into its empty slots; without --placement, "
         "and where the loads have no slot_expert, it gets M of those"},
	{"fill", 0, OPT_FLAG, COMMON(fill), NULL, NULL, 0, 0, NULL,
         "as many copies as --copies and the window let come, also where loads "
         "are even without: what the exact split repairs with"},
	{"split", 0, OPT_CHOICE, COMMON(split), "RULE", "exact", 0, 0,
         balance_splits,
         "how a replicated expert's tokens are shared, without --placement"},
	{"window-us", 'w', OPT_INT, COMMON(window_us), "US", "0", 0, 1 << 30,
         NULL, "time for the transfers; 0: they cost nothing"},
	{"expert-bytes", 'b', OPT_INT, COMMON(expert_bytes), "BYTES", "0", 0,
         INT64_C(1) << 40, NULL, "size of an expert"},
	{"alpha-us", 'a', OPT_INT, COMMON(alpha_us), "US", "5", 0, 1 << 20,
         NULL, "time of a transfer apart from its bytes"},
	{"beta-gbps", 'B', OPT_INT, COMMON(beta_gbps), "GB/S", "365", 1, 1000,
         NULL, "rate of a transfer, of each direction"},
	{"speed", 0, OPT_TEXT, AT(speed), "LIST", NULL, 0, 0, NULL,
         "speed of each rank, with commas; 1000 is normal"},
	{"threshold", 0, OPT_TEXT, COMMON(threshold), "X", NULL, 0, 0, NULL,
         "plan nothing where the ratio is below this"},
	{"rule", 0, OPT_CHOICE, COMMON(rule), "RULE", "portfolio", 0, 0,
         rule_names,
         "portfolio; or FreeBalance's: candidates sorted once, or selected "
         "again after each swap"},
	{"gamma", 0, OPT_TEXT, COMMON(gamma), "X", "0.5", 0, 0, NULL,
         "of FreeBalance's: weight of the variance, in 1/mean"},
	{"tight-bound", 0, OPT_FLAG, COMMON(tight_bound), NULL, NULL, 0, 0,
         NULL, "the bound knows the budget, too; some 100 us"},
	{"seed", 'r', OPT_INT, COMMON(seed), "N", "1", 0, INT64_MAX, NULL,
         "seed of the generator"},
	{"out", 'o', OPT_TEXT, AT(out), "FILE", NULL, 0, 0, NULL,
         "write the placement after the plan, as text; -: to stdout, not with "
         "--json"},
	{"json", 'j', OPT_FLAG, AT(json), NULL, NULL, 0, 0, NULL,
         "JSON instead of text"},
	{0},
};

/* Of ferry replay and ferry prefill. */
static const struct opt_elsewhere elsewhere[] = {
	{"trace", "loads"}, {"replicas", "copies"}, {NULL, NULL}};

static const struct opt_command command = {
	.name = "ferry plan",
	.summary = "which experts to move for the loads of a layer, and why",
	.options = options,
	.examples = "  echo 90,12,40,61,10,16,39,4 > loads.csv\n"
		    "  ferry plan --loads loads.csv --ranks 4 --swaps 2\n"
		    "  ferry plan --generate lognormal:1.4 --seed 1 --swaps 4 "
		    "--out next.txt\n"
		    "  ferry plan --generate zipf:6 --copies 2 --window-us 300 "
		    "--expert-bytes 9m\n",
	.elsewhere = elsewhere,
};

static int complain(void)
{
	fprintf(stderr, "ferry plan: %s\n", ferry_last_error());
	return EXIT_FAILED;
}

/* Slots per rank: what the loads give, else experts and room for copies. */
static void spread(const struct plan_args *args, const struct route *route,
                   int32_t *expert_slots, int32_t *slot_expert)
{
	const int32_t n_ranks = (int32_t)args->common.ranks;
	const int32_t spare =
		route->slot_expert ? 0 : (int32_t)args->common.copies;
	const int32_t n =
		route->slot_expert ? route->n_slots : route->n_experts;
	int32_t next = 0;

	for (int32_t r = 0; r < n_ranks; r++) {
		const int32_t own = n / n_ranks + (r < n % n_ranks);

		expert_slots[r] = own + spare;
		for (int32_t s = 0; s < own; s++, next++)
			*slot_expert++ = route->slot_expert
			                         ? route->slot_expert[next]
			                         : next;
		for (int32_t s = 0; s < spare; s++)
			*slot_expert++ = -1;
	}
}

static struct ferry_placement *place(const struct plan_args *args,
                                     const struct route *route)
{
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *placement = NULL;
	const size_t n_ranks = (size_t)args->common.ranks;
	const size_t n_slots = (size_t)(route->slot_expert ? route->n_slots
	                                                   : route->n_experts) +
	                       n_ranks * (size_t)args->common.copies;
	int32_t *const expert_slots = alloc_or_exit(n_ranks, sizeof(int32_t));
	int32_t *const slot_expert = alloc_or_exit(n_slots, sizeof(int32_t));
	int64_t *const quota = alloc_or_exit(n_slots, sizeof(int64_t));

	spread(args, route, expert_slots, slot_expert);
	config.n_experts = route->n_experts;
	config.n_ranks = (int32_t)n_ranks;
	config.expert_slots = expert_slots;
	config.slot_expert = slot_expert;
	config.split = (enum ferry_split)args->common.split;
	config.quota = config.split == FERRY_SPLIT_QUOTA ? quota : NULL;
	if (ferry_placement_create(&config, &placement) != FERRY_OK)
		complain();
	free(expert_slots);
	free(slot_expert);
	free(quota);
	return placement;
}

/* The placement of the options; NULL after a complaint. */
static struct ferry_placement *find_placement(const struct plan_args *args,
                                              const struct route *route)
{
	return args->placement ? balance_placement(&command, args->placement)
	                       : place(args, route);
}

static int check_placement(const struct plan_args *args,
                           const struct route *route,
                           const struct ferry_placement *p)
{
	if (ferry_placement_n_experts(p) != route->n_experts)
		return opt_complain(
			&command,
			"--placement %s has %d experts, the loads have %d",
			args->placement, ferry_placement_n_experts(p),
			route->n_experts);
	if (args->common.ranks &&
	    ferry_placement_n_ranks(p) != args->common.ranks)
		return opt_complain(&command,
		                    "--placement %s has %d ranks, --ranks is "
		                    "%" PRId64,
		                    args->placement, ferry_placement_n_ranks(p),
		                    args->common.ranks);
	return OPT_GO_ON;
}

static bool write_text(const char *text, const char *path)
{
	const bool to_stdout = !strcmp(path, "-");
	FILE *const f = to_stdout ? stdout : fopen(path, "w");
	bool good = f && fputs(text, f) >= 0;

	if (f && !to_stdout)
		good = !fclose(f) && good;
	if (!good)
		fprintf(stderr, "ferry plan: cannot write %s: %s\n", path,
		        strerror(errno));
	return good;
}

static bool write_out(const struct plan_args *args,
                      const struct ferry_placement *after)
{
	if (!args->out)
		return true;
	char *const text = plan_placement_text(after);
	const bool good = write_text(text, args->out);

	free(text);
	return good;
}

static int report(const struct plan_args *args, struct plan_report *r)
{
	const size_t n = (size_t)ferry_placement_n_ranks(r->before);
	int status = EXIT_GOOD;

	r->loads_before = alloc_or_exit(n, sizeof(int64_t));
	r->loads_after = alloc_or_exit(n, sizeof(int64_t));
	if (ferry_rank_loads(r->before, r->in->loads, r->loads_before) !=
	            FERRY_OK ||
	    ferry_rank_loads(r->after, r->in->loads, r->loads_after) !=
	            FERRY_OK)
		status = complain();
	else if (!args->json)
		plan_print(r);
	else if (!plan_write_json(r))
		status = EXIT_FAILED;
	if (status == EXIT_GOOD && !write_out(args, r->after))
		status = EXIT_FAILED;
	free(r->loads_before);
	free(r->loads_after);
	return status;
}

/* Plans with what is at hand, and reports. */
static int plan(const struct plan_args *args, const struct ferry_plan_in *in,
                struct plan_report *r)
{
	static struct ferry_plan plan = {.size = sizeof(plan)};
	struct ferry_planner *planner = NULL;
	struct ferry_placement *after = NULL;
	enum ferry_status status = ferry_planner_create(
		ferry_placement_n_experts(in->placement),
		ferry_placement_n_slots(in->placement),
		ferry_placement_n_ranks(in->placement), &planner);

	/* Twice: the first one meets cold caches. */
	for (int i = 0; i < 2 && status == FERRY_OK; i++) {
		const uint64_t begin_ns = ferry_now_ns();

		status = ferry_plan_make(planner, in, &plan);
		r->plan_ns = (int64_t)(ferry_now_ns() - begin_ns);
	}
	ferry_planner_destroy(planner);
	if (status == FERRY_OK)
		status = ferry_plan_apply(in->placement, &plan, in->loads,
		                          &after);
	if (status != FERRY_OK)
		return complain();
	r->in = in;
	r->plan = &plan;
	r->before = in->placement;
	r->after = after;
	const int exit_status = report(args, r);

	ferry_placement_destroy(after);
	return exit_status;
}

enum { MAX_SPEED = 1000000 };

/* The number of rank r; *text goes behind its comma, or to the end. */
static int take_one_speed(const char **text, int r, int32_t *speed)
{
	const size_t n = strcspn(*text, ",");
	char word[16];
	int64_t value;

	snprintf(word, sizeof(word), "%.*s", n < 15 ? (int)n : 15, *text);
	if (!opt_parse_int(word, &value) || value < 1 || value > MAX_SPEED)
		return opt_complain(&command,
		                    "--speed of rank %d is '%s', allowed is a "
		                    "whole number 1..%d",
		                    r, word, MAX_SPEED);
	*speed = (int32_t)value;
	*text += n + ((*text)[n] != 0);
	return OPT_GO_ON;
}

/* Speeds of all ranks. */
static int take_speed(const char *text, int32_t n_ranks, int32_t *speed)
{
	int n = 1, status = OPT_GO_ON;

	for (const char *c = text; *c; c++)
		n += *c == ',';
	if (n != n_ranks)
		return opt_complain(
			&command, "--speed has %d numbers, there are %d ranks",
			n, n_ranks);
	for (int r = 0; status == OPT_GO_ON && r < n; r++)
		status = take_one_speed(&text, r, &speed[r]);
	return status;
}

static int run_on(const struct plan_args *args, const struct route *route,
                  const struct balance_numbers *numbers,
                  const struct plan_report *source,
                  const struct ferry_placement *placement)
{
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
	struct plan_report r = *source;
	const int32_t n_ranks = ferry_placement_n_ranks(placement);
	int32_t *const speed = alloc_or_exit((size_t)n_ranks, sizeof(*speed));
	int status = OPT_GO_ON;

	if (args->speed)
		status = take_speed(args->speed, n_ranks, speed);
	in.placement = placement;
	in.loads =
		route_loads(route, (int32_t)args->step, (int32_t)args->layer);
	in.speed = args->speed ? speed : NULL;
	in.layer = (int32_t)args->layer;
	in.max_swaps = numbers->max_swaps;
	in.max_copies = (int32_t)args->common.copies;
	in.cost = numbers->cost;
	in.window_ns = numbers->window_ns;
	in.threshold_ppm = numbers->threshold_ppm;
	in.rule = (enum ferry_plan_rule)args->common.rule;
	in.gamma_milli = numbers->gamma_milli;
	in.tight_bound = args->common.tight_bound;
	in.spare_copies = args->common.fill;
	r.step = route->steps[args->step].name;
	if (status == OPT_GO_ON)
		status = plan(args, &in, &r);
	free(speed);
	return status;
}

static int check_place(const struct plan_args *args, const struct route *route)
{
	if (args->step >= route->n_steps)
		return opt_complain(&command,
		                    "--step is %" PRId64 ", allowed is 0..%d",
		                    args->step, route->n_steps - 1);
	if (args->layer >= route->n_layers)
		return opt_complain(&command,
		                    "--layer is %" PRId64 ", allowed is 0..%d",
		                    args->layer, route->n_layers - 1);
	return OPT_GO_ON;
}

static int run(struct plan_args *args, const struct route *route,
               const struct plan_report *source)
{
	struct balance_numbers numbers = {0};
	int status = check_place(args, route);

	if (!args->placement && !args->common.ranks)
		args->common.ranks = 8;
	if (status == OPT_GO_ON && !args->placement)
		status = balance_check_ranks(&command, &args->common,
		                             route->n_experts);
	if (status != OPT_GO_ON)
		return status;
	struct ferry_placement *const placement = find_placement(args, route);

	if (!placement)
		return EXIT_FAILED;
	status = check_placement(args, route, placement);
	/* Links are those of the placement's ranks. */
	args->common.ranks = ferry_placement_n_ranks(placement);
	if (status == OPT_GO_ON)
		status = balance_numbers(&command, &args->common, &numbers);
	if (status == OPT_GO_ON)
		status = run_on(args, route, &numbers, source, placement);
	balance_numbers_free(&numbers);
	ferry_placement_destroy(placement);
	return status;
}

int cmd_plan(int argc, char **argv)
{
	struct plan_args args = {.common = {.swaps = -1, .draws = 1}};
	struct plan_report report = {0};
	struct route route = {0};
	struct route_ask ask = {0};
	char note[160];
	int first;
	int status = opt_parse(&command, argc, argv, &args, &first);

	if (status != OPT_GO_ON)
		return status;
	if (args.json && args.out && !strcmp(args.out, "-"))
		return opt_complain(&command,
		                    "--out - does not go with --json, which "
		                    "has the placement");
	ask.n_experts = (int32_t)args.common.experts;
	args.common.layers = args.layer + 1;
	args.common.draws = args.step + 1;
	status = balance_source(&command, &args.common, &ask, &route, note,
	                        sizeof(note));
	if (status != OPT_GO_ON)
		return status;
	report.source =
		args.common.trace ? args.common.trace : args.common.generate;
	report.note = note;
	status = run(&args, &route, &report);
	route_close(&route);
	return status;
}
