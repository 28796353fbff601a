/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of test programs that run on a fabric. */
#include "run_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabrics.h"
#include "gpus.h"
#include "hosted.h"
#include "rank_memory.h"

struct run_args run_args = {.fabric = "local", .streams = 1};

_Noreturn static void usage(const char *program, const char *what)
{
	fprintf(stderr, "%s: %s?\n", program, what);
	exit(2);
}

static enum ferry_path path_of(const char *program, const char *name)
{
	if (!strcmp(name, "lines"))
		return FERRY_PATH_LINES;
	if (!strcmp(name, "chunks"))
		return FERRY_PATH_CHUNKS;
	if (!strcmp(name, "auto"))
		return FERRY_PATH_AUTO;
	usage(program, name);
}

static int streams_of(const char *program, const char *number)
{
	const int n = atoi(number);

	if (n < 1 || n > RANK_MEMORY_STREAMS)
		usage(program, number);
	return n;
}

/* False: no such argument. */
static bool with_value(const char *program, const char *name, const char *value)
{
	if (!strcmp(name, "--fabric"))
		run_args.fabric = value;
	else if (!strcmp(name, "--options"))
		run_args.options = value;
	else if (!strcmp(name, "--count"))
		run_args.count = atoi(value);
	else if (!strcmp(name, "--seconds"))
		run_args.seconds = atoi(value);
	else if (!strcmp(name, "--hosts"))
		run_args.hosts = atoi(value);
	else if (!strcmp(name, "--link"))
		run_args.link = value;
	else if (!strcmp(name, "--timeout-ms"))
		run_args.timeout_ms = atoi(value);
	else if (!strcmp(name, "--ranks"))
		run_args.ranks = atoi(value);
	else if (!strcmp(name, "--gpus"))
		run_args.n_gpus = atoi(value);
	else if (!strcmp(name, "--path"))
		run_args.path = path_of(program, value);
	else if (!strcmp(name, "--streams"))
		run_args.streams = streams_of(program, value);
	else
		return false;
	return true;
}

/* Before the driver is loaded in the ranks. */
static void find_gpus(void)
{
	char reason[GPUS_REASON];
	const int32_t n = gpus_count(reason);

	if (n == 0) {
		printf("no GPU: %s\n", reason);
		exit(77);
	}
	if (run_args.n_gpus == 0 || run_args.n_gpus > n)
		run_args.n_gpus = n;
	run_args.device = FERRY_DEVICE_CUDA;
	printf("# %d GPUs: %s\n", run_args.n_gpus, reason);
	/*
	 * Streams share hardware queues, 8 by default, and a kernel that waits
	 * in one holds back what is behind it: ranks that are threads would
	 * wait for each other. 32 of them take a second more to make.
	 */
	if (run_args.kind == RANKS_THREADS)
		setenv("CUDA_DEVICE_MAX_CONNECTIONS",
		       run_args.few_ranks ? "16" : "32", 1);
}

static void find_hosts(const char *program)
{
	static struct namespaces hosts; /* to the end of the program */
	struct rough_link link = {.seed = run_args.seed};

	if (run_args.hosts < 1 || run_args.hosts > NAMESPACES_MAX)
		usage(program, "--hosts");
	if (run_args.link &&
	    sscanf(run_args.link, "%u,%u,%u,%u", &link.delay_us,
	           &link.jitter_us, &link.loss_ppm, &link.twice_ppm) != 4)
		usage(program, run_args.link);
	fabrics_need(run_args.fabric);
	namespaces_need(&hosts, run_args.hosts, run_args.link ? &link : NULL);
	hosted_use(&hosts);
}

void run_args_read(int argc, char **argv)
{
	bool seeded = false;

	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(argv[i], "--processes")) {
			run_args.kind = RANKS_PROCESSES;
			continue;
		}
		if (!strcmp(argv[i], "--any-hosts")) {
			run_args.any_hosts = true;
			continue;
		}
		if (!strcmp(argv[i], "--fused")) {
			run_args.fused = true;
			continue;
		}
		if (!value)
			usage(argv[0], argv[i]);
		if (!strcmp(argv[i], "--seed")) {
			run_args.seed = strtoull(value, NULL, 0);
			seeded = true;
		} else if (!with_value(argv[0], argv[i], value)) {
			usage(argv[0], argv[i]);
		}
		i++;
	}
	if (!strcmp(run_args.fabric, "nvshmem"))
		fabrics_need(run_args.fabric);
	if (!strncmp(run_args.fabric, "p2p", 3) ||
	    !strcmp(run_args.fabric, "nvshmem"))
		find_gpus();
	if (strstr(run_args.fabric, "ofi"))
		fabrics_need("shm+ofi"); /* is there a libfabric? */
	if (!seeded)
		run_args.seed = ranks_seed();
	if (run_args.hosts)
		find_hosts(argv[0]);
}

struct ranks run_args_ranks(int32_t n_ranks)
{
	struct ranks how = {
		.kind = run_args.kind,
		.n_ranks = n_ranks,
		.device = run_args.device,
		.n_gpus = run_args.n_gpus,
		.fabric = run_args.fabric,
		.options = run_args.options,
		.timeout_ms = RUN_SLOW ? 100000 : 30000,
		.limit_ms = RUN_SLOW ? 240000 : 60000,
	};

	/* A GPU that waits in vain costs everybody who shares it. */
	if (run_on_gpus())
		how.timeout_ms = 8000;
	if (run_args.timeout_ms)
		how.timeout_ms = run_args.timeout_ms;
	/* Who is given more time needs it to open, too. */
	if (run_args.timeout_ms > 10000)
		how.open_timeout_ms = run_args.timeout_ms;
	if (run_args.hosts)
		hosted_ranks(&how);
	return how;
}
