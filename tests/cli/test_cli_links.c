/* SPDX-License-Identifier: Apache-2.0 */
/* ferry model as its users see it: documents, refusals, what it measures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_cmocka.h"
#include "program.h"

static const cJSON *row_of(const cJSON *document, int i)
{
	return cJSON_GetArrayItem(cJSON_GetObjectItem(document, "rows"), i);
}

static void test_document(void **state)
{
	cJSON *d = program_json_of(
		"model --ranks 8,16 --tokens 1,128 --dtype fp8 --inside 1,100 "
		"--between 10,50 --base 3,4 --memory 0 --combine per-host "
		"--json",
		"ferry-model-1");
	const cJSON *meta = cJSON_GetObjectItem(d, "meta");
	const cJSON *last = row_of(d, 7);

	(void)state;
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(d, "rows")), 8);
	assert_string_equal(
		program_text(cJSON_GetObjectItem(meta, "between"), "name"),
		"given");
	assert_string_equal(program_text(row_of(d, 0), "phase"), "dispatch");
	assert_int_equal(program_number(row_of(d, 0), "between_bytes"), 0);
	assert_string_equal(program_text(last, "phase"), "combine");
	assert_string_equal(program_text(last, "once"), "host");
	assert_int_equal(program_number(last, "hosts"), 2);
	/* 128 rows of 14336 bytes to the other host, nearly all tokens. */
	assert_true(program_number(last, "between_bytes") > 127 * 14336);
	assert_true(program_number(last, "between_bytes") < 128 * 14336);
	assert_true(program_number(last, "latency_us") >
	            4 + 11 + program_number(last, "between_us") - 0.01);
	cJSON_Delete(d);
}

/* The form that issue trackers know it by. */
static void test_bench_model(void **state)
{
	struct program p = program_run("bench --model --ranks 2 --tokens 1");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_contains(p.out, "bound_by");
	assert_contains(p.out, " combine ");
	program_free(&p);
	p = program_run("model --links");
	assert_int_equal(p.status, 0);
	assert_contains(p.out, "nvlink-h200");
	assert_contains(p.out, "efa-p5en");
	program_free(&p);
}

static void test_refusals(void **state)
{
	static const char *const bad[][2] = {
		{"model --between 1", "--between is '1', allowed is a name"},
		{"model --inside nvlink-h20", "did you mean 'nvlink-h200'"},
		{"model --base x", "--base is 'x', allowed is D[,C]"},
		{"model --base 1,2,3", "allowed is D[,C]"},
		{"model --memory -1", "--memory is '-1', allowed is GB/s"},
		{"model --topk 9 --experts 8", "at most the 8 of --experts"},
		{"model --per-host 0", "--per-host is 0, allowed is 1.."},
		{"model --fabric shm", "--fabric needs --measure"},
		{"model --measure --fabric wier", "did you mean 'wire'"},
		{"model --steps 1 --trace x", "exclude each other"},
		{"model --once row", "allowed is expert, rank, host"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		program_refuses(bad[i][0], 2, bad[i][1]);
}

static void test_measure(void **state)
{
	static const char *const fabrics[] = {"shm", "wire"};

	(void)state;
	for (int i = 0; i < 2; i++) {
		char line[128];

		snprintf(line, sizeof(line),
		         "model --measure --fabric %s --ranks 2 --per-host %d "
		         "--tokens 4 --json",
		         fabrics[i], 2 - i);
		cJSON *d = program_json_of(line, "ferry-model-1");
		const cJSON *meta = cJSON_GetObjectItem(d, "meta");
		const cJSON *link = cJSON_GetObjectItem(
			meta, i == 0 ? "inside" : "between");

		assert_string_equal(program_text(meta, "measured"), fabrics[i]);
		assert_string_equal(program_text(link, "name"), fabrics[i]);
		assert_true(program_number(link, "alpha_us") > 0);
		assert_true(program_number(link, "bytes_per_s") > 1e6);
		assert_true(program_number(link, "gap_us") > 0);
		assert_int_equal(program_number(link, "piece_bytes"),
		                 i == 0 ? 0 : 8192);
		cJSON_Delete(d);
	}
}

/* Bytes between hosts: what a rank expects is what Ferry counts, per rank. */
static void test_ferry_counts_the_same(void **state)
{
	static const char shape[] =
		"--tokens 96 --hidden 32 --topk 4 --experts 32 --combine "
		"per-host --json";
	char line[256];

	(void)state;
	setenv("FERRY_RANKS_PER_HOST", "2", 1);
	snprintf(line, sizeof(line),
	         "bench --ranks 6 --fabric shm+wire --iters 1 --warmup 0 "
	         "--rounds 1 %s",
	         shape);
	cJSON *counted = program_json_of(line, "ferry-bench-1");

	unsetenv("FERRY_RANKS_PER_HOST");
	snprintf(line, sizeof(line),
	         "model --ranks 6 --per-host 2 --no-tables %s", shape);
	cJSON *said = program_json_of(line, "ferry-model-1");

	for (int p = 0; p < 2; p++) {
		const double bytes =
			program_number(row_of(counted, p), "host_bytes");
		const double each =
			program_number(row_of(said, p), "between_bytes");

		/* Experts are uneven: the busiest rank has a little more. */
		assert_true(bytes > 6 * each * 0.93);
		assert_true(bytes < 6 * each * 1.03);
	}
	cJSON_Delete(counted);
	cJSON_Delete(said);
}

/* Means of what is drawn are what is expected; the busiest rank has more. */
static void test_drawn(void **state)
{
	static const char *const ways[] = {"", "--steps 40 --seed 7"};
	double ranks[2], hosts[2], bytes[2], memory[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		char line[128];

		snprintf(line, sizeof(line),
		         "model --ranks 16 --tokens 32 --once expert "
		         "--no-tables --json %s",
		         ways[i]);
		cJSON *d = program_json_of(line, "ferry-model-1");

		ranks[i] = program_number(row_of(d, 0), "ranks_per_token");
		hosts[i] = program_number(row_of(d, 0), "hosts_per_token");
		bytes[i] = program_number(row_of(d, 0), "between_bytes");
		memory[i] = program_number(row_of(d, 0), "memory_bytes");
		cJSON_Delete(d);
	}
	assert_true(ranks[1] > 0.99 * ranks[0] && ranks[1] < 1.01 * ranks[0]);
	assert_true(hosts[1] > 0.99 * hosts[0] && hosts[1] < 1.01 * hosts[0]);
	assert_true(memory[1] > 0.99 * memory[0] &&
	            memory[1] < 1.01 * memory[0]);
	assert_true(bytes[1] > 1.05 * bytes[0] && bytes[1] < 1.4 * bytes[0]);
}

/* Eight tokens in two layers of a trace: ids as bytes, and their index. */
static void write_trace(const char *folder)
{
	static const unsigned char ids[] = {0, 1, 2, 3, 0, 1, 0, 1, 4, 5, 6,
	                                    7, 0, 4, 1, 5, 0, 1, 2, 3, 0, 1,
	                                    0, 1, 4, 5, 6, 7, 0, 4, 1, 5};
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/t.bin", folder);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(ids, 1, sizeof(ids), f), sizeof(ids));
	assert_int_equal(fclose(f), 0);
	snprintf(path, sizeof(path), "%s/t.idx.csv", folder);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("# [2 layers]\ndataset,tokens,byte_offset\na,8,0\n", f);
	assert_int_equal(fclose(f), 0);
}

static void test_trace(void **state)
{
	char folder[] = "/tmp/ferry-model-XXXXXX";
	char line[256];

	(void)state;
	assert_non_null(mkdtemp(folder));
	write_trace(folder);
	snprintf(line, sizeof(line),
	         "model --trace %s/t.bin --ranks 2 --per-host 1 --tokens 2 "
	         "--hidden 8 --no-tables --json",
	         folder);
	cJSON *d = program_json_of(line, "ferry-model-1");

	assert_int_equal(
		program_number(cJSON_GetObjectItem(d, "meta"), "trace_steps"),
		4);
	assert_int_equal(program_number(row_of(d, 0), "experts"), 8);
	assert_int_equal(program_number(row_of(d, 0), "topk"), 2);
	/* Of four tokens in each step and layer the last has both ranks, and
	 * is the only one that travels: 8 elements of 2 bytes. */
	assert_true(program_number(row_of(d, 0), "ranks_per_token") == 1.25);
	assert_int_equal(program_number(row_of(d, 0), "between_bytes"), 16);
	assert_int_equal(program_number(row_of(d, 1), "between_bytes"), 16);
	cJSON_Delete(d);
	snprintf(line, sizeof(line),
	         "model --trace %s/t.bin --ranks 2 --tokens 5", folder);
	program_refuses(line, 1,
	                "2 ranks of 5 tokens need 10 tokens, it has 8");
	snprintf(line, sizeof(line), "rm -r %s", folder);
	assert_int_equal(system(line), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_document),
		cmocka_unit_test(test_bench_model),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_measure),
		cmocka_unit_test(test_trace),
		cmocka_unit_test(test_drawn),
		cmocka_unit_test(test_ferry_counts_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
