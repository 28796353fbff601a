/* SPDX-License-Identifier: Apache-2.0 */
/* One function on N ranks: processes by job.h, or threads of a team. */
#include "crew.h"

#include <stdio.h>
#include <stdlib.h>

#include "alloc.h"
#include "bind.h"
#include "job.h"
#include "opt.h"

enum { GRACE_MS = 3000, NAME_BYTES = 128 };

static int process_body(void *arg, int32_t rank)
{
	const struct crew *crew = arg;
	const struct crew_member me = {rank, crew};

	if (crew->cpus)
		bind_to(crew->cpus[rank]);
	return crew->body(&me, crew->arg);
}

static int run_processes(struct crew *crew)
{
	const struct job_config job = {
		.name = crew->name,
		.n_ranks = crew->n_ranks,
		.grace_ms = GRACE_MS,
		.child = process_body,
		.arg = crew,
	};

	return job_run(&job);
}

struct member_thread {
	struct crew_member member;
	pthread_t thread;
	int status;
};

static void *thread_body(void *arg)
{
	struct member_thread *t = arg;
	const struct crew *crew = t->member.crew;

	if (crew->cpus)
		bind_to(crew->cpus[t->member.rank]);
	t->status = crew->body(&t->member, crew->arg);
	return NULL;
}

static int run_threads(struct crew *crew)
{
	const size_t n = (size_t)crew->n_ranks;
	struct member_thread *threads = alloc_or_exit(n, sizeof(*threads));
	int status = EXIT_GOOD;

	if (ferry_team_create(crew->n_ranks, &crew->team)) {
		fprintf(stderr, "%s: %s\n", crew->name, ferry_last_error());
		free(threads);
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < n; i++) {
		threads[i].member = (struct crew_member){(int32_t)i, crew};
		if (pthread_create(&threads[i].thread, NULL, thread_body,
		                   &threads[i])) {
			fprintf(stderr, "%s: cannot start thread %zu\n",
			        crew->name, i);
			exit(EXIT_FAILED); /* the others wait for it */
		}
	}
	for (size_t i = 0; i < n; i++) {
		pthread_join(threads[i].thread, NULL);
		if (!status)
			status = threads[i].status;
	}
	ferry_team_destroy(crew->team);
	free(threads);
	return status;
}

static pthread_barrier_t *make_barrier(int32_t n_ranks)
{
	pthread_barrier_t *barrier = alloc_shared(sizeof(*barrier));
	pthread_barrierattr_t attr;

	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(barrier, &attr, (unsigned)n_ranks);
	pthread_barrierattr_destroy(&attr);
	return barrier;
}

int crew_run(const struct crew *crew, crew_body *body, void *arg)
{
	struct crew run = *crew;

	run.body = body;
	run.arg = arg;
	run.start = make_barrier(run.n_ranks);
	run.cpus = run.bind ? bind_plan(run.n_ranks) : NULL;
	const int status =
		run.threads ? run_threads(&run) : run_processes(&run);

	/* Not destroyed: a rank that died in it would make that wait. */
	alloc_shared_free(run.start, sizeof(*run.start));
	free(run.cpus);
	return status;
}

void crew_barrier(const struct crew_member *me)
{
	pthread_barrier_wait(me->crew->start);
}

/* The rendezvous of the job with a number behind it. */
static void rename_rendezvous(int name)
{
	static char base[NAME_BYTES];
	char text[NAME_BYTES + 16];

	if (!*base)
		snprintf(base, sizeof(base), "%s", getenv("FERRY_RENDEZVOUS"));
	snprintf(text, sizeof(text), "%s-%d", base, name);
	setenv("FERRY_RENDEZVOUS", text, 1);
}

bool crew_open(const struct crew_member *me, int name,
               struct ferry_world **world)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;

	if (me->crew->threads) {
		config.team = me->crew->team;
		config.rank = me->rank;
	} else {
		rename_rendezvous(name);
	}
	config.fabric = me->crew->fabric;
	config.timeout_ms = me->crew->timeout_ms;
	if (me->crew->cuda)
		config.device = FERRY_DEVICE_CUDA;
	return crew_good(me, ferry_world_open(&config, world), "opening");
}

bool crew_good(const struct crew_member *me, enum ferry_status status,
               const char *what)
{
	if (status == FERRY_OK)
		return true;
	fprintf(stderr, "%s: rank %d: %s: %s (%s)\n", me->crew->name, me->rank,
	        what, ferry_last_error(), ferry_status_name(status));
	return false;
}
