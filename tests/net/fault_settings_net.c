/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of ranks on hosts of network namespaces. */
#include <stddef.h>

#include "fabric/fault_settings.h"
#include "fabrics.h"
#include "hosted.h"

const struct fault_setting fault_settings[] = {
	{"shm+ofi", "shm+ofi", RANKS_PROCESSES, ""},
	{NULL, NULL, RANKS_THREADS, NULL},
};

const int32_t fault_open_ms = 400;
const int32_t fault_random_runs = 2;

static struct namespaces hosts;

int32_t fault_gpus(void)
{
	fabrics_need("shm+ofi");
	namespaces_need(&hosts, hosted_count(2), NULL);
	hosted_use(&hosts);
	return 0;
}

void fault_place(struct ranks *how)
{
	hosted_ranks(how);
}
