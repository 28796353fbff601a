/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written of a run: JSON, the recorded trace and the timeline, all of a
 * made-up run, against its totals.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "made_up_file.h"
#include "route.h"

static cJSON *file_json(void)
{
	char *const text = made_up_read(made_up_path);
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
	assert_near(number(o, "hidden_us"), (double)t.hidden_ns / 1e3);
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
	assert_true(prefill_write_json(&made_up.report, made_up_path));
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
	assert_true(prefill_write_json(&made_up.report, made_up_path));
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
	assert_true(number(meta, "margin") == 0);
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
	assert_true(prefill_write_json(&one, made_up_path));
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
	assert_true(prefill_write_json(&report, made_up_path));
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
	snprintf(name, sizeof(name), "%s.safetensors", made_up_path);
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
	assert_true(prefill_write_trace(&made_up.report, run, made_up_path));
	cJSON *const document = file_json();
	const cJSON *event;

	cJSON_ArrayForEach(event, cJSON_GetObjectItem(document, "traceEvents"))
	{
		/* Each says something. */
		assert_non_null(cJSON_GetObjectItem(event, "args")->child);
		if (!strcmp(text_of(event, "ph"), "X")) {
			check_event(event, run);
			n++;
		}
	}
	assert_int_equal(n, spans + MADE_UP_STEPS);
	cJSON_Delete(document);
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
	};

	return cmocka_run_group_tests(tests, made_up_set_up, made_up_tear_down);
}
