/* SPDX-License-Identifier: Apache-2.0 */
/* ferry check --hosts: a job that is well, pairs that are not, strangers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_cmocka.h"
#include "program.h"

static const cJSON *pair_at(const cJSON *document, int i)
{
	return cJSON_GetArrayItem(cJSON_GetObjectItem(document, "pairs"), i);
}

static bool is_well(const cJSON *pair)
{
	const char *verdict = program_text(pair, "verdict");

	return !strcmp(verdict, "ok") || !strcmp(verdict, "slow");
}

/* Four ranks that pretend to be two hosts. */
static void test_good(void **state)
{
	(void)state;
	setenv("FERRY_RANKS_PER_HOST", "2", 1);
	cJSON *d = program_json_of("check --hosts -n 4 -f shm+wire --json",
	                           "ferry-hosts-1");

	unsetenv("FERRY_RANKS_PER_HOST");
	const cJSON *meta = cJSON_GetObjectItem(d, "meta");
	const cJSON *command = cJSON_GetObjectItem(meta, "command");
	const cJSON *ranks = cJSON_GetObjectItem(d, "ranks");
	const cJSON *modes = cJSON_GetObjectItem(d, "combine");
	int n_between = 0;

	assert_string_equal(program_text(meta, "verdict"), "good");
	assert_string_equal(program_text(meta, "fabric"), "shm+wire");
	assert_int_equal(program_number(meta, "hosts"), 2);
	assert_int_equal(cJSON_GetArraySize(command), 8);
	assert_int_equal(cJSON_GetArraySize(ranks), 4);
	assert_int_equal(program_number(cJSON_GetArrayItem(ranks, 3), "host"),
	                 1);
	assert_contains(program_text(cJSON_GetArrayItem(ranks, 3), "options"),
	                "FERRY_RANKS_PER_HOST=2");
	for (int i = 0; i < 6; i++) {
		assert_true(is_well(pair_at(d, i)));
		assert_true(program_number(pair_at(d, i), "flag_p50_us") > 0);
		assert_true(program_number(pair_at(d, i), "bytes_per_s_back") >
		            0);
		n_between += !strcmp(program_text(pair_at(d, i), "where"),
		                     "between");
	}
	assert_null(pair_at(d, 6));
	assert_int_equal(n_between, 4);
	assert_true(cJSON_GetArraySize(modes) >= 2);
	for (int i = 0; i < 2; i++)
		assert_string_equal(
			program_text(cJSON_GetArrayItem(modes, i), "verdict"),
			"ok");
	cJSON_Delete(d);
}

/* Rank 1 stops where it meets rank 2; nobody else is blamed for it. */
static void test_one_bad_pair(void **state)
{
	(void)state;
	setenv("FERRY_FAULT", "stall:rank=1,ms=2500", 1);
	struct program p =
		program_run("check --hosts -n 4 -f wire --timeout 1 --json");

	unsetenv("FERRY_FAULT");
	assert_int_equal(p.status, 1);
	cJSON *d = program_json(&p, "ferry-hosts-1");

	assert_string_equal(
		program_text(cJSON_GetObjectItem(d, "meta"), "verdict"), "bad");
	for (int i = 0; i < 6; i++) {
		const cJSON *pair = pair_at(d, i);

		if (program_number(pair, "a") == 1 &&
		    program_number(pair, "b") == 2) {
			assert_string_equal(program_text(pair, "verdict"),
			                    "FAILED");
			assert_contains(program_text(pair, "text"),
			                "rank 1 did not come");
		} else {
			assert_true(is_well(pair));
		}
	}
	cJSON_Delete(d);
	program_free(&p);
}

static void test_a_rank_dies(void **state)
{
	(void)state;
	setenv("FERRY_FAULT", "kill:rank=1,after=300", 1);
	struct program p = program_run("check --hosts -n 3 -f shm");

	unsetenv("FERRY_FAULT");
	assert_true(p.status != 0);
	assert_contains(p.out, "# ended    a rank was lost: ");
	assert_contains(p.out, "rank 1");
	assert_contains(p.out, "\n# BAD, 0 wrong\n");
	program_free(&p);
}

/* As a launcher starts it: one report, of rank 0. */
static void test_launched(void **state)
{
	const char *const words[] = {ferry_program, "run",     "-n",
	                             "2",           "--",      ferry_program,
	                             "check",       "--hosts", NULL};
	struct program p = program_run_words(words);

	(void)state;
	assert_int_equal(p.status, 0);
	assert_contains(p.out, "# world    2 ranks on 1 host, fabric shm");
	assert_contains(p.out, "# version  ");
	assert_contains(p.out, "\n# good, 0 wrong\n");
	assert_null(strstr(strstr(p.out, "# world") + 1, "# world"));
	program_free(&p);
}

static void set_job(const char *rank, const char *secret)
{
	setenv("FERRY_RANK", rank, 1);
	setenv("FERRY_SECRET", secret, 1);
}

static void test_another_secret(void **state)
{
	const char *const words[] = {ferry_program, "check", "--hosts", NULL};
	char address[64];
	int out[2];
	pid_t pids[2];

	(void)state;
	snprintf(address, sizeof(address), "127.0.0.1:%d",
	         20000 + (int)getpid() % 9000);
	setenv("FERRY_SIZE", "2", 1);
	setenv("FERRY_RENDEZVOUS", address, 1);
	setenv("FERRY_OPEN_TIMEOUT_MS", "1500", 1);
	set_job("0", "0123456789abcdef0");
	pids[0] = program_start(words, &out[0]);
	set_job("1", "0123456789abcdef1");
	pids[1] = program_start(words, &out[1]);
	char *first = program_read_all(out[0]);
	char *second = program_read_all(out[1]);

	assert_int_equal(program_wait(pids[0]), 1);
	assert_int_equal(program_wait(pids[1]), 1);
	assert_contains(first, "the ranks do not meet");
	assert_contains(first, "does not know the job secret");
	assert_contains(second, "another job secret");
	assert_contains(second, "the same secret, version and settings");
	free(first);
	free(second);
	unsetenv("FERRY_SIZE");
	unsetenv("FERRY_RENDEZVOUS");
	unsetenv("FERRY_OPEN_TIMEOUT_MS");
	unsetenv("FERRY_RANK");
	unsetenv("FERRY_SECRET");
}

static void test_usage(void **state)
{
	static const char *const bad[][2] = {
		{"check --strict", "--strict needs --hosts"},
		{"check --hosts --device cuda", "--hosts is for --device cpu"},
		{"check --hosts --seconds 0", "--seconds is for shapes of one"},
		{"check --hosts --seed 0", "--seed is for shapes of one host"},
		{"check --hosts --copy-mib 1",
	         "--copy-mib is for shapes of one host"},
		{"check --hosts --timeout 0", "--timeout is 0, allowed is 1.."},
		{"check --hosts -f wier", "did you mean 'wire'"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		program_refuses(bad[i][0], 2, bad[i][1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_one_bad_pair),
		cmocka_unit_test(test_a_rank_dies),
		cmocka_unit_test(test_launched),
		cmocka_unit_test(test_another_secret),
		cmocka_unit_test(test_usage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
