/* SPDX-License-Identifier: Apache-2.0 */
/* The Prometheus text of a channel: values, labels, lengths, grammar. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace/events.h"

static struct ferry_moe_stats example(void)
{
	struct ferry_moe_stats stats = FERRY_MOE_STATS_INIT;

	stats.n_dispatches = 12;
	stats.wire_bytes_dispatch = 1ull << 40;
	stats.wire_bytes_combine = 77;
	stats.host_bytes_tables = 78;
	stats.wait_ns_dispatch = 1500000001;
	stats.hottest_slot = 5;
	stats.hottest_rows = 99;
	return stats;
}

static void values_and_units(void **state)
{
	const struct ferry_moe_stats stats = example();
	char text[8192];

	(void)state;
	ferry_prom_render(&stats, "layer", 2, text, sizeof(text));
	assert_non_null(strstr(text, "# TYPE ferry_dispatches_total counter\n"
	                             "ferry_dispatches_total{channel=\"layer\","
	                             "rank=\"2\"} 12\n"));
	assert_non_null(strstr(text, "ferry_wire_bytes_total{channel=\"layer\","
	                             "rank=\"2\",phase=\"dispatch\"} "
	                             "1099511627776\n"));
	assert_non_null(strstr(text, ",phase=\"combine\"} 77\n"));
	assert_non_null(strstr(text, "ferry_host_bytes_total{channel=\"layer\","
	                             "rank=\"2\",phase=\"tables\"} 78\n"));
	assert_non_null(strstr(text, ",phase=\"dispatch\"} 1.500000001\n"));
	assert_non_null(strstr(text, "ferry_hottest_expert_slot{channel="
	                             "\"layer\",rank=\"2\"} 5\n"));
	assert_non_null(strstr(text, "ferry_slowest_peer{channel=\"layer\","
	                             "rank=\"2\"} -1\n"));
}

static void label_is_escaped(void **state)
{
	const struct ferry_moe_stats stats = example();
	char text[8192];

	(void)state;
	ferry_prom_render(&stats, "a\"b\\c\nd", 0, text, sizeof(text));
	assert_non_null(strstr(text, "{channel=\"a\\\"b\\\\c\\nd\","));
	ferry_prom_render(&stats, NULL, 0, text, sizeof(text));
	assert_non_null(strstr(text, "{channel=\"\","));
}

/* As snprintf: the length of the whole, and a 0 in every buffer. */
static void any_buffer_is_enough(void **state)
{
	const struct ferry_moe_stats stats = example();
	const size_t whole = ferry_prom_render(&stats, "x", 0, NULL, 0);
	char *text = malloc(whole + 1);
	char *part = malloc(whole + 1);

	(void)state;
	assert_non_null(text);
	assert_non_null(part);
	assert_int_equal(ferry_prom_render(&stats, "x", 0, text, whole + 1),
	                 whole);
	assert_int_equal(strlen(text), whole);
	for (size_t bytes = 1; bytes <= whole; bytes++) {
		memset(part, '#', whole + 1);
		assert_int_equal(ferry_prom_render(&stats, "x", 0, part, bytes),
		                 whole);
		assert_int_equal(strlen(part), bytes - 1);
		assert_memory_equal(part, text, bytes - 1);
		assert_int_equal(part[bytes], '#');
	}
	free(part);
	free(text);
}

static bool same_word(const char *line, const char *end, const char *word)
{
	const size_t n = strcspn(line, end);

	return n == strlen(word) && !memcmp(line, word, n);
}

/* One HELP and one TYPE line for each name, before its samples. */
static void grammar(void **state)
{
	const struct ferry_moe_stats stats = example();
	char text[8192], family[128] = "";
	int n_samples = 0;

	(void)state;
	ferry_prom_render(&stats, "x", 0, text, sizeof(text));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (!strncmp(line, "# HELP ", 7)) {
			line += 7;
			assert_false(same_word(line, " ", family));
			snprintf(family, sizeof(family), "%.*s",
			         (int)strcspn(line, " "), line);
		} else if (!strncmp(line, "# TYPE ", 7)) {
			assert_true(same_word(line + 7, " ", family));
		} else {
			assert_true(same_word(line, "{", family));
			n_samples++;
		}
	}
	assert_int_equal(n_samples, 18);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_and_units),
		cmocka_unit_test(label_is_escaped),
		cmocka_unit_test(any_buffer_is_enough),
		cmocka_unit_test(grammar),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
