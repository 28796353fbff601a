/* SPDX-License-Identifier: Apache-2.0 */
/* Faults on the fabrics of host memory. */
#include "fault_settings.h"

#include <stddef.h>

const struct fault_setting fault_settings[] = {
	{"local", "local", RANKS_THREADS, ""},
	{"shm", "shm", RANKS_PROCESSES, "SHM=memfd"},
	{"shm file", "shm", RANKS_PROCESSES, "SHM=file"},
	{"wire threads", "wire", RANKS_THREADS, ""},
	{"wire processes", "wire", RANKS_PROCESSES, ""},
	{"hosts of 2, threads", "shm+wire", RANKS_THREADS, "RANKS_PER_HOST=2"},
	{"hosts of 2", "shm+wire", RANKS_PROCESSES, "RANKS_PER_HOST=2"},
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
