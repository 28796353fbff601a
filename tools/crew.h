/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of a measurement: one function on N ranks, which are processes
 * (fabric shm) or threads (fabric local). They leave their results in shared
 * memory that the caller allocated.
 */
#ifndef FERRY_CREW_H
#define FERRY_CREW_H

#include <pthread.h>

#include <ferry/base.h>

struct crew_member {
	int32_t rank;
	const struct crew *crew;
};

/* Returns an exit status; all ranks must come to the same barriers. */
typedef int crew_body(const struct crew_member *me, void *arg);

struct crew {
	const char *name; /* before messages: "ferry bench" */
	int32_t n_ranks;
	bool threads;
	bool bind;          /* each rank to a CPU, where there are enough */
	const char *fabric; /* NULL: best fit */
	bool cuda;          /* rank r on GPU r modulo their number */
	int32_t timeout_ms; /* of the world; 0: its default */
	/* Set for the ranks by crew_run. */
	crew_body *body;
	void *arg;
	struct ferry_team *team;
	pthread_barrier_t *start;
	int *cpus; /* [n_ranks], NULL: not bound */
};

/* Starts the ranks, waits for all, returns the first failure's status. */
int crew_run(const struct crew *crew, crew_body *body, void *arg);

/* Waits for all ranks, without a world. */
void crew_barrier(const struct crew_member *me);

/*
 * Opens the world of the crew; `name` tells several worlds of one crew apart.
 * With cuda, the thread's current GPU is that of the rank. False after a
 * complaint.
 */
bool crew_open(const struct crew_member *me, int name,
               struct ferry_world **world);

/*
 * Good? Otherwise complains with the library's message. `what` is what was
 * being done.
 */
bool crew_good(const struct crew_member *me, enum ferry_status status,
               const char *what);

#endif
