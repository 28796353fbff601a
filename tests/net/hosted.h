/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of ranks on hosts: rank r of n is a process on host r * hosts / n,
 * which all meet over TCP at an address of host 0, with a secret of the job.
 *
 *	struct ranks how = {.n_ranks = 4};
 *	hosted_use(&ns);
 *	hosted_ranks(&how);
 *	ranks_run(&how, body);
 */
#ifndef HOSTED_H
#define HOSTED_H

#include "namespaces.h"
#include "ranks.h"

/* The hosts of all runs from here on; they must last as long. */
void hosted_use(const struct namespaces *ns);

int hosted_host(int32_t rank, int32_t n_ranks);

/* TEST_HOSTS of the environment, or `usual`. */
int hosted_count(int usual);

/* Puts a run on the hosts, at a meeting point of its own. */
void hosted_ranks(struct ranks *how);

/* "10.77.0.1:5001": where the ranks of the last such run meet. */
const char *hosted_meeting(void);

#endif
