/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps that the published EPLB made for real models, on 8 ranks: they hold an
 * expert twice on one rank in up to a quarter of all ranks and layers. Ours,
 * for loads of the same kind and in the same shapes, never does. The maps are
 * in ../shared/data, from EasyInfra; the test is skipped where they are not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/eplb.h>

#include "core/bits.h"
#include "test_seed.h"

enum { RANKS = 8, MAX_LAYERS = 64, MAX_SLOTS = 160, MAX_EXPERTS = 128 };

static uint64_t seed;

struct maps {
	int32_t n_experts, n_layers, n_slots;
	int32_t map[MAX_LAYERS][MAX_SLOTS];
};

/* Numbers in two levels of brackets, whatever the blanks. */
static bool read_maps(const char *name, struct maps *m)
{
	char path[512];
	int depth = 0, c;
	int32_t n = 0;

	memset(m, 0, sizeof(*m));
	snprintf(path, sizeof(path), "%s/eplb_maps/%s", FERRY_SHARED_DATA,
	         name);
	FILE *const f = fopen(path, "r");

	if (!f)
		return false;
	while ((c = fgetc(f)) != EOF) {
		if (c == '[' && ++depth == 2)
			n = 0;
		if (c == ']' && depth-- == 2) {
			m->n_layers++;
			m->n_slots = n;
		}
		if (depth == 2 && c >= '0' && c <= '9') {
			ungetc(c, f);
			assert_int_equal(
				fscanf(f, "%d", &m->map[m->n_layers][n++]), 1);
		}
		assert_true(m->n_layers < MAX_LAYERS && n <= MAX_SLOTS);
	}
	fclose(f);
	for (int32_t l = 0; l < m->n_layers; l++)
		for (int32_t s = 0; s < m->n_slots; s++)
			if (m->map[l][s] >= m->n_experts)
				m->n_experts = m->map[l][s] + 1;
	return true;
}

/* Ranks of a map that have an expert twice. */
static int32_t n_wasteful(const int32_t *map, int32_t n_slots)
{
	const int32_t k = n_slots / RANKS;
	int32_t n = 0;

	for (int32_t r = 0; r < RANKS; r++) {
		bool twice = false;

		for (int32_t a = 0; a < k; a++)
			for (int32_t b = 0; b < a; b++)
				twice |= map[r * k + a] >= 0 &&
				         map[r * k + a] == map[r * k + b];
		n += twice;
	}
	return n;
}

/* Loads that such copies are made for: some 1000 each, unequal. */
static void fit(const struct maps *m, int32_t layer, int64_t *loads)
{
	for (int32_t e = 0; e < m->n_experts; e++)
		loads[e] = 0;
	for (int32_t s = 0; s < m->n_slots; s++)
		loads[m->map[layer][s]] +=
			700 + (int64_t)(rng_next(&seed) % 600);
}

static int32_t n_wasteful_of(struct ferry_eplb_config *c, const int64_t *loads)
{
	int32_t map[MAX_SLOTS];

	if (ferry_eplb(c, loads, map))
		fail_msg("%s", ferry_last_error());
	return n_wasteful(map, c->n_slots);
}

static void compare(const struct maps *m, const char *name, int32_t want)
{
	struct ferry_eplb_config c = FERRY_EPLB_CONFIG_INIT;
	int32_t theirs = 0, published = 0;
	int64_t loads[MAX_EXPERTS];

	c.n_experts = m->n_experts;
	c.n_slots = m->n_slots;
	c.n_ranks = RANKS;
	for (int32_t l = 0; l < m->n_layers; l++) {
		theirs += n_wasteful(m->map[l], m->n_slots);
		fit(m, l, loads);
		c.as_published = true;
		published += n_wasteful_of(&c, loads);
		c.as_published = false;
		assert_int_equal(n_wasteful_of(&c, loads), 0);
	}
	printf("# %s: %d of %d ranks have an expert twice; as published, "
	       "fitted loads: %d; ours: 0\n",
	       name, theirs, m->n_layers * RANKS, published);
	assert_int_equal(theirs, want);
	assert_true((published > 0) == (m->n_slots > m->n_experts));
}

static void ours_wastes_no_slot(void **state)
{
	static const struct {
		const char *name;
		int32_t wasteful;
	} files[] = {
		{"Moonlight-16B-A3B-Instruct-64-1-1-8-all.jsonl", 0},
		{"Moonlight-16B-A3B-Instruct-80-1-1-8-2wikimqa.jsonl", 22},
		{"Qwen3-30B-A3B-Instruct-2507-128-1-1-8-all.jsonl", 0},
		{"Qwen3-30B-A3B-Instruct-2507-136-1-1-8-all.jsonl", 8},
		{"Qwen3-30B-A3B-Instruct-2507-144-1-1-8-all.jsonl", 41},
		{"Qwen3-30B-A3B-Instruct-2507-152-1-1-8-all.jsonl", 57},
		{"Qwen3-30B-A3B-Instruct-2507-160-1-1-8-2wikimqa.jsonl", 88},
		{"Qwen3-30B-A3B-Instruct-2507-160-1-1-8-all.jsonl", 72},
	};
	static struct maps m;

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		if (!read_maps(files[i].name, &m))
			fail_msg("%s cannot be read", files[i].name);
		compare(&m, files[i].name, files[i].wasteful);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ours_wastes_no_slot),
	};
	FILE *const there = fopen(FERRY_SHARED_DATA "/eplb_maps", "r");

	if (!there) {
		printf("skipped: no %s/eplb_maps\n", FERRY_SHARED_DATA);
		return 77;
	}
	fclose(there);
	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
