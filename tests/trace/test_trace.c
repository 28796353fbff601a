/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of events and its JSON: what is kept, what is lost, what is said. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "trace/events.h"

static void context(struct ferry_ctx *ctx, const char *path)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	char options[128];

	snprintf(options, sizeof(options), "TRACE=%s;LOG_LEVEL=error", path);
	config.options = options;
	assert_int_equal(ferry_ctx_init(ctx, &config), FERRY_OK);
	ctx->rank = 3;
}

static struct ferry_trace *ring(struct ferry_ctx *ctx)
{
	struct ferry_trace *trace = NULL;

	assert_int_equal(ferry_trace_open(ctx, &trace), FERRY_OK);
	return trace;
}

static void record(struct ferry_trace *trace, uint64_t i)
{
	ferry_trace_record(trace,
	                   &(struct ferry_trace_event){.name = "dispatch_send",
	                                               .category = "moe",
	                                               .begin_ns = 1000 * i,
	                                               .end_ns = 1000 * i + 250,
	                                               .epoch = i,
	                                               .bytes = 8 * i,
	                                               .slot = (int32_t)(i % 4),
	                                               .peer = -1});
}

static cJSON *read_json(const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = calloc(1, 1 << 24);
	cJSON *json;

	assert_non_null(file);
	assert_non_null(text);
	assert_true(fread(text, 1, (1 << 24) - 1, file) > 0);
	fclose(file);
	json = cJSON_Parse(text);
	assert_non_null(json);
	free(text);
	return json;
}

static double number(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

	assert_true(cJSON_IsNumber(item));
	return item->valuedouble;
}

static int count_events(const cJSON *json, const char *phase)
{
	const cJSON *events =
		cJSON_GetObjectItemCaseSensitive(json, "traceEvents");
	const cJSON *event;
	int n = 0;

	cJSON_ArrayForEach(event, events)
	{
		const cJSON *ph = cJSON_GetObjectItemCaseSensitive(event, "ph");

		n += !strcmp(ph->valuestring, phase);
	}
	return n;
}

static void unset_means_none(void **state)
{
	struct ferry_ctx ctx;

	(void)state;
	context(&ctx, "");
	assert_null(ring(&ctx));
	assert_int_equal(ferry_trace_begin(NULL), 0);
	ferry_trace_end(NULL, &(struct ferry_trace_event){.slot = 0});
	ferry_trace_close(&ctx, NULL);
	ferry_ctx_destroy(&ctx);
}

static void newest_are_kept(void **state)
{
	const uint64_t n = FERRY_TRACE_EVENTS + 10;
	struct ferry_trace_event event;
	struct ferry_ctx ctx;
	struct ferry_trace *trace;

	(void)state;
	context(&ctx, "/dev/null");
	trace = ring(&ctx);
	for (uint64_t i = 0; i < n; i++)
		record(trace, i);
	assert_int_equal(ferry_trace_count(trace), n);
	assert_false(ferry_trace_at(trace, 9, &event));
	assert_false(ferry_trace_at(trace, n, &event));
	assert_true(ferry_trace_at(trace, 10, &event));
	assert_int_equal(event.epoch, 10);
	assert_true(ferry_trace_at(trace, n - 1, &event));
	assert_int_equal(event.bytes, 8 * (n - 1));
	ferry_trace_close(&ctx, trace);
	ferry_ctx_destroy(&ctx);
}

static void file_says_what_happened(void **state)
{
	char pattern[64], path[64];
	struct ferry_ctx ctx;
	struct ferry_trace *trace;
	const cJSON *events, *event;
	cJSON *json;

	(void)state;
	snprintf(pattern, sizeof(pattern), "/tmp/ferry-trace-%%p-%%r.json");
	snprintf(path, sizeof(path), "/tmp/ferry-trace-%d-3.json",
	         (int)getpid());
	context(&ctx, pattern);
	trace = ring(&ctx);
	record(trace, 5);
	ferry_trace_record(trace,
	                   &(struct ferry_trace_event){.name = "put",
	                                               .category = "fabric",
	                                               .begin_ns = 1,
	                                               .end_ns = 2,
	                                               .slot = -1,
	                                               .peer = 7});
	ferry_trace_close(&ctx, trace);
	ferry_ctx_destroy(&ctx);

	json = read_json(path);
	unlink(path);
	assert_int_equal(count_events(json, "X"), 2);
	assert_int_equal(count_events(json, "M"), 3);
	events = cJSON_GetObjectItemCaseSensitive(json, "traceEvents");
	event = cJSON_GetArrayItem(events, 1);
	assert_true(number(event, "ts") == 5.0);
	assert_true(number(event, "dur") == 0.25);
	assert_true(number(event, "pid") == 3);
	assert_true(number(event, "tid") == 1);
	event = cJSON_GetObjectItemCaseSensitive(event, "args");
	assert_true(number(event, "epoch") == 5);
	assert_true(number(event, "bytes") == 40);
	assert_null(cJSON_GetObjectItemCaseSensitive(event, "peer"));
	event = cJSON_GetArrayItem(events, 2);
	event = cJSON_GetObjectItemCaseSensitive(event, "args");
	assert_true(number(event, "peer") == 7);
	cJSON_Delete(json);
}

static void refusals_name_the_file(void **state)
{
	struct ferry_ctx ctx;
	struct ferry_trace *trace;

	(void)state;
	context(&ctx, "/dev/null");
	trace = ring(&ctx);
	assert_int_equal(ferry_trace_save(&ctx, trace, "/nowhere/trace"),
	                 FERRY_SYS);
	assert_non_null(strstr(ferry_last_error(), "/nowhere/trace"));
	assert_non_null(strstr(ferry_last_error(), "No such file"));
	assert_int_equal(ferry_trace_save(&ctx, trace, ""), FERRY_INVAL);
	assert_int_equal(ferry_trace_save(&ctx, trace, NULL), FERRY_INVAL);
	assert_int_equal(ferry_trace_save(&ctx, trace, "/dev/full"), FERRY_SYS);
	assert_non_null(strstr(ferry_last_error(), "No space left"));
	ferry_trace_close(&ctx, trace);
	ferry_ctx_destroy(&ctx);
}

static void *record_many(void *arg)
{
	for (uint64_t i = 0; i < 3 * FERRY_TRACE_EVENTS; i++)
		record(arg, i);
	return NULL;
}

/* Torn events would have parts that do not belong together. */
static void threads_do_not_tear(void **state)
{
	struct ferry_trace_event event;
	struct ferry_ctx ctx;
	struct ferry_trace *trace;
	pthread_t threads[2];
	int n_found = 0;

	(void)state;
	context(&ctx, "/dev/null");
	trace = ring(&ctx);
	for (int i = 0; i < 2; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, record_many, trace),
			0);
	for (uint64_t i = 0; i < 3 * FERRY_TRACE_EVENTS; i++) {
		if (!ferry_trace_at(trace, i, &event))
			continue;
		assert_int_equal(event.bytes, 8 * event.epoch);
		assert_int_equal(event.begin_ns, 1000 * event.epoch);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (uint64_t i = 0; i < FERRY_TRACE_EVENTS; i++)
		n_found += ferry_trace_at(trace, 5 * FERRY_TRACE_EVENTS + i,
		                          &event);
	assert_true(n_found > FERRY_TRACE_EVENTS * 9 / 10);
	ferry_trace_close(&ctx, trace);
	ferry_ctx_destroy(&ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unset_means_none),
		cmocka_unit_test(newest_are_kept),
		cmocka_unit_test(file_says_what_happened),
		cmocka_unit_test(refusals_name_the_file),
		cmocka_unit_test(threads_do_not_tear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
