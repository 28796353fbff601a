/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies near what, as /sys tells: the NUMA node of a set of CPUs, and which
 * of several NICs is nearest to a rank. `sys` is where it is mounted: "/sys".
 */
#ifndef FERRY_NEARBY_H
#define FERRY_NEARBY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* The node that has all of these CPUs; -1: none has, or it is not known. */
int32_t ferry_nearby_node(const char *sys, const cpu_set_t *cpus);

/* Where a rank sits. */
struct ferry_seat {
	const cpu_set_t *cpus; /* that it may use */
	const char *gpu;       /* PCI address "0000:3b:00.0"; NULL: none */
	int32_t ordinal;       /* among ranks that compete with it, from 0 */
};

/*
 * Which of n NICs (n >= 1) that are equally good otherwise a rank takes, [0,
 * n). pci[i] is its address, "" where it has none. Near its GPU: those that
 * share the longest way through PCI bridges with it. Without one: those whose
 * own CPUs the rank may use. Among the nearest it is the ordinal's turn.
 */
int32_t ferry_nearby_nic(const char *sys, const char *const *pci, int32_t n,
                         const struct ferry_seat *seat);

#endif
