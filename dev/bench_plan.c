/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What planning reaches and what it costs: max/mean of the fullest rank, mean
 * over tasks and layers of real routing (../shared/data) and over log-normal
 * loads, and p50 and p99 of plan time, each the least of a few runs. Usage:
 * bench_plan [DATA_DIR].
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/plan.h>

#include "core/bits.h"
#include "core/clock.h"

enum {
	EXPERTS = 32,
	LAYERS = 24,
	TOPK = 4,
	MAX_CASES = 4096,
	LINE = 4096,
	RUNS = 3
};

/* Loads of many layers, one after the other. */
struct cases {
	const char *name;
	int32_t n_experts;
	int32_t n;
	int64_t *loads; /* [n][n_experts] */
};

static void die(const char *what)
{
	fprintf(stderr, "bench_plan: %s\n", what);
	exit(1);
}

static struct cases new_cases(const char *name, int32_t n_experts, int32_t n)
{
	struct cases c = {name, n_experts, 0, NULL};

	c.loads = calloc((size_t)n * (size_t)n_experts, sizeof(*c.loads));
	if (!c.loads)
		die("no memory");
	return c;
}

static FILE *open_data(const char *dir, const char *name)
{
	char path[LINE];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return fopen(path, "r");
}

/* dataset, category, finished_repeat, samples, mean_tokens, layer, e0.. */
static struct cases read_tables(const char *dir)
{
	struct cases c = new_cases("tables", EXPERTS, MAX_CASES);
	FILE *const f = open_data(dir, "gptoss20b_expert_freq_by_task.csv");
	char line[LINE];

	while (f && c.n < MAX_CASES && fgets(line, sizeof(line), f)) {
		char *at = line;

		if (line[0] == '#' || !strncmp(line, "dataset", 7))
			continue;
		for (int i = 0; i < 6; i++)
			at = strchr(at, ',') + 1;
		int64_t *const loads = c.loads + c.n++ * EXPERTS;

		for (int e = 0; e < EXPERTS; e++, at++)
			loads[e] = strtoll(at, &at, 10);
	}
	if (f)
		fclose(f);
	return c;
}

static void count_tokens(FILE *trace, long offset, int32_t n_tokens,
                         int64_t *loads)
{
	unsigned char ids[LAYERS][TOPK];

	fseek(trace, offset, SEEK_SET);
	for (int32_t t = 0; t < n_tokens; t++) {
		if (fread(ids, sizeof(ids), 1, trace) != 1)
			die("token trace is cut short");
		for (int l = 0; l < LAYERS; l++)
			for (int k = 0; k < TOPK; k++)
				loads[l * EXPERTS + ids[l][k]]++;
	}
}

/* dataset, category, source_path, tokens, byte_offset */
static struct cases read_traces(const char *dir)
{
	struct cases c = new_cases("traces", EXPERTS, MAX_CASES);
	FILE *const f = open_data(dir, "gptoss20b_token_trace.idx.csv");
	FILE *const trace = open_data(dir, "gptoss20b_token_trace.bin");
	char line[LINE];

	while (f && trace && fgets(line, sizeof(line), f)) {
		char *const last = strrchr(line, ',');

		if (line[0] == '#' || !strncmp(line, "dataset", 7) || !last)
			continue;
		*last = 0;
		const int32_t tokens = atoi(strrchr(line, ',') + 1);

		if (c.n + LAYERS > MAX_CASES)
			break;
		count_tokens(trace, atol(last + 1), tokens,
		             c.loads + c.n * EXPERTS);
		c.n += LAYERS;
	}
	if (f)
		fclose(f);
	if (trace)
		fclose(trace);
	return c;
}

static double uniform(uint64_t *seed)
{
	return ((double)(rng_next(seed) >> 11) + 0.5) / 9007199254740992.0;
}

static struct cases make_log_normal(const char *name, int32_t n_experts,
                                    double sigma, int32_t n)
{
	struct cases c = new_cases(name, n_experts, n);
	uint64_t seed = 1;

	for (int64_t i = 0; i < (int64_t)n * n_experts; i++) {
		const double gauss = sqrt(-2 * log(uniform(&seed))) *
		                     cos(6.283185307179586 * uniform(&seed));

		c.loads[i] = (int64_t)(1000 * exp(sigma * gauss));
	}
	c.n = n;
	return c;
}

struct run {
	const struct cases *cases;
	int32_t n_ranks;
	int32_t swaps; /* -1: none, 0: as many as may be */
	int32_t copies;
	enum ferry_plan_rule rule;
	int32_t gamma_milli;
	double target; /* 0: none given */
	bool thorough;
};

static struct ferry_placement *place(const struct run *r)
{
	const int32_t n_slots = r->cases->n_experts + r->copies * r->n_ranks;
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;
	int32_t *const expert_slots =
		calloc((size_t)r->n_ranks, sizeof(*expert_slots));
	int32_t *const slot_expert =
		calloc((size_t)n_slots, sizeof(*slot_expert));
	int32_t s = 0, e = 0;

	if (!expert_slots || !slot_expert)
		die("no memory");
	for (int32_t rank = 0; rank < r->n_ranks; rank++) {
		const int32_t own = r->cases->n_experts / r->n_ranks +
		                    (rank < r->cases->n_experts % r->n_ranks);

		expert_slots[rank] = own + r->copies;
		for (int32_t i = 0; i < own + r->copies; i++)
			slot_expert[s++] = i < own ? e++ : -1;
	}
	c.n_experts = r->cases->n_experts;
	c.n_ranks = r->n_ranks;
	c.expert_slots = expert_slots;
	c.slot_expert = slot_expert;
	c.split = r->copies ? FERRY_SPLIT_EXACT : FERRY_SPLIT_EVEN;
	if (ferry_placement_create(&c, &p))
		die(ferry_last_error());
	free(expert_slots);
	free(slot_expert);
	return p;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(const struct run *r, double before, double after,
                   double moves, double bound, double *us)
{
	const int32_t n = r->cases->n;

	qsort(us, (size_t)n, sizeof(*us), by_value);
	printf("%-8s %4d %4d %5d %6d  %d %5d  %8.4f %8.4f %8.4f %6.2f "
	       "%8.2f %8.2f",
	       r->cases->name, r->cases->n_experts, r->n_ranks, r->swaps,
	       r->copies, (int)r->rule, r->gamma_milli, before / n, after / n,
	       bound / n, moves / n, us[n / 2], us[n * 99 / 100]);
	if (r->target > 0)
		printf(" %7.3f %+6.2f %%", r->target,
		       100 * (after / n / r->target - 1));
	printf("\n");
}

static void measure(const struct run *r)
{
	struct ferry_placement *const p = place(r);
	struct ferry_planner *planner = NULL;
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
	static struct ferry_plan plan;
	static double us[MAX_CASES];
	double before = 0, after = 0, moves = 0, bound = 0;

	if (ferry_planner_create(r->cases->n_experts,
	                         ferry_placement_n_slots(p), r->n_ranks,
	                         &planner))
		die(ferry_last_error());
	plan.size = sizeof(plan);
	in.placement = p;
	in.max_swaps = r->swaps;
	in.max_copies = r->copies;
	in.rule = r->rule;
	in.gamma_milli = r->gamma_milli;
	in.thorough = r->thorough;
	for (int32_t i = 0; i < r->cases->n; i++) {
		in.loads = r->cases->loads + (int64_t)i * r->cases->n_experts;
		us[i] = 1e9;
		for (int again = 0; again < RUNS; again++) {
			const uint64_t start = ferry_now_ns();

			if (ferry_plan_make(planner, &in, &plan))
				die(ferry_last_error());
			const double t =
				(double)(ferry_now_ns() - start) / 1000;

			us[i] = t < us[i] ? t : us[i];
		}
		const double mean = (double)plan.total / r->n_ranks;

		before += (double)plan.load_before / mean;
		after += (double)plan.load_after / mean;
		bound += (double)plan.bound / mean;
		moves += plan.n_moves;
	}
	report(r, before, after, moves, bound, us);
	ferry_planner_destroy(planner);
	ferry_placement_destroy(p);
}

int main(int argc, char **argv)
{
	const char *const dir = argc > 1 ? argv[1] : "../shared/data";
	const struct cases tables = read_tables(dir);
	const struct cases traces = read_traces(dir);
	const struct cases ln64 = make_log_normal("logn1.4", 64, 1.4, 1000);
	const struct cases ln128 = make_log_normal("logn1.4", 128, 1.4, 1000);
	const struct cases ln512 = make_log_normal("logn1.2", 512, 1.2, 500);
	const enum ferry_plan_rule ours = FERRY_RULE_PORTFOLIO;
	const struct run runs[] = {
		{&tables, 4, 1, 0, ours, 0, 1.107, false},
		{&tables, 4, 2, 0, ours, 0, 1.032, false},
		{&tables, 4, 4, 0, ours, 0, 1.004, false},
		{&tables, 4, 0, 0, ours, 0, 1.001, false},
		{&tables, 8, 1, 0, ours, 0, 1.425, false},
		{&tables, 8, 2, 0, ours, 0, 1.286, false},
		{&tables, 8, 4, 0, ours, 0, 1.165, false},
		{&tables, 8, 0, 0, ours, 0, 1.128, false},
		{&tables, 16, 1, 0, ours, 0, 2.180, false},
		{&tables, 16, 2, 0, ours, 0, 2.066, false},
		{&tables, 16, 4, 0, ours, 0, 2.002, false},
		{&tables, 16, 0, 0, ours, 0, 1.991, false},
		{&traces, 4, 2, 0, ours, 0, 1.042, false},
		{&traces, 8, 2, 0, ours, 0, 1.390, false},
		{&traces, 16, 2, 0, ours, 0, 2.461, false},
		{&traces, 8, 2, 0, FERRY_RULE_SORTED, -1, 1.431, false},
		{&traces, 8, 2, 0, FERRY_RULE_RESELECT, -1, 1.431, false},
		{&traces, 8, 2, 0, FERRY_RULE_SORTED, 0, 0, false},
		{&traces, 8, 2, 0, FERRY_RULE_RESELECT, 0, 0, false},
		{&ln64, 8, 4, 0, ours, 0, 0, false},
		{&ln128, 8, 4, 0, ours, 0, 0, false},
		{&ln512, 64, 16, 0, ours, 0, 0, false},
		{&tables, 8, 4, 0, ours, 0, 1.165, true},
		{&ln64, 8, 4, 0, ours, 0, 0, true},
		{&ln128, 8, 4, 0, ours, 0, 0, true},
		{&tables, 8, -1, 2, ours, 0, 1.05, false},
		{&tables, 16, -1, 2, ours, 0, 1.10, false},
		{&tables, 8, 2, 2, ours, 0, 0, false},
		{&tables, 16, 2, 2, ours, 0, 0, false},
	};

	printf("# %s\n", ferry_version_text());
	printf("# cases  experts ranks swaps copies rule gamma  before    "
	       "after    bound  moves   us_p50   us_p99 target\n");
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		if (runs[i].cases->n)
			measure(&runs[i]);
	return 0;
}
