/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said of a run: tables, JSON, the recorded trace and the timeline, all
 * of a made-up run, against its totals.
 */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "made_up_run.h"
#include "prefill_file.h"
#include "route.h"
#include "shown.h"

static struct made_up made_up;
static char path[] = "/tmp/ferry-prefill-out-XXXXXX";

static int open_it(void **state)
{
	(void)state;
	made_up_open(&made_up, 8);
	const int fd = mkstemp(path);

	close(fd);
	return fd < 0;
}

static int close_it(void **state)
{
	(void)state;
	made_up_close(&made_up);
	unlink(path);
	return 0;
}

/* Everything in the file; free() frees it. */
static char *file_text(const char *name)
{
	FILE *const f = fopen(name, "rb");
	size_t n = 0, room = 1 << 20;
	char *const text = calloc(1, room);

	assert_non_null(f);
	assert_non_null(text);
	n = fread(text, 1, room - 1, f);
	assert_true(n < room - 1);
	fclose(f);
	return text;
}

static cJSON *file_json(void)
{
	char *const text = file_text(path);
	cJSON *const json = cJSON_ParseWithOpts(text, NULL, true);

	assert_non_null(json);
	free(text);
	return json;
}

static double number(const cJSON *o, const char *name)
{
	const cJSON *const item = cJSON_GetObjectItemCaseSensitive(o, name);

	if (!cJSON_IsNumber(item))
		fail_msg("no number '%s'", name);
	return item->valuedouble;
}

static const char *text_of(const cJSON *o, const char *name)
{
	const char *const text =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));

	if (!text)
		fail_msg("no text '%s'", name);
	return text;
}

static void assert_near(double found, double wanted)
{
	if (fabs(found - wanted) > 1e-6 + 1e-6 * fabs(wanted))
		fail_msg("found %.9f, wanted %.9f", found, wanted);
}

/* The numbers that everybody wants, of a run or a text. */
static void check_totals(const cJSON *o, const struct prefill_run *run,
                         int32_t text)
{
	struct prefill_totals t;

	prefill_sum(&made_up.shape, run, text, &t);
	assert_near(number(o, "ratio_before"), t.ratio_before);
	assert_near(number(o, "ratio_after"), t.ratio_after);
	assert_near(number(o, "exposed_us"), (double)t.exposed_ns / 1e3);
	assert_near(number(o, "total_ms"), (double)t.total_ns / 1e6);
	assert_near(number(o, "moves_mean"), t.moves_mean);
	assert_near(number(o, "nll_mean"), t.nll_mean);
	assert_near(number(cJSON_GetObjectItem(o, "stage_us"), "experts"),
	            (double)t.stage_ns[PREFILL_EXPERTS] / 1e3);
	if (t.n_predicted)
		assert_near(number(o, "topk_hit"), t.topk_hit);
	else
		assert_true(cJSON_IsNull(cJSON_GetObjectItem(o, "topk_hit")));
}

/* An array over layers, against the layer's totals. */
static void check_layers(const cJSON *layers, const struct prefill_run *run)
{
	const cJSON *const before = cJSON_GetObjectItem(layers, "ratio_before");
	const cJSON *const us = cJSON_GetObjectItem(
		cJSON_GetObjectItem(layers, "stage_us"), "dispatch");

	assert_int_equal(cJSON_GetArraySize(before), MADE_UP_LAYERS);
	assert_int_equal(cJSON_GetArraySize(us), MADE_UP_LAYERS);
	assert_null(cJSON_GetObjectItem(layers, "total_ms"));
	for (int32_t l = 0; l < MADE_UP_LAYERS; l++) {
		struct prefill_totals t;

		prefill_sum_layer(&made_up.shape, run, l, &t);
		assert_near(cJSON_GetArrayItem(before, l)->valuedouble,
		            t.ratio_before);
		assert_near(cJSON_GetArrayItem(us, l)->valuedouble, 70);
	}
}

static void check_run(const cJSON *o, const struct prefill_run *run)
{
	const cJSON *const texts = cJSON_GetObjectItem(o, "texts");

	assert_string_equal(text_of(o, "balance"), run->name);
	assert_true(cJSON_IsTrue(cJSON_GetObjectItem(o, "bits_equal")));
	check_totals(o, run, -1);
	check_layers(cJSON_GetObjectItem(o, "layers"), run);
	assert_int_equal(cJSON_GetArraySize(texts), MADE_UP_TEXTS);
	for (int32_t t = 0; t < MADE_UP_TEXTS; t++)
		check_totals(cJSON_GetArrayItem(texts, t), run, t);
	assert_int_equal(
		cJSON_GetArraySize(cJSON_GetObjectItem(
			cJSON_GetObjectItem(o, "steps_each"), "total_ms")),
		MADE_UP_STEPS);
}

static void test_json(void **state)
{
	(void)state;
	assert_true(prefill_write_json(&made_up.report, path));
	cJSON *const document = file_json();
	const cJSON *const runs = cJSON_GetObjectItem(document, "runs");

	assert_string_equal(text_of(document, "schema"), "ferry-prefill-1");
	assert_int_equal(cJSON_GetArraySize(runs), MADE_UP_RUNS);
	for (int i = 0; i < MADE_UP_RUNS; i++)
		check_run(cJSON_GetArrayItem(runs, i), &made_up.runs[i]);
	check_totals(document, &made_up.runs[MADE_UP_RUNS - 1], -1);
	assert_string_equal(text_of(document, "balance"), "ferry");
	assert_true(cJSON_IsTrue(cJSON_GetObjectItem(document, "bits_equal")));
	cJSON_Delete(document);
}

static void test_meta_of_json(void **state)
{
	(void)state;
	assert_true(prefill_write_json(&made_up.report, path));
	cJSON *const document = file_json();
	const cJSON *const meta = cJSON_GetObjectItem(document, "meta");
	const cJSON *const model = cJSON_GetObjectItem(meta, "model");
	const cJSON *const texts = cJSON_GetObjectItem(meta, "texts");

	assert_true(number(model, "experts") == MADE_UP_EXPERTS);
	assert_true(number(model, "mapped_bytes") == 12800000);
	assert_true(number(meta, "ranks") == 8);
	assert_string_equal(text_of(meta, "fabric"), "shm");
	assert_string_equal(text_of(meta, "budget_us"), "measured");
	assert_string_equal(text_of(meta, "order"), "by-text");
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(meta, "swaps")));
	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(meta, "calibrate")));
	assert_int_equal(cJSON_GetArraySize(texts), MADE_UP_TEXTS);
	/* Steps 0, 3 and 6. */
	assert_true(number(cJSON_GetArrayItem(texts, 0), "sequences") ==
	            3 * MADE_UP_BATCH);
	cJSON_Delete(document);
}

/* One run and no check: there is nothing to be equal to. */
static void test_bits_that_were_not_compared(void **state)
{
	struct prefill_report one = made_up.report;

	(void)state;
	one.n_runs = 1;
	one.checked = false;
	assert_true(prefill_write_json(&one, path));
	cJSON *const document = file_json();

	assert_true(cJSON_IsNull(cJSON_GetObjectItem(document, "bits_equal")));
	cJSON_Delete(document);
}

static void test_bits_that_differ(void **state)
{
	struct prefill_report report = made_up.report;

	(void)state;
	made_up.runs[1].bits_equal = report.bits_equal = false;
	made_up.runs[1].n_differ = 3;
	assert_true(prefill_write_json(&report, path));
	made_up.runs[1].bits_equal = true;
	made_up.runs[1].n_differ = 0;
	cJSON *const document = file_json();
	const cJSON *const runs = cJSON_GetObjectItem(document, "runs");

	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(document, "bits_equal")));
	assert_true(number(document, "sequences_differ") == 3);
	assert_true(cJSON_IsTrue(cJSON_GetObjectItem(
		cJSON_GetArrayItem(runs, 0), "bits_equal")));
	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(
		cJSON_GetArrayItem(runs, 1), "bits_equal")));
	cJSON_Delete(document);
}

/* What the reader of ferry replay counts is what the run counted. */
static void check_route(const struct route *route,
                        const struct prefill_run *run)
{
	const size_t n =
		(size_t)MADE_UP_STEPS * MADE_UP_LAYERS * MADE_UP_EXPERTS;

	assert_int_equal(route->n_steps, MADE_UP_STEPS);
	assert_int_equal(route->n_layers, MADE_UP_LAYERS);
	assert_int_equal(route->n_experts, MADE_UP_EXPERTS);
	assert_memory_equal(route->loads, run->loads, n * sizeof(int64_t));
	if (run->cells->predicted)
		assert_memory_equal(route->predicted, run->predicted,
		                    n * sizeof(int64_t));
	else
		assert_null(route->predicted);
}

static void test_record(void **state)
{
	char name[64];

	(void)state;
	snprintf(name, sizeof(name), "%s.safetensors", path);
	for (int i = 0; i < MADE_UP_RUNS; i += 2) {
		const struct route_ask ask = {0};
		struct route route = {0};
		struct fault fault;

		assert_true(prefill_write_record(&made_up.report,
		                                 &made_up.runs[i], name));
		if (!route_open(name, &ask, &route, &fault))
			fail_msg("%s", fault.text);
		check_route(&route, &made_up.runs[i]);
		route_close(&route);
	}
	unlink(name);
}

/* An event is where the run has it, and of the right thread. */
static void check_event(const cJSON *event, const struct prefill_run *run)
{
	const cJSON *const args = cJSON_GetObjectItem(event, "args");
	const char *const name = text_of(event, "name");
	int stage = 0;

	while (stage < PREFILL_N_STAGES &&
	       strcmp(name, prefill_stage_names[stage]) != 0)
		stage++;
	if (stage == PREFILL_N_STAGES) { /* a step */
		assert_true(number(event, "pid") == 8);
		return;
	}
	const struct prefill_span *const span =
		&prefill_rank_cell_at(&made_up.shape, run,
	                              (int32_t)number(args, "step"),
	                              (int32_t)number(args, "layer"),
	                              (int32_t)number(event, "pid"))
			 ->spans[stage];

	assert_near(number(event, "ts"), (double)span->begin_ns / 1e3);
	assert_near(number(event, "dur"),
	            (double)(span->end_ns - span->begin_ns) / 1e3);
	assert_true(number(event, "tid") == (stage <= PREFILL_MIGRATE));
}

static void test_trace(void **state)
{
	const struct prefill_run *const run = &made_up.runs[2];
	const int spans = 8 * MADE_UP_STEPS * MADE_UP_LAYERS * PREFILL_N_STAGES;
	int n = 0;

	(void)state;
	assert_true(prefill_write_trace(&made_up.report, run, path));
	cJSON *const document = file_json();
	const cJSON *event;

	cJSON_ArrayForEach(event, cJSON_GetObjectItem(document, "traceEvents"))
	{
		if (!strcmp(text_of(event, "ph"), "X")) {
			check_event(event, run);
			n++;
		}
	}
	assert_int_equal(n, spans + MADE_UP_STEPS);
	cJSON_Delete(document);
}

/* stdout of what prints; free() frees it. */
static char *printed(void (*print)(void))
{
	fflush(stdout);
	const int old = dup(1);

	assert_non_null(freopen(path, "w", stdout));
	print();
	fflush(stdout);
	dup2(old, 1);
	close(old);
	return file_text(path);
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
	assert_contains(text,
	                "# model    made-up: 4 layers, hidden 64, top-4 of 32 "
	                "experts of 96.0 KiB\n"
	                "#          6.40 M parameters, 12.2 MiB mapped\n"
	                "# ranks    8 processes on fabric shm, experts start "
	                "even\n"
	                "# budget   window measured, any swaps, replicas 1, "
	                "split exact, calibrate off\n"
	                "# text     texts/c.txt: 576 tokens in 24 sequences\n");
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

/* Each line but the header has as many columns. */
static void test_layers(void **state)
{
	char *const text = printed(print_run);
	int lines = 0;

	(void)state;
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
	snprintf(row, sizeof(row), " %+6.1f%%  3.5",
	         100 * ((double)ferry.total_ns / (double)off.total_ns - 1));
	assert_contains(text, row);
	assert_contains(text, "\n  texts/ja.txt             ferry");
	assert_contains(text, " equal\n# 0 wrong\n");
	free(text);
}

static void test_files_that_cannot_be_written(void **state)
{
	(void)state;
	assert_false(prefill_file_check("/nowhere/at/all"));
	assert_true(prefill_file_check(path));
	assert_int_equal(access(path, F_OK), 0);
	assert_false(prefill_write_record(&made_up.report, &made_up.runs[2],
	                                  "/nowhere/at/all"));
	assert_false(prefill_write_trace(&made_up.report, &made_up.runs[2],
	                                 "/nowhere/at/all"));
	if (access("/dev/full", W_OK) == 0)
		assert_false(prefill_write_trace(
			&made_up.report, &made_up.runs[2], "/dev/full"));
}

/* Whoever opens a pipe for writing ends it for its reader. */
static void test_a_pipe_is_not_opened(void **state)
{
	(void)state;
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	const int reader = open(path, O_RDONLY | O_NONBLOCK);
	struct pollfd is = {reader, POLLIN, 0};

	assert_true(reader >= 0);
	assert_true(prefill_file_check(path));
	assert_int_equal(poll(&is, 1, 0), 0); /* POLLHUP: had a writer */
	close(reader);
	unlink(path);
}

static void test_a_link_to_nowhere(void **state)
{
	char target[64];
	struct stat is;

	(void)state;
	snprintf(target, sizeof(target), "%s-target", path);
	unlink(path);
	assert_int_equal(symlink(target, path), 0);
	assert_true(prefill_file_check(path));
	assert_int_equal(lstat(path, &is), 0);
	assert_int_not_equal(access(target, F_OK), 0);
	unlink(path);
	assert_true(prefill_file_check(path));
	assert_int_not_equal(lstat(path, &is), 0);
	assert_false(prefill_file_check("/tmp"));
}

static void test_same_files(void **state)
{
	char other[64], link_name[64];

	(void)state;
	snprintf(other, sizeof(other), "%s-other", path);
	snprintf(link_name, sizeof(link_name), "%s-link", path);
	fclose(fopen(other, "w"));
	assert_true(prefill_file_same("/nowhere/at/all", "/nowhere/at/all"));
	assert_false(prefill_file_same("/nowhere/at/all", "/nowhere/at"));
	assert_false(prefill_file_same("/nowhere/at/all", other));
	assert_false(prefill_file_same("/dev/null", "/dev/null"));
	assert_int_equal(symlink(other, link_name), 0);
	assert_true(prefill_file_same(link_name, other));
	unlink(link_name);
	unlink(other);
}

static void expect_shown(const char *text, const char *utf8, const char *line)
{
	char *const both[] = {shown_utf8(text), shown_line(text)};

	assert_string_equal(both[0], utf8);
	assert_string_equal(both[1], line);
	free(both[0]);
	free(both[1]);
}

static void test_texts_of_users(void **state)
{
	char cut[8];

	(void)state;
	expect_shown("", "", "");
	expect_shown("a\tb", "a\tb", "a?b");
	expect_shown("\xc2\x9b\x7f", "\xc2\x9b\x7f", "??");
	expect_shown("caf\xe9", "caf\xef\xbf\xbd", "caf\xef\xbf\xbd");
	/* Longer than need be, half of a pair, beyond the end, cut off. */
	expect_shown("\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd",
	             "\xef\xbf\xbd\xef\xbf\xbd");
	assert_int_equal(shown_character("\xed\xa0\x80"), 0);
	assert_int_equal(shown_character("\xf4\x90\x80\x80"), 0);
	assert_int_equal(shown_character("\xf0\x9f\x98"), 0);
	assert_int_equal(shown_character("\xf0\x9f\x98\x80"), 4);
	shown_cut(cut, sizeof(cut), "1234567");
	assert_string_equal(cut, "1234567");
	shown_cut(cut, sizeof(cut), "123456\xc3\xa9");
	assert_string_equal(cut, "123456");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_meta_of_json),
		cmocka_unit_test(test_bits_that_were_not_compared),
		cmocka_unit_test(test_bits_that_differ),
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_trace),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_layers),
		cmocka_unit_test(test_totals),
		cmocka_unit_test(test_files_that_cannot_be_written),
		cmocka_unit_test(test_a_pipe_is_not_opened),
		cmocka_unit_test(test_a_link_to_nowhere),
		cmocka_unit_test(test_same_files),
		cmocka_unit_test(test_texts_of_users),
	};

	return cmocka_run_group_tests(tests, open_it, close_it);
}
