/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a made-up run, against its totals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "made_up_file.h"

/* stdout of what prints; free() frees it. */
static char *printed(void (*print)(void))
{
	fflush(stdout);
	const int old = dup(1);

	assert_non_null(freopen(made_up_path, "w", stdout));
	print();
	fflush(stdout);
	dup2(old, 1);
	close(old);
	char *const text = made_up_read(made_up_path);

	assert_non_null(text);
	return text;
}

static void assert_contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in: %s", part, text);
}

static void print_header(void)
{
	prefill_print_header(&made_up.report);
}

static void test_header(void **state)
{
	char *const text = printed(print_header);

	(void)state;
	assert_contains(
		text,
		"# model    made-up: 4 layers, hidden 64, top-4 of 32 "
		"experts of 96.0 KiB\n"
		"#          6.40 M parameters, 12.2 MiB mapped, rope_theta "
		"10000, "
		"norm_topk_prob true\n"
		"# ranks    8 processes on fabric shm, experts start "
		"even\n"
		"# budget   window measured, any swaps, replicas 1, "
		"split exact, calibrate off, margin 0\n"
		"# text     texts/c.txt: 576 tokens in 24 sequences, "
		"384 of them counted\n"
		"# text     texts/prose.txt: 384 tokens in 16 sequences\n");
	assert_contains(text, "# steps    7 (by-text), of up to 8 sequences of "
	                      "up to 24 tokens, warm-up 1\n"
	                      "# bits     logits of each sequence, compared "
	                      "with a run without ranks\n");
	free(text);
}

static void print_run(void)
{
	prefill_print_run(&made_up.report, &made_up.runs[2]);
}

/* No two words of a line are the same. */
static void assert_heads_differ(const char *line)
{
	assert_non_null(line);
	const char *const end = strchr(line, '\n');

	for (const char *a = line; a < end; a += strcspn(a, " \n")) {
		a += strspn(a, " ");
		const size_t n = strcspn(a, " \n");

		for (const char *b = a + n; n && b < end; b++)
			if (b[-1] == ' ' && !strncmp(a, b, n) &&
			    strchr(" \n", b[n]))
				fail_msg("twice: %.*s", (int)n, a);
	}
}

/* Each line but the header has as many columns. */
static void test_layers(void **state)
{
	char *const text = printed(print_run);
	int lines = 0;

	(void)state;
	assert_heads_differ(strstr(text, "# layer "));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		int columns = 0;

		if (line[0] == '#')
			continue;
		for (const char *c = line; *c; c++)
			columns += *c == ' ' && c[1] != ' ' && c[1];
		assert_int_equal(columns, 16);
		assert_int_equal(atoi(line), lines++);
	}
	assert_int_equal(lines, MADE_UP_LAYERS);
	free(text);
}

static void print_totals(void)
{
	prefill_print_totals(&made_up.report);
}

static void test_totals(void **state)
{
	struct prefill_totals off, ferry;
	char *const text = printed(print_totals);
	char row[64];

	(void)state;
	prefill_sum(&made_up.shape, &made_up.runs[0], -1, &off);
	prefill_sum(&made_up.shape, &made_up.runs[2], -1, &ferry);
	snprintf(row, sizeof(row), "\n  off               %.3f  %.3f  %.3f",
	         off.ratio_before, off.ratio_before_worst, off.ratio_after);
	assert_contains(text, row);
	const struct prefill_change change = prefill_compare_times(
		&made_up.shape, &made_up.runs[2], &made_up.runs[0], -1);

	assert_true(change.known);
	snprintf(row, sizeof(row), " %+6.1f%% %5.1f  3.5",
	         100 * ((double)ferry.total_ns / (double)off.total_ns - 1),
	         100 * change.error);
	assert_contains(text, row);
	assert_contains(text, "\n  texts/ja.txt             ferry");
	assert_contains(text, " equal\n# 0 wrong\n");
	assert_null(strstr(text, "\n\n"));
	free(text);
}

/* A text that only warms up says so, and one of one counted step has no time
 * to compare. */
static void test_little_is_counted(void **state)
{
	(void)state;
	for (int s = 0; s < MADE_UP_STEPS; s++)
		made_up.steps[s].warm_up =
			made_up.steps[s].text == 0 || s == 1 || s == 2;
	char *const header = printed(print_header);
	char *const totals = printed(print_totals);

	assert_contains(header, "# text     texts/c.txt: 576 tokens in 24 "
	                        "sequences, all warm-up: not counted\n");
	for (int s = 0; s < MADE_UP_STEPS; s++)
		made_up.steps[s].warm_up = s == 0;
	const char *const row =
		strstr(totals, "\n  texts/ja.txt             ferry");

	assert_non_null(row);
	assert_non_null(strstr(row, "       -     -  4.0000"));
	free(header);
	free(totals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_layers),
		cmocka_unit_test(test_totals),
		cmocka_unit_test(test_little_is_counted),
	};

	return cmocka_run_group_tests(tests, made_up_set_up, made_up_tear_down);
}
