/* SPDX-License-Identifier: Apache-2.0 */
/* See p2p_ranks.h. */
#include "p2p_ranks.h"

#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "fabrics.h"
#include "gpus.h"

int32_t p2p_n_gpus;
uint64_t p2p_seed;
const char *p2p_fabric = "p2p";
int32_t p2p_most_ranks = RANKS_MAX;
static enum ranks_kind kind;

int32_t p2p_gpu(int32_t rank)
{
	return gpus_of_rank(rank, p2p_n_gpus);
}

static int count_gpus(void)
{
	char reason[GPUS_REASON];

	p2p_n_gpus = gpus_count(reason);
	if (p2p_n_gpus)
		return 0;
	printf("skipped: no GPU: %s\n", reason);
	return 77;
}

/* Is there a module and an NVSHMEM for it? */
static int begin_nvshmem(void)
{
	const struct ferry_fabric_info info = fabrics_get("nvshmem");

	if (info.score == 0) {
		printf("skipped: no NVSHMEM: %s\n", info.reason);
		return 77;
	}
	printf("# %s\n", info.reason);
	p2p_fabric = "nvshmem";
	p2p_most_ranks = 2;
	return count_gpus();
}

int p2p_begin(int argc, char **argv)
{
	if (argc != 2 ||
	    (strcmp(argv[1], "threads") && strcmp(argv[1], "processes") &&
	     strcmp(argv[1], "nvshmem"))) {
		fprintf(stderr, "usage: %s threads|processes|nvshmem\n",
		        argv[0]);
		return 2;
	}
	kind = strcmp(argv[1], "threads") ? RANKS_PROCESSES : RANKS_THREADS;
	if (!strcmp(argv[1], "nvshmem"))
		return begin_nvshmem();
	return count_gpus();
}

struct ranks p2p_ranks(int32_t n_ranks)
{
	return (struct ranks){
		.kind = kind,
		.n_ranks = n_ranks,
		.device = FERRY_DEVICE_CUDA,
		.fabric = p2p_fabric,
		.n_gpus = p2p_n_gpus,
		.open_timeout_ms = 30000,
		.limit_ms = 60000,
	};
}

void p2p_run(int32_t n_ranks, ranks_body *body)
{
	struct ranks how = p2p_ranks(n_ranks);

	how.arg = &p2p_seed;
	ranks_run(&how, body);
}

void p2p_cuda_ok(int error, const char *what)
{
	if (error)
		RANKS_FAIL("%s: %s", what,
		           cudaGetErrorName((cudaError_t)error));
}

struct ferry_segment *p2p_open(struct rank *rank, size_t bytes,
                               uint32_t n_signals)
{
	struct ferry_segment *segment = NULL;

	RANKS_OK(ferry_segment_open(rank->world, bytes, n_signals, &segment));
	ranks_defer((void (*)(void *))ferry_segment_close, segment);
	return segment;
}

int32_t p2p_gpu_ranks(const struct rank *rank)
{
	int32_t n = 0;

	for (int32_t r = 0; r < rank->n_ranks; r++)
		n += p2p_gpu(r) == p2p_gpu(rank->rank);
	return n;
}
