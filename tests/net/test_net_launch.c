/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks on several hosts meet by the variables of each launcher, set here as
 * the launcher sets them, with the secret of the job beside them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "boot/boot.h"
#include "core/clock.h"
#include "hosted.h"

enum { N_HOSTS = 2 };

static struct namespaces hosts;

static void set_int(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

static void set_torchrun(const struct rank *rank)
{
	set_int("RANK", rank->rank);
	set_int("WORLD_SIZE", rank->n_ranks);
	set_int("LOCAL_WORLD_SIZE", rank->n_ranks / N_HOSTS);
	setenv("MASTER_ADDR", "10.77.0.1", 1);
	setenv("MASTER_PORT", "29500", 1);
	setenv("TORCHELASTIC_RUN_ID", "none", 1);
}

static void set_open_mpi(const struct rank *rank)
{
	set_int("OMPI_COMM_WORLD_RANK", rank->rank);
	set_int("OMPI_COMM_WORLD_SIZE", rank->n_ranks);
	set_int("OMPI_COMM_WORLD_LOCAL_SIZE", rank->n_ranks / N_HOSTS);
	setenv("PMIX_NAMESPACE", "a job", 1);
}

/* mpirun alone does not say where rank 0 is. */
static void set_open_mpi_master(const struct rank *rank)
{
	set_open_mpi(rank);
	setenv("MASTER_ADDR", "10.77.0.1", 1);
}

static void set_open_mpi_rendezvous(const struct rank *rank)
{
	set_open_mpi(rank);
	setenv("FERRY_RENDEZVOUS", "10.77.0.1:4900", 1);
}

static void set_slurm(const struct rank *rank)
{
	set_int("SLURM_PROCID", rank->rank);
	set_int("SLURM_NTASKS", rank->n_ranks);
	set_int("SLURM_NNODES", N_HOSTS);
	setenv("SLURM_JOB_ID", "77", 1);
	setenv("SLURM_STEP_ID", "0", 1);
	setenv("SLURM_JOB_NODELIST", "10.77.0.[1-2]", 1);
}

/* mpirun of Open MPI within an allocation of SLURM, which counts alike. */
static void set_open_mpi_slurm(const struct rank *rank)
{
	set_open_mpi(rank);
	set_slurm(rank);
}

static void set_pmi_slurm(const struct rank *rank)
{
	set_slurm(rank);
	set_int("PMI_RANK", rank->rank);
	set_int("PMI_SIZE", rank->n_ranks);
	set_int("MPI_LOCALNRANKS", rank->n_ranks / N_HOSTS);
}

typedef void set_fn(const struct rank *rank);

static void bring_nothing(void)
{
	unsetenv("FERRY_RANK");
	unsetenv("FERRY_SIZE");
	unsetenv("FERRY_RENDEZVOUS");
}

static void close_boot(void *boot)
{
	ferry_boot_close(boot);
}

static void destroy_ctx(void *ctx)
{
	ferry_ctx_destroy(ctx);
}

static enum ferry_status open_boot(struct ferry_ctx *ctx,
                                   struct ferry_boot **boot)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;

	config.open_timeout_ms = 10000;
	RANKS_OK(ferry_ctx_init(ctx, &config));
	ranks_defer(destroy_ctx, ctx);
	return ferry_boot_open(ctx, &config, boot);
}

static void launched(struct rank *rank)
{
	static struct ferry_ctx ctx; /* of this process */
	struct ferry_boot *boot;
	int32_t all[RANKS_MAX];

	bring_nothing();
	(*(set_fn *const *)rank->arg)(rank);
	RANKS_OK(open_boot(&ctx, &boot));
	ranks_defer(close_boot, boot);
	RANKS_TEXT(boot->ops->name, "tcp");
	RANKS_EQ(boot->rank, rank->rank);
	RANKS_EQ(boot->n_ranks, rank->n_ranks);
	RANKS_OK(boot->ops->allgather(boot, &rank->rank, all, 4,
	                              ferry_deadline_ns(10000)));
	for (int32_t r = 0; r < rank->n_ranks; r++)
		RANKS_EQ(all[r], r);
}

static void run(set_fn *set, ranks_body *body)
{
	struct ranks how = {.n_ranks = 4, .no_world = true, .arg = &set};

	hosted_ranks(&how);
	ranks_run(&how, body);
}

static void test_launchers(void **state)
{
	static set_fn *const ways[] = {
		set_torchrun, set_open_mpi_master, set_open_mpi_rendezvous,
		set_slurm,    set_open_mpi_slurm,  set_pmi_slurm};

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		run(ways[i], launched);
}

static void refused(struct rank *rank, const char *text)
{
	static struct ferry_ctx ctx;
	struct ferry_boot *boot;

	RANKS_STATUS(open_boot(&ctx, &boot), FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), text);
	(void)rank;
}

static void no_place(struct rank *rank)
{
	bring_nothing();
	set_open_mpi(rank);
	refused(rank, "Open MPI runs 4 ranks on several hosts: set "
	              "FERRY_RENDEZVOUS=HOST:PORT, or MASTER_ADDR");
}

static void no_secret(struct rank *rank)
{
	bring_nothing();
	unsetenv("FERRY_SECRET");
	set_torchrun(rank);
	refused(rank, "10.77.0.1:29501 can be reached from other hosts and "
	              "there is no job secret: set FERRY_SECRET");
}

/* On every rank, at once, with what to do. */
static void test_refused(void **state)
{
	(void)state;
	run(set_open_mpi, no_place);
	run(set_torchrun, no_secret);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_launchers),
		cmocka_unit_test(test_refused),
	};

	namespaces_need(&hosts, N_HOSTS, NULL);
	hosted_use(&hosts);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
