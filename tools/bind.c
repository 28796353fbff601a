/* SPDX-License-Identifier: Apache-2.0 */
/* One CPU for each rank, by hwloc. */
#include "bind.h"

#include <hwloc.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>

#include "alloc.h"

/* Only CPUs of this process's affinity. */
static void restrict_to_own(hwloc_topology_t topology)
{
	hwloc_bitmap_t own = hwloc_bitmap_alloc();

	if (!hwloc_get_cpubind(topology, own, HWLOC_CPUBIND_PROCESS))
		hwloc_topology_restrict(topology, own, 0);
	hwloc_bitmap_free(own);
}

static int *spread(hwloc_topology_t topology, int32_t n_ranks)
{
	hwloc_obj_t root = hwloc_get_root_obj(topology);
	const size_t n = (size_t)n_ranks;
	hwloc_bitmap_t *sets = alloc_or_exit(n, sizeof(hwloc_bitmap_t));
	int *cpus = alloc_or_exit(n, sizeof(*cpus));

	hwloc_distrib(topology, &root, 1, sets, (unsigned)n, INT_MAX, 0);
	for (size_t i = 0; i < n; i++) {
		cpus[i] = hwloc_bitmap_first(sets[i]);
		hwloc_bitmap_free(sets[i]);
	}
	free(sets);
	return cpus;
}

int *bind_plan(int32_t n_ranks)
{
	hwloc_topology_t topology;
	int *cpus = NULL;

	if (hwloc_topology_init(&topology))
		return NULL;
	if (!hwloc_topology_load(topology)) {
		restrict_to_own(topology);
		if (hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU) >= n_ranks)
			cpus = spread(topology, n_ranks);
	}
	hwloc_topology_destroy(topology);
	return cpus;
}

void bind_to(int cpu)
{
	cpu_set_t set;

	if (cpu < 0 || cpu >= CPU_SETSIZE)
		return;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	sched_setaffinity(0, sizeof(set), &set); /* without it, slower only */
}
