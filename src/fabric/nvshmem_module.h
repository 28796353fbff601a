/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of libferry_nvshmem.so, which libferry opens at run time: NVSHMEM
 * needs relocatable device code and a library of its own, and both stay in
 * there. Plain C, read by both sides; no header of CUDA or NVSHMEM.
 *
 * Errors are 0 or not, with words in `why`. No function changes the current
 * device of its thread.
 */
#ifndef FERRY_NVSHMEM_MODULE_H
#define FERRY_NVSHMEM_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	FERRY_NVSHMEM_ID_BYTES = 128,
	FERRY_NVSHMEM_WHY_BYTES = 160,
};

/* The one function that the module exports: its table. */
#define FERRY_NVSHMEM_ENTRY "ferry_nvshmem_module"

struct CUstream_st;
struct ferry_cuda_combine_ops;
struct ferry_cuda_dispatch_ops;

/* This process as a PE of NVSHMEM: there is one at a time. */
struct ferry_nvshmem;

struct ferry_nvshmem_version {
	int32_t major, minor, patch;
};

struct ferry_nvshmem_pe {
	int32_t device; /* ordinal of CUDA */
	int32_t rank, n_ranks;
	uint8_t id[FERRY_NVSHMEM_ID_BYTES]; /* of rank 0, the same for all */
};

struct ferry_nvshmem_ops {
	size_t size;           /* of this table */
	int32_t ferry_version; /* FERRY_VERSION: must be the library's */
	struct ferry_nvshmem_version built; /* headers and device library */

	/* The NVSHMEM that is loaded. */
	struct ferry_nvshmem_version (*version)(void);
	/* Is there a PE in this process, of whomever? */
	bool (*in_use)(void);
	/* What rank 0 gives to all before open. */
	int (*unique_id)(uint8_t id[FERRY_NVSHMEM_ID_BYTES],
	                 char why[FERRY_NVSHMEM_WHY_BYTES]);

	/*
	 * Collective, and waits for all without a bound, as NVSHMEM does:
	 * called only when all ranks have said that they will.
	 */
	int (*open)(const struct ferry_nvshmem_pe *pe,
	            struct ferry_nvshmem **nvshmem,
	            char why[FERRY_NVSHMEM_WHY_BYTES]);
	/* The same. What was allocated is gone. */
	void (*close)(struct ferry_nvshmem *nvshmem);
	/* Instead of close where peers have failed: NVSHMEM is left. */
	void (*leave)(struct ferry_nvshmem *nvshmem);

	/* Collective, as open, with equal bytes. Zeroed memory of the GPU. */
	int (*alloc)(struct ferry_nvshmem *nvshmem, size_t bytes, void **memory,
	             char why[FERRY_NVSHMEM_WHY_BYTES]);
	void (*free)(struct ferry_nvshmem *nvshmem, void *memory);
	/* Where a peer's memory is loaded and stored from here; NULL: put. */
	void *(*ptr)(struct ferry_nvshmem *nvshmem, const void *memory,
	             int32_t peer);

	/*
	 * NVSHMEM's own dense all-to-all, for comparison: bytes from each rank
	 * to each, in rank order, on the stream. Collective.
	 */
	int (*alltoall)(struct ferry_nvshmem *nvshmem, void *to,
	                const void *from, size_t bytes,
	                struct CUstream_st *stream,
	                char why[FERRY_NVSHMEM_WHY_BYTES]);

	/*
	 * Writes bytes (0: none) to `to` of the peer, an address in the own
	 * memory that stands for the peer's; then calls done(arg) in a thread
	 * that must not call CUDA: whoever is told by it sees the bytes. Puts
	 * are done in their order. Returns when the put is queued.
	 */
	int (*put)(struct ferry_nvshmem *nvshmem, int32_t peer, void *to,
	           const void *from, size_t bytes, void (*done)(void *arg),
	           void *arg, char why[FERRY_NVSHMEM_WHY_BYTES]);

	/*
	 * Kernels of path "chunks" that put by NVSHMEM to ranks which they
	 * cannot store to (cuda_kernels.h). args_bytes: of their arguments, as
	 * the module knows them.
	 */
	const struct ferry_cuda_dispatch_ops *dispatch;
	const struct ferry_cuda_combine_ops *combine;
	size_t args_bytes;
};

typedef const struct ferry_nvshmem_ops *ferry_nvshmem_entry(void);

#ifdef __cplusplus
}
#endif
#endif
