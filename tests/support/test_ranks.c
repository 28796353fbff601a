/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks themselves: what a failing, dying, hanging or crashing body makes
 * of a test, seen from outside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/ranks.h"

/* What a run wrote and how it ended. */
static char output[16384];
static int result;

static const struct ranks *inner_how;
static ranks_body *inner_body;

static void inner_test(void **state)
{
	(void)state;
	ranks_run(inner_how, inner_body);
}

/* Runs a group with this one test in a process of its own. */
static void run_inside(const struct ranks *how, ranks_body *body)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(inner_test)};
	int ends[2];
	size_t n = 0;
	ssize_t got;

	inner_how = how;
	inner_body = body;
	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	const pid_t pid = fork();
	if (pid == 0) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		const int rc = cmocka_run_group_tests(tests, NULL, NULL);
		fflush(NULL);
		_exit(rc);
	}
	close(ends[1]);
	while ((got = read(ends[0], output + n, sizeof(output) - 1 - n)) > 0)
		n += (size_t)got;
	output[n] = 0;
	close(ends[0]);
	waitpid(pid, &result, 0);
}

static void assert_fails(enum ranks_kind kind, ranks_body *body,
                         const char *text)
{
	run_inside(&(struct ranks){.kind = kind,
	                           .n_ranks = 3,
	                           .no_world = true,
	                           .limit_ms = 1000},
	           body);
	if (result == 0)
		fail_msg("it passed: %s", output);
	if (!strstr(output, text))
		fail_msg("'%s' is not in '%s'", text, output);
}

static void good(struct rank *rank)
{
	RANKS_CHECK(rank->world);
	RANKS_OK(ferry_world_barrier(rank->world));
	*((int32_t *)rank->shared + rank->rank) = 10 + rank->rank;
	ranks_meet(0, rank->n_ranks);
}

static void test_good(void **state)
{
	(void)state;
	for (int kind = RANKS_THREADS; kind <= RANKS_PROCESSES; kind++) {
		void *shared;
		const struct ranks how = {.kind = (enum ranks_kind)kind,
		                          .n_ranks = 3,
		                          .shared_bytes = 3 * sizeof(int32_t),
		                          .shared = &shared};

		ranks_run(&how, good);
		for (int32_t r = 0; r < 3; r++)
			assert_int_equal(((int32_t *)shared)[r], 10 + r);
		ranks_free_shared(&how);
	}
}

static void one_differs(struct rank *rank)
{
	RANKS_EQ(rank->rank * 2, rank->rank == 1 ? 5 : rank->rank * 2);
}

static void deep_inside(struct rank *rank)
{
	if (rank->rank == 2)
		RANKS_STATUS(ferry_world_open(NULL, NULL), FERRY_OK);
}

static void bytes_differ(struct rank *rank)
{
	RANKS_BYTES("abcd", rank->rank ? "abcd" : "abxd", 4);
}

static void test_failures_are_told(void **state)
{
	(void)state;
	for (int k = RANKS_THREADS; k <= RANKS_PROCESSES; k++) {
		const enum ranks_kind kind = (enum ranks_kind)k;

		assert_fails(kind, one_differs, "rank 1 of 3 (");
		assert_non_null(strstr(output, "test_ranks.c:"));
		assert_non_null(
			strstr(output, ": rank->rank * 2 is 2, expected 5\n"));
		assert_null(strstr(output, "rank 0 of 3 ("));
		assert_fails(kind, deep_inside,
		             "ferry_world_open(NULL, NULL) is FERRY_INVAL, "
		             "expected FERRY_OK: world_open: ");
		assert_fails(kind, bytes_differ,
		             "byte 2 of 4 is 0x63, expected 0x78");
	}
}

static void raises(struct rank *rank)
{
	if (rank->rank == 1)
		raise(SIGTERM);
}

static void exits(struct rank *rank)
{
	if (rank->rank == 1)
		_exit(3);
}

static void dies(struct rank *rank)
{
	if (rank->rank == 1)
		ranks_die();
}

static void test_ends_are_told(void **state)
{
	(void)state;
	assert_fails(RANKS_PROCESSES, raises,
	             "rank 1 of 3 (processes): the process died of signal 15");
	assert_fails(RANKS_PROCESSES, exits,
	             "rank 1 of 3 (processes): the process exited with 3");
	assert_fails(RANKS_PROCESSES, dies,
	             "rank 1 of 3 (processes): the process died of signal 9");
	assert_fails(RANKS_THREADS, dies,
	             "rank 1 of 3 (threads): died, which was not expected");
}

static void hangs(struct rank *rank)
{
	if (rank->rank == 1)
		for (;;)
			nanosleep(&(struct timespec){1, 0}, NULL);
}

static void meets_nobody(struct rank *rank)
{
	if (rank->rank != 2)
		ranks_meet(0, 3);
}

static void test_hangs_are_told(void **state)
{
	(void)state;
	assert_fails(RANKS_PROCESSES, hangs,
	             "rank 1 of 3 (processes): the process hangs in the body");
	assert_fails(RANKS_THREADS, hangs,
	             "ranks: hang: rank 1 is in the body");
	assert_fails(RANKS_PROCESSES, meets_nobody,
	             "meeting 0: 2 of 3 ranks came");
}

static int n_deferred;

static void count_deferred(void *arg)
{
	/* Last one first. */
	n_deferred = n_deferred * 10 + *(const int *)arg;
}

static void defers(struct rank *rank)
{
	static const int one = 1;
	static const int two = 2;

	ranks_defer(count_deferred, (void *)(uintptr_t)&one);
	ranks_defer(count_deferred, (void *)(uintptr_t)&two);
	if (rank->arg)
		ranks_die();
}

static void test_killed_and_deferred(void **state)
{
	int yes = 1;

	(void)state;
	n_deferred = 0;
	ranks_run(&(struct ranks){.n_ranks = 1}, defers);
	assert_int_equal(n_deferred, 21);
	ranks_run(&(struct ranks){.n_ranks = 1,
	                          .killed = RANKS_BIT(0),
	                          .arg = &yes},
	          defers);
	assert_int_equal(n_deferred, 2121);
	ranks_run(&(struct ranks){.kind = RANKS_PROCESSES,
	                          .n_ranks = 3,
	                          .killed = RANKS_BIT(1)},
	          dies);
	/* Who was to die and did not has failed. */
	run_inside(&(struct ranks){.kind = RANKS_PROCESSES,
	                           .n_ranks = 3,
	                           .limit_ms = 1000,
	                           .killed = RANKS_BIT(0)},
	           hangs);
	assert_int_not_equal(result, 0);
	assert_non_null(strstr(output, "rank 0 of 3 (processes): is alive, "
	                               "not killed"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_failures_are_told),
		cmocka_unit_test(test_ends_are_told),
		cmocka_unit_test(test_hangs_are_told),
		cmocka_unit_test(test_killed_and_deferred),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
