/* SPDX-License-Identifier: Apache-2.0 */
/* ferry plan: what it reads, what it says, and that its output is its input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_cmocka.h"
#include "program.h"

static void write_file(const char *name, const char *text)
{
	FILE *const f = fopen(name, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static cJSON *plan(const char *options)
{
	char line[1024];

	snprintf(line, sizeof(line), "plan %s --json", options);
	return program_json_of(line, "ferry-plan-1");
}

static void assert_array(const cJSON *o, const char *name, int n,
                         const int *wanted)
{
	const cJSON *const array = cJSON_GetObjectItem(o, name);

	assert_int_equal(cJSON_GetArraySize(array), n);
	for (int i = 0; i < n; i++)
		assert_int_equal(cJSON_GetArrayItem(array, i)->valueint,
		                 wanted[i]);
}

/* 10 10 1 1 on two ranks: one swap makes 11 and 11. */
static void test_one_swap(void **state)
{
	(void)state;
	write_file("plan_loads.csv", "# tokens\nloads,10,10,1,1\n");
	cJSON *const o = plan("--loads plan_loads.csv --ranks 2");
	const cJSON *const move =
		cJSON_GetArrayItem(cJSON_GetObjectItem(o, "moves"), 0);

	assert_array(o, "rank_loads_before", 2, (int[]){20, 2});
	assert_array(o, "rank_loads_after", 2, (int[]){11, 11});
	assert_int_equal((int)program_number(o, "load_before"), 20);
	assert_int_equal((int)program_number(o, "load_after"), 11);
	assert_int_equal((int)program_number(o, "bound"), 11);
	assert_int_equal((int)program_number(o, "total"), 22);
	assert_true(program_number(o, "ratio_after") == 1);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(o, "moves")),
	                 1);
	assert_string_equal(program_text(move, "kind"), "swap");
	assert_int_equal((int)program_number(move, "from_rank"), 0);
	assert_int_equal((int)program_number(move, "to_rank"), 1);
	assert_int_equal((int)program_number(move, "gain"), 9);
	assert_true(*program_text(move, "why"));
	assert_int_equal(strlen(program_text(o, "hash")), 16);
	cJSON_Delete(o);
	unlink("plan_loads.csv");
}

/* The same loads as CSV, as JSON and as a table give the same plan. */
static void test_forms(void **state)
{
	static const char *const lines[] = {
		"--loads plan_forms.csv --ranks 4",
		"--loads plan_forms.json --ranks 4",
		"--loads plan_table.csv --ranks 4 --step 1 --layer 0"};
	char hash[3][20];

	(void)state;
	write_file("plan_forms.csv", "7,90,3,40,5,60,2,1\n");
	write_file("plan_forms.json", "{\"loads\": [7, 90, 3, 40, 5, 60, 2, "
	                              "1]}");
	write_file("plan_table.csv", "task,layer,e0,e1,e2,e3,e4,e5,e6,e7\n"
	                             "a,0,1,1,1,1,1,1,1,1\n"
	                             "b,0,7,90,3,40,5,60,2,1\n");
	for (int i = 0; i < 3; i++) {
		cJSON *const o = plan(lines[i]);

		snprintf(hash[i], sizeof(hash[i]), "%s",
		         program_text(o, "hash"));
		cJSON_Delete(o);
	}
	assert_string_equal(hash[0], hash[1]);
	assert_string_equal(hash[0], hash[2]);
	unlink("plan_forms.csv");
	unlink("plan_forms.json");
	unlink("plan_table.csv");
}

/* What --out writes is what --placement reads: nothing is left to gain. */
static void test_placement_round_trip(void **state)
{
	const char *const loads = "--generate lognormal:1.4 --experts 32 ";
	char line[512];

	(void)state;
	snprintf(line, sizeof(line), "%s--ranks 4 --swaps 2 --out plan_out.txt",
	         loads);
	cJSON *const first = plan(line);

	snprintf(line, sizeof(line), "%s--placement plan_out.txt --swaps 0",
	         loads);
	cJSON *const second = plan(line);

	assert_true(program_number(second, "load_before") ==
	            program_number(first, "load_after"));
	assert_string_equal(program_text(second, "placement_hash_before"),
	                    program_text(first, "placement_hash"));
	assert_string_equal(program_text(second, "placement_hash"),
	                    program_text(first, "placement_hash"));
	assert_true(program_number(second, "ranks") == 4);
	assert_int_equal(
		cJSON_GetArraySize(cJSON_GetObjectItem(second, "moves")), 0);
	cJSON_Delete(first);
	cJSON_Delete(second);
	unlink("plan_out.txt");
}

static void test_slots_of_the_loads(void **state)
{
	(void)state;
	write_file("plan_slots.csv", "10,10,1,1\nslot_expert,0,2,1,3\n");
	cJSON *const o = plan("--loads plan_slots.csv --ranks 2");

	assert_array(o, "rank_loads_before", 2, (int[]){11, 11});
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(o, "moves")),
	                 0);
	cJSON_Delete(o);
	unlink("plan_slots.csv");
}

/* A rank of half the speed is as full as one of twice its load. */
static void test_speed(void **state)
{
	(void)state;
	write_file("plan_speed.csv", "10,10,5,5\n");
	cJSON *const o = plan("--loads plan_speed.csv --ranks 2 --speed "
	                      "1000,500 --swaps 0");

	assert_int_equal((int)program_number(o, "load_before"), 20);
	cJSON_Delete(o);
	unlink("plan_speed.csv");
}

/* More ranks than a list of options has. */
static void test_speed_of_many(void **state)
{
	char line[1024] = "--generate lognormal:1 --ranks 100 --swaps 0 "
			  "--speed 500";

	(void)state;
	for (int r = 1; r < 100; r++)
		strcat(line, ",500");
	cJSON *const o = plan(line);

	assert_int_equal((int)program_number(o, "ranks"), 100);
	assert_true(program_number(o, "load_before") > 10000);
	cJSON_Delete(o);
}

/* Three bytes that editors put first. */
static void test_byte_order_mark(void **state)
{
	(void)state;
	write_file("plan_mark.csv", "\xef\xbb\xbf"
	                            "10,10,1,1\n");
	cJSON *const o = plan("--loads plan_mark.csv --ranks 2");

	assert_int_equal((int)program_number(o, "load_after"), 11);
	cJSON_Delete(o);
	unlink("plan_mark.csv");
}

/* 9 MiB at 5 us + 1/365 GB/s take some 31 us: a window of 20 is too short. */
static void test_budget(void **state)
{
	const char *const line = "--generate lognormal:1.4 --experts 32 "
				 "--ranks 4 --expert-bytes 9m --window-us %d";
	char options[512];
	double last = 1e18;

	(void)state;
	for (int us = 20; us <= 80; us += 30) {
		snprintf(options, sizeof(options), line, us);
		cJSON *const o = plan(options);
		const cJSON *const moves = cJSON_GetObjectItem(o, "moves");

		if (us == 20)
			assert_int_equal(cJSON_GetArraySize(moves), 0);
		else
			assert_true(program_number(cJSON_GetArrayItem(moves, 0),
			                           "cost_ns") <= us * 1000);
		assert_true(program_number(o, "load_after") < last || us == 20);
		last = program_number(o, "load_after");
		cJSON_Delete(o);
	}
}

/* One line says why nothing moves. */
static void test_why_nothing(void **state)
{
	static const char *const cases[][2] = {
		{"", "why       the fullest rank is at the bound"},
		{"--swaps 0", "neither swaps nor copies are allowed"},
		{"--threshold 3", "max/mean is below the threshold of 3.0000"},
		{"--window-us 10 --expert-bytes 9m",
	         "the smallest transfer takes 33.3 us, the window is 10.0 us"},
	};
	char line[256];

	(void)state;
	write_file("plan_why.csv", "90,1,1,1\n");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(line, sizeof(line),
		         "plan --loads plan_why.csv --ranks 2 %s", cases[i][0]);
		struct program p = program_run(line);

		assert_int_equal(p.status, 0);
		if (!strstr(p.out, cases[i][1]))
			fail_msg("%s: %s", line, p.out);
		program_free(&p);
	}
	unlink("plan_why.csv");
}

/* Even loads gain nothing by copies; --fill makes them. */
static void test_fill(void **state)
{
	const char *const lines[] = {
		"--loads plan_fill.csv --ranks 2 --copies 1",
		"--loads plan_fill.csv --ranks 2 --copies 1 --fill"};

	(void)state;
	write_file("plan_fill.csv", "6,4,7,3\n");
	for (int i = 0; i < 2; i++) {
		cJSON *const o = plan(lines[i]);
		const cJSON *const moves = cJSON_GetObjectItem(o, "moves");
		const cJSON *move;

		assert_int_equal(cJSON_GetArraySize(moves), i ? 2 : 0);
		cJSON_ArrayForEach(move, moves)
		{
			assert_string_equal(program_text(move, "kind"), "copy");
			assert_int_equal((int)program_number(move, "gain"), 0);
		}
		if (i) /* the one with most tokens first */
			assert_int_equal(
				(int)program_number(
					cJSON_GetArrayItem(moves, 0), "expert"),
				2);
		cJSON_Delete(o);
	}
	unlink("plan_fill.csv");
}

static void test_threshold(void **state)
{
	cJSON *const o = plan("--generate lognormal:0.5 --experts 32 --ranks 4 "
	                      "--threshold 9.5");

	(void)state;
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(o, "moves")),
	                 0);
	cJSON_Delete(o);
}

static void test_text(void **state)
{
	struct program p;

	(void)state;
	write_file("plan_text.csv", "10,10,1,1\n");
	p = program_run("plan --loads plan_text.csv --ranks 2 --out -");
	assert_int_equal(p.status, 0);
	assert_string_equal(p.err, "");
	assert_contains(p.out,
	                "plan_text.csv, layer 0: 4 experts in 4 slots of "
	                "2 ranks\n");
	assert_contains(p.out, "   0           20 ######################## "
	                       "          11 ##############");
	assert_contains(p.out, "max/mean  1.8182 -> 1.0000\n");
	assert_contains(p.out, "bound     1.0000, gap 0.00 %\n");
	assert_contains(p.out, "\nplan      1 moves in ");
	assert_contains(p.out, "\nhash      ");
	assert_contains(p.out, "\nferry placement 1\nexperts 4 ranks 2 ");
	program_free(&p);
	unlink("plan_text.csv");
}

/* Explanations fit a terminal, and no line ends in a blank. */
static void test_text_is_narrow(void **state)
{
	struct program p =
		program_run("plan --generate lognormal:1.4 --swaps 4 "
	                    "--copies 1 --window-us 200 "
	                    "--expert-bytes 9m");
	int n_why = 0;

	(void)state;
	for (char *line = strtok(p.out, "\n"); line;
	     line = strtok(NULL, "\n")) {
		assert_true(strlen(line) <= 79);
		assert_true(line[strlen(line) - 1] != ' ');
		n_why += !strncmp(line, "  Why: ", 7);
	}
	assert_true(n_why > 1);
	program_free(&p);
}

/*
 * 256 moves are explained in a second or so; settled after each move before
 * the one that is explained, it were minutes, and program_run gives up.
 */
#ifdef __SANITIZE_ADDRESS__
#define MANY "2048 --ranks 256"
#else
#define MANY "8192 --ranks 1024"
#endif

static void test_text_of_many(void **state)
{
	struct program p = program_run(
		"plan --generate lognormal:2 --copies 8 --experts " MANY);

	(void)state;
	assert_int_equal(p.status, 0);
	assert_contains(p.out, "\nplan      256 moves in ");
	assert_contains(p.out, "\n  Layer 0, move 256 of 256: ");
	program_free(&p);
}

/* Another placement than the loads, or the options, are for. */
static void test_other_placement(void **state)
{
	(void)state;
	write_file("plan_fit.txt", "ferry placement 1\n"
	                           "experts 4 ranks 2 split exact version 1\n"
	                           "0: 0 1\n1: 2 3\n");
	write_file("plan_cut.txt", "ferry placement 1\n"
	                           "experts 2 ranks 2 split exact version 1\n"
	                           "0: 0\n1: 1");
	program_refuses("plan --generate lognormal:1 --experts 4 --placement "
	                "plan_fit.txt --ranks 4",
	                2,
	                "--placement plan_fit.txt has 2 ranks, --ranks is 4");
	program_refuses(
		"plan --generate lognormal:1 --placement plan_fit.txt", 2,
		"--placement plan_fit.txt has 4 experts, the loads have 128");
	program_refuses("plan --generate lognormal:1 --placement plan_cut.txt",
	                1,
	                "plan_cut.txt: placement text: line 4, column 5: "
	                "expected a new "
	                "line, found the end");
	unlink("plan_fit.txt");
	unlink("plan_cut.txt");
}

static void test_refusals(void **state)
{
	(void)state;
	write_file("plan_bad.csv", "10,x\n");
	write_file("plan_place.txt", "ferry placement 1\n"
	                             "experts 4 ranks 2 split exact version 1\n"
	                             "0: 0 1\n1: 2 2\n");
	program_refuses("plan", 2,
	                "ferry plan: give a file of loads, or --generate");
	program_refuses("plan --loads plan_bad.csv", 1,
	                "ferry plan: plan_bad.csv:1: column 2 (load) is 'x', "
	                "allowed is "
	                "a whole number 0..1099511627776");
	program_refuses("plan --generate lognormal:1 --experts 4 --ranks 8", 2,
	                "--ranks is 8, allowed is at most the 4 experts");
	program_refuses("plan --generate lognormal:1 --speed 1,2", 2,
	                "--speed has 2 numbers, there are 8 ranks");
	program_refuses("plan --generate maps:/nowhere", 1,
	                "ferry plan: /nowhere: No such file or directory");
	program_refuses(
		"plan --generate lognormal:1 --placement plan_place.txt", 1,
		"ferry plan: plan_place.txt: ");
	program_refuses("plan --loads plan_bad.csv --generate zipf:2", 2,
	                "give a file of loads, or --generate");
	program_refuses(
		"plan --generate foo", 2,
		"ferry plan: --generate is 'foo', allowed are lognormal:0..5, "
		"zipf:1..128, maps:FOLDER");
	program_refuses(
		"plan --generate lognormal:1 --out - --json", 2,
		"--out - does not go with --json, which has the placement");
	program_refuses(
		"plan --generate lognormal:1 --gamma 100.1 --rule sorted", 2,
		"--gamma is '100.1', allowed is a number 0..100");
	program_refuses("plan --generate lognormal:1 --speed 1,1,1,x,1,1,1,1",
	                2,
	                "--speed of rank 3 is 'x', allowed is a whole number "
	                "1..1000000");
	unlink("plan_bad.csv");
	unlink("plan_place.txt");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_swap),
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_placement_round_trip),
		cmocka_unit_test(test_slots_of_the_loads),
		cmocka_unit_test(test_speed),
		cmocka_unit_test(test_speed_of_many),
		cmocka_unit_test(test_byte_order_mark),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_why_nothing),
		cmocka_unit_test(test_fill),
		cmocka_unit_test(test_threshold),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_text_is_narrow),
		cmocka_unit_test(test_text_of_many),
		cmocka_unit_test(test_other_placement),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
