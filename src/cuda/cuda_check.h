/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stress of lines for tearing, of ferry check: is the 128-byte line that a
 * GPU stores ever seen in part by the GPU that polls it? CUDA errors come back
 * as numbers (cudaError_t).
 */
#ifndef FERRY_CUDA_CHECK_H
#define FERRY_CUDA_CHECK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* In device memory, zeroed by the caller; adds up. */
struct ferry_cuda_lines_found {
	unsigned long long seen; /* lines whose epoch had come */
	unsigned long long torn; /* of them, with data of another epoch */
	unsigned long long late; /* waits that were given up */
	unsigned long long first_torn[4]; /* line, lane, got, wanted */
};

/*
 * Every rank runs one at the same time, and another when all are through.
 * Zeroed symmetric memory of ferry_cuda_lines_bytes: `own` is written by the
 * rank before, `next` belongs to the rank behind, `before` to the one before;
 * equal shape on all ranks.
 */
struct ferry_cuda_lines_check {
	unsigned char *own, *next, *before;
	int32_t n_pairs;       /* blocks that write, and blocks that read */
	int32_t lines_of_pair; /* a multiple of 4 */
	int64_t rounds;        /* each writes all lines once */
	int64_t first_round;   /* of all runs on this memory so far */
	uint64_t seed;         /* the epoch of a line is seed + round + 1 */
	uint64_t timeout_ns;   /* of a wait */
	struct ferry_cuda_lines_found *found;
};

/* Bytes of the memory of a rank. */
size_t ferry_cuda_lines_bytes(int32_t n_pairs, int32_t lines_of_pair);

/* Enqueues 2 * n_pairs blocks, which must be resident together. */
int ferry_cuda_lines_run(const struct ferry_cuda_lines_check *check,
                         struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
