/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report as text: its markup is well-formed whatever is in it, names are
 * escaped, numbers are those of the totals, and it asks nobody for anything.
 * How it looks is for browser_test.py.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "html_check.h"
#include "made_up_file.h"
#include "prefill_html_plot.h"

/* The report as it is written, checked for what all must be; to be freed. */
static char *page_of(const struct prefill_report *report)
{
	assert_true(prefill_write_html(report, made_up_path));
	char *const text = made_up_read(made_up_path);

	assert_non_null(text);
	const char *const fault = html_fault(text);

	if (fault)
		fail_msg("markup: %.60s", fault);
	assert_null(strstr(text, "nan"));
	assert_null(strstr(text, ">inf"));
	assert_null(strstr(text, "(null)"));
	return text;
}

static void has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("not in the report: %s", part);
}

static void test_it_answers_in_order(void **state)
{
	static const char *const questions[] = {
		"What was run?</h2>",
		"Are the outputs equal?</h2>",
		"How even are the ranks?</h2>",
		"What did it cost?</h2>",
		"Was the prediction right?</h2>",
		"Where did the time go?</h2>",
		"All numbers</h2>",
	};
	char *const text = page_of(&made_up.report);
	const char *at = text;

	(void)state;
	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions); i++) {
		at = strstr(at, questions[i]);
		assert_non_null(at);
	}
	free(text);
}

static void test_it_is_alone(void **state)
{
	static const char *const links[] = {"http:", "https:",  "<script",
	                                    "src=",  "@import", "@font-face"};
	char *const text = page_of(&made_up.report);

	(void)state;
	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
		assert_null(strstr(text, links[i]));
	assert_int_equal(html_count(text, "url("),
	                 html_count(text, "url(#stripes)"));
	has(text, "default-src 'none'");
	assert_true(strlen(text) < 1 << 20);
	free(text);
}

/* The totals are on the page as they are. */
static void test_it_has_the_totals(void **state)
{
	char *const text = page_of(&made_up.report);
	struct prefill_totals t;
	char part[160];

	(void)state;
	for (int i = 0; i < MADE_UP_RUNS; i++) {
		prefill_sum(&made_up.shape, &made_up.runs[i], -1, &t);
		snprintf(part, sizeof(part),
		         "</span></th><td>%.2f</td>"
		         "<td>%.2f</td>",
		         t.ratio_before, t.ratio_after);
		has(text, part);
	}
	snprintf(part, sizeof(part), "to <strong>%.2f</strong>", t.ratio_after);
	has(text, part); /* of the last one, which is the best */
	snprintf(part, sizeof(part), "<strong>%.1f\xe2\x80\xaf%%</strong>",
	         100 * t.topk_hit);
	has(text, part);
	has(text, "Yes, to the bit, in every sequence.");
	has(text, "56 sequences");
	has(text, "Numbers below are of 1152 of them, after a warm-up.");
	has(text, "35.2\xe2\x80\xaf% \xc2\xb1 0.3</td>");
	has(text, "<code>ferry prefill <span>--model</span> "
	          "<span>made-up</span></code>");
	free(text);
}

/* A shade for every rank, layer and map, and nine to explain them. */
static void test_it_draws_all_cells(void **state)
{
	char *const text = page_of(&made_up.report);
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 9; i++) {
		char part[16];

		snprintf(part, sizeof(part), "class=\"q%d\"", i);
		n += html_count(text, part);
	}
	assert_int_equal(n, 9 + 8 * MADE_UP_LAYERS * MADE_UP_RUNS);
	assert_int_equal(html_count(text, "class=\"dot\""),
	                 3 * MADE_UP_EXPERTS);
	assert_int_equal(html_count(text, "class=\"card p"), MADE_UP_RUNS);
	assert_int_equal(html_count(text, "<title id="),
	                 html_count(text, "<desc id="));
	free(text);
}

static void test_names_are_escaped(void **state)
{
	static const char *const texts[MADE_UP_TEXTS] = {
		"<b>&\"'.txt", "two\xff\xc0\x80\x01 broken", "\xe6\x97\xa5"};
	static char words[3][24] = {"prefill", "<script>alert(1)", "it's"};
	static char *argv[] = {words[0], words[1], words[2], NULL};
	struct prefill_report report = made_up.report;
	struct prefill_job job = made_up.job;
	struct prefill_shape shape = made_up.shape;

	(void)state;
	shape.texts = texts;
	shape.model = "</title><img src=x>";
	job.shape = &shape;
	report.job = &job;
	report.argv = argv;
	char *const text = page_of(&report);

	has(text, "&lt;b&gt;&amp;&quot;&#39;.txt");
	has(text, "two\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd broken");
	has(text, "\xe6\x97\xa5");
	has(text, "<title>ferry prefill: &lt;/title&gt;&lt;img src=x&gt;");
	has(text, "<span>&#39;&lt;script&gt;alert(1)&#39;</span> "
	          "<span>&#39;it&#39;\\&#39;&#39;s&#39;</span></code>");
	assert_null(strstr(text, "<img"));
	assert_null(strstr(text, "<script"));
	free(text);
}

static void test_differing_bits_are_an_error(void **state)
{
	struct prefill_run runs[MADE_UP_RUNS];
	struct prefill_report report = made_up.report;

	(void)state;
	memcpy(runs, made_up.runs, sizeof(runs));
	runs[2].bits_equal = false;
	runs[2].n_differ = 3;
	report.runs = runs;
	report.bits_equal = false;
	char *const text = page_of(&report);

	has(text, "<h1>Outputs differ</h1>");
	has(text, "some outputs differ");
	has(text, "3 differ");
	assert_null(strstr(text, "Yes, to the bit"));
	free(text);
}

static void test_a_single_run_was_not_compared(void **state)
{
	struct prefill_report report = made_up.report;

	(void)state;
	report.n_runs = 1;
	report.checked = false;
	char *const text = page_of(&report);

	has(text, "Not compared");
	has(text, "Nothing was predicted");
	has(text, "no policy of this run moves");
	assert_null(strstr(text, "Yes, to the bit"));
	assert_null(strstr(text, "\xe2\x9c\x93"));
	free(text);
}

/* Batches of several texts, and steps that do not count. */
static void test_other_steps(void **state)
{
	struct prefill_step steps[MADE_UP_STEPS];
	struct prefill_shape shape = made_up.shape;
	struct prefill_job job = made_up.job;
	struct prefill_report report = made_up.report;
	char *text;

	(void)state;
	memcpy(steps, made_up.steps, sizeof(steps));
	shape.steps = steps;
	job.shape = &shape;
	report.job = &job;
	for (int32_t i = 0; i < MADE_UP_STEPS; i++)
		steps[i].text = -1;
	text = page_of(&report);
	has(text, "texts cannot be told apart");
	free(text);
	for (int32_t i = 0; i < MADE_UP_STEPS; i++)
		steps[i].warm_up = true;
	text = page_of(&report);
	has(text, "all are warm-up, so that there are no totals");
	free(text);
}

static void check_ranks(int32_t n_ranks)
{
	static struct made_up other;

	made_up_open(&other, n_ranks);
	char *const text = page_of(&other.report);

	if (n_ranks == 1)
		has(text, "nothing to balance");
	free(text);
	made_up_close(&other);
}

static void test_any_number_of_ranks(void **state)
{
	(void)state;
	check_ranks(1);
	check_ranks(3);
	check_ranks(32);
}

static void test_what_cannot_be_written(void **state)
{
	(void)state;
	assert_false(prefill_write_html(&made_up.report, "/nowhere/x.html"));
	assert_false(prefill_write_html(&made_up.report, "/dev/full"));
}

/* The reader that all of this rests on sees faults. */
static void test_the_reader_sees_faults(void **state)
{
	static const char *const faults[] = {
		"",
		"<!DOCTYPE html>\n<p>",
		"<!DOCTYPE html>\n</p>",
		"<!DOCTYPE html>\n<a><b></a></b>",
		"<!DOCTYPE html>\n<a b=c></a>",
		"<!DOCTYPE html>\n<a b=\"<\"></a>",
		"<!DOCTYPE html>\n<p>a & b</p>",
		"<!DOCTYPE html>\n<p>a > b</p>",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		assert_non_null(html_fault(faults[i]));
	assert_null(html_fault("<!DOCTYPE html>\n<a b=\"c\">&lt;<d /></a>\n"));
}

/* The scale reaches what is drawn, at a number that stands beside it. */
static void test_a_scale_ends_at_a_step(void **state)
{
	(void)state;
	assert_true(fabs(plot_end(1, 1.78, 5) - 1.8) < 1e-12);
	assert_true(fabs(plot_end(1, 1.8, 5) - 1.8) < 1e-12);
	assert_true(fabs(plot_end(1, 2, 5) - 2) < 1e-12);
	assert_true(fabs(plot_end(0, 0.97, 5) - 1) < 1e-12);
	for (int i = 0; i < 250; i++) {
		const double most = 1.1 * pow(1.013, i);
		const double end = plot_end(1, most, 5);
		const double steps = (end - 1) / plot_step(end - 1, 5);

		assert_true(end >= most - 1e-9);
		assert_true(fabs(steps - round(steps)) < 1e-9);
	}
}

/* A policy that had no reason to move yet looks like before, and says so. */
static void test_nothing_moved_yet(void **state)
{
	static const char said[] = "as before: nothing had moved by this step";
	const size_t n = (size_t)MADE_UP_STEPS * MADE_UP_LAYERS * 8;
	struct prefill_rank_cell *const cells = made_up.runs[1].rank_cells;
	struct prefill_rank_cell *const kept = malloc(n * sizeof(*kept));
	char *text = page_of(&made_up.report);

	(void)state;
	assert_non_null(kept);
	assert_null(strstr(text, said));
	free(text);
	memcpy(kept, cells, n * sizeof(*kept));
	for (size_t i = 0; i < n; i++)
		cells[i].tokens = cells[i].tokens_fixed;
	text = page_of(&made_up.report);
	memcpy(cells, kept, n * sizeof(*kept));
	assert_int_equal(html_count(text, said), 1);
	free(text);
	free(kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_answers_in_order),
		cmocka_unit_test(test_it_is_alone),
		cmocka_unit_test(test_it_has_the_totals),
		cmocka_unit_test(test_it_draws_all_cells),
		cmocka_unit_test(test_names_are_escaped),
		cmocka_unit_test(test_differing_bits_are_an_error),
		cmocka_unit_test(test_a_single_run_was_not_compared),
		cmocka_unit_test(test_other_steps),
		cmocka_unit_test(test_any_number_of_ranks),
		cmocka_unit_test(test_what_cannot_be_written),
		cmocka_unit_test(test_the_reader_sees_faults),
		cmocka_unit_test(test_a_scale_ends_at_a_step),
		cmocka_unit_test(test_nothing_moved_yet),
	};

	return cmocka_run_group_tests(tests, made_up_set_up, made_up_tear_down);
}
