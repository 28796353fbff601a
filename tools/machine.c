/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine is: processor, caches, NUMA, memory. By hwloc. */
#include "machine.h"

#include <hwloc.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

/* A line "key : value" of /proc/cpuinfo. */
static bool cpuinfo(const char *key, char *value, size_t bytes)
{
	FILE *f = fopen("/proc/cpuinfo", "r");
	static char line[8192];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		const char *colon = strchr(line, ':');

		if (!colon || strncmp(line, key, strlen(key)))
			continue;
		snprintf(value, bytes, "%s", colon + 2);
		value[strcspn(value, "\n")] = '\0';
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

/* Those of the kernel's flags that copies, sums and waits could use. */
static void read_isa(struct machine *m)
{
	static const char *const wanted[] = {
		"avx2",        "fma",       "f16c",     "avx512f",  "avx512bw",
		"avx512_bf16", "avx_vnni",  "amx_bf16", "amx_int8", "erms",
		"fsrm",        "movdir64b", "waitpkg",  "asimd",    "sve",
		"sve2",        "bf16",      "atomics",
	};
	static char flags[8192];

	if (!cpuinfo("flags", flags, sizeof(flags)) &&
	    !cpuinfo("Features", flags, sizeof(flags)))
		return;
	for (char *word = strtok(flags, " "); word; word = strtok(NULL, " "))
		for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
			const size_t used = strlen(m->isa);

			if (!strcmp(word, wanted[i]))
				snprintf(m->isa + used, sizeof(m->isa) - used,
				         "%s%s", used ? " " : "", word);
		}
}

static void read_caches(struct machine *m, hwloc_topology_t topology)
{
	static const hwloc_obj_type_t types[] = {
		HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE,
		HWLOC_OBJ_L4CACHE};

	for (int i = 0; i < MACHINE_CACHES; i++) {
		const int n = hwloc_get_nbobjs_by_type(topology, types[i]);

		if (n <= 0)
			continue;
		m->caches[m->n_caches++] = (struct machine_cache){
			i + 1, n,
			hwloc_get_obj_by_type(topology, types[i], 0)
				->attr->cache.size};
	}
}

static void read_nodes(struct machine *m, hwloc_topology_t topology)
{
	hwloc_obj_t node = NULL;

	while (m->n_nodes < MACHINE_NODES &&
	       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
	                                          node)))
		m->nodes[m->n_nodes++] = (struct machine_node){
			(int)node->os_index, hwloc_bitmap_weight(node->cpuset),
			node->attr->numanode.local_memory};
}

static void read_topology(struct machine *m)
{
	hwloc_topology_t topology;

	if (hwloc_topology_init(&topology))
		return;
	if (!hwloc_topology_load(topology)) {
		const hwloc_obj_t root = hwloc_get_root_obj(topology);

		m->n_packages =
			hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
		m->n_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
		m->n_cpus = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
		m->memory_bytes = root->total_memory;
		read_caches(m, topology);
		read_nodes(m, topology);
	}
	hwloc_topology_destroy(topology);
}

void machine_read(struct machine *machine)
{
	struct utsname name;
	struct statvfs shm;
	cpu_set_t cpus;

	*machine = (struct machine){0};
	if (!uname(&name)) {
		snprintf(machine->host, sizeof(machine->host), "%.63s",
		         name.nodename);
		snprintf(machine->system, sizeof(machine->system),
		         "%.40s %.40s %.40s", name.sysname, name.release,
		         name.machine);
	}
	cpuinfo("model name", machine->cpu, sizeof(machine->cpu));
	read_isa(machine);
	read_topology(machine);
	if (!sched_getaffinity(0, sizeof(cpus), &cpus))
		machine->n_usable_cpus = CPU_COUNT(&cpus);
	if (!statvfs("/dev/shm", &shm))
		machine->shm_bytes = (uint64_t)shm.f_bavail * shm.f_frsize;
}

size_t machine_last_level_bytes(const struct machine *machine)
{
	const size_t unknown = (size_t)32 << 20;

	if (machine->n_caches == 0)
		return unknown;
	const struct machine_cache *last =
		&machine->caches[machine->n_caches - 1];

	return (size_t)last->n * last->bytes;
}
