/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine is: processor, caches, NUMA, memory. By hwloc. */
#ifndef FERRY_MACHINE_H
#define FERRY_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

enum { MACHINE_CACHES = 4, MACHINE_NODES = 64 };

struct machine_cache {
	int level;    /* 1..; only data and unified caches are listed */
	int n;        /* caches of that level */
	size_t bytes; /* of one */
};

struct machine_node {
	int id;
	int n_cpus;
	uint64_t memory_bytes;
};

struct machine {
	char host[64];
	char system[128]; /* kernel and architecture */
	char cpu[128];    /* model name */
	char isa[256];    /* instruction sets that matter here */
	int n_packages, n_cores;
	int n_cpus;        /* online */
	int n_usable_cpus; /* by affinity of this process */
	uint64_t memory_bytes;
	uint64_t shm_bytes; /* free in /dev/shm */
	int n_caches;
	struct machine_cache caches[MACHINE_CACHES]; /* L1 first */
	int n_nodes;
	struct machine_node nodes[MACHINE_NODES];
};

/* What is not known is 0 or empty. */
void machine_read(struct machine *machine);

/* Bytes of all last-level caches together; 32 MiB when unknown. */
size_t machine_last_level_bytes(const struct machine *machine);

/* The same as a JSON object. */
cJSON *machine_json(const struct machine *machine);

#endif
