/* SPDX-License-Identifier: Apache-2.0 */
/* The fabrics of host memory, plain and behind the wrappers. */
#include "conformance.h"

const struct conf_setting conf_settings[] = {
	{"local", RANKS_THREADS, "", false},
	{"local", RANKS_THREADS, "SPIN_US=0", false},
	{"local", RANKS_THREADS, "SPIN_US=200", true},
	{"shm", RANKS_THREADS, "", false},
	{"shm", RANKS_PROCESSES, "SHM=memfd", false},
	{"shm", RANKS_PROCESSES, "SHM=file;SPIN_US=0", false},
	{"wire", RANKS_THREADS, "", true},
	{"wire", RANKS_THREADS, "WIRE_DELAY_US=0;WIRE_SEED=7", true},
	{"wire", RANKS_PROCESSES, "WIRE_SEED=3", true},
	{"shm+wire", RANKS_THREADS, "RANKS_PER_HOST=1", true},
	{"shm+wire", RANKS_THREADS, "RANKS_PER_HOST=2", true},
	{"shm+wire", RANKS_PROCESSES, "RANKS_PER_HOST=2;WIRE_SEED=5", true},
	{"shm+wire", RANKS_PROCESSES, "RANKS_PER_HOST=3;SHM=file", true},
	{"trace:local", RANKS_THREADS, "", true},
	{"trace:shm", RANKS_PROCESSES, "", true},
	{"fault:local", RANKS_THREADS, "FAULT=delay:us=50", true},
	{"local", RANKS_THREADS, "FAULT=reorder", true},
	{"shm", RANKS_PROCESSES, "FAULT=reorder delay:us=5,rank=0", true},
	{"shm+wire", RANKS_THREADS, "RANKS_PER_HOST=2;FAULT=reorder", true},
	{"trace:fault:wire", RANKS_THREADS, "FAULT=reorder", true},
	{"ofi", RANKS_PROCESSES, "", true},
	{"ofi", RANKS_THREADS, "FAULT=reorder delay:us=5,rank=0", true},
	{NULL, RANKS_THREADS, NULL, false},
};

const int32_t conf_n_gpus = 0;

void conf_begin(void)
{
}

void conf_place(struct ranks *how)
{
	(void)how;
}
