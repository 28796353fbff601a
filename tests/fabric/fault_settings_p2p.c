/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults on fabric p2p: on the GPUs of this machine, or on pretended ones
 * where fake_gpu.c is linked. Processes come first: who has used CUDA must not
 * fork.
 */
#include <stddef.h>
#include <stdio.h>

#include "fault_settings.h"
#include "gpus.h"

const struct fault_setting fault_settings[] = {
	{"hosts", "p2p+wire", RANKS_PROCESSES, "RANKS_PER_HOST=1"},
	{"processes", "p2p", RANKS_PROCESSES, ""},
	{"threads", "p2p", RANKS_THREADS, ""},
	{NULL, NULL, RANKS_THREADS, NULL},
};

#ifdef FAKE_GPU
const int32_t fault_open_ms = 400;
const int32_t fault_random_runs = 5;
#else
const int32_t fault_open_ms = 4000; /* a context has to be made */
const int32_t fault_random_runs = 2;
#endif

int32_t fault_gpus(void)
{
#ifdef FAKE_GPU
	return 2;
#else
	char reason[GPUS_REASON];
	const int32_t n = gpus_count(reason);

	if (n == 0)
		printf("skipped: no GPU: %s\n", reason);
	return n ? n : -1;
#endif
}

void fault_place(struct ranks *how)
{
	(void)how;
}
