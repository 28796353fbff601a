/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric p2p on the pretended GPUs of fake_gpu.c, whose memory is the host's.
 * Real ones have test_p2p.c.
 */
#include "conformance.h"

const struct conf_setting conf_settings[] = {
	{"p2p", RANKS_THREADS, "", false},
	{"p2p", RANKS_PROCESSES, "SHM=memfd", false},
	{"p2p", RANKS_PROCESSES, "SHM=file;SPIN_US=0", true},
	{"trace:p2p", RANKS_THREADS, "", true},
	{"p2p", RANKS_PROCESSES, "FAULT=reorder delay:us=5,rank=0", true},
	/* All on one host: GPUs as on p2p, control over shm+wire. */
	{"p2p+wire", RANKS_THREADS, "", true},
	{"p2p+wire", RANKS_PROCESSES, "", true},
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
