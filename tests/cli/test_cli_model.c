/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of ferry model: against numbers computed by hand, against all
 * choices that tokens of a small world can make, and what must only grow.
 */
#include <math.h>
#include <string.h>

#include "cli_cmocka.h"
#include "ep_model.h"

enum { RANKS = 8, CHOICES = 8, LANDINGS = 12 /* divides by 1, 2, 3 and 4 */ };

static const struct model_shape deepseek = {
	.ranks = 8,
	.per_host = 8,
	.tokens = 128,
	.hidden = 7168,
	.topk = 8,
	.experts = 256,
	.fp8 = true,
	.once = {MODEL_ONCE_RANK, MODEL_ONCE_RANK},
};

static void assert_near(double a, double b, double share)
{
	if (fabs(a - b) > share * fabs(b) + 1e-9)
		fail_msg("%.9g is not %.9g", a, b);
}

static void test_miss(void **state)
{
	(void)state;
	assert_near(model_miss(4, 2, 2), 1.0 / 6, 1e-12);
	assert_near(model_miss(256, 128, 8), 0.00354, 0.02);
	assert_near(model_miss(10, 0, 3), 1, 1e-12);
	assert_int_equal(model_miss(10, 8, 3), 0); /* no room beside them */
	assert_int_equal(model_miss(4, 4, 1), 0);
}

/* Distinct ranks of a token, as papers have them for top-8 of 256. */
static void test_ranks_per_token(void **state)
{
	static const double known[][2] = {{2, 1.993},  {4, 3.614},
	                                  {8, 5.295},  {16, 6.523},
	                                  {32, 7.267}, {64, 7.676}};

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		struct model_shape s = deepseek;

		s.ranks = (int32_t)known[i][0];
		assert_near(model_ranks_per_token(&s), known[i][1], 1e-3);
		s.per_host = 1;
		assert_near(model_hosts_per_token(&s), known[i][1], 1e-3);
		s.per_host = s.ranks;
		assert_near(model_hosts_per_token(&s), 1, 1e-12);
	}
}

/* 128 tokens of 7392 bytes to 4.633 other ranks; back, as bf16. */
static void test_eight_ranks(void **state)
{
	struct model_rows rows[RANKS];
	struct model_load load;

	(void)state;
	assert_int_equal(model_row_bytes(&deepseek, MODEL_DISPATCH), 7392);
	assert_int_equal(model_row_bytes(&deepseek, MODEL_COMBINE), 14336);
	model_expect(&deepseek, MODEL_DISPATCH, rows);
	for (int r = 0; r < RANKS; r++) {
		assert_near(rows[r].inside_out, 128 * 4.633, 1e-3);
		assert_near(rows[r].inside_in, 128 * 4.633, 1e-3);
		assert_int_equal(rows[r].between_out + rows[r].between_in, 0);
	}
	model_load_of(&deepseek, MODEL_DISPATCH, rows, 5.295, &load);
	assert_near(load.inside_bytes, 4.384e6, 1e-3);
	assert_near(load.memory_bytes, 128 * (8 + 5.295) * 7392, 1e-3);
	model_expect(&deepseek, MODEL_COMBINE, rows);
	model_load_of(&deepseek, MODEL_COMBINE, rows, 5.295, &load);
	assert_near(load.inside_bytes, 8.502e6, 1e-3);
	assert_near(load.memory_bytes, 128 * 9 * 14336.0, 1e-9);
}

/* 2 hosts of 2, top-1 of 4: half of all tokens leave their host, a quarter
 * goes to the mate. With tables of 128 + 10 * 4 bytes to everybody. */
static void test_tables_and_time(void **state)
{
	const struct model_shape s = {
		.ranks = 4,
		.per_host = 2,
		.tokens = 10,
		.hidden = 50,
		.topk = 1,
		.experts = 4,
		.tables = true,
		.once = {MODEL_ONCE_HOST, MODEL_ONCE_EXPERT},
	};
	const struct model_machine m = {
		.inside = {.alpha_us = 1, .bytes_per_us = 10},
		.between = {.alpha_us = 5, .bytes_per_us = 2, .gap_us = 500},
		.memory_bytes_per_us = 100,
		.base_us = {7, 8},
	};
	struct model_rows rows[4];
	struct model_load load;
	struct model_time time;

	(void)state;
	model_expect(&s, MODEL_DISPATCH, rows);
	assert_near(rows[3].inside_in, 2.5, 1e-12);
	assert_near(rows[3].between_in, 5, 1e-12);
	model_load_of(&s, MODEL_DISPATCH, rows, 1, &load);
	assert_near(load.inside_bytes, 2.5 * 100 + 168, 1e-12);
	assert_near(load.between_bytes, 5 * 100 + 2 * 168, 1e-12);
	assert_near(load.memory_bytes, 10 * 2 * 100, 1e-12);
	model_time_of(&s, &m, MODEL_DISPATCH, &load, &time);
	assert_near(time.inside_us, 41.8, 1e-12);
	assert_near(time.between_us, 5 * 500, 1e-12); /* the gaps */
	assert_near(time.memory_us, 20, 1e-12);
	assert_near(time.alpha_us, 6, 1e-12); /* and on from where it landed */
	assert_near(time.latency_us, 7 + 6 + 2500, 1e-12);
	assert_near(time.serial_us, 7 + 6 + 2500 + 41.8 + 20, 1e-12);
	assert_string_equal(time.bound_by, "between");
	model_time_of(&s, &m, MODEL_COMBINE, &load, &time);
	assert_near(time.alpha_us, 5, 1e-12);
	assert_near(time.base_us, 8, 1e-12);
}

/* The next subset of k of n, ascending; false after the last. */
static bool next_subset(int32_t *ids, int32_t k, int32_t n)
{
	int32_t i = k - 1;

	while (i >= 0 && ids[i] == n - k + i)
		i--;
	if (i < 0)
		return false;
	for (ids[i++]++; i < k; i++)
		ids[i] = ids[i - 1] + 1;
	return true;
}

/* Mean rows over everything that tokens can choose, times the tokens. */
static void try_all(const struct model_shape *s, enum model_phase phase,
                    struct model_rows *mean)
{
	int32_t ids[CHOICES], seen[RANKS + CHOICES];
	double n = 0;

	memset(mean, 0, (size_t)s->ranks * sizeof(*mean));
	for (int32_t k = 0; k < s->topk; k++)
		ids[k] = k;
	do {
		for (int32_t source = 0; source < s->ranks; source++)
			for (int64_t t = 0; t < LANDINGS; t++)
				model_add_token(s, phase, source, t, ids, mean,
				                seen);
		n++;
	} while (next_subset(ids, s->topk, s->experts));
	for (int32_t r = 0; r < s->ranks; r++) {
		const double to = s->tokens / n / LANDINGS;

		mean[r].inside_out *= to;
		mean[r].inside_in *= to;
		mean[r].between_out *= to;
		mean[r].between_in *= to;
	}
}

static struct model_rows sum_of(const struct model_rows *rows, int32_t n)
{
	struct model_rows all = {0};

	for (int32_t r = 0; r < n; r++) {
		all.inside_out += rows[r].inside_out;
		all.inside_in += rows[r].inside_in;
		all.between_out += rows[r].between_out;
		all.between_in += rows[r].between_in;
	}
	return all;
}

static void assert_same(const struct model_rows *a, const struct model_rows *b)
{
	assert_near(a->inside_out, b->inside_out, 1e-9);
	assert_near(a->inside_in, b->inside_in, 1e-9);
	assert_near(a->between_out, b->between_out, 1e-9);
	assert_near(a->between_in, b->between_in, 1e-9);
}

/* Uneven experts: where a host's rows land is spread evenly by the formula. */
static void compare(const struct model_shape *s, enum model_phase phase,
                    bool each)
{
	struct model_rows formula[RANKS], mean[RANKS];

	model_expect(s, phase, formula);
	try_all(s, phase, mean);
	for (int32_t r = 0; each && r < s->ranks; r++)
		assert_same(&formula[r], &mean[r]);
	const struct model_rows a = sum_of(formula, s->ranks);
	const struct model_rows b = sum_of(mean, s->ranks);

	assert_same(&a, &b);
	assert_near(a.inside_out, a.inside_in, 1e-9);
	assert_near(a.between_out, a.between_in, 1e-9);
}

static void test_all_choices(void **state)
{
	static const struct model_shape shapes[] = {
		{.ranks = 4, .per_host = 2, .topk = 3, .experts = 8},
		{.ranks = 6, .per_host = 3, .topk = 4, .experts = 12},
		{.ranks = 6, .per_host = 4, .topk = 2, .experts = 6},
		{.ranks = 5, .per_host = 2, .topk = 3, .experts = 7},
		{.ranks = 3, .per_host = 1, .topk = 2, .experts = 2},
		{.ranks = 8, .per_host = 4, .topk = 8, .experts = 8},
		{.ranks = 1, .per_host = 8, .topk = 1, .experts = 3},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
		for (int once = 0; once <= MODEL_ONCE_HOST; once++)
			for (int p = 0; p < MODEL_N_PHASES; p++) {
				struct model_shape s = shapes[i];
				const bool even = s.experts % s.ranks == 0;

				s.tokens = 5;
				s.once[p] = (enum model_once)once;
				compare(&s, (enum model_phase)p,
				        even || once != MODEL_ONCE_HOST);
			}
}

static void test_spread(void **state)
{
	const struct model_shape s = {
		.ranks = 4, .per_host = 2, .topk = 5, .experts = 8};
	const int32_t ids[] = {7, 0, -1, 6, 1}; /* ranks 3, 0, 3, 0 */
	int64_t ranks = 10, hosts = 20;
	int32_t seen[RANKS];

	(void)state;
	model_add_spread(&s, ids, &ranks, &hosts, seen);
	assert_int_equal(ranks, 12);
	assert_int_equal(hosts, 22);
}

static double bytes_between(const struct model_shape *s)
{
	struct model_rows rows[64];
	struct model_load load;

	model_expect(s, MODEL_DISPATCH, rows);
	model_load_of(s, MODEL_DISPATCH, rows, model_ranks_per_token(s), &load);
	return load.between_bytes;
}

/* More tokens, wider rows, more choices, less sharing: never fewer bytes. */
static void test_grows(void **state)
{
	(void)state;
	for (int once = 0; once <= MODEL_ONCE_HOST; once++) {
		struct model_shape s = deepseek;

		s.ranks = 64;
		s.tables = true;
		s.once[MODEL_DISPATCH] = (enum model_once)once;
		const double least = bytes_between(&s);

		s.tokens++;
		assert_true(bytes_between(&s) > least);
		s.tokens--;
		s.hidden++;
		assert_true(bytes_between(&s) > least);
		s.hidden--;
		s.topk++;
		assert_true(bytes_between(&s) > least);
		s.topk--;
		s.fp8 = false;
		assert_true(bytes_between(&s) > least);
		s.fp8 = true;
		s.per_host = 4;
		assert_true(bytes_between(&s) > least);
		s.per_host = 8;
		if (once < MODEL_ONCE_HOST) {
			s.once[MODEL_DISPATCH]++;
			assert_true(bytes_between(&s) < least);
		}
	}
}

static void test_links(void **state)
{
	static const char *const bad[] = {
		"",     "1",    "1,",   "1,0",   "1,2,3,4", "nvlink-h2OO",
		"a,b",  "-1,2", "1,-2", "1,inf", "nan,2",   "0x1,2",
		"1, 2", " 1,2", "1,2x", "1;2",   "1,1e999"};
	struct model_link link;
	struct fault fault;

	(void)state;
	for (int i = 0; model_preset(i); i++) {
		assert_true(
			model_link_parse(model_preset(i)->name, &link, &fault));
		assert_true(link.bytes_per_us > 0 && link.alpha_us >= 0);
		assert_true(strlen(link.source) > 10);
	}
	assert_null(model_preset(-1));
	assert_true(model_link_parse("2.5,50,0.125", &link, &fault));
	assert_near(link.alpha_us, 2.5, 1e-12);
	assert_near(link.bytes_per_us, 50e3, 1e-12);
	assert_near(link.gap_us, 0.125, 1e-12);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		fault.text[0] = '\0';
		if (model_link_parse(bad[i], &link, &fault))
			fail_msg("'%s' was taken", bad[i]);
		assert_non_null(strstr(fault.text, "allowed is"));
	}
	model_link_parse("nvlink-h2OO", &link, &fault);
	assert_non_null(strstr(fault.text, "did you mean 'nvlink-h200'"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_miss),
		cmocka_unit_test(test_ranks_per_token),
		cmocka_unit_test(test_eight_ranks),
		cmocka_unit_test(test_tables_and_time),
		cmocka_unit_test(test_all_choices),
		cmocka_unit_test(test_spread),
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
