/* SPDX-License-Identifier: Apache-2.0 */
/* The options of ferry prefill, in the library's units. */
#include "prefill_options.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ferry/plan.h>

#include "../balance_args.h"
#include "../fabric_choice.h"
#include "prefill_words.h"

/* Ranks wait for those with more tokens, or with slower disks: for minutes of
 * a large model. One that died is noticed at once anyway. */
enum { TIMEOUT_MS = 30 * 60 * 1000 };

#define AT(field) offsetof(struct prefill_args, field)

/* By enum ferry_balance_policy. */
const char *const prefill_policy_names[PREFILL_N_POLICIES] = {
	"off",   "eplb",      "freebalance", "eplb+freebalance",
	"ferry", "eplb+ferry"};

static const struct opt options[] = {
	{"model", 'm', OPT_TEXT, AT(model), "DIR", NULL, 0, 0, NULL,
         "checkpoint of the Qwen3-MoE architecture: config.json, "
         "model*.safetensors, tokenizer.json; needed"},
	{"text", 't', OPT_TEXTS, AT(texts), "FILE...", NULL, 0, 0, NULL,
         "texts in UTF-8; needed"},
	{"ranks", 'n', OPT_INT, AT(ranks), "N", "8", 1, PREFILL_MAX_RANKS, NULL,
         "ranks that hold the experts; no more than experts"},
	{"batch", 'b', OPT_INT, AT(batch), "N", "16", 1, 1 << 20, NULL,
         "sequences of a step, of all ranks together"},
	{"length", 'l', OPT_INT, AT(length), "N", "512", PREFILL_LEAST_TOKENS,
         1 << 20, NULL,
         "tokens of a sequence; the rest of a text is a shorter one, or "
         "dropped where it has fewer than 16"},
	{"steps", 'S', OPT_INT, AT(steps), "N", "0", 0, 1 << 20, NULL,
         "most steps of each text; 0: all"},
	{"order", 'o', OPT_CHOICE, AT(order), "HOW", "by-text", 0, 0,
         prefill_order_names,
         "one text after the other; texts take turns step by step; or "
         "sequence by sequence, so that steps have several"},
	{"warm-up", 'w', OPT_INT, AT(warm_up), "N", "1", 0, 1 << 20, NULL,
         "first steps that are not counted; of the steps, one always is"},
	{"balance", 'p', OPT_TEXT, AT(balance), "LIST", "off,ferry", 0, 0, NULL,
         "policies, each a run over the same input: off, eplb, freebalance, "
         "ferry, eplb+freebalance, eplb+ferry, with commas; all"},
	{"budget", 'B', OPT_TEXT, AT(budget), "HOW", "auto", 0, 0, NULL,
         "time in which the experts of a layer may move: auto, as long as "
         "attention was measured to last; none, no limit; or microseconds"},
	{"calibrate", 0, OPT_CHOICE, AT(calibrate), "HOW", "on", 0, 0,
         prefill_switch_names,
         "freebalance, ferry: plan from predictions corrected by what those of "
         "past steps got wrong"},
	{"margin", 0, OPT_TEXT, AT(margin), "X", "0.5", 0, 0, NULL,
         "freebalance, ferry: a plan must promise to gain so many times what "
         "plans of the layer were wrong by; 0: whatever it promises"},
	{"swaps", 's', OPT_INT, AT(swaps), "N", NULL, 0, FERRY_PLAN_MOVES, NULL,
         "most swaps of a layer in a step; all that pay when not given"},
	{"replicas", 'r', OPT_INT, AT(replicas), "M", "0", 0, FERRY_PLAN_MOVES,
         NULL,
         "spare slots of each rank and layer, for copies: ferry's as long as "
         "they pay, eplb's until its next placement"},
	{"split", 0, OPT_CHOICE, AT(split), "RULE", "exact", 0, 0,
         prefill_split_names,
         "who serves the tokens of a replicated expert: even; quota, by "
         "predicted loads; exact, by the true ones"},
	{"threshold", 0, OPT_TEXT, AT(threshold), "X", "1.05", 0, 0, NULL,
         "leave layers alone whose predicted ratio is below this; 1: none"},
	{"recheck", 0, OPT_INT, AT(recheck), "N", "1", 1, 1 << 20, NULL,
         "steps after which such a layer is predicted again"},
	{"eplb-every", 0, OPT_INT, AT(eplb_every), "N", "4", 1, 1 << 20, NULL,
         "eplb: steps between placements"},
	{"gamma", 0, OPT_TEXT, AT(gamma), "X", "0.5", 0, 0, NULL,
         "freebalance: weight of the variance, in 1/mean; 0: none"},
	{"start", 0, OPT_CHOICE, AT(start), "PLACE", "even", 0, 0,
         prefill_start_names,
         "experts in their order; or those that are fullest in the first "
         "step together on rank 0, the next on rank 1, ..."},
	{"logits", 0, OPT_CHOICE, AT(logits), "WHICH", "last", 0, 0,
         prefill_logits_names,
         "of a sequence's last token, as for serving; or of all, which gives "
         "the loss"},
	{"check", 'c', OPT_FLAG, AT(check), NULL, NULL, 0, 0, NULL,
         "compare the bits with a run without ranks, not with the first run"},
	{"fabric", 'f', OPT_TEXT, AT(fabric), "NAME", NULL, 0, 0, NULL,
         "fabric of the ranks, as ferry info lists them; shm, when neither "
         "this nor FERRY_FABRIC is given"},
	{"threads", 0, OPT_FLAG, AT(threads), NULL, NULL, 0, 0, NULL,
         "ranks are threads, not processes"},
	{"record", 0, OPT_TEXT, AT(record), "FILE", NULL, 0, 0, NULL,
         "write which experts tokens chose, and what was predicted, as "
         "safetensors for ferry replay"},
	{"trace", 0, OPT_TEXT, AT(trace), "FILE", NULL, 0, 0, NULL,
         "write the timeline of the last run, as JSON for Perfetto"},
	{"report", 0, OPT_TEXT, AT(report), "FILE", NULL, 0, 0, NULL,
         "write tables and pictures as one HTML file"},
	{"json", 'j', OPT_FILE, AT(json), "FILE", NULL, 0, 0, NULL,
         "write the numbers as JSON; without FILE to stdout, instead of the "
         "tables"},
	{0},
};

/* Of ferry replay and ferry plan. */
static const struct opt_elsewhere elsewhere[] = {
	{"policy", "balance"}, {"copies", "replicas"}, {NULL, NULL}};

const struct opt_command prefill_command = {
	.name = "ferry prefill",
	.summary = "a MoE language model on ranks, balanced",
	.options = options,
	.examples = "  ferry prefill --model models/ferry-tiny-moe --text "
		    "models/texts/*.txt\n"
		    "  ferry prefill --model DIR --text a.txt b.txt --balance "
		    "all --check\n"
		    "  ferry prefill --model DIR --text a.txt --replicas 2 "
		    "--report out.html\n",
	.elsewhere = elsewhere,
};

/* The policy of a name; PREFILL_N_POLICIES: none. */
static int find_policy(const char *name, size_t bytes)
{
	int p = 0;

	while (p < PREFILL_N_POLICIES &&
	       (strlen(prefill_policy_names[p]) != bytes ||
	        memcmp(name, prefill_policy_names[p], bytes) != 0))
		p++;
	return p;
}

static bool has_policy(const struct prefill_policies *policies, int policy)
{
	for (int32_t i = 0; i < policies->n; i++)
		if (policies->each[i] == (enum ferry_balance_policy)policy)
			return true;
	return false;
}

static int parse_policies(const char *text, struct prefill_policies *policies)
{
	policies->n = 0;
	if (!strcmp(text, "all"))
		text = "off,eplb,freebalance,ferry,eplb+freebalance,eplb+ferry";
	for (;;) {
		const size_t bytes = strcspn(text, ",");
		const int p = find_policy(text, bytes);

		if (p == PREFILL_N_POLICIES || has_policy(policies, p))
			return opt_complain(
				&prefill_command,
				"--balance has '%.*s', allowed are off, eplb, "
				"freebalance, ferry, eplb+freebalance, "
				"eplb+ferry, each once, or all",
				(int)bytes, text);
		policies->each[policies->n++] = (enum ferry_balance_policy)p;
		if (!text[bytes])
			return OPT_GO_ON;
		text += bytes + 1;
	}
}

static int parse_budget(const char *text, struct prefill_job *job)
{
	int64_t us;

	job->budget_ns = -1;
	if (!strcmp(text, "auto"))
		return OPT_GO_ON;
	job->budget_ns = INT64_MAX;
	if (!strcmp(text, "none"))
		return OPT_GO_ON;
	if (!opt_parse_int(text, &us) || us < 0 || us > 1 << 30)
		return opt_complain(&prefill_command,
		                    "--budget is '%s', allowed is auto, none, "
		                    "or microseconds 0..%d",
		                    text, 1 << 30);
	job->budget_ns = us * 1000;
	return OPT_GO_ON;
}

/* Numbers that ferry replay has, too. */
static int parse_numbers(const struct prefill_args *args,
                         struct prefill_job *job)
{
	const struct balance_args same = {.threshold = args->threshold,
	                                  .gamma = args->gamma,
	                                  .swaps = args->swaps};
	struct balance_numbers numbers;
	const int status = balance_numbers(&prefill_command, &same, &numbers);

	if (status == OPT_GO_ON) {
		job->threshold_ppm = numbers.threshold_ppm;
		job->gamma_milli = numbers.gamma_milli;
		job->max_swaps = numbers.max_swaps;
		balance_numbers_free(&numbers);
	}
	return status;
}

static int parse_margin(const char *text, struct prefill_job *job)
{
	const int64_t unit = 1000000;

	if (balance_decimal(text, unit, &job->margin_ppm) &&
	    job->margin_ppm <= 1000 * unit)
		return OPT_GO_ON;
	return opt_complain(&prefill_command,
	                    "--margin is '%s', allowed is a number 0..1000",
	                    text);
}

static int parse_fabric(const struct prefill_args *args,
                        struct prefill_job *job)
{
	struct crew crew = {0};
	const int status = fabric_choose(&prefill_command, args->fabric, &crew);

	job->fabric = crew.fabric && strcmp(crew.fabric, "auto") != 0
	                      ? crew.fabric
	                      : NULL;
	job->threads = args->threads || crew.threads;
	return status;
}

static int parse(const struct prefill_args *args, struct prefill_job *job,
                 struct prefill_policies *policies)
{
	int status = parse_policies(args->balance, policies);

	job->name = prefill_command.name;
	job->split = (enum ferry_split)args->split;
	job->start = (enum prefill_start)args->start;
	job->recheck_steps = (int32_t)args->recheck;
	job->eplb_every = (int32_t)args->eplb_every;
	job->calibrate = args->calibrate;
	/* Without spare slots there is nothing to copy into. */
	job->max_copies = args->replicas ? (int32_t)args->replicas : -1;
	job->progress = isatty(STDERR_FILENO);
	job->timeout_ms = getenv("FERRY_TIMEOUT_MS") ? 0 : TIMEOUT_MS;
	if (status == OPT_GO_ON)
		status = parse_budget(args->budget, job);
	if (status == OPT_GO_ON)
		status = parse_numbers(args, job);
	if (status == OPT_GO_ON)
		status = parse_margin(args->margin, job);
	if (status == OPT_GO_ON)
		status = parse_fabric(args, job);
	return status;
}

int prefill_options(int argc, char **argv, struct prefill_args *args,
                    struct prefill_job *job, struct prefill_policies *policies)
{
	int first;

	*args = (struct prefill_args){.swaps = -1};
	*job = (struct prefill_job){0};
	const int status =
		opt_parse(&prefill_command, argc, argv, args, &first);

	if (status != OPT_GO_ON)
		return status;
	if (!args->model)
		return opt_complain(&prefill_command, "--model is needed: a "
		                                      "checkpoint's folder");
	if (!args->texts.n)
		return opt_complain(&prefill_command,
		                    "--text is needed: one file or more");
	return parse(args, job, policies);
}
