/* SPDX-License-Identifier: Apache-2.0 */
/* ferry run: environment, output, signals, failures, and nothing left over. */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_cmocka.h"
#include "core/clock.h"
#include "program.h"

/* ferry run OPTIONS -- sh -c SCRIPT */
static struct program run(const char *options, const char *script)
{
	const char *words[16] = {"ferry", "run"};
	char copy[128];
	int n = 2;

	snprintf(copy, sizeof(copy), "%s", options);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		words[n++] = w;
	words[n++] = "--";
	words[n++] = "sh";
	words[n++] = "-c";
	words[n] = script;
	return program_run_words(words);
}

static pid_t start(const char *options, const char *script, int *out)
{
	const char *words[] = {"ferry", "run", options, "--",
	                       "sh",    "-c",  script,  NULL};

	return program_start(words, out);
}

/* Reads until both texts have come; fails after some seconds. */
static void await_both(int fd, const char *text, const char *other)
{
	char seen[4096] = "";
	size_t used = 0;
	const uint64_t deadline = ferry_deadline_ns(20000);

	while (!strstr(seen, text) || !strstr(seen, other)) {
		struct pollfd p = {fd, POLLIN, 0};

		if (ferry_now_ns() > deadline)
			fail_msg("no '%s' or '%s' in '%s'", text, other, seen);
		if (poll(&p, 1, 100) <= 0)
			continue;
		const ssize_t n =
			read(fd, seen + used, sizeof(seen) - used - 1);

		if (n <= 0)
			fail_msg("ended before '%s': '%s'", text, seen);
		used += (size_t)n;
	}
}

static void await(int fd, const char *text)
{
	await_both(fd, text, text);
}

/* How many processes have `mark` in their command line. */
static int count_processes(const char *mark)
{
	DIR *const proc = opendir("/proc");
	struct dirent *entry;
	int n = 0;

	while ((entry = readdir(proc))) {
		char path[300], line[1024] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
		    !(f = fopen(path, "r")))
			continue;
		const size_t bytes = fread(line, 1, sizeof(line) - 1, f);

		fclose(f);
		for (size_t i = 0; i < bytes; i++)
			if (line[i] == '\0')
				line[i] = ' ';
		n += strstr(line, mark) != NULL;
	}
	closedir(proc);
	return n;
}

static void await_none(const char *mark)
{
	const uint64_t deadline = ferry_deadline_ns(10000);

	while (count_processes(mark) > 0) {
		if (ferry_now_ns() > deadline)
			fail_msg("%d processes are left",
			         count_processes(mark));
		usleep(10000);
	}
}

/* A number that nobody else sleeps for. */
static const char *unique_seconds(void)
{
	static char text[32];

	snprintf(text, sizeof(text), "3%d.%d", (int)getpid(), rand() % 1000);
	return text;
}

static void test_environment(void **state)
{
	struct program p =
		run("-n 3 --tag", "echo $FERRY_RANK of $FERRY_SIZE at "
	                          "${FERRY_RENDEZVOUS%%-*} ${#FERRY_SECRET}");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_string_equal(p.err, "");
	assert_contains(p.out, "[0] 0 of 3 at unix:ferry 32\n");
	assert_contains(p.out, "[1] 1 of 3 at unix:ferry 32\n");
	assert_contains(p.out, "[2] 2 of 3 at unix:ferry 32\n");
	program_free(&p);
}

static void test_rendezvous_is_random(void **state)
{
	static const char script[] = "echo $FERRY_RENDEZVOUS $FERRY_SECRET";
	struct program a = run("-n 1", script), b = run("-n 1", script);

	(void)state;
	assert_string_not_equal(a.out, b.out);
	program_free(&a);
	program_free(&b);
}

/* One CPU each, all of them different, where there are enough. */
static void test_bind(void **state)
{
	const char *const script =
		"grep Cpus_allowed_list /proc/self/status | cut -f2";
	struct program p = run("-n 2 --bind core", script);
	char *a = strtok(p.out, "\n"), *b = strtok(NULL, "\n");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_non_null(a);
	assert_non_null(b);
	if (sysconf(_SC_NPROCESSORS_ONLN) >= 2) {
		assert_string_not_equal(a, b);
		assert_null(strpbrk(a, ",-"));
	}
	program_free(&p);
}

/* Words reach the program as they were, whatever is in them. */
static void test_nested_quotes(void **state)
{
	const char *words[] = {
		"ferry",         "run", "-n", "1",  "--",   "printf", "<%s>",
		"a 'b \"c\" $d", "",    "-x", "--", "e\\f", NULL};
	struct program p = program_run_words(words);

	(void)state;
	assert_int_equal(p.status, 0);
	assert_string_equal(p.out, "<a 'b \"c\" $d><><-x><--><e\\f>");
	program_free(&p);
}

static void test_exit_status_is_the_first_failure(void **state)
{
	struct program p = run("-n 3", "[ $FERRY_RANK != 1 ] || exit 7");

	(void)state;
	assert_int_equal(p.status, 7);
	assert_contains(p.err, "ferry run: rank 1 exited with status 7\n");
	program_free(&p);
	p = run("-n 2 -g 100",
	        "if [ $FERRY_RANK = 1 ]; then sleep 0.3; exit 5; fi; exit 4");
	assert_int_equal(p.status, 4);
	program_free(&p);
}

static void test_death_by_signal(void **state)
{
	struct program p = run("-n 2", "[ $FERRY_RANK = 0 ] || kill -9 $$");

	(void)state;
	assert_int_equal(p.status, 128 + 9);
	assert_contains(p.err, "rank 1 was killed by signal 9 (Killed)\n");
	program_free(&p);
}

static void test_program_that_is_not_there(void **state)
{
	struct program p = program_run("run -n 2 -- /no/such/program");

	(void)state;
	assert_int_equal(p.status, 127);
	assert_contains(p.err, "ferry run: cannot execute /no/such/program: "
	                       "No such file or directory\n");
	program_free(&p);
	p = program_run("run -n 2 -- /etc/passwd");
	assert_int_equal(p.status, 126);
	program_free(&p);
}

/* The others get the grace, then SIGTERM, and what they started ends too. */
static void test_failure_ends_the_others(void **state)
{
	const uint64_t start_ns = ferry_now_ns();
	const char *const seconds = unique_seconds();
	char script[256], mark[64];

	(void)state;
	snprintf(mark, sizeof(mark), "sleep %s", seconds);
	snprintf(script, sizeof(script),
	         "[ $FERRY_RANK != 2 ] || exit 3; sleep %s; true", seconds);
	struct program p = run("-n 3 -g 200", script);

	assert_int_equal(p.status, 3);
	assert_contains(p.err, "ferry run: ending 2 other ranks\n");
	assert_true(ferry_now_ns() - start_ns >= 200 * 1000000u);
	assert_true(ferry_now_ns() - start_ns < 20 * UINT64_C(1000000000));
	await_none(mark);
	program_free(&p);
}

/* Who ignores SIGTERM is killed. */
static void test_stubborn_rank(void **state)
{
	struct program p =
		run("-n 2 -g 50", "[ $FERRY_RANK = 0 ] && exit 9; trap '' "
	                          "TERM; while :; do sleep 0.05; done");

	(void)state;
	assert_int_equal(p.status, 9);
	program_free(&p);
}

static void test_grace_lets_others_finish(void **state)
{
	struct program p =
		run("-n 2 -t", "[ $FERRY_RANK = 0 ] && exit 2; sleep 0.3; "
	                       "echo finished");

	(void)state;
	assert_int_equal(p.status, 2);
	assert_string_equal(p.out, "[1] finished\n");
	assert_null(strstr(p.err, "ending"));
	program_free(&p);
}

static void test_signals_are_passed_on(void **state)
{
	int out;
	const pid_t pid = start("-t",
	                        "trap 'echo usr1' USR1; trap 'exit 6' TERM; "
	                        "echo ready; while :; do sleep 0.02; done",
	                        &out);

	(void)state;
	await_both(out, "[0] ready\n", "[1] ready\n");
	kill(pid, SIGUSR1);
	await_both(out, "[0] usr1\n", "[1] usr1\n");
	kill(pid, SIGTERM);
	assert_int_equal(program_wait(pid), 6);
	close(out);
}

/* SIGKILL to ferry run cannot be caught: the kernel ends the ranks. */
static void test_ranks_die_with_their_parent(void **state)
{
	char mark[64];
	int out;

	(void)state;
	snprintf(mark, sizeof(mark), "mark-%d-%d", (int)getpid(), rand());
	const char *words[] = {
		"ferry", "run", "-n",
		"3",     "-t",  "--",
		"sh",    "-c",  "echo up; while :; do sleep 0.1; done",
		mark,    NULL};
	const pid_t pid = program_start(words, &out);

	await(out, "up\n");
	assert_true(count_processes(mark) >= 2); /* itself and a rank */
	kill(pid, SIGKILL);
	assert_int_equal(program_wait(pid), 128 + 9);
	await_none(mark);
	close(out);
}

/* Lines of 8 ranks that write at once, in pieces. */
static void test_lines_are_whole(void **state)
{
	enum { RANKS = 8, LINES = 100 };
	int seen[RANKS] = {0};
	struct program p =
		run("-n 8 -t", "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 "
	                       "2 3 4 5 6 7 8 9; do printf 'abc'; printf "
	                       "'def%d\\n' $FERRY_RANK; done; done; printf "
	                       "'no newline'");

	(void)state;
	assert_int_equal(p.status, 0);
	for (char *line = strtok(p.out, "\n"); line;
	     line = strtok(NULL, "\n")) {
		int rank, again;

		if (strstr(line, "no newline"))
			continue;
		assert_int_equal(sscanf(line, "[%d] abcdef%d", &rank, &again),
		                 2);
		assert_int_equal(rank, again);
		seen[rank]++;
	}
	for (int r = 0; r < RANKS; r++)
		assert_int_equal(seen[r], LINES);
	program_free(&p);
}

static void test_a_long_line(void **state)
{
	struct program p =
		run("-n 2 -t", "head -c 300000 /dev/zero | tr '\\0' x; echo");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_int_equal(strlen(p.out), 2 * (4 + 300000 + 1));
	assert_int_equal(strcspn(p.out, "\n"), 4 + 300000);
	program_free(&p);
}

static void test_streams_stay_apart(void **state)
{
	struct program p = run("-n 2 -t", "echo out; echo err >&2");

	(void)state;
	assert_null(strstr(p.out, "err"));
	assert_null(strstr(p.err, "out"));
	assert_contains(p.err, "[1] err\n");
	program_free(&p);
}

/* A descendant that keeps the pipe open does not keep ferry run. */
static void test_background_child(void **state)
{
	const uint64_t start_ns = ferry_now_ns();
	struct program p = run("-n 1 -t", "echo last; sleep 15 &");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_string_equal(p.out, "[0] last\n");
	assert_true(ferry_now_ns() - start_ns < 10 * UINT64_C(1000000000));
	program_free(&p);
}

/* A process that reads and forgets. */
static pid_t swallow(int fd)
{
	const pid_t pid = fork();

	if (pid == 0) {
		char bytes[65536];

		while (read(fd, bytes, sizeof(bytes)) > 0)
			;
		_exit(0);
	}
	close(fd);
	return pid;
}

/* A rank that never stops to write does not make ferry run deaf. */
static void test_flood(void **state)
{
	const uint64_t start_ns = ferry_now_ns();
	int out;
	const pid_t pid = start("-t", "exec yes", &out);

	(void)state;
	await(out, "] y\n");
	const pid_t reader = swallow(out);

	usleep(200000);
	kill(pid, SIGTERM);
	assert_int_equal(program_wait(pid), 128 + SIGTERM);
	assert_int_equal(program_wait(reader), 0);
	assert_true(ferry_now_ns() - start_ns < 40 * UINT64_C(1000000000));
}

/* Nor does what a rank leaves behind keep it. */
static void test_flood_of_a_background_child(void **state)
{
	const uint64_t start_ns = ferry_now_ns();
	struct program p = run("-n 2 -t", "yes & sleep 0.2");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_true(ferry_now_ns() - start_ns < 40 * UINT64_C(1000000000));
	program_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_environment),
		cmocka_unit_test(test_rendezvous_is_random),
		cmocka_unit_test(test_bind),
		cmocka_unit_test(test_nested_quotes),
		cmocka_unit_test(test_exit_status_is_the_first_failure),
		cmocka_unit_test(test_death_by_signal),
		cmocka_unit_test(test_program_that_is_not_there),
		cmocka_unit_test(test_failure_ends_the_others),
		cmocka_unit_test(test_stubborn_rank),
		cmocka_unit_test(test_grace_lets_others_finish),
		cmocka_unit_test(test_signals_are_passed_on),
		cmocka_unit_test(test_ranks_die_with_their_parent),
		cmocka_unit_test(test_lines_are_whole),
		cmocka_unit_test(test_a_long_line),
		cmocka_unit_test(test_streams_stay_apart),
		cmocka_unit_test(test_background_child),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_flood_of_a_background_child),
	};

	srand((unsigned)getpid());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
