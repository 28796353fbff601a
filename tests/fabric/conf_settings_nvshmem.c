/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric nvshmem on the module of fake_nvshmem.c and the GPUs of fake_gpu.c,
 * whose memory is the host's. The real ones have test_nvshmem.c.
 */
#include "conformance.h"

#define MODULE "NVSHMEM_MODULE=" FAKE_MODULE ";"

const struct conf_setting conf_settings[] = {
	{"nvshmem", RANKS_PROCESSES, MODULE, false},
	{"nvshmem", RANKS_PROCESSES,
         MODULE "NVSHMEM_DIRECT=off;SHM=file;SPIN_US=0", true},
	{"trace:nvshmem", RANKS_PROCESSES, MODULE "NVSHMEM_DIRECT=off", true},
	{"nvshmem", RANKS_PROCESSES, MODULE "FAULT=reorder delay:us=5,rank=0",
         true},
	{"nvshmem", RANKS_PROCESSES, MODULE "RANKS_PER_HOST=2", true},
	{NULL, RANKS_THREADS, NULL, false},
};

const int32_t conf_n_gpus = 3;

void conf_begin(void)
{
}

void conf_place(struct ranks *how)
{
	(void)how;
}
