/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a prefill may write, and names of files as they are shown. */
#include <fcntl.h>
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

#include "made_up_file.h"
#include "prefill_file.h"
#include "shown.h"

static void test_files_that_cannot_be_written(void **state)
{
	(void)state;
	assert_false(prefill_file_check("/nowhere/at/all"));
	assert_true(prefill_file_check(made_up_path));
	assert_int_equal(access(made_up_path, F_OK), 0);
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
	assert_int_equal(unlink(made_up_path), 0);
	assert_int_equal(mkfifo(made_up_path, 0600), 0);
	const int reader = open(made_up_path, O_RDONLY | O_NONBLOCK);
	struct pollfd is = {reader, POLLIN, 0};

	assert_true(reader >= 0);
	assert_true(prefill_file_check(made_up_path));
	assert_int_equal(poll(&is, 1, 0), 0); /* POLLHUP: had a writer */
	close(reader);
	unlink(made_up_path);
}

static void test_a_link_to_nowhere(void **state)
{
	char target[64];
	struct stat is;

	(void)state;
	snprintf(target, sizeof(target), "%s-target", made_up_path);
	unlink(made_up_path);
	assert_int_equal(symlink(target, made_up_path), 0);
	assert_true(prefill_file_check(made_up_path));
	assert_int_equal(lstat(made_up_path, &is), 0);
	assert_int_not_equal(access(target, F_OK), 0);
	unlink(made_up_path);
	assert_true(prefill_file_check(made_up_path));
	assert_int_not_equal(lstat(made_up_path, &is), 0);
	assert_false(prefill_file_check("/tmp"));
}

static void test_same_files(void **state)
{
	char other[64], link_name[64];

	(void)state;
	snprintf(other, sizeof(other), "%s-other", made_up_path);
	snprintf(link_name, sizeof(link_name), "%s-link", made_up_path);
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
		cmocka_unit_test(test_files_that_cannot_be_written),
		cmocka_unit_test(test_a_pipe_is_not_opened),
		cmocka_unit_test(test_a_link_to_nowhere),
		cmocka_unit_test(test_same_files),
		cmocka_unit_test(test_texts_of_users),
	};

	return cmocka_run_group_tests(tests, made_up_set_up, made_up_tear_down);
}
