/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry plan says, as text and as JSON. */
#include "plan_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "json.h"

enum { BAR_COLUMNS = 24, TEXT_COLUMNS = 79, INDENT = 2, TEXT_BYTES = 2048 };

static int32_t n_ranks(const struct plan_report *r)
{
	return ferry_placement_n_ranks(r->before);
}

/* A load over the mean. */
static double ratio(const struct plan_report *r, int64_t load)
{
	return r->plan->total
	               ? (double)load * n_ranks(r) / (double)r->plan->total
	               : 1;
}

char *plan_placement_text(const struct ferry_placement *placement)
{
	const size_t n = ferry_placement_write(placement, NULL, 0);
	char *const text = alloc_or_exit(n + 1, 1);

	ferry_placement_write(placement, text, n + 1);
	return text;
}

/* Why the move was chosen, without the newline at the end, to be freed. */
static char *move_text(const struct plan_report *r, int32_t move)
{
	size_t bytes = TEXT_BYTES, n;
	char *text = alloc_or_exit(bytes, 1);

	/* Seldom twice: a large plan's explanation takes milliseconds. */
	n = ferry_plan_explain(r->in, r->plan, move, text, bytes);
	if (n >= bytes) {
		free(text);
		bytes = n + 1;
		text = alloc_or_exit(bytes, 1);
		n = ferry_plan_explain(r->in, r->plan, move, text, bytes);
	}
	for (size_t end = n; end > 0 && text[end - 1] == '\n'; end--)
		text[end - 1] = 0;
	return text;
}

/* Words within the width, further in after the first line. */
static void print_line(const char *line, size_t n)
{
	int column = INDENT - 1;

	printf("%*s", INDENT - 1, "");
	while (n > 0) {
		const char *const blank = memchr(line, ' ', n);
		const size_t word = blank ? (size_t)(blank - line) : n;

		if (column + 1 + (int)word > TEXT_COLUMNS)
			column = printf("\n%*s", 2 * INDENT - 1, "") - 1;
		column += printf(" %.*s", (int)word, line);
		line += word + (blank != NULL);
		n -= word + (blank != NULL);
	}
	putchar('\n');
}

static void print_move(const struct plan_report *r, int32_t move)
{
	char *const text = move_text(r, move);
	const char *line = text;

	putchar('\n');
	while (*line) {
		const size_t n = strcspn(line, "\n");

		print_line(line, n);
		line += n + (line[n] == '\n');
	}
	free(text);
}

static void print_bar(int64_t load, int64_t most, bool padded)
{
	const int n = most ? (int)((load * BAR_COLUMNS + most - 1) / most) : 0;

	for (int i = 0; i < (padded ? BAR_COLUMNS : n); i++)
		putchar(i < n ? '#' : ' ');
}

static void print_ranks(const struct plan_report *r)
{
	int64_t most = 0;

	for (int32_t i = 0; i < n_ranks(r); i++) {
		if (r->loads_before[i] > most)
			most = r->loads_before[i];
		if (r->loads_after[i] > most)
			most = r->loads_after[i];
	}
	printf("rank %12s %*s %12s\n", "before", BAR_COLUMNS, "", "after");
	for (int32_t i = 0; i < n_ranks(r); i++) {
		printf("%4d %12" PRId64 " ", i, r->loads_before[i]);
		print_bar(r->loads_before[i], most, true);
		printf(" %12" PRId64 " ", r->loads_after[i]);
		print_bar(r->loads_after[i], most, false);
		putchar('\n');
	}
}

/* The fastest transfer of an expert; links of the command are all alike. */
static int64_t transfer_ns(const struct ferry_cost *cost)
{
	const int64_t ps = cost->ps_per_byte[0];

	return cost->alpha_ns[0] + (cost->all_bytes * ps + 999) / 1000;
}

/* Why nothing moves, into text[n]; "" where something does. */
static void why_nothing(const struct plan_report *r, char *text, size_t n)
{
	const struct ferry_plan_in *const in = r->in;
	const struct ferry_plan *const plan = r->plan;
	const double before = ratio(r, plan->load_before);

	text[0] = 0;
	if (plan->n_moves)
		return;
	if (in->threshold_ppm > 0 && before * 1e6 < (double)in->threshold_ppm)
		snprintf(text, n, "max/mean is below the threshold of %.4f",
		         (double)in->threshold_ppm / 1e6);
	else if (in->max_swaps < 0 && !in->max_copies)
		snprintf(text, n, "neither swaps nor copies are allowed");
	else if (in->cost && transfer_ns(in->cost) > in->window_ns)
		snprintf(text, n,
		         "no move fits the window: the smallest transfer takes "
		         "%.1f us, the window is %.1f us",
		         (double)transfer_ns(in->cost) / 1e3,
		         (double)in->window_ns / 1e3);
	else if (plan->load_before <= plan->bound)
		snprintf(text, n,
		         "the fullest rank is at the bound: no allowed moves "
		         "make it less full");
	else
		snprintf(text, n, "no %s%s lowers the fullest rank",
		         in->max_copies ? "swap or copy" : "swap",
		         in->cost ? " that fits the window" : "");
}

void plan_print(const struct plan_report *r)
{
	char why[160];
	const struct ferry_plan *const plan = r->plan;

	printf("%s%s%s, layer %d: %d experts in %d slots of %d ranks\n",
	       r->source, *r->step ? ", step " : "", r->step, plan->layer,
	       ferry_placement_n_experts(r->before),
	       ferry_placement_n_slots(r->before), n_ranks(r));
	if (*r->note)
		printf("%s\n", r->note);
	putchar('\n');
	print_ranks(r);
	printf("\nmax/mean  %.4f -> %.4f\n"
	       "bound     %.4f, gap %.2f %%%s\n"
	       "plan      %d moves in %.1f us\n",
	       ratio(r, plan->load_before), ratio(r, plan->load_after),
	       ratio(r, plan->bound),
	       plan->bound ? 100.0 * (double)(plan->load_after - plan->bound) /
	                             (double)plan->bound
	                   : 0,
	       r->in->tight_bound ? " (with the budget)" : "", plan->n_moves,
	       (double)r->plan_ns / 1e3);
	why_nothing(r, why, sizeof(why));
	if (*why)
		printf("why       %s\n", why);
	printf("hash      %016" PRIx64 "\n"
	       "placement %016" PRIx64 " -> %016" PRIx64 "\n",
	       plan->hash, ferry_placement_hash(r->before),
	       ferry_placement_hash(r->after));
	for (int32_t m = 0; m < plan->n_moves; m++)
		print_move(r, m);
}

/* 64 bits do not fit into a number of JSON. */
static void add_hash(cJSON *o, const char *name, uint64_t hash)
{
	char text[20];

	snprintf(text, sizeof(text), "%016" PRIx64, hash);
	cJSON_AddStringToObject(o, name, text);
}

static cJSON *move_json(const struct plan_report *r, int32_t m)
{
	const struct ferry_move *const move = &r->plan->moves[m];
	cJSON *const o = cJSON_CreateObject();
	char *const text = move_text(r, m);

	cJSON_AddStringToObject(
		o, "kind", move->kind == FERRY_MOVE_COPY ? "copy" : "swap");
	cJSON_AddNumberToObject(o, "expert", move->expert);
	cJSON_AddNumberToObject(o, "other", move->other);
	cJSON_AddNumberToObject(o, "from_slot", move->from_slot);
	cJSON_AddNumberToObject(o, "to_slot", move->to_slot);
	cJSON_AddNumberToObject(o, "from_rank", move->from_rank);
	cJSON_AddNumberToObject(o, "to_rank", move->to_rank);
	cJSON_AddNumberToObject(o, "cost_ns", (double)move->cost_ns);
	cJSON_AddNumberToObject(o, "gain", (double)move->gain);
	cJSON_AddStringToObject(o, "why", text);
	free(text);
	return o;
}

static void add_loads(cJSON *o, const char *name, const int64_t *loads,
                      int32_t n)
{
	cJSON *const array = cJSON_AddArrayToObject(o, name);

	for (int32_t i = 0; i < n; i++)
		cJSON_AddItemToArray(array,
		                     cJSON_CreateNumber((double)loads[i]));
}

static void add_plan(cJSON *o, const struct plan_report *r)
{
	const struct ferry_plan *const plan = r->plan;
	char why[160];

	cJSON_AddNumberToObject(o, "load_before", (double)plan->load_before);
	cJSON_AddNumberToObject(o, "load_after", (double)plan->load_after);
	cJSON_AddNumberToObject(o, "bound", (double)plan->bound);
	cJSON_AddNumberToObject(o, "total", (double)plan->total);
	json_add_ratio(o, "ratio_before", ratio(r, plan->load_before));
	json_add_ratio(o, "ratio_after", ratio(r, plan->load_after));
	json_add_ratio(o, "ratio_bound", ratio(r, plan->bound));
	json_add_rounded(o, "plan_us", (double)r->plan_ns / 1e3);
	add_hash(o, "hash", plan->hash);
	why_nothing(r, why, sizeof(why));
	if (*why)
		cJSON_AddStringToObject(o, "why", why);
	cJSON *const moves = cJSON_AddArrayToObject(o, "moves");

	for (int32_t m = 0; m < plan->n_moves; m++)
		cJSON_AddItemToArray(moves, move_json(r, m));
}

bool plan_write_json(const struct plan_report *r)
{
	cJSON *const o = json_document("ferry-plan-1");
	char *const text = plan_placement_text(r->after);

	cJSON_AddStringToObject(o, "loads", r->source);
	cJSON_AddStringToObject(o, "step", r->step);
	if (*r->note)
		cJSON_AddStringToObject(o, "note", r->note);
	cJSON_AddNumberToObject(o, "layer", r->plan->layer);
	cJSON_AddNumberToObject(o, "experts",
	                        ferry_placement_n_experts(r->before));
	cJSON_AddNumberToObject(o, "slots", ferry_placement_n_slots(r->before));
	cJSON_AddNumberToObject(o, "ranks", n_ranks(r));
	add_plan(o, r);
	add_loads(o, "rank_loads_before", r->loads_before, n_ranks(r));
	add_loads(o, "rank_loads_after", r->loads_after, n_ranks(r));
	add_hash(o, "placement_hash_before", ferry_placement_hash(r->before));
	add_hash(o, "placement_hash", ferry_placement_hash(r->after));
	cJSON_AddStringToObject(o, "placement", text);
	free(text);
	return json_write(o, "-");
}
