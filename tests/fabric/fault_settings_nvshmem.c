/* SPDX-License-Identifier: Apache-2.0 */
/* Faults on fabric nvshmem, on the pretended ones of its conformance test. */
#include <stddef.h>

#include "fault_settings.h"

#define MODULE "NVSHMEM_MODULE=" FAKE_MODULE

const struct fault_setting fault_settings[] = {
	{"nvshmem", "nvshmem", RANKS_PROCESSES, MODULE},
	{"put", "nvshmem", RANKS_PROCESSES, MODULE ";NVSHMEM_DIRECT=off"},
	{NULL, NULL, RANKS_THREADS, NULL},
};

const int32_t fault_open_ms = 400;
const int32_t fault_random_runs = 5;

int32_t fault_gpus(void)
{
	return 2;
}

void fault_place(struct ranks *how)
{
	(void)how;
}
