/* SPDX-License-Identifier: Apache-2.0 */
/* ferry info --world in jobs of one host and of several pretended ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_cmocka.h"
#include "program.h"

/* ferry run OPTIONS -- ferry info --world ...; the words are in the tool. */
static struct program run(const char *options, const char *info)
{
	char line[1024];

	snprintf(line, sizeof(line), "run %s -- %s info --world %s", options,
	         ferry_program, info);
	return program_run(line);
}

static cJSON *world(const char *options, const char *info)
{
	struct program p = run(options, info);

	assert_string_equal(p.err, "");
	assert_int_equal(p.status, 0);
	cJSON *document = program_json(&p, "ferry-world-1");

	program_free(&p);
	return document;
}

static const cJSON *member(const cJSON *document, const char *list, int i)
{
	const cJSON *array = cJSON_GetObjectItem(document, list);

	assert_true(cJSON_IsArray(array) && i < cJSON_GetArraySize(array));
	return cJSON_GetArrayItem(array, i);
}

static void test_alone(void **state)
{
	cJSON *document =
		program_json_of("info --world --json", "ferry-world-1");

	(void)state;
	assert_int_equal(program_number(document, "hosts"), 1);
	assert_string_equal(program_text(document, "fabric"), "local");
	cJSON_Delete(document);
}

static void test_one_host(void **state)
{
	cJSON *document = world("-n 3", "--json --fabric shm");

	(void)state;
	assert_int_equal(program_number(document, "hosts"), 1);
	assert_int_equal(program_number(document, "machines"), 1);
	assert_string_equal(program_text(document, "fabric"), "shm");
	for (int i = 0; i < 3; i++) {
		const cJSON *rank = member(document, "ranks", i);

		assert_int_equal(program_number(rank, "rank"), i);
		assert_int_equal(program_number(rank, "host"), 0);
		assert_true(program_number(rank, "cpus") >= 1);
		assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(
					 rank, "stores_to")),
		                 3);
	}
	cJSON_Delete(document);
}

/* 5 ranks, 2 on a host: 0 and 1, 2 and 3, 4 alone. */
static void test_hosts(void **state)
{
	cJSON *document =
		world("-n 5 --ranks-per-host 2", "--json --fabric shm+wire");

	(void)state;
	assert_int_equal(program_number(document, "hosts"), 3);
	assert_int_equal(program_number(document, "machines"), 1);
	for (int i = 0; i < 5; i++) {
		const cJSON *rank = member(document, "ranks", i);
		const cJSON *to = member(rank, "stores_to", 0);

		assert_int_equal(program_number(rank, "host"), i / 2);
		assert_int_equal(to->valueint, i / 2 * 2);
		assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(
					 rank, "stores_to")),
		                 i == 4 ? 1 : 2);
	}
	for (int i = 0;; i++) {
		const cJSON *fabric = member(document, "fabrics", i);

		if (strcmp(program_text(fabric, "name"), "shm") != 0)
			continue;
		assert_int_equal(program_number(fabric, "score"), 0);
		assert_contains(program_text(fabric, "reason"),
		                "ranks are on 3 hosts of one machine");
		break;
	}
	cJSON_Delete(document);
}

static void test_text(void **state)
{
	struct program p = run("-n 5 --ranks-per-host 2", "-f shm+wire");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_contains(p.out,
	                "# world    5 ranks, 3 hosts of 1 machine, fabric "
	                "shm+wire; each has reached each\n");
	assert_contains(p.out, "  2-3              0-1,4\n");
	assert_contains(p.out, "  4                0-3\n");
	program_free(&p);
}

/* Those that are for one host are left out, and say so. */
static void test_check_of_hosts(void **state)
{
	(void)state;
	assert_int_equal(setenv("FERRY_RANKS_PER_HOST", "2", 1), 0);
	struct program p =
		program_run("check --copy-mib 1 --ranks 3 --seconds 0");

	assert_int_equal(unsetenv("FERRY_RANKS_PER_HOST"), 0);
	assert_int_equal(p.status, 0);
	assert_contains(p.out, "\nshm        skipped: for one host, "
	                       "FERRY_RANKS_PER_HOST makes several\n");
	assert_contains(p.out, "\nshm+wire   ok ");
	assert_contains(p.out, "\n# 0 wrong\n");
	program_free(&p);
}

static void test_refused(void **state)
{
	struct program p = run("-n 2 --ranks-per-host 1", "-f shm");

	(void)state;
	assert_int_equal(p.status, 1);
	assert_string_equal(p.out, "");
	assert_contains(p.err, "ferry info: opening a world: world_open: "
	                       "fabric shm: ranks are on 2 hosts of one "
	                       "machine, says FERRY_HOST or "
	                       "FERRY_RANKS_PER_HOST");
	program_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_one_host),
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_check_of_hosts),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
