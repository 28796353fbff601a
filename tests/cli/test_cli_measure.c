/* SPDX-License-Identifier: Apache-2.0 */
/* check and bench with tiny shapes: documents, columns, nothing wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_cmocka.h"
#include "program.h"

/* Floors that mean nothing, for there would be gigabytes to copy. */
#define BENCH "bench --copy-mib 1 "

static void test_info_and_env_json(void **state)
{
	cJSON *d = program_json_of("info --json --report", "ferry-info-1");
	const cJSON *machine = cJSON_GetObjectItem(d, "machine");

	(void)state;
	assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(d, "fabrics")) >= 3);
	assert_true(program_number(machine, "usable_cpus") >= 1);
	assert_true(cJSON_IsArray(cJSON_GetObjectItem(d, "environment")));
	assert_true(cJSON_IsArray(cJSON_GetObjectItem(d, "gpus")));
	cJSON_Delete(d);
	d = program_json_of("env --json", "ferry-env-1");
	assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(d, "variables")) >=
	            10);
	cJSON_Delete(d);
}

/* Three ranks: matrices with nothing on the diagonal, and JSON of the same. */
static void test_info_links(void **state)
{
	static const char *const tables[] = {"alpha_ns", "ps_per_byte"};
	cJSON *d = program_json_of(
		"info --links --ranks 3 --fabric shm --bytes 64k "
		"--rounds 2 --json",
		"ferry-links-1");
	const cJSON *meta = cJSON_GetObjectItem(d, "meta");

	(void)state;
	assert_string_equal(program_text(meta, "fabric"), "shm");
	assert_int_equal(program_number(meta, "ranks"), 3);
	assert_int_equal(program_number(meta, "max_bytes"), 65536);
	for (int i = 0; i < 9; i++) {
		const cJSON *of[2];

		for (int k = 0; k < 2; k++) {
			of[k] = cJSON_GetObjectItem(d, tables[k]);
			assert_int_equal(cJSON_GetArraySize(of[k]), 3);
			of[k] = cJSON_GetArrayItem(of[k], i / 3);
			assert_int_equal(cJSON_GetArraySize(of[k]), 3);
			of[k] = cJSON_GetArrayItem(of[k], i % 3);
			assert_true(cJSON_IsNumber(of[k]));
		}
		if (i / 3 == i % 3)
			assert_int_equal(
				of[0]->valuedouble + of[1]->valuedouble, 0);
		else
			assert_true(of[0]->valuedouble > 0);
	}
	cJSON_Delete(d);
	struct program p = program_run("info --links --fabric local --rounds 1 "
	                               "--bytes 4k");

	assert_int_equal(p.status, 0);
	assert_contains(p.out, "# fabric   local, 2 ranks\n");
	assert_contains(p.out, "# alpha, us, from row to column\n#   rank");
	assert_contains(p.out, "# bandwidth, GB/s, from row to column\n");
	assert_contains(p.out, "\n       1  ");
	program_free(&p);
	program_refuses("info --links --fabric shn", 2, "did you mean 'shm'?");
}

static void check_row(const cJSON *row, const char *phase, const char *impl)
{
	assert_string_equal(program_text(row, "phase"), phase);
	assert_string_equal(program_text(row, "impl"), impl);
	assert_true(program_number(row, "p50_us") > 0);
	assert_true(program_number(row, "p99_us") >=
	            program_number(row, "p50_us"));
	assert_true(program_number(row, "max_us") >=
	            program_number(row, "p99_us"));
	assert_true(program_number(row, "logical_bytes") > 0);
	assert_true(program_number(row, "wire_bytes") <=
	            program_number(row, "logical_bytes"));
	assert_true(program_number(row, "floor_us") > 0);
	assert_true(program_number(row, "wrong") == 0);
}

static void test_bench_document(void **state)
{
	static const char *const phases[] = {"dispatch", "combine", "pair"};
	cJSON *d = program_json_of(
		BENCH "--ranks 2 --tokens 3,8 --hidden 96 --topk 2 "
		      "--experts 6 --iters 4 --rounds 2 --warmup 1 --json",
		"ferry-bench-1");
	const cJSON *rows = cJSON_GetObjectItem(d, "rows");
	const cJSON *meta = cJSON_GetObjectItem(d, "meta");

	(void)state;
	assert_int_equal(cJSON_GetArraySize(rows), 6);
	for (int i = 0; i < 6; i++) {
		const cJSON *row = cJSON_GetArrayItem(rows, i);

		check_row(row, phases[i % 3], "ferry");
		assert_int_equal(program_number(row, "tokens"), i < 3 ? 3 : 8);
		assert_int_equal(program_number(row, "hidden"), 96);
		assert_int_equal(program_number(row, "ranks"), 2);
	}
	/* 2 ranks, 3 tokens, top-2, 96 bf16 elements, both ways. */
	assert_int_equal(
		program_number(cJSON_GetArrayItem(rows, 0), "logical_bytes"),
		2 * 3 * 2 * 192);
	assert_string_equal(program_text(meta, "fabric"), "shm");
	assert_true(
		program_number(cJSON_GetObjectItem(meta, "copy_bytes_per_s"),
	                       "memcpy") > 1e6);
	cJSON_Delete(d);
}

/*
 * 2 pretended hosts: a row, and a sum, for each (token, host), none wrong; with
 * the tables 1.05 of that at most.
 */
static void test_bench_hosts(void **state)
{
	(void)state;
	setenv("FERRY_RANKS_PER_HOST", "4", 1);
	cJSON *d = program_json_of(
		BENCH
		"--ranks 8 --tokens 32 --hidden 2048 --topk 8 --experts "
		"64 --fabric shm+wire --combine per-host --iters 2 --rounds 1 "
		"--warmup 0 --json",
		"ferry-bench-1");
	const cJSON *rows = cJSON_GetObjectItem(d, "rows");
	double most = 0, tables = 0;

	unsetenv("FERRY_RANKS_PER_HOST");
	assert_int_equal(cJSON_GetArraySize(rows), 3);
	for (int i = 0; i < 3; i++) {
		const cJSON *row = cJSON_GetArrayItem(rows, i);

		assert_string_equal(program_text(row, "combine"), "per-host");
		assert_true(program_number(row, "wrong") == 0);
		assert_int_equal(program_number(row, "hosts"), 2);
		assert_true(program_number(row, "least_host_bytes") > 0);
		assert_int_equal(program_number(row, "host_bytes"),
		                 program_number(row, "least_host_bytes"));
		/* 8 ranks send 4 tables of slots and weights each */
		tables = program_number(row, "table_bytes");
		assert_int_equal(tables, 8 * 4 * (128 + 32 * 8 * 8));
		most = program_number(row, "host_bytes");
	}
	assert_true(most + tables <= 1.05 * most); /* of the pair */
	cJSON_Delete(d);
	program_refuses("bench --combine per-host --baseline mpi", 2,
	                "--combine per-host has no --baseline");
	program_refuses("bench --raw --ranks 1", 2, "--raw needs --ranks 2");
}

/* Every type, combine, layout and routing, each with several others. */
static void test_bench_combinations(void **state)
{
	static const char *const types[] = {"bf16", "fp8"};
	static const char *const combines[] = {"exact", "reduced"};
	static const char *const layouts[] = {"padded", "packed", "token"};
	static const char *const routings[] = {"uniform", "zipf", "one"};

	(void)state;
	for (int i = 0; i < 6; i++) {
		char line[256];

		snprintf(line, sizeof(line),
		         BENCH "--fabric local --ranks 3 --tokens 5 --hidden "
		               "200 --topk 3 --experts 7 --iters 3 --rounds 1 "
		               "--warmup 0 --dtype %s --combine %s --layout %s "
		               "--routing %s",
		         types[i / 3], combines[i % 2], layouts[i % 3],
		         routings[(i + 1) % 3]);
		struct program p = program_run(line);

		if (p.status != 0 ||
		    strcmp(p.out + strlen(p.out) - 10, "# 0 wrong\n") != 0)
			fail_msg("%s: %d: %s%s", line, p.status, p.out, p.err);
		program_free(&p);
	}
}

static void test_bench_with_no_tokens(void **state)
{
	struct program p =
		program_run(BENCH "--tokens 0 --hidden 8 --topk 1 "
	                          "--experts 2 --iters 2 --rounds 1");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_contains(p.out, "# 0 wrong\n");
	program_free(&p);
}

static void test_bench_table(void **state)
{
	char path[] = "/tmp/test-cli-XXXXXX";
	char line[256];

	(void)state;
	close(mkstemp(path));
	snprintf(line, sizeof(line),
	         BENCH "--tokens 2 --hidden 64 --topk 2 --experts 4 --iters 2 "
	               "--rounds 1 --json %s",
	         path);
	struct program p = program_run(line);

	assert_int_equal(p.status, 0);
	assert_contains(p.out, "# ferry    0.");
	assert_contains(p.out, ", commit ");
	assert_contains(p.out, "\n# machine  ");
	assert_contains(
		p.out,
		"\n# ranks    2 on fabric shm, bind core, pages system\n");
	assert_contains(p.out, "\n# copy     ");
	assert_contains(p.out, "\n# window   ");
	assert_contains(p.out, "\n       2 pair      ferry ");
	assert_string_equal(p.err, "");
	program_free(&p);
	FILE *f = fopen(path, "r");
	char head[64] = "";

	assert_true(fread(head, 1, sizeof(head) - 1, f) > 0);
	fclose(f);
	assert_contains(head, "ferry-bench-1");
	unlink(path);
}

static void test_bench_open(void **state)
{
	cJSON *d =
		program_json_of("bench --open --ranks 3 --tokens 4 --hidden 64 "
	                        "--iters 3 --json",
	                        "ferry-bench-1");
	const cJSON *rows = cJSON_GetObjectItem(d, "rows");

	(void)state;
	assert_int_equal(cJSON_GetArraySize(rows), 2);
	assert_string_equal(program_text(cJSON_GetArrayItem(rows, 0), "phase"),
	                    "open");
	assert_string_equal(program_text(cJSON_GetArrayItem(rows, 1), "phase"),
	                    "channel");
	assert_true(program_number(cJSON_GetArrayItem(rows, 0), "p50_us") > 0);
	cJSON_Delete(d);
}

static void test_check(void **state)
{
	cJSON *d = program_json_of(
		"check --copy-mib 1 --ranks 3 --seconds 0 --json",
		"ferry-check-1");
	const cJSON *rows = cJSON_GetObjectItem(d, "rows");
	const cJSON *row;

	(void)state;
	assert_true(cJSON_GetArraySize(rows) >= 3);
	cJSON_ArrayForEach(row, rows)
	{
		const char *fabric = program_text(row, "fabric");

		/* These need GPUs, or a library that may not be there. */
		if (!strncmp(fabric, "p2p", 3) || !strcmp(fabric, "nvshmem") ||
		    (strstr(fabric, "ofi") &&
		     !strcmp(program_text(row, "state"), "skipped"))) {
			assert_string_equal(program_text(row, "state"),
			                    "skipped");
			continue;
		}
		assert_string_equal(program_text(row, "state"), "ok");
		assert_true(program_number(row, "wrong") == 0);
		assert_int_equal(program_number(row, "puts"), 3 * 3 * 64);
		assert_true(program_number(row, "shapes") >= 1);
	}
	cJSON_Delete(d);
}

static void test_check_of_one_rank(void **state)
{
	struct program p =
		program_run("check --copy-mib 1 -n 1 -f local -s 0 -r 7");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_contains(p.out, "\nlocal ");
	assert_null(strstr(p.out, "\nshm "));
	assert_string_equal(p.out + strlen(p.out) - 10, "# 0 wrong\n");
	program_free(&p);
}

/* A fault in the fabric is a failure of the check, with the reason. */
static void test_check_finds_a_death(void **state)
{
	(void)state;
	setenv("FERRY_FAULT", "kill:rank=1,after=20", 1);
	struct program p = program_run("check --copy-mib 1 -n 3 -f shm -s 0");

	unsetenv("FERRY_FAULT");
	assert_int_equal(p.status, 1);
	assert_contains(p.out, "\nfault:shm  FAILED");
	assert_contains(p.err, "rank 1");
	program_free(&p);
}

/* Own work is what a phase takes over shm without the writes in it. */
static void check_work(const cJSON *rows, int own, int each)
{
	const cJSON *row = cJSON_GetArrayItem(rows, own);
	double us[2];

	for (int i = 0; each == 4 && i < 2; i++) {
		const cJSON *shm = cJSON_GetArrayItem(rows, own + 2 + i);

		assert_string_equal(program_text(shm, "impl"),
		                    i ? "raw-shm" : "ferry-shm");
		assert_int_equal(program_number(shm, "wrong"), 0);
		us[i] = program_number(shm, "p50_us");
	}
	if (each == 4)
		assert_true(fabs(us[0] - us[1] -
		                 program_number(row, "work_us")) < 0.5);
}

/* Bare writes carry exactly the bytes of Ferry, in every shape. */
static void test_bench_raw(void **state)
{
	static const char *const shapes[] = {
		"--fabric wire --ranks 3 --tokens 9 --hidden 5000 --topk 3 "
		"--experts 7",
		"--fabric wire --ranks 2 --tokens 4 --hidden 300 --dtype fp8 "
		"--combine reduced --routing zipf",
		"--fabric shm --ranks 4 --tokens 5 --hidden 64 --layout token",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		/* Over shm, too, where that is not what is measured. */
		const int each = strstr(shapes[i], "wire") ? 4 : 2;
		char line[256];

		snprintf(line, sizeof(line),
		         BENCH "--raw --iters 3 --rounds 2 --json %s",
		         shapes[i]);
		cJSON *d = program_json_of(line, "ferry-bench-1");
		const cJSON *rows = cJSON_GetObjectItem(d, "rows");

		assert_int_equal(cJSON_GetArraySize(rows), 3 * each);
		for (int p = 0; p < 3 * each; p += each) {
			const cJSON *own = cJSON_GetArrayItem(rows, p);
			const cJSON *raw = cJSON_GetArrayItem(rows, p + 1);

			assert_string_equal(program_text(own, "impl"), "ferry");
			assert_string_equal(program_text(raw, "impl"), "raw");
			assert_int_equal(program_number(raw, "wrong"), 0);
			assert_int_equal(program_number(raw, "wire_bytes"),
			                 program_number(own, "wire_bytes"));
			assert_true(program_number(raw, "p50_us") > 0);
			assert_true(program_number(own, "raw_share") > 0);
			assert_true(!cJSON_GetObjectItem(own, "work_us") ==
			            (each == 2));
			check_work(rows, p, each);
		}
		cJSON_Delete(d);
	}
	program_refuses("bench --raw --open", 2, "--open has no --raw");
	program_refuses("bench --raw --device cuda", 2,
	                "--raw is for --device cpu");
}

static void test_mpi_tcp(void **state)
{
	struct program p = program_run_or_skip(
		BENCH "--tokens 6 --hidden 160 --topk 3 --experts 7 --iters 3 "
		      "--rounds 1 --fabric wire --raw --baseline mpi-tcp");

	(void)state;
	assert_contains(p.out, "single copy none, TCP over lo");
	assert_contains(p.out, " dispatch  raw ");
	assert_contains(p.out, " pair      mpi-tcp-dedup ");
	assert_contains(p.out, "(wire part)");
	assert_contains(p.out, " x as fast as mpi-tcp, ");
	assert_contains(p.out, "\n# 0 wrong\n");
	program_free(&p);
}

static void test_mpi_baseline(void **state)
{
	struct program p = program_run_or_skip(
		BENCH "--tokens 6 --hidden 160 --topk 3 --experts "
		      "7 --ranks 3 --iters 3 --rounds 2 --baseline mpi "
		      "--dtype fp8 --combine reduced --json");

	(void)state;
	cJSON *d = program_json(&p, "ferry-bench-1");
	const cJSON *rows = cJSON_GetObjectItem(d, "rows");

	assert_int_equal(cJSON_GetArraySize(rows), 9);
	check_row(cJSON_GetArrayItem(rows, 0), "dispatch", "ferry");
	check_row(cJSON_GetArrayItem(rows, 1), "dispatch", "mpi");
	check_row(cJSON_GetArrayItem(rows, 8), "pair", "mpi-dedup");
	assert_contains(
		program_text(cJSON_GetObjectItem(cJSON_GetObjectItem(d, "meta"),
	                                         "mpi"),
	                     "version"),
		"MPI");
	cJSON_Delete(d);
	program_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_info_and_env_json),
		cmocka_unit_test(test_info_links),
		cmocka_unit_test(test_bench_document),
		cmocka_unit_test(test_bench_hosts),
		cmocka_unit_test(test_bench_combinations),
		cmocka_unit_test(test_bench_with_no_tokens),
		cmocka_unit_test(test_bench_table),
		cmocka_unit_test(test_bench_open),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_check_of_one_rank),
		cmocka_unit_test(test_check_finds_a_death),
		cmocka_unit_test(test_bench_raw),
		cmocka_unit_test(test_mpi_baseline),
		cmocka_unit_test(test_mpi_tcp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
