/* SPDX-License-Identifier: Apache-2.0 */
/* What the variables of launchers say about rank, size and meeting place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "boot/launch.h"

/* Every variable that is looked at; none is set when a test begins. */
static const char *const variables[] = {
	"FERRY_RANK",
	"FERRY_SIZE",
	"FERRY_RENDEZVOUS",
	"RANK",
	"WORLD_SIZE",
	"LOCAL_WORLD_SIZE",
	"MASTER_ADDR",
	"MASTER_PORT",
	"TORCHELASTIC_RUN_ID",
	"TORCHELASTIC_RESTART_COUNT",
	"OMPI_COMM_WORLD_RANK",
	"OMPI_COMM_WORLD_SIZE",
	"OMPI_COMM_WORLD_LOCAL_SIZE",
	"OMPI_MCA_ess_base_jobid",
	"PMIX_NAMESPACE",
	"PMI_RANK",
	"PMI_SIZE",
	"PMI_PORT",
	"MPI_LOCALNRANKS",
	"SLURM_PROCID",
	"SLURM_NTASKS",
	"SLURM_STEP_NUM_TASKS",
	"SLURM_STEP_NUM_NODES",
	"SLURM_NNODES",
	"SLURM_JOB_NUM_NODES",
	"SLURM_JOB_ID",
	"SLURM_STEP_ID",
	"SLURM_STEP_NODELIST",
	"SLURM_JOB_NODELIST",
	"SLURM_NODELIST",
};

static int clear(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		unsetenv(variables[i]);
	return 0;
}

/* "NAME=VALUE NAME=VALUE ..." into the environment, nothing else in it. */
static void set_all(const char *pairs)
{
	char copy[512];
	char *rest = copy;
	char *pair;

	clear(NULL);
	snprintf(copy, sizeof(copy), "%s", pairs);
	while ((pair = strsep(&rest, " "))) {
		char *equal = strchr(pair, '=');

		*equal = 0;
		setenv(pair, equal + 1, 1);
	}
}

static enum ferry_status read_launch(const char *pairs,
                                     struct ferry_launch *launch)
{
	struct ferry_ctx ctx;

	set_all(pairs);
	assert_int_equal(ferry_ctx_init(&ctx, NULL), FERRY_OK);
	const enum ferry_status status = ferry_launch_read(&ctx, launch);
	ferry_ctx_destroy(&ctx);
	return status;
}

static struct ferry_launch read_good(const char *pairs)
{
	struct ferry_launch launch;

	if (read_launch(pairs, &launch) != FERRY_OK)
		fail_msg("'%s': %s", pairs, ferry_last_error());
	return launch;
}

static void assert_launch(const char *pairs, const char *name, int32_t rank,
                          int32_t n_ranks, const char *address)
{
	const struct ferry_launch launch = read_good(pairs);

	assert_string_equal(launch.name, name);
	assert_int_equal(launch.rank, rank);
	assert_int_equal(launch.n_ranks, n_ranks);
	assert_string_equal(launch.address, address);
}

static void assert_refused(const char *pairs, const char *text)
{
	struct ferry_launch launch;

	assert_int_equal(read_launch(pairs, &launch), FERRY_INVAL);
	if (!strstr(ferry_last_error(), text))
		fail_msg("'%s' does not contain '%s'", ferry_last_error(),
		         text);
}

static void test_alone(void **state)
{
	struct ferry_launch launch;

	(void)state;
	clear(NULL);
	struct ferry_ctx ctx;
	assert_int_equal(ferry_ctx_init(&ctx, NULL), FERRY_OK);
	assert_int_equal(ferry_launch_read(&ctx, &launch), FERRY_OK);
	ferry_ctx_destroy(&ctx);
	assert_null(launch.name);
	assert_int_equal(launch.rank, 0);
	assert_int_equal(launch.n_ranks, 1);
	assert_string_equal(launch.address, "");
	/* One of a pair says nothing. */
	launch = read_good("RANK=3 SLURM_NTASKS=4 PMI_RANK=2");
	assert_int_equal(launch.n_ranks, 1);
}

static void test_ferry_run(void **state)
{
	(void)state;
	assert_launch("FERRY_RANK=2 FERRY_SIZE=4 FERRY_RENDEZVOUS=unix:x",
	              "ferry run", 2, 4, "unix:x");
	assert_launch("FERRY_RANK=0 FERRY_SIZE=1", "ferry run", 0, 1, "");
	/* Before everything else. */
	assert_launch("FERRY_RANK=2 FERRY_SIZE=4 FERRY_RENDEZVOUS=h:5 RANK=0 "
	              "WORLD_SIZE=2 MASTER_ADDR=m",
	              "ferry run", 2, 4, "h:5");
	assert_refused("FERRY_RANK=2", "FERRY_SIZE is -1");
	assert_refused("FERRY_SIZE=2", "FERRY_RANK is -1");
	assert_refused("FERRY_RANK=4 FERRY_SIZE=4",
	               "boot: FERRY_RANK is 4, beside FERRY_SIZE it must be "
	               "0..3");
	assert_refused("FERRY_RANK=0 FERRY_SIZE=100000",
	               "boot: FERRY_SIZE is 100000, beside FERRY_RANK it must "
	               "be 1..65536");
	assert_refused("FERRY_RANK=1 FERRY_SIZE=2",
	               "FERRY_RENDEZVOUS is not: set it to HOST:PORT or "
	               "unix:NAME");
}

static void test_torchrun(void **state)
{
	(void)state;
	assert_launch("RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 "
	              "MASTER_ADDR=node1 MASTER_PORT=29500",
	              "torchrun", 1, 4, "node1:29501");
	assert_launch("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
	              "MASTER_PORT=65535",
	              "torchrun", 0, 2, "127.0.0.1:65534");
	assert_launch("RANK=1 WORLD_SIZE=4 MASTER_ADDR=fe80::1 "
	              "MASTER_PORT=1",
	              "torchrun", 1, 4, "[fe80::1]:2");
	assert_launch("RANK=1 WORLD_SIZE=4 MASTER_ADDR=x MASTER_PORT=1 "
	              "FERRY_RENDEZVOUS=here:7",
	              "torchrun", 1, 4, "here:7");
	assert_launch("RANK=0 WORLD_SIZE=1 MASTER_ADDR=x MASTER_PORT=1",
	              "torchrun", 0, 1, "");
	assert_refused("RANK=4 WORLD_SIZE=4",
	               "boot: RANK is '4', allowed is a whole number 0..3");
	assert_refused("RANK=x WORLD_SIZE=4", "boot: RANK is 'x'");
	assert_refused("RANK=0 WORLD_SIZE=0",
	               "boot: WORLD_SIZE is '0', allowed is a whole number "
	               "1..65536");
	assert_refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=x MASTER_PORT=70000",
	               "boot: MASTER_PORT is '70000'");
	assert_refused("RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2",
	               "boot: torchrun runs 4 ranks on several hosts: set "
	               "FERRY_RENDEZVOUS=HOST:PORT, or MASTER_ADDR");
}

/* All ranks of one host find the same name, other jobs another. */
static void assert_one_host(const char *rank_0, const char *rank_1,
                            const char *other_job)
{
	const struct ferry_launch a = read_good(rank_0);
	const struct ferry_launch b = read_good(rank_1);
	const struct ferry_launch c = read_good(other_job);
	char start[32];

	snprintf(start, sizeof(start), "unix:ferry-%u-", (unsigned)geteuid());
	assert_memory_equal(a.address, start, strlen(start));
	assert_string_equal(a.address, b.address);
	assert_string_not_equal(a.address, c.address);
	assert_int_equal(a.rank, 0);
	assert_int_equal(b.rank, 1);
}

static void test_one_host(void **state)
{
	(void)state;
	assert_one_host("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=x "
	                "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none",
	                "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=x "
	                "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none",
	                "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=x "
	                "MASTER_PORT=29501 TORCHELASTIC_RUN_ID=none");
	assert_one_host(
		"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 "
		"OMPI_COMM_WORLD_LOCAL_SIZE=3 OMPI_MCA_ess_base_jobid=77",
		"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 "
		"OMPI_COMM_WORLD_LOCAL_SIZE=3 OMPI_MCA_ess_base_jobid=77",
		"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 "
		"OMPI_COMM_WORLD_LOCAL_SIZE=3 OMPI_MCA_ess_base_jobid=78");
	/* MPICH names no job: the parent process stands for it. */
	assert_one_host("PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2",
	                "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2",
	                "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 "
	                "PMI_PORT=h:9");
	assert_one_host("PMI_RANK=0 PMI_SIZE=2", "PMI_RANK=1 PMI_SIZE=2",
	                "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2");
	assert_one_host("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_NNODES=1 "
	                "SLURM_JOB_ID=5 SLURM_STEP_ID=0",
	                "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NNODES=1 "
	                "SLURM_JOB_ID=5 SLURM_STEP_ID=0",
	                "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NNODES=1 "
	                "SLURM_JOB_ID=5 SLURM_STEP_ID=1");
	assert_one_host("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=5 "
	                "SLURM_JOB_NODELIST=node7",
	                "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=5 "
	                "SLURM_JOB_NODELIST=node7",
	                "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=6 "
	                "SLURM_JOB_NODELIST=node7");
}

static void test_several_hosts(void **state)
{
	(void)state;
	assert_launch("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 "
	              "OMPI_COMM_WORLD_LOCAL_SIZE=2 FERRY_RENDEZVOUS=h:1",
	              "Open MPI", 2, 4, "h:1");
	assert_launch("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 "
	              "OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_ADDR=h "
	              "MASTER_PORT=7",
	              "Open MPI", 2, 4, "h:8");
	assert_refused("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 "
	               "OMPI_COMM_WORLD_LOCAL_SIZE=2",
	               "boot: Open MPI runs 4 ranks on several hosts");
	assert_refused("PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=1",
	               "boot: PMI runs 4 ranks on several hosts");
}

/* The first host, and a port that all steps of a job do not share. */
static void test_slurm(void **state)
{
	const char *pairs =
		"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_JOB_ID=12 "
		"SLURM_STEP_ID=0 SLURM_JOB_NODELIST=gpu[07-08]";
	const struct ferry_launch launch = read_good(pairs);
	struct ferry_address address;

	(void)state;
	assert_string_equal(launch.name, "SLURM");
	assert_int_equal(launch.rank, 3);
	assert_int_equal(launch.n_ranks, 4);
	assert_int_equal(ferry_address_parse(NULL, launch.address, &address),
	                 FERRY_OK);
	assert_string_equal(address.host, "gpu07");
	assert_in_range(atoi(address.port), 10000, 29999);
	assert_false(address.is_local);

	const struct ferry_launch other = read_good(
		"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_JOB_ID=12 "
		"SLURM_STEP_ID=1 SLURM_JOB_NODELIST=gpu[07-08]");
	assert_string_not_equal(launch.address, other.address);
	/* The step counts, where it is smaller than the job. */
	const struct ferry_launch step = read_good(
		"SLURM_PROCID=1 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=2 "
		"SLURM_NNODES=4 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=12 "
		"SLURM_JOB_NODELIST=a[1-4] SLURM_STEP_NODELIST=a[3-4]");
	assert_int_equal(step.n_ranks, 2);
	assert_memory_equal(step.address, "a3:", 3);
	/* PMI below SLURM: SLURM knows where the first host is. */
	const struct ferry_launch pmi =
		read_good("PMI_RANK=1 PMI_SIZE=4 SLURM_PROCID=1 SLURM_NNODES=2 "
	                  "SLURM_JOB_ID=12 SLURM_JOB_NODELIST=b[1-2]");
	assert_string_equal(pmi.name, "PMI");
	assert_memory_equal(pmi.address, "b1:", 3);
	assert_refused("SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_NNODES=2 "
	               "SLURM_JOB_NODELIST=gpu[1",
	               "boot: 'gpu[1' is no SLURM node list");
}

static void test_nodelist(void **state)
{
	static const char *const good[][2] = {
		{"n1", "n1"},
		{"n1,n2", "n1"},
		{"n[1-3]", "n1"},
		{"n[003-010,12],m[1-2]", "n003"},
		{"n[5,7-9]", "n5"},
		{"rack[2-3]n[4-5]", "rack2n4"},
		{"n[1-2]-ib", "n1-ib"},
		{"n[1-2]-ib,x", "n1-ib"},
		{"a-b.c.org", "a-b.c.org"},
	};
	static const char *const bad[] = {"",   ",", "n[", "n[]",   "n[1",
	                                  "n]", "[", "]",  "n[-3]", "n[,]"};
	char host[32];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_true(
			ferry_nodelist_first(good[i][0], host, sizeof(host)));
		assert_string_equal(host, good[i][1]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (ferry_nodelist_first(bad[i], host, sizeof(host)))
			fail_msg("'%s' gave '%s'", bad[i], host);
	assert_true(ferry_nodelist_first("abc", host, 4));
	assert_false(ferry_nodelist_first("abc", host, 3));
}

static void test_addresses(void **state)
{
	static const char *const bad[] = {
		"",     "x",    "x:",    "x:0",     "x:65536",
		"x:1x", ":5",   "unix:", "a:b:5",   "[::1]",
		"x:-1", "x: 5", "[]:5",  "x:000001"};
	struct ferry_address a;
	char text[400];

	(void)state;
	assert_int_equal(ferry_address_parse(NULL, "[::1]:5", &a), FERRY_OK);
	assert_string_equal(a.host, "::1");
	assert_string_equal(a.port, "5");
	assert_true(a.is_local);
	assert_int_equal(ferry_address_parse(NULL, "localhost:65535", &a),
	                 FERRY_OK);
	assert_true(a.is_local);
	assert_int_equal(ferry_address_parse(NULL, "127.1.2.3:1", &a),
	                 FERRY_OK);
	assert_true(a.is_local);
	/* A name that only looks like one. */
	assert_int_equal(ferry_address_parse(NULL, "127.example.org:1", &a),
	                 FERRY_OK);
	assert_false(a.is_local);
	assert_int_equal(ferry_address_parse(NULL, "unix:a:b", &a), FERRY_OK);
	assert_true(a.is_unix);
	assert_true(a.is_local);
	assert_string_equal(a.host, "a:b");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (ferry_address_parse(NULL, bad[i], &a) != FERRY_INVAL)
			fail_msg("'%s' is accepted", bad[i]);
	memset(text, 'x', sizeof(text));
	strcpy(text + 300, ":5");
	assert_int_equal(ferry_address_parse(NULL, text, &a), FERRY_INVAL);
	memcpy(text, "unix:", 5);
	text[106] = 0;
	assert_int_equal(ferry_address_parse(NULL, text, &a), FERRY_INVAL);
	text[105] = 0;
	assert_int_equal(ferry_address_parse(NULL, text, &a), FERRY_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_alone, clear),
		cmocka_unit_test_teardown(test_ferry_run, clear),
		cmocka_unit_test_teardown(test_torchrun, clear),
		cmocka_unit_test_teardown(test_one_host, clear),
		cmocka_unit_test_teardown(test_several_hosts, clear),
		cmocka_unit_test_teardown(test_slurm, clear),
		cmocka_unit_test_teardown(test_nodelist, clear),
		cmocka_unit_test_teardown(test_addresses, clear),
	};

	return cmocka_run_group_tests(tests, clear, NULL);
}
