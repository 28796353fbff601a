/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the variables that launchers leave to their processes. */
#include "launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/bits.h"

struct launcher {
	const char *name;
	const char *rank;
	const char *size;
	const char *local_size; /* equal to size: all ranks are on one host */
	const char *job[3];     /* together they name the job */
};

/* In this order: a launcher below may have started the one above. */
static const struct launcher launchers[] = {
	{"torchrun",
         "RANK",
         "WORLD_SIZE",
         "LOCAL_WORLD_SIZE",
         {"TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}},
	{"Open MPI",
         "OMPI_COMM_WORLD_RANK",
         "OMPI_COMM_WORLD_SIZE",
         "OMPI_COMM_WORLD_LOCAL_SIZE",
         {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL}},
	{"PMI",
         "PMI_RANK",
         "PMI_SIZE",
         "MPI_LOCALNRANKS",
         {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMI_PORT"}},
	{"SLURM",
         "SLURM_PROCID",
         "SLURM_STEP_NUM_TASKS",
         NULL,
         {"SLURM_JOB_ID", "SLURM_STEP_ID", NULL}},
	{"SLURM",
         "SLURM_PROCID",
         "SLURM_NTASKS",
         NULL,
         {"SLURM_JOB_ID", "SLURM_STEP_ID", NULL}},
};
enum { N_LAUNCHERS = sizeof(launchers) / sizeof(*launchers) };

static enum ferry_status read_int(struct ferry_ctx *ctx, const char *name,
                                  int32_t low, int32_t high, int32_t *value)
{
	const char *set = getenv(name);
	const char *text = set ? set : "";
	char *end;

	errno = 0;
	const long v = strtol(text, &end, 10);
	if (end == text || *end || errno || v < low || v > high)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "boot: %s is '%.32s', allowed is a whole "
		                  "number %d..%d",
		                  name, text, low, high);
	*value = (int32_t)v;
	return FERRY_OK;
}

/* The launcher whose rank and size are both set; NULL: none. */
static const struct launcher *find_launcher(void)
{
	for (int i = 0; i < N_LAUNCHERS; i++)
		if (getenv(launchers[i].rank) && getenv(launchers[i].size))
			return &launchers[i];
	return NULL;
}

static const char *first_set(const char *const *names)
{
	for (; *names; names++)
		if (getenv(*names))
			return getenv(*names);
	return NULL;
}

static const char *slurm_nodelist(void)
{
	static const char *const names[] = {"SLURM_STEP_NODELIST",
	                                    "SLURM_JOB_NODELIST",
	                                    "SLURM_NODELIST", NULL};

	return first_set(names);
}

enum hosts { HOSTS_UNKNOWN, HOSTS_ONE, HOSTS_SEVERAL };

/* The launcher itself knows best, then SLURM below it. */
static enum hosts count_hosts(const struct launcher *l, int32_t n_ranks)
{
	static const char *const nodes[] = {"SLURM_STEP_NUM_NODES",
	                                    "SLURM_NNODES",
	                                    "SLURM_JOB_NUM_NODES", NULL};
	const char *local = l->local_size ? getenv(l->local_size) : NULL;
	const char *n_nodes = first_set(nodes);
	const char *list = slurm_nodelist();

	if (local)
		return atoi(local) == n_ranks ? HOSTS_ONE : HOSTS_SEVERAL;
	if (n_nodes)
		return atoi(n_nodes) == 1 ? HOSTS_ONE : HOSTS_SEVERAL;
	if (list)
		return strpbrk(list, "[,") ? HOSTS_SEVERAL : HOSTS_ONE;
	return HOSTS_UNKNOWN;
}

/* Equal on the ranks of a job, different for another job of this host. */
static uint64_t job_hash(const struct launcher *l)
{
	uint64_t h = hash_text(0, l->name);
	bool named = false;

	for (int i = 0; i < 3 && l->job[i]; i++) {
		const char *value = getenv(l->job[i]);

		h = hash_text(h, value ? value : "");
		named |= value != NULL;
	}
	/* Then the parent will do: the launcher's process on this host. */
	return named ? h : hash_u64(h, (uint64_t)getppid());
}

static void use_unix(const struct launcher *l, struct ferry_launch *launch)
{
	snprintf(launch->address, sizeof(launch->address),
	         "unix:ferry-%u-%016llx", (unsigned)geteuid(),
	         (unsigned long long)job_hash(l));
}

/* Below the range from which the kernel gives ports to connections. */
static int job_port(const struct launcher *l)
{
	return 10000 + (int)(job_hash(l) % 20000);
}

static enum ferry_status use_tcp(struct ferry_ctx *ctx,
                                 const struct launcher *l, const char *host,
                                 struct ferry_launch *launch)
{
	int32_t port = job_port(l);
	const bool six = strchr(host, ':') && host[0] != '[';

	if (getenv("MASTER_PORT")) {
		FERRY_TRY(read_int(ctx, "MASTER_PORT", 1, 65535, &port));
		/* The port itself belongs to the store of PyTorch. */
		port += port < 65535 ? 1 : -1;
	}
	snprintf(launch->address, sizeof(launch->address), "%s%.*s%s:%d",
	         six ? "[" : "", FERRY_ADDRESS_BYTES - 1, host, six ? "]" : "",
	         port);
	return FERRY_OK;
}

/* Do SLURM and the launcher count the ranks alike? Then rank 0 is first. */
static bool slurm_ranks(const struct ferry_launch *launch)
{
	const char *procid = getenv("SLURM_PROCID");

	return procid && atoi(procid) == launch->rank;
}

static enum ferry_status find_place(struct ferry_ctx *ctx,
                                    const struct launcher *l,
                                    struct ferry_launch *launch)
{
	const enum hosts hosts = count_hosts(l, launch->n_ranks);
	const char *master = getenv("MASTER_ADDR");
	const char *list = slurm_nodelist();
	char first[FERRY_ADDRESS_BYTES];

	if (hosts == HOSTS_ONE) {
		use_unix(l, launch);
		return FERRY_OK;
	}
	if (master && *master)
		return use_tcp(ctx, l, master, launch);
	if (list && slurm_ranks(launch)) {
		if (!ferry_nodelist_first(list, first, sizeof(first)))
			return ferry_fail(ctx, FERRY_INVAL,
			                  "boot: '%.80s' is no SLURM node list",
			                  list);
		return use_tcp(ctx, l, first, launch);
	}
	if (hosts == HOSTS_UNKNOWN) {
		use_unix(l, launch);
		return FERRY_OK;
	}
	return ferry_fail(ctx, FERRY_INVAL,
	                  "boot: %s runs %d ranks on several hosts: set "
	                  "FERRY_RENDEZVOUS=HOST:PORT, or MASTER_ADDR, to the "
	                  "host of rank 0",
	                  launch->name, launch->n_ranks);
}

/* ferry run, or a caller who sets the options. */
static enum ferry_status read_own(struct ferry_ctx *ctx,
                                  struct ferry_launch *launch)
{
	const struct ferry_options *opt = &ctx->opt;

	launch->name = "ferry run";
	if (opt->n_ranks < 1 || opt->n_ranks > FERRY_MAX_RANKS)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "boot: FERRY_SIZE is %lld, beside FERRY_RANK "
		                  "it must be 1..%d",
		                  (long long)opt->n_ranks, FERRY_MAX_RANKS);
	if (opt->rank < 0 || opt->rank >= opt->n_ranks)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "boot: FERRY_RANK is %lld, beside FERRY_SIZE "
		                  "it must be 0..%lld",
		                  (long long)opt->rank,
		                  (long long)opt->n_ranks - 1);
	launch->rank = (int32_t)opt->rank;
	launch->n_ranks = (int32_t)opt->n_ranks;
	if (launch->n_ranks > 1 && !opt->rendezvous[0])
		return ferry_fail(
			ctx, FERRY_INVAL,
			"boot: FERRY_RANK and FERRY_SIZE are set, "
			"FERRY_RENDEZVOUS is not: set it to HOST:PORT "
			"or unix:NAME");
	return FERRY_OK;
}

enum ferry_status ferry_launch_read(struct ferry_ctx *ctx,
                                    struct ferry_launch *launch)
{
	const bool own = ctx->opt.rank >= 0 || ctx->opt.n_ranks >= 0;
	const struct launcher *l = own ? NULL : find_launcher();
	struct ferry_launch result = {.rank = 0, .n_ranks = 1};

	if (own)
		FERRY_TRY(read_own(ctx, &result));
	if (l) {
		result.name = l->name;
		FERRY_TRY(read_int(ctx, l->size, 1, FERRY_MAX_RANKS,
		                   &result.n_ranks));
		FERRY_TRY(read_int(ctx, l->rank, 0, result.n_ranks - 1,
		                   &result.rank));
	}
	if (result.n_ranks > 1 && ctx->opt.rendezvous[0])
		snprintf(result.address, sizeof(result.address), "%s",
		         ctx->opt.rendezvous);
	else if (result.n_ranks > 1)
		FERRY_TRY(find_place(ctx, l, &result));
	*launch = result;
	return FERRY_OK;
}
