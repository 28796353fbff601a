/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Hosts" of one machine: network namespaces, each with the address
 * 10.77.0.(host + 1), joined by veth pairs and a bridge, or by the bad network
 * of rough_link.h. They have no names: they live as long as descriptors and
 * processes of the test, so that nothing stays behind, however it ends.
 */
#ifndef NAMESPACES_H
#define NAMESPACES_H

#include <stdbool.h>

#include "rough_link.h"

enum { NAMESPACES_MAX = ROUGH_HOSTS, NAMESPACES_TEXT = 200 };

struct namespaces {
	int n_hosts;
	int fds[NAMESPACES_MAX];
	int hub;                  /* where the bridge is; -1 */
	struct rough_link *rough; /* NULL: a bridge */
	pid_t rough_pid;
};

/*
 * Makes n_hosts of them. As root, or where users may have namespaces of their
 * own; then the process is in one afterwards, and must have had one thread.
 * False with the reason where neither goes. `rough`: how bad the network is,
 * NULL: as good as the kernel has it.
 */
bool namespaces_make(struct namespaces *ns, int n_hosts,
                     const struct rough_link *rough,
                     char reason[NAMESPACES_TEXT]);
void namespaces_end(struct namespaces *ns);

/* The same, but ends the program with status 77 and the reason. */
void namespaces_need(struct namespaces *ns, int n_hosts,
                     const struct rough_link *rough);

/* From here on this thread, and what it forks, is on that host. */
bool namespaces_enter(const struct namespaces *ns, int host);

/* Pulls the cable of a host out of the bridge, or puts it in. */
bool namespaces_cable(const struct namespaces *ns, int host, bool in);

/* "10.77.0.2" of host 1. */
void namespaces_address(int host, char text[16]);

/*
 * What listens in the namespace of this thread, "tcp 10.77.0.1:5000\n" for
 * each socket of TCP or UDP, IPv4 or IPv6. False: it cannot be read.
 */
bool namespaces_listeners(char *text, size_t bytes);

#endif
