/* SPDX-License-Identifier: Apache-2.0 */
/* What the tool says, where it says it, and its exit status. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli_cmocka.h"
#include "program.h"

/* An empty stream is asked for by "". */
static void expect(const char *line, int status, const char *out,
                   const char *err)
{
	struct program p = program_run(line);

	assert_int_equal(p.status, status);
	if (*out)
		assert_contains(p.out, out);
	else
		assert_string_equal(p.out, "");
	if (*err)
		assert_contains(p.err, err);
	else
		assert_string_equal(p.err, "");
	program_free(&p);
}

static void test_no_command(void **state)
{
	(void)state;
	expect("", 2, "", "Usage: ferry COMMAND");
	expect("--help", 0, "Usage: ferry COMMAND", "");
	expect("--version", 0, "ferry 0.", "");
	expect("help", 0, "Usage: ferry COMMAND", "");
	expect("help run", 0, "Usage: ferry run ", "");
	expect("help rnu", 2, "", "did you mean 'run'?");
}

static void test_unknown_command(void **state)
{
	(void)state;
	expect("bnech", 2, "",
	       "ferry: unknown command 'bnech', did you mean 'bench'?\n");
	expect("qqqqqqqq", 2, "", "; ferry --help lists all\n");
}

static void test_unknown_options_name_the_nearest(void **state)
{
	(void)state;
	expect("bench --tokesn 3", 2, "",
	       "ferry bench: unknown option --tokesn, did you mean "
	       "--tokens?\n");
	expect("check --fabirc=shm", 2, "", "did you mean --fabric?");
	expect("info --jsno", 2, "", "did you mean --json?");
	expect("info -n 2", 2, "", "ferry info: --ranks needs --links\n");
	expect("info --rounds 3 --json", 2, "", "--rounds needs --links\n");
	expect("info --fabric shm", 2, "",
	       "--fabric needs --links or --world\n");
	expect("info --world --links", 2, "",
	       "--links does not go with --world\n");
	expect("info --world --report", 2, "",
	       "--report does not go with --world\n");
	expect("info --links --measure", 2, "",
	       "ferry info: --measure does not go with --links\n");
	expect("info --links --report", 2, "",
	       "--report does not go with --links\n");
	expect("env --setonly", 2, "", "did you mean --set-only?");
	expect("run --rank 2 -- true", 2, "", "did you mean --ranks?");
}

static void test_bad_values(void **state)
{
	(void)state;
	expect("bench --ranks 0", 2, "",
	       "ferry bench: --ranks is 0, allowed is 1..4096\n");
	expect("bench --topk 9 --experts 8", 2, "",
	       "--topk is 9, allowed is at most the 8 of --experts");
	expect("bench --dtype fp4", 2, "",
	       "--dtype is 'fp4', allowed is bf16, fp8, fp8-in\n");
	expect("bench --layout token --baseline mpi", 2, "", "--baseline mpi");
	expect("bench --fabric smh", 2, "",
	       "unknown fabric 'smh', did you mean 'shm'?");
	expect("check --fabric infiniband", 2, "", "unknown fabric");
	expect("run", 2, "", "ferry run: no program given\n");
}

/* Every option of a command stands in its help, with its default if any. */
static void test_help(void **state)
{
	static const char *const lines[] = {
		"info --help",   "env --help",   "run --help", "check --help",
		"replay --help", "bench --help", "plan --help"};

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		struct program p = program_run(lines[i]);

		assert_int_equal(p.status, 0);
		assert_string_equal(p.err, "");
		assert_contains(p.out, "Usage: ferry ");
		assert_contains(p.out, "-h, --help ");
		assert_contains(p.out, "\nExamples:\n  ");
		program_free(&p);
	}
	expect("bench -h", 0, "(default 7168; 1..1048576)", "");
	expect("bench -h", 0, "per-host (default exact)", "");
	expect("run -h", 0, "(default 2; 1..4096)", "");
	expect("check -h", 0, "FERRY_FABRIC is\n", "");
	expect("check -h", 0, " given\n", "");
}

/* Help fits a terminal of 80 columns. */
static void test_help_is_narrow(void **state)
{
	struct program p = program_run("bench --help");

	(void)state;
	for (char *line = strtok(p.out, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 79);
	program_free(&p);
}

static void test_info(void **state)
{
	struct program p = program_run("info");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_contains(p.out, "ferry     0.");
	assert_contains(p.out, "\nlocal ");
	assert_contains(p.out, "\nshm ");
	assert_contains(p.out, "\nwire ");
	assert_contains(p.out, "\nkernels ");
	assert_contains(p.out, " scalar\n");
	assert_contains(p.out, "\nGPUs ");
	program_free(&p);
}

/* With this set, fabric ofi has score 0 in ferry info, and these words. */
static void ofi_is_out(const char *name, const char *value, const char *words)
{
	struct program p;
	const char *line;

	setenv(name, value, 1);
	p = program_run("info");
	unsetenv(name);
	assert_int_equal(p.status, 0);
	assert_string_equal(p.err, "");
	line = strstr(p.out, "\nofi ");
	assert_non_null(line);
	line += strspn(line, "\nofi ");
	if (strncmp(line, "0  built without libfabric\n", 27) != 0) {
		assert_memory_equal(line, "0  ", 3);
		assert_memory_equal(line + 3, words, strlen(words));
	}
	program_free(&p);
}

static void test_info_says_why_not(void **state)
{
	(void)state;
	ofi_is_out("FERRY_OFI_LIBRARY", "/nowhere/libfabric.so.1",
	           "no libfabric: /nowhere/libfabric.so.1: cannot open");
	ofi_is_out("FERRY_OFI_LIBRARY", "libm.so.6",
	           "libfabric without fi_getinfo\n");
	ofi_is_out("FERRY_OFI_PROVIDER", "nosuch",
	           "no provider with remote writes fits "
	           "FERRY_OFI_PROVIDER=nosuch; found: nothing\n");
}

static void test_env(void **state)
{
	(void)state;
	setenv("FERRY_SPIN_US", "5", 1);
	setenv("FERRY_SECRET", "open sesame", 1);
	setenv("FERRY_RENDEZVOUS", "it's", 1);
	struct program p = program_run("env --set-only");

	assert_int_equal(p.status, 0);
	assert_contains(p.out, "# FERRY_SPIN_US: ");
	assert_contains(p.out, "\nFERRY_SPIN_US='5'\n");
	assert_contains(p.out, "\nFERRY_RENDEZVOUS='it'\\''s'\n");
	assert_null(strstr(p.out, "sesame"));
	assert_null(strstr(p.out, "FERRY_TRACE"));
	program_free(&p);
	p = program_run("info --report");
	assert_contains(p.out, "\nFERRY_SPIN_US=5\n");
	assert_null(strstr(p.out, "sesame"));
	program_free(&p);
	unsetenv("FERRY_SPIN_US");
	unsetenv("FERRY_SECRET");
	unsetenv("FERRY_RENDEZVOUS");
	expect("env --set-only", 0, "", "");
	expect("env", 0, "\n#FERRY_SPIN_US='50'\n", "");
	expect("env", 0, "#FERRY_TRACE=''\n", "");
}

/* ferry env > /dev/full */
static void test_full_disk(void **state)
{
	char line[512];

	(void)state;
	snprintf(line, sizeof(line), "%s env > /dev/full 2> /dev/null",
	         ferry_program);
	const int status = system(line);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_command),
		cmocka_unit_test(test_unknown_command),
		cmocka_unit_test(test_unknown_options_name_the_nearest),
		cmocka_unit_test(test_bad_values),
		cmocka_unit_test(test_help),
		cmocka_unit_test(test_help_is_narrow),
		cmocka_unit_test(test_info),
		cmocka_unit_test(test_info_says_why_not),
		cmocka_unit_test(test_env),
		cmocka_unit_test(test_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
