/* SPDX-License-Identifier: Apache-2.0 */
/* The log: form of a line, levels, files with % in their names, warnings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <regex.h>
#include <unistd.h>

#include "core/ctx.h"
#include "core/log.h"

/* What the log function got. */
static char lines[16][1100];
static enum ferry_log_level levels[16];
static int n_lines;

static void keep(void *arg, enum ferry_log_level level, const char *line)
{
	assert_ptr_equal(arg, lines);
	if (n_lines == 16)
		return;
	levels[n_lines] = level;
	snprintf(lines[n_lines++], sizeof(*lines), "%s", line);
}

static void open_ctx(struct ferry_ctx *ctx, const char *options)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;

	n_lines = 0;
	config.options = options;
	config.log = keep;
	config.log_arg = lines;
	assert_int_equal(ferry_ctx_init(ctx, &config), FERRY_OK);
}

static void assert_matches(const char *text, const char *pattern)
{
	regex_t re;

	assert_int_equal(regcomp(&re, pattern, REG_EXTENDED), 0);
	if (regexec(&re, text, 0, NULL, 0))
		fail_msg("'%s' does not match '%s'", text, pattern);
	regfree(&re);
}

#define TIME "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{6}Z "

static void test_line(void **state)
{
	struct ferry_ctx ctx;

	(void)state;
	open_ctx(&ctx, "LOG_LEVEL=info");
	ferry_log(&ctx, FERRY_LOG_WARN, "shm: %d of\n%d", 3, 4);
	assert_matches(lines[0], TIME "[^ :]+:[0-9]+:x warn shm: 3 of 4$");
	assert_int_equal(levels[0], FERRY_LOG_WARN);
	ctx.rank = 12;
	ferry_log(&ctx, FERRY_LOG_ERROR, "again");
	assert_matches(lines[1], TIME "[^ :]+:[0-9]+:12 error again$");
	ferry_ctx_destroy(&ctx);
}

static void test_levels(void **state)
{
	static const char *const options[] = {
		"LOG_LEVEL=error", "LOG_LEVEL=warn", "LOG_LEVEL=info",
		"LOG_LEVEL=debug"};

	(void)state;
	for (int level = FERRY_LOG_ERROR; level <= FERRY_LOG_DEBUG; level++) {
		struct ferry_ctx ctx;

		open_ctx(&ctx, options[level]);
		for (int l = FERRY_LOG_ERROR; l <= FERRY_LOG_DEBUG; l++)
			ferry_log(&ctx, (enum ferry_log_level)l, "line");
		assert_int_equal(n_lines, level + 1);
		ferry_ctx_destroy(&ctx);
	}
	ferry_log(NULL, FERRY_LOG_ERROR, "to nobody");
}

static void test_failures_are_logged_once(void **state)
{
	struct ferry_ctx ctx;

	(void)state;
	open_ctx(&ctx, "LOG_LEVEL=info");
	assert_int_equal(ferry_fail(&ctx, FERRY_RANGE, "x is %d", 9),
	                 FERRY_RANGE);
	assert_int_equal(n_lines, 1);
	assert_matches(lines[0], " info x is 9$");
	ferry_ctx_destroy(&ctx);
}

static void test_long_line_is_cut(void **state)
{
	struct ferry_ctx ctx;
	char text[3000];

	(void)state;
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	open_ctx(&ctx, "");
	ferry_log(&ctx, FERRY_LOG_WARN, "%s", text);
	assert_int_equal(strlen(lines[0]), 1023);
	ferry_ctx_destroy(&ctx);
}

static void test_misspelt_variable(void **state)
{
	struct ferry_ctx ctx;

	(void)state;
	setenv("FERRY_TIMEOUT_SM", "3", 1);
	setenv("FERRY_ZZZZZZZZZZZZ", "3", 1);
	open_ctx(&ctx, "");
	assert_int_equal(n_lines, 2);
	const int first = strstr(lines[0], "ZZZ") ? 1 : 0;
	assert_matches(lines[first],
	               " warn environment: FERRY_TIMEOUT_SM is not known, did "
	               "you mean FERRY_TIMEOUT_MS\\?$");
	assert_matches(lines[!first], " warn environment: FERRY_ZZZZZZZZZZZZ "
	                              "is not known$");
	unsetenv("FERRY_TIMEOUT_SM");
	unsetenv("FERRY_ZZZZZZZZZZZZ");
	ferry_ctx_destroy(&ctx);
}

static void test_path(void **state)
{
	char path[64];
	char want[64];

	(void)state;
	snprintf(want, sizeof(want), "/tmp/%d-7.%%q%%", (int)getpid());
	assert_true(
		ferry_path_expand(path, sizeof(path), "/tmp/%p-%r.%q%%", 7));
	assert_string_equal(path, want);
	assert_true(ferry_path_expand(path, sizeof(path), "%r", -1));
	assert_string_equal(path, "x");
	assert_true(ferry_path_expand(path, sizeof(path), "100%", 0));
	assert_string_equal(path, "100%");
	assert_false(ferry_path_expand(path, 4, "abcd", 0));
	assert_string_equal(path, "abc");
}

static void read_back(const char *path, char *text, size_t bytes)
{
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	text[fread(text, 1, bytes - 1, f)] = 0;
	fclose(f);
}

static void test_file(void **state)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_ctx ctx;
	char pattern[64];
	char path[80];
	char text[4000];

	(void)state;
	snprintf(pattern, sizeof(pattern), "LOG_FILE=/tmp/ferry-log-%d-%%r",
	         (int)getpid());
	snprintf(path, sizeof(path), "/tmp/ferry-log-%d-5", (int)getpid());
	config.options = pattern;
	assert_int_equal(ferry_ctx_init(&ctx, &config), FERRY_OK);
	ctx.rank = 5;
	ferry_log(&ctx, FERRY_LOG_WARN, "first");
	ferry_log(&ctx, FERRY_LOG_WARN, "second");
	ferry_ctx_destroy(&ctx);
	read_back(path, text, sizeof(text));
	unlink(path);
	assert_matches(text, ":5 warn first\n.*:5 warn second\n$");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_line),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_failures_are_logged_once),
		cmocka_unit_test(test_long_line_is_cut),
		cmocka_unit_test(test_misspelt_variable),
		cmocka_unit_test(test_path),
		cmocka_unit_test(test_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
