/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of CUDA worlds, dealt out to the GPUs in turn. */
#ifndef P2P_RANKS_H
#define P2P_RANKS_H

#include <ferry/fabric.h>

#include "ranks.h"

extern int32_t p2p_n_gpus;
/* "p2p", or "nvshmem". */
extern const char *p2p_fabric;

/* Ordinal of a rank's GPU. */
int32_t p2p_gpu(int32_t rank);

/*
 * Reads "threads", "processes", or "nvshmem" for processes on that fabric, and
 * counts GPUs; 0, or what main has to return, with the reason printed.
 */
int p2p_begin(int argc, char **argv);

/* How to run n ranks of that kind on worlds of the GPUs. */
struct ranks p2p_ranks(int32_t n_ranks);
void p2p_run(int32_t n_ranks, ranks_body *body);
extern int32_t p2p_most_ranks;
/* What their rank->arg points to. */
extern uint64_t p2p_seed;

/*
 * A cmocka test test_NAME that runs body NAME on each number of ranks. On
 * nvshmem, where a world takes a second, on at most 2.
 */
#define P2P_TEST(name, ...)                                                    \
	static void test_##name(void **state)                                  \
	{                                                                      \
		static const int32_t n_ranks[] = {__VA_ARGS__};                \
                                                                               \
		(void)state;                                                   \
		for (size_t i = 0; i < sizeof(n_ranks) / 4; i++)               \
			if (n_ranks[i] <= p2p_most_ranks)                      \
				p2p_run(n_ranks[i], name);                     \
	}

/* Ends the body unless a cudaError_t is 0. */
void p2p_cuda_ok(int error, const char *what);
#define CUDA_OK(call) p2p_cuda_ok((int)(call), #call)

/* Opens a segment that is closed when the body ends. */
struct ferry_segment *p2p_open(struct rank *rank, size_t bytes,
                               uint32_t n_signals);
/* Ranks on the GPU of this rank. */
int32_t p2p_gpu_ranks(const struct rank *rank);

#endif
