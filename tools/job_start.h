/* SPDX-License-Identifier: Apache-2.0 */
/* Among the job files only: the state of a job and how its ranks start. */
#ifndef FERRY_JOB_START_H
#define FERRY_JOB_START_H

#include <signal.h>
#include <sys/types.h>

#include "job.h"
#include "relay.h"

struct job_rank {
	pid_t pid; /* 0: has ended */
};

struct job {
	const struct job_config *config;
	struct job_rank *ranks; /* [n_ranks] */
	struct relay *relays;   /* [2 * n_ranks] stdout, stderr; or NULL */
	int32_t n_started, n_running;
	/*
	 * Each rank leads a process group, so that what it starts ends with
	 * it. Not on a terminal: there the ranks stay in the foreground, so
	 * that rank 0 may read the keyboard.
	 */
	bool own_groups;
	bool ended_by_user;
	sigset_t old_mask;
	int signal_fd;
	int exit_status;
	int next_signal; /* 0: none */
	uint64_t next_ns;
	char rendezvous[64], secret[64];
};

/* Blocks the signals that job_run takes. False with errno. */
bool job_init(struct job *job, const struct job_config *config);

/* Forks the ranks; false with errno when one could not be. */
bool job_start(struct job *job);

void job_destroy(struct job *job);

#endif
