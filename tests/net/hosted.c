/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks go to their hosts. */
#include "hosted.h"

#include <stdio.h>
#include <stdlib.h>

enum { FIRST_PORT = 5000, N_PORTS = 4000 };

static const struct namespaces *hosts;
static char meeting[32];

void hosted_use(const struct namespaces *ns)
{
	hosts = ns;
}

int hosted_host(int32_t rank, int32_t n_ranks)
{
	return (int)((int64_t)rank * hosts->n_hosts / n_ranks);
}

int hosted_count(int usual)
{
	const char *text = getenv("TEST_HOSTS");
	const int n = text ? atoi(text) : usual;

	return n >= 1 && n <= NAMESPACES_MAX ? n : usual;
}

static void at_start(const struct rank *rank)
{
	const int host = hosted_host(rank->rank, rank->n_ranks);
	char name[16];

	if (!namespaces_enter(hosts, host)) {
		perror("a rank cannot enter its network namespace");
		_Exit(1);
	}
	snprintf(name, sizeof(name), "host-%d", host);
	setenv("FERRY_HOST", name, 1);
	setenv("FERRY_RENDEZVOUS", meeting, 1);
	setenv("FERRY_SECRET", "secret of the job", 1);
}

void hosted_ranks(struct ranks *how)
{
	static int n_runs;
	char address[16];

	namespaces_address(0, address);
	snprintf(meeting, sizeof(meeting), "%s:%d", address,
	         FIRST_PORT + n_runs++ % N_PORTS);
	how->kind = RANKS_PROCESSES;
	how->at_start = at_start;
}

const char *hosted_meeting(void)
{
	return meeting;
}
