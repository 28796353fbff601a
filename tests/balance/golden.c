/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the problems whose optimum is proven. */
#include "golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_EXPERTS = 32, MAX_ROWS = 4096, MAX_LINE = 8192 };

static int64_t table[MAX_ROWS][TABLE_EXPERTS];
static int32_t n_rows = -1; /* not read */

_Noreturn static void bad(const char *what, const char *where)
{
	fprintf(stderr, "golden: %s: %s\n", what, where);
	exit(1);
}

static void read_table(void)
{
	FILE *const f = fopen(
		FERRY_SHARED_DATA "/gptoss20b_expert_freq_by_task.csv", "r");
	char line[MAX_LINE];

	n_rows = 0;
	while (f && n_rows < MAX_ROWS && fgets(line, sizeof(line), f)) {
		char *at = line;

		if (line[0] == '#' || !strncmp(line, "dataset", 7))
			continue;
		for (int i = 0; i < 6 && at; i++)
			at = strchr(at + 1, ',');
		if (!at)
			bad("a row is too short", line);
		for (int e = 0; e < TABLE_EXPERTS; e++)
			table[n_rows][e] = strtoll(at + 1, &at, 10);
		n_rows++;
	}
	if (f)
		fclose(f);
}

/* Loads of a row; whether the table is there. */
static bool take_row(struct golden *g, int64_t sum)
{
	int64_t got = 0;

	if (n_rows < 0)
		read_table();
	if (n_rows == 0)
		return false;
	if (g->row >= n_rows || g->n_experts != TABLE_EXPERTS)
		bad("no such row", g->name);
	for (int e = 0; e < TABLE_EXPERTS; e++)
		got += g->loads[e] = table[g->row][e];
	if (got != sum)
		bad("the table is another one", g->name);
	return true;
}

static int32_t take_numbers(char *at, int64_t *out, int32_t most)
{
	int32_t n = 0;

	for (char *end; n < most; at = end) {
		const int64_t v = strtoll(at, &end, 10);

		if (end == at)
			break;
		out[n++] = v;
	}
	return n;
}

static void take_experts(struct golden *g, char *at)
{
	int64_t v[GOLDEN_RANKS];

	if (take_numbers(at, v, GOLDEN_RANKS) != g->n_ranks)
		bad("not a number for each rank", g->name);
	g->n_experts = 0;
	for (int32_t r = 0; r < g->n_ranks; r++) {
		g->experts[r] = (int32_t)v[r];
		g->n_experts += g->experts[r];
	}
	if (g->n_experts > GOLDEN_EXPERTS)
		bad("too many experts", g->name);
}

/* Takes a line; true at the last one of a problem. */
static bool take_line(struct golden *g, char *line)
{
	char split[16];
	long long a;
	long long b;

	if (sscanf(line, "case %63s", g->name) == 1) {
		g->row = -1;
	} else if (sscanf(line,
	                  "ranks %d swaps %d copies %d spare %d split %15s",
	                  &g->n_ranks, &g->swaps, &g->copies, &g->spare,
	                  split) == 5) {
		g->split = strcmp(split, "exact") ? FERRY_SPLIT_EVEN
		                                  : FERRY_SPLIT_EXACT;
		if (g->n_ranks < 1 || g->n_ranks > GOLDEN_RANKS)
			bad("ranks", g->name);
	} else if (!strncmp(line, "experts ", 8)) {
		take_experts(g, line + 8);
	} else if (!strncmp(line, "loads ", 6)) {
		if (take_numbers(line + 6, g->loads, GOLDEN_EXPERTS) !=
		    g->n_experts)
			bad("not a load for each expert", g->name);
	} else if (sscanf(line, "row %d %lld", &g->row, &a) == 2) {
		if (!take_row(g, a))
			g->n_experts = 0;
	} else if (sscanf(line, "optimum %lld before %lld", &a, &b) == 2) {
		g->optimum = a;
		g->before = b;
		return true;
	} else if (line[0] != '#' && line[0] != '\n') {
		bad("unknown line", line);
	}
	return false;
}

int golden_each(void (*fn)(const struct golden *g, void *arg), void *arg)
{
	FILE *const f = fopen(FERRY_GOLDEN, "r");
	static char line[MAX_LINE];
	struct golden g;
	int absent = 0;

	if (!f)
		bad("cannot be opened", FERRY_GOLDEN);
	while (fgets(line, sizeof(line), f)) {
		if (!take_line(&g, line))
			continue;
		if (g.n_experts)
			fn(&g, arg);
		else
			absent++;
	}
	fclose(f);
	if (absent)
		printf("%d problems left out: no %s\n", absent,
		       FERRY_SHARED_DATA);
	return absent;
}

struct ferry_placement *golden_placement(const struct golden *g)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *placement = NULL;
	int32_t slots[GOLDEN_RANKS];
	int32_t map[GOLDEN_EXPERTS * 2];
	int32_t n_slots = 0;
	int32_t e = 0;

	for (int32_t r = 0; r < g->n_ranks; r++) {
		slots[r] = g->experts[r] + g->spare;
		for (int32_t i = 0; i < slots[r]; i++)
			map[n_slots++] = i < g->experts[r] ? e++ : -1;
	}
	c.n_experts = g->n_experts;
	c.n_ranks = g->n_ranks;
	c.expert_slots = slots;
	c.slot_expert = map;
	c.split = g->split;
	if (ferry_placement_create(&c, &placement))
		bad(ferry_last_error(), g->name);
	return placement;
}

struct ferry_plan_in golden_plan_in(const struct golden *g,
                                    const struct ferry_placement *placement)
{
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	in.placement = placement;
	in.loads = g->loads;
	in.max_swaps = g->swaps;
	in.max_copies = g->copies;
	return in;
}
