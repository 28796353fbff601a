/* SPDX-License-Identifier: Apache-2.0 */
/* ferry check --hosts on one rank, from the facts to the verdict. */
#include "hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "hosts_report.h"
#include "opt.h"

bool hosts_launched(void)
{
	static const char *const names[][2] = {
		{"FERRY_RANK", "FERRY_SIZE"},
		{"RANK", "WORLD_SIZE"},
		{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
		{"PMI_RANK", "PMI_SIZE"},
		{"SLURM_PROCID", "SLURM_NTASKS"},
		{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (getenv(names[i][0]) && getenv(names[i][1]))
			return true;
	return false;
}

static const char *why_not_open(enum ferry_status status)
{
	switch (status) {
	case FERRY_TIMEOUT:
		return "did all ranks start? can they reach the host and port "
		       "of FERRY_RENDEZVOUS (or MASTER_ADDR, MASTER_PORT + 1)?";
	case FERRY_MISMATCH:
		return "all ranks need the same secret, version and settings";
	default:
		return "docs/cluster.md says what a job needs";
	}
}

static bool open_launched(struct crew *crew, struct crew_member *me,
                          struct ferry_world **world)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;

	config.fabric = crew->fabric;
	config.timeout_ms = crew->timeout_ms;
	const enum ferry_status status = ferry_world_open(&config, world);

	if (status != FERRY_OK) {
		fprintf(stderr, "%s: the ranks do not meet: %s (%s)\n%s: %s\n",
		        crew->name, ferry_last_error(),
		        ferry_status_name(status), crew->name,
		        why_not_open(status));
		return false;
	}
	crew->n_ranks = ferry_world_size(*world);
	*me = (struct crew_member){ferry_world_rank(*world), crew};
	return true;
}

/* Where not all can be asked, what this rank knows is taken both ways. */
static void take_own(struct hosts *h)
{
	const size_t n = (size_t)h->n_ranks;
	const size_t rank = (size_t)h->me->rank;

	for (size_t r = 0; r < n; r++) {
		h->all[rank * n + r] = h->pairs[r];
		h->all[r * n + rank] = h->pairs[r];
	}
	memcpy(h->all_modes + rank * HOSTS_MODES, h->modes, sizeof(h->modes));
}

static void gather(struct hosts *h)
{
	const size_t row = (size_t)h->n_ranks * sizeof(*h->pairs);

	h->whole = !ferry_world_allgather(h->world, h->pairs, h->all, row) &&
	           !ferry_world_allgather(h->world, h->modes, h->all_modes,
	                                  sizeof(h->modes));
	if (!h->whole)
		take_own(h);
}

static bool gather_facts(struct hosts *h)
{
	struct hosts_fact mine;

	hosts_fact_read(h->world, &mine);
	snprintf(h->fabric, sizeof(h->fabric), "%s",
	         ferry_world_fabric(h->world));
	return crew_good(
		h->me,
		ferry_world_allgather(h->world, &mine, h->facts, sizeof(mine)),
		"who is where");
}

/* On any rank: then nothing that all do together can be right. */
static bool no_pair_failed(struct hosts *h)
{
	const size_t n = (size_t)h->n_ranks;
	bool *votes = alloc_or_exit(n, sizeof(*votes));
	bool good = true;

	for (size_t r = 0; r < n; r++)
		good &= h->pairs[r].state != HOSTS_FAILED;
	good = !ferry_world_allgather(h->world, &good, votes, sizeof(good));
	for (size_t r = 0; r < n; r++)
		good &= votes[r];
	free(votes);
	return good;
}

static void hosts_free(struct hosts *h)
{
	free(h->pairs);
	free(h->facts);
	free(h->all);
	free(h->all_modes);
}

/* Rank 0 says it; the exit status is the same on all ranks. */
static int report(const struct hosts *h, const struct hosts_options *o)
{
	struct hosts_judged judged;
	bool good;

	hosts_judge(h, o->strict, &judged);
	good = !judged.bad;
	if (h->me->rank == 0 && o->json)
		good &= hosts_print_json(&judged, o->argc, o->argv);
	else if (h->me->rank == 0)
		hosts_print(&judged);
	hosts_judged_free(&judged);
	return good ? EXIT_GOOD : EXIT_FAILED;
}

static int check(struct hosts *h, const struct hosts_options *o)
{
	const size_t n = (size_t)h->n_ranks;

	if (n > HOSTS_MAX_RANKS) {
		fprintf(stderr, "%s: %zu ranks, allowed are 1..%d\n",
		        h->me->crew->name, n, HOSTS_MAX_RANKS);
		return EXIT_USAGE;
	}
	h->pairs = alloc_or_exit(n, sizeof(*h->pairs));
	h->facts = alloc_or_exit(n, sizeof(*h->facts));
	h->all = alloc_or_exit(n * n, sizeof(*h->all));
	h->all_modes = alloc_or_exit(n * HOSTS_MODES, sizeof(*h->all_modes));
	if (!gather_facts(h))
		return EXIT_FAILED;
	if (hosts_try_pairs(h) && no_pair_failed(h))
		hosts_try_channels(h);
	gather(h);
	return report(h, o);
}

static int check_world(const struct crew_member *me, struct ferry_world *world,
                       const struct hosts_options *o)
{
	struct hosts h = {
		.me = me, .world = world, .n_ranks = ferry_world_size(world)};
	const int status = check(&h, o);

	hosts_free(&h);
	ferry_world_close(world);
	return status;
}

int hosts_body(const struct crew_member *me, void *options)
{
	struct ferry_world *world;

	return crew_open(me, 0, &world) ? check_world(me, world, options)
	                                : EXIT_FAILED;
}

int hosts_check_launched(struct crew *crew, const struct hosts_options *o)
{
	struct ferry_world *world;
	struct crew_member me;

	return open_launched(crew, &me, &world) ? check_world(&me, world, o)
	                                        : EXIT_FAILED;
}
