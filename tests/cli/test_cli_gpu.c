/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench and check with --device cuda: what they refuse, and on a machine with
 * GPUs a few tiny shapes.
 */
#include <string.h>

#include "cli_cmocka.h"
#include "program.h"

static void test_options_of_gpus(void **state)
{
	(void)state;
	program_refuses("bench --sweep", 2, "--sweep needs --device cuda");
	program_refuses("bench --path lines", 2, "--path needs --device cuda");
	program_refuses("bench --max-sms 8", 2,
	                "--max-sms needs --device cuda");
	program_refuses("bench --no-graph", 2,
	                "--no-graph needs --device cuda");
	program_refuses("bench --figures all", 2,
	                "--figures needs --device cuda");
	program_refuses("bench --baseline nccl", 2, "nccl needs --device cuda");
	program_refuses("bench --device gpu", 2, "allowed is cpu, cuda");
}

static void test_options_that_clash(void **state)
{
	(void)state;
	program_refuses("bench --device cuda --open", 2,
	                "--open is for --device cpu");
	program_refuses("bench --device cuda --baseline mpi", 2,
	                "nccl and nvshmem are for cuda");
	program_refuses("bench --device cuda --graph --no-graph", 2,
	                "--graph and --no-graph exclude each other");
	program_refuses("bench --device cuda --threads --processes", 2,
	                "--threads and --processes exclude each other");
}

/* Without GPUs: a refusal with the reason. With them: nothing wrong. */
static void run_or_refuse(const char *line)
{
	struct program p = program_run(line);

	if (p.status == 77)
		assert_contains(p.err, "--device cuda: ");
	else if (p.status != 0 || !strstr(p.out, "# 0 wrong\n"))
		fail_msg("%s: status %d: %s%s", line, p.status, p.out, p.err);
	program_free(&p);
}

static void test_bench(void **state)
{
	(void)state;
	run_or_refuse("bench --device cuda --tokens 3 --hidden 256 --topk 2 "
	              "--experts 6 --iters 3 --rounds 1 --dtype fp8");
	run_or_refuse("bench --device cuda --tokens 5 --hidden 200 --topk 3 "
	              "--experts 7 --iters 3 --rounds 1 --presummed --no-graph "
	              "--processes");
	run_or_refuse("bench --device cuda --tokens 4 --hidden 256 --topk 2 "
	              "--experts 6 --iters 3 --rounds 1 --split 5");
}

static void test_check(void **state)
{
	(void)state;
	run_or_refuse("check --device cuda --seconds 0");
	run_or_refuse("check --device cuda --seconds 0 --processes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options_of_gpus),
		cmocka_unit_test(test_options_that_clash),
		cmocka_unit_test(test_bench),
		cmocka_unit_test(test_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
