/* SPDX-License-Identifier: Apache-2.0 */
/* See p2p_ranks.h. */
#include "p2p_ranks.h"

#include <stdio.h>
#include <string.h>

#include "gpus.h"

int32_t p2p_n_gpus;
static enum ranks_kind kind;

int32_t p2p_gpu(int32_t rank)
{
	return gpus_of_rank(rank, p2p_n_gpus);
}

int p2p_begin(int argc, char **argv)
{
	char reason[GPUS_REASON];

	if (argc != 2 ||
	    (strcmp(argv[1], "threads") && strcmp(argv[1], "processes"))) {
		fprintf(stderr, "usage: %s threads|processes\n", argv[0]);
		return 2;
	}
	kind = strcmp(argv[1], "threads") ? RANKS_PROCESSES : RANKS_THREADS;
	p2p_n_gpus = gpus_count(reason);
	if (p2p_n_gpus)
		return 0;
	printf("skipped: no GPU: %s\n", reason);
	return 77;
}

struct ranks p2p_ranks(int32_t n_ranks)
{
	return (struct ranks){
		.kind = kind,
		.n_ranks = n_ranks,
		.device = FERRY_DEVICE_CUDA,
		.n_gpus = p2p_n_gpus,
		.open_timeout_ms = 30000,
		.limit_ms = 60000,
	};
}
