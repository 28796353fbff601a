/* SPDX-License-Identifier: Apache-2.0 */
/* The option tables: values, defaults, ranges, and every complaint. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli_cmocka.h"
#include "opt.h"

struct values {
	bool flag;
	int64_t number;
	const char *text;
	int choice;
	struct opt_list list;
	const char *file;
	struct opt_texts words;
};

#define AT(field) offsetof(struct values, field)

static const char *const colours[] = {"red", "green", NULL};
static const struct opt options[] = {
	{"flag", 'f', OPT_FLAG, AT(flag), NULL, NULL, 0, 0, NULL, "a flag"},
	{"number", 'n', OPT_INT, AT(number), "N", "7", -3, 4096, NULL, "a"},
	{"text", 0, OPT_TEXT, AT(text), "TEXT", NULL, 0, 0, NULL, "a text"},
	{"colour", 'c', OPT_CHOICE, AT(choice), "C", "green", 0, 0, colours,
         "a choice"},
	{"list", 'l', OPT_LIST, AT(list), "LIST", "5", 0, 1 << 20, NULL, "l"},
	{"out", 'o', OPT_FILE, AT(file), "FILE", NULL, 0, 0, NULL, "a file"},
	{"word", 'w', OPT_TEXTS, AT(words), "WORD...", NULL, 0, 0, NULL,
         "words"},
	{0},
};
static const struct opt_command command = {
	.name = "ferry test",
	.summary = "a test",
	.operands = "[WORD...]",
	.options = options,
	.examples = "  ferry test\n",
};
static const struct opt_elsewhere elsewhere[] = {{"paint", "colour"},
                                                 {NULL, NULL}};
static const struct opt_command no_operands = {
	.name = "ferry test",
	.summary = "a test",
	.options = options,
	.examples = "  ferry test\n",
	.elsewhere = elsewhere,
};

static struct values got;
static int first;
static char said[4096];

/* Parses a line of words; what goes to stderr lands in `said`. */
static int parse(const struct opt_command *c, const char *line)
{
	static char copy[512];
	char *argv[80] = {copy};
	int argc = 0;
	FILE *const file = tmpfile();
	const int old = dup(2);

	snprintf(copy, sizeof(copy), "test %s", line);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		argv[argc++] = w;
	got = (struct values){0};
	fflush(stderr);
	dup2(fileno(file), 2);
	const int status = opt_parse(c, argc, argv, &got, &first);

	fflush(stderr);
	dup2(old, 2);
	close(old);
	rewind(file);
	said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
	fclose(file);
	return status;
}

static void assert_complaint(const char *line, const char *text)
{
	assert_int_equal(parse(&no_operands, line), EXIT_USAGE);
	assert_string_equal(said, text);
}

static void test_defaults(void **state)
{
	(void)state;
	assert_int_equal(parse(&command, ""), OPT_GO_ON);
	assert_false(got.flag);
	assert_int_equal(got.number, 7);
	assert_null(got.text);
	assert_int_equal(got.choice, 1);
	assert_int_equal(got.list.n, 1);
	assert_int_equal(got.list.values[0], 5);
	assert_null(got.file);
	assert_int_equal(first, 1);
}

static void test_every_form_of_a_value(void **state)
{
	(void)state;
	assert_int_equal(parse(&command, "-f -n 3 --text=a=b --colour red"),
	                 OPT_GO_ON);
	assert_true(got.flag);
	assert_int_equal(got.number, 3);
	assert_string_equal(got.text, "a=b");
	assert_int_equal(got.choice, 0);
	assert_int_equal(parse(&command, "-n4k"), OPT_GO_ON);
	assert_int_equal(got.number, 4096);
	assert_int_equal(parse(&command, "--number -3"), OPT_GO_ON);
	assert_int_equal(got.number, -3);
}

static void test_the_last_one_wins(void **state)
{
	(void)state;
	assert_int_equal(parse(&command, "-n 1 -n 2 -l 1,2 -l 9"), OPT_GO_ON);
	assert_int_equal(got.number, 2);
	assert_int_equal(got.list.n, 1);
	assert_int_equal(got.list.values[0], 9);
}

static void test_lists_and_ranges(void **state)
{
	static const int64_t wanted[] = {0, 16, 32, 1, 4, 16, 64, 1024};

	(void)state;
	assert_int_equal(parse(&command, "--list 0:32:+16,1:64:x4,1k"),
	                 OPT_GO_ON);
	assert_int_equal(got.list.n, 8);
	assert_memory_equal(got.list.values, wanted, sizeof(wanted));
}

static void test_bad_lists(void **state)
{
	static const char *const bad[] = {"",       "1,",     "1:2",    "1:2:3",
	                                  "1:9:x1", "0:9:x2", "1:9:+0", "a",
	                                  "1,,2",   "1:99:+1"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		char line[64];

		snprintf(line, sizeof(line), "--list=%s", bad[i]);
		assert_int_equal(parse(&command, line), EXIT_USAGE);
	}
	assert_complaint("--list 2m", "ferry test: --list is 2097152, allowed "
	                              "is 0..1048576\n");
}

static void test_a_file_may_be_left_out(void **state)
{
	(void)state;
	assert_int_equal(parse(&command, "--out"), OPT_GO_ON);
	assert_string_equal(got.file, "-");
	assert_int_equal(parse(&command, "--out -n 2"), OPT_GO_ON);
	assert_string_equal(got.file, "-");
	assert_int_equal(got.number, 2);
	assert_int_equal(parse(&command, "--out x.json"), OPT_GO_ON);
	assert_string_equal(got.file, "x.json");
	assert_int_equal(parse(&command, "-o -"), OPT_GO_ON);
	assert_string_equal(got.file, "-");
}

static void test_several_texts(void **state)
{
	(void)state;
	assert_int_equal(parse(&command, "--word a b -n 2 -wc d -- e"),
	                 OPT_GO_ON);
	assert_int_equal(got.words.n, 4);
	assert_string_equal(got.words.values[0], "a");
	assert_string_equal(got.words.values[1], "b");
	assert_string_equal(got.words.values[2], "c");
	assert_string_equal(got.words.values[3], "d");
	assert_int_equal(got.number, 2);
	assert_int_equal(first, 9);
	assert_int_equal(parse(&command, ""), OPT_GO_ON);
	assert_int_equal(got.words.n, 0);
	assert_complaint("--word",
	                 "ferry test: --word needs a value: WORD...\n");
}

static void test_too_many_texts(void **state)
{
	char line[16 + 2 * (OPT_LIST_MAX + 1)] = "--word";

	(void)state;
	for (int i = 0; i <= OPT_LIST_MAX; i++)
		strcat(line, " a");
	assert_complaint(line, "ferry test: --word has more than 64 values\n");
}

static void test_operands(void **state)
{
	(void)state;
	assert_int_equal(parse(&command, "-n 1 -- -f word"), OPT_GO_ON);
	assert_int_equal(first, 4);
	assert_false(got.flag);
	assert_int_equal(parse(&command, "word -f"), OPT_GO_ON);
	assert_int_equal(first, 1);
	assert_false(got.flag);
	assert_complaint("word", "ferry test: unexpected argument 'word'\n");
}

static void test_complaints_name_what_is_allowed(void **state)
{
	(void)state;
	assert_complaint("--number 5000",
	                 "ferry test: --number is 5000, allowed is -3..4096\n");
	assert_complaint("--number x1",
	                 "ferry test: --number is 'x1', allowed is a whole "
	                 "number -3..4096 (suffix k, m, g)\n");
	assert_complaint("--colour blue", "ferry test: --colour is 'blue', "
	                                  "allowed is red, green\n");
	assert_complaint("--number", "ferry test: --number needs a value: N\n");
	assert_complaint("--flag=1", "ferry test: --flag takes no value\n");
	assert_complaint("-x", "ferry test: unknown option -x; --help lists "
	                       "all\n");
}

static void test_the_nearest_name(void **state)
{
	(void)state;
	assert_complaint("--nubmer 1", "ferry test: unknown option --nubmer, "
	                               "did you mean --number?\n");
	assert_complaint("--hlep", "ferry test: unknown option --hlep, did "
	                           "you mean --help?\n");
	assert_complaint("--paint=red", "ferry test: unknown option --paint, "
	                                "did you mean --colour?\n");
	assert_complaint("--wxyzwxyz=3", "ferry test: unknown option "
	                                 "--wxyzwxyz; --help lists all\n");
}

static void test_numbers(void **state)
{
	static const char *const bad[] = {
		"",           "k",   " 1",  "1 ",
		"1kk",        "0x1", "1.5", "9223372036854775808",
		"8589934592g"};
	int64_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(opt_parse_int(bad[i], &n));
	assert_true(opt_parse_int("2g", &n));
	assert_int_equal(n, INT64_C(2) << 30);
	assert_true(opt_parse_int("-3m", &n));
	assert_int_equal(n, -(3 << 20));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_every_form_of_a_value),
		cmocka_unit_test(test_the_last_one_wins),
		cmocka_unit_test(test_lists_and_ranges),
		cmocka_unit_test(test_bad_lists),
		cmocka_unit_test(test_a_file_may_be_left_out),
		cmocka_unit_test(test_several_texts),
		cmocka_unit_test(test_too_many_texts),
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_complaints_name_what_is_allowed),
		cmocka_unit_test(test_the_nearest_name),
		cmocka_unit_test(test_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
