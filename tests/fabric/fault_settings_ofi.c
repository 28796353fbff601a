/* SPDX-License-Identifier: Apache-2.0 */
/* Faults over libfabric, on loopback. */
#include "fault_settings.h"

#include <stddef.h>

const struct fault_setting fault_settings[] = {
	{"ofi threads", "ofi", RANKS_THREADS, ""},
	{"ofi processes", "ofi", RANKS_PROCESSES, ""},
	{"ofi between hosts of 2", "shm+ofi", RANKS_PROCESSES,
         "RANKS_PER_HOST=2"},
	{NULL, NULL, RANKS_THREADS, NULL},
};

const int32_t fault_open_ms = 400;
const int32_t fault_random_runs = 5;

int32_t fault_gpus(void)
{
	return 0;
}

void fault_place(struct ranks *how)
{
	(void)how;
}
