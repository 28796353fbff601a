/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where this rank lives: host, process, pid namespace, library. Everything is
 * read from the kernel, nothing is kept.
 */
#include "place.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/bits.h"
#include "../core/text.h"
#include "gpu.h"
#include "nearby.h"
#include "segment.h"

/* Differs after a reboot, equal in all containers of a host. */
static uint64_t machine_id(void)
{
	char text[128];

	ferry_text_read("/proc/sys/kernel/random/boot_id", text, sizeof(text));
	if (!text[0])
		gethostname(text, sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	return hash_text(1, text);
}

/* Field 22 of /proc/self/stat: pids come again, pid and start time do not. */
static uint64_t start_time(void)
{
	char text[1024];
	char *p;

	ferry_text_read("/proc/self/stat", text, sizeof(text));
	p = strrchr(text, ')'); /* the name before it may hold anything */
	if (!p)
		return 0;
	for (int field = 2; field < 22 && p; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		return 0;
	p[1 + strcspn(p + 1, " ")] = 0; /* sizes come next, and change */
	return hash_text(2, p);
}

/* Every struct that ranks share; equal hashes mean that they fit. */
static uint64_t abi(void)
{
	const uint16_t one = 1;
	const uint64_t facts[] = {
		sizeof(struct ferry_segment_ctl),
		sizeof(struct ferry_verdict),
		sizeof(struct ferry_place),
		FERRY_HANDLE_BYTES,
		sizeof(size_t),
		*(const uint8_t *)&one, /* byte order */
	};
	uint64_t h = 3;

	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
		h = hash_u64(h, facts[i]);
	return h;
}

static void read_cpus(struct ferry_place *place)
{
	cpu_set_t set;
	const unsigned char *bytes = (const unsigned char *)&set;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set)) {
		/* more CPUs than the set holds */
		place->n_cpus = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
		place->numa = -1;
		return;
	}
	place->numa = ferry_nearby_node("/sys", &set);
	place->n_cpus = CPU_COUNT(&set);
	for (size_t i = 0; i < sizeof(set); i++)
		place->cpus = hash_u64(place->cpus, bytes[i]);
}

void ferry_place_read(struct ferry_place *place)
{
	struct stat ns;

	memset(place, 0, sizeof(*place));
	place->machine_id = machine_id();
	place->host_id = place->machine_id;
	place->named_id = place->machine_id;
	place->pid = getpid();
	if (!stat("/proc/self/ns/pid", &ns))
		place->pid_ns = hash_u64(ns.st_dev, ns.st_ino);
	place->process_id = hash_u64(
		hash_u64(hash_u64(4, place->pid_ns), (uint64_t)place->pid),
		start_time());
	/* Others may not look into /proc/PID of such a process. */
	if (prctl(PR_GET_DUMPABLE) != 1)
		place->pid_ns = 0;
	place->version = ferry_version();
	place->abi = abi();
	read_cpus(place);
}

void ferry_place_set_host(const struct ferry_ctx *ctx, int32_t rank,
                          struct ferry_place *place)
{
	const int64_t per_host = ctx->opt.ranks_per_host;

	if (ctx->opt.host[0])
		place->named_id = hash_text(place->machine_id, ctx->opt.host);
	place->host_id = place->named_id;
	if (per_host)
		place->host_id = hash_u64(hash_u64(place->host_id, 5),
		                          (uint64_t)(rank / per_host));
}

/* Those that are alike count once. */
static int32_t count_kinds(const struct ferry_place *places, int32_t n,
                           bool (*alike)(const struct ferry_place *a,
                                         const struct ferry_place *b))
{
	int32_t kinds = 0;

	for (int32_t i = 0; i < n; i++) {
		int32_t j = 0;

		while (!alike(&places[j], &places[i]))
			j++;
		kinds += j == i;
	}
	return kinds;
}

int32_t ferry_place_hosts(const struct ferry_place *places, int32_t n)
{
	return count_kinds(places, n, ferry_place_same_host);
}

int32_t ferry_place_machines(const struct ferry_place *places, int32_t n)
{
	return count_kinds(places, n, ferry_place_same_machine);
}

/* Ranks whose place is alike to that of rank `rank`, itself too. */
static int32_t count_alike(const struct ferry_place *places, int32_t n,
                           int32_t rank,
                           bool (*alike)(const struct ferry_place *a,
                                         const struct ferry_place *b))
{
	int32_t ranks = 0;

	for (int32_t i = 0; i < n; i++)
		ranks += alike(&places[i], &places[rank]);
	return ranks;
}

int32_t ferry_place_host_ranks(const struct ferry_place *places, int32_t n,
                               int32_t rank)
{
	return count_alike(places, n, rank, ferry_place_same_host);
}

int32_t ferry_place_machine_ranks(const struct ferry_place *places, int32_t n,
                                  int32_t rank)
{
	return count_alike(places, n, rank, ferry_place_same_machine);
}

void ferry_place_say_hosts(const struct ferry_world *world, char *reason,
                           size_t bytes)
{
	const bool pretended =
		ferry_place_machine_ranks(world->places, world->n_ranks, 0) ==
		world->n_ranks;

	snprintf(reason, bytes, "ranks are on %d hosts%s", world->n_nodes,
	         pretended ? " of one machine, says FERRY_HOST or "
	                     "FERRY_RANKS_PER_HOST"
	                   : "");
}

int32_t ferry_place_gpu_ranks(const struct ferry_place *places, int32_t n,
                              int32_t rank)
{
	if (places[rank].device != FERRY_DEVICE_CUDA)
		return 0;
	return count_alike(places, n, rank, ferry_place_same_gpu);
}

int32_t ferry_place_nic(const struct ferry_world *world, const char *const *pci,
                        int32_t n)
{
	const struct ferry_place *places = world->places;
	const struct ferry_place *own = &places[world->rank];
	struct ferry_seat seat = {.gpu = NULL};
	char gpu[FERRY_GPU_PCI_BYTES];
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		CPU_ZERO(&cpus); /* near none */
	seat.cpus = &cpus;
	if (world->gpu) {
		ferry_gpu_pci(world->gpu, gpu);
		seat.gpu = gpu;
	}
	for (int32_t r = 0; r < world->rank; r++)
		seat.ordinal += ferry_place_same_machine(&places[r], own) &&
		                places[r].numa == own->numa;
	return ferry_nearby_nic("/sys", pci, n, &seat);
}

/* Whole cores that the control group grants; INT32_MAX without a limit. */
static int32_t quota_cores(void)
{
	char text[64];
	char *end;

	ferry_text_read("/sys/fs/cgroup/cpu.max", text, sizeof(text));
	const long long quota = strtoll(text, &end, 10);
	const long long period = strtoll(end, NULL, 10);

	if (quota <= 0 || period <= 0) /* "max", or no such file */
		return INT32_MAX;
	const int64_t cores = quota / period;

	return cores < 1 ? 1 : (int32_t)min_i64(cores, INT32_MAX);
}

/* The first of its machine with this set of CPUs? */
static bool is_first_set(const struct ferry_place *places, int32_t i)
{
	for (int32_t j = 0; j < i; j++)
		if (ferry_place_same_machine(&places[j], &places[i]) &&
		    places[j].cpus == places[i].cpus)
			return false;
	return true;
}

int32_t ferry_place_machine_cores(const struct ferry_place *places, int32_t n,
                                  int32_t rank)
{
	int64_t cores = 0;

	for (int32_t i = 0; i < n; i++)
		if (ferry_place_same_machine(&places[i], &places[rank]) &&
		    is_first_set(places, i))
			cores += places[i].n_cpus;
	return (int32_t)min_i64(max_i64(cores, 1), quota_cores());
}
