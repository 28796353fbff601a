/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry check --hosts: is this job, over its hosts, as it should be? Who is
 * where; every pair of ranks by itself; then dispatch and combine of all. One
 * struct per rank, gathered on all, so that all exit alike.
 */
#ifndef FERRY_HOSTS_H
#define FERRY_HOSTS_H

#include "crew.h"
#include "raw_link.h"

enum {
	HOSTS_MAX_RANKS = 512,
	HOSTS_TEXT_BYTES = 160,
	HOSTS_NICS_BYTES = 320,
	HOSTS_MODES = 8, /* of combine */
};

/* Where a rank is and with what; equal or not, on purpose or not. */
struct hosts_fact {
	uint64_t host_id, machine_id;
	int32_t pid, n_cpus;
	uint32_t has_secret; /* in its environment */
	char host[64];
	char version[96];  /* with commit and compiler */
	char options[256]; /* FERRY_ variables that all ranks should share */
	char nics[HOSTS_NICS_BYTES];
	char reason[160]; /* what the fabric says of itself */
};

enum hosts_state { HOSTS_UNTESTED, HOSTS_TESTED, HOSTS_FAILED };

/* What one rank knows of its way to another. */
struct hosts_pair {
	int32_t state; /* enum hosts_state */
	int32_t pad;
	struct raw_link link;
	int64_t wrong_rows;          /* values of rows that came from there */
	int64_t wrong_sums;          /* of sums of what came back from there */
	char text[HOSTS_TEXT_BYTES]; /* of a failure */
};

struct hosts_mode {
	char name[16];
	int32_t state; /* enum hosts_state; UNTESTED: see text */
	int32_t pad;
	int64_t wrong;               /* values, uniform routing */
	char text[HOSTS_TEXT_BYTES]; /* why it failed, or was left out */
};

struct hosts {
	const struct crew_member *me;
	struct ferry_world *world;
	int32_t n_ranks;
	char fabric[64];
	struct raw_ground ground;
	struct hosts_pair *pairs; /* [n_ranks] own */
	struct hosts_mode modes[HOSTS_MODES];
	/* Of all ranks, when gathered; whole is false where it could not be. */
	bool whole;
	struct hosts_fact *facts;     /* [n_ranks] */
	struct hosts_pair *all;       /* [n_ranks][n_ranks] */
	struct hosts_mode *all_modes; /* [n_ranks][HOSTS_MODES] */
	char broken[512];             /* why it ended early; "" it did not */
};

struct hosts_options {
	bool strict; /* slow is bad */
	bool json;
	int argc; /* the command, for JSON */
	char *const *argv;
};

/* Looks at this machine and this process. */
void hosts_fact_read(const struct ferry_world *world, struct hosts_fact *fact);

/* Every pair in turns, disjoint pairs at once. False: the job ends. */
bool hosts_try_pairs(struct hosts *h);

/* Dispatch and combine in every mode. False: the job ends. */
bool hosts_try_channels(struct hosts *h);

/* Body of a crew on this host; options: struct hosts_options. */
int hosts_body(const struct crew_member *me, void *options);

/* Is this process one rank of a job that somebody has launched? */
bool hosts_launched(void);

/* On such a rank; fabric and timeout_ms of the crew count. */
int hosts_check_launched(struct crew *crew, const struct hosts_options *o);

#endif
