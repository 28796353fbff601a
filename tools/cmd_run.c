/* SPDX-License-Identifier: Apache-2.0 */
/* ferry run: a program as N ranks on this host. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bind.h"
#include "commands.h"
#include "job.h"
#include "opt.h"

enum run_bind { RUN_BIND_NONE, RUN_BIND_CORE };

struct run_options {
	int64_t n_ranks;
	int bind;
	bool tag;
	int64_t grace_ms;
	int64_t per_host;
};

static const char *const bind_names[] = {"none", "core", NULL};
static const struct opt options[] = {
	{"ranks", 'n', OPT_INT, offsetof(struct run_options, n_ranks), "N", "2",
         1, JOB_MAX_RANKS, NULL, "number of ranks to start"},
	{"tag", 't', OPT_FLAG, offsetof(struct run_options, tag), NULL, NULL, 0,
         0, NULL, "prefix every line of output with its rank"},
	{"bind", 'b', OPT_CHOICE, offsetof(struct run_options, bind), "TO",
         "none", 0, 0, bind_names,
         "CPUs of a rank; core: one of its own, where there are enough"},
	{"grace-ms", 'g', OPT_INT, offsetof(struct run_options, grace_ms), "MS",
         "5000", 0, 3600000, NULL,
         "milliseconds that the others have to end by themselves when a rank "
         "has failed"},
	{"ranks-per-host", 0, OPT_INT, offsetof(struct run_options, per_host),
         "N", NULL, 1, JOB_MAX_RANKS, NULL,
         "for tests: every N ranks pretend to be a host of their own; sets "
         "FERRY_RANKS_PER_HOST"},
	{0},
};

static const struct opt_command command = {
	.name = "ferry run",
	.summary = "start a program as N ranks on this host",
	.operands = "[--] PROGRAM [ARGUMENT...]",
	.options = options,
	.examples =
		"  ferry run -n 4 -- ./my-engine --layers 2\n"
		"  ferry run -n 4 --ranks-per-host 2 -- ferry info --world -f "
		"shm+wire\n"
		"  ferry run -n 2 --tag -- sh -c 'echo $FERRY_RANK'\n",
};

struct start {
	char **words;
	int *cpus; /* [n_ranks], NULL: not bound */
};

/* Shells' convention: 127 not found, 126 found and not executable. */
static int execute(void *arg, int32_t rank)
{
	const struct start *start = arg;
	char **const words = start->words;

	if (start->cpus)
		bind_to(start->cpus[rank]);
	execvp(words[0], words);
	const int error = errno;

	if (rank == 0)
		fprintf(stderr, "ferry run: cannot execute %s: %s\n", words[0],
		        strerror(error));
	return error == ENOENT ? 127 : 126;
}

static void pretend_hosts(int64_t per_host)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, per_host);
	if (per_host)
		setenv("FERRY_RANKS_PER_HOST", text, 1);
}

int cmd_run(int argc, char **argv)
{
	struct run_options o = {0};
	int first;
	const int status = opt_parse(&command, argc, argv, &o, &first);

	if (status != OPT_GO_ON)
		return status;
	if (first == argc)
		return opt_complain(&command, "no program given");
	pretend_hosts(o.per_host);
	struct start start = {
		argv + first,
		o.bind == RUN_BIND_CORE ? bind_plan((int32_t)o.n_ranks) : NULL,
	};
	const struct job_config config = {
		.name = command.name,
		.n_ranks = (int32_t)o.n_ranks,
		.tag = o.tag,
		.grace_ms = o.grace_ms,
		.child = execute,
		.arg = &start,
	};
	const int end = job_run(&config);

	free(start.cpus);
	return end;
}
