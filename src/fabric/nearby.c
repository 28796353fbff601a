/* SPDX-License-Identifier: Apache-2.0 */
/* Reading /sys: lists of CPUs, and the ways of devices through PCI bridges. */
#include "nearby.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/text.h"

enum {
	TEXT_BYTES = 4096, /* a file of /sys is one page */
	PATH_BYTES = 256,
};

/* "0-3,8": calls fn for each number until it returns true. */
static bool any_of(const char *list, bool (*fn)(long number, void *arg),
                   void *arg)
{
	while (*list >= '0' && *list <= '9') {
		char *end;
		const long first = strtol(list, &end, 10);
		const long last =
			*end == '-' ? strtol(end + 1, &end, 10) : first;

		for (long i = first; i <= last; i++)
			if (fn(i, arg))
				return true;
		list = *end == ',' ? end + 1 : end;
	}
	return false;
}

static bool add_cpu(long cpu, void *set)
{
	if (cpu < CPU_SETSIZE)
		CPU_SET((size_t)cpu, (cpu_set_t *)set);
	return cpu >= CPU_SETSIZE;
}

/* The CPUs in a file; false when it is not there. */
static bool read_cpus(const char *path, cpu_set_t *cpus)
{
	char text[TEXT_BYTES];

	CPU_ZERO(cpus);
	if (!ferry_text_read(path, text, sizeof(text)))
		return false;
	any_of(text, add_cpu, cpus);
	return true;
}

struct search {
	const char *sys;
	const cpu_set_t *cpus;
	int32_t node;
};

/* Has this node all the CPUs? */
static bool has_all(long node, void *arg)
{
	struct search *s = arg;
	char path[PATH_BYTES];
	cpu_set_t own, both;

	snprintf(path, sizeof(path), "%s/devices/system/node/node%ld/cpulist",
	         s->sys, node);
	if (!read_cpus(path, &own))
		return false;
	CPU_AND(&both, &own, s->cpus);
	if (!CPU_EQUAL(&both, s->cpus))
		return false;
	s->node = (int32_t)node;
	return true;
}

int32_t ferry_nearby_node(const char *sys, const cpu_set_t *cpus)
{
	struct search search = {sys, cpus, -1};
	char path[PATH_BYTES], text[TEXT_BYTES];

	snprintf(path, sizeof(path), "%s/devices/system/node/online", sys);
	if (CPU_COUNT(cpus) > 0 && ferry_text_read(path, text, sizeof(text)))
		any_of(text, has_all, &search);
	return search.node;
}

/* The way to a device, "/sys/devices/pci0000:3a/..."; "" where unknown. */
static void read_way(const char *sys, const char *pci, char way[PATH_MAX])
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s", sys, pci);
	if (!pci[0] || !realpath(path, way))
		way[0] = 0;
}

/* Steps that two ways have in common. */
static int32_t common_steps(const char *a, const char *b)
{
	int32_t n = 0;

	for (; *a && *a == *b; a++, b++)
		n += *a == '/';
	return n;
}

static int32_t near_gpu(const char *sys, const char *pci, const char *gpu_way)
{
	char way[PATH_MAX];

	read_way(sys, pci, way);
	return common_steps(way, gpu_way);
}

/* 1: shares CPUs with the rank; 0: does not; unknown counts as not. */
static int32_t near_cpus(const char *sys, const char *pci,
                         const cpu_set_t *cpus)
{
	char path[PATH_BYTES];
	cpu_set_t local;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/local_cpulist", sys,
	         pci);
	if (!pci[0] || !read_cpus(path, &local))
		return 0;
	CPU_AND(&local, &local, cpus);
	return CPU_COUNT(&local) > 0;
}

/* How near; only comparable among NICs of one rank. */
static int32_t nearness(const char *sys, const char *pci,
                        const struct ferry_seat *seat, const char *gpu_way)
{
	if (gpu_way[0])
		return near_gpu(sys, pci, gpu_way);
	return near_cpus(sys, pci, seat->cpus);
}

int32_t ferry_nearby_nic(const char *sys, const char *const *pci, int32_t n,
                         const struct ferry_seat *seat)
{
	char gpu_way[PATH_MAX] = "";
	int32_t nearest = -1, n_nearest = 1, turn;

	if (seat->gpu)
		read_way(sys, seat->gpu, gpu_way);
	for (int32_t i = 0; i < n; i++) {
		const int32_t near = nearness(sys, pci[i], seat, gpu_way);

		n_nearest = near > nearest ? 1 : n_nearest + (near == nearest);
		nearest = near > nearest ? near : nearest;
	}
	turn = seat->ordinal % n_nearest;
	for (int32_t i = 0; i < n; i++)
		if (nearness(sys, pci[i], seat, gpu_way) == nearest &&
		    turn-- == 0)
			return i;
	return 0; /* /sys changed meanwhile */
}
