/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grids of blocks of warps of threads on one thread of the CPU: each thread of
 * a kernel is a fibre, and a warp drawn at random takes one step, in which each
 * of its lanes goes from one meeting (shuffle, vote, barrier) to the next. What
 * a warp does between two meetings is one step to all others. Draws and the
 * clock come from the seed alone, so a seed gives the same run again.
 *
 * What device code says in CUDA's words is in fibre_device.h and
 * fibre_order.cuh; CUDA's host functions are in fibre_runtime.c.
 */
#ifndef FIBRES_H
#define FIBRES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

struct fibre_launch {
	void (*call)(void (*kernel)(void), const void *args);
	void (*kernel)(void); /* of another type, which `call` knows */
	const void *args;     /* copied */
	size_t args_bytes;
	uint32_t n_blocks, n_threads;
	size_t shared_bytes; /* dynamic */
};

/* Of all that runs from now on; the clock begins anew. Nothing may run. */
void fibres_seed(uint64_t seed);
struct CUstream_st *fibres_stream_open(void);
void fibres_stream_close(struct CUstream_st *stream);
void fibres_enqueue(struct CUstream_st *stream, const struct fibre_launch *l);
/* Until all that was enqueued has ended. Aborts where that cannot be. */
void fibres_run(void);

/* What follows is called by kernels. */

struct fibre_index {
	uint32_t x;
};
extern struct fibre_index threadIdx, blockIdx, gridDim, blockDim;

uint32_t fibre_lane(void);
/*
 * Waits for the lanes of `mask`, of which the caller is one: what each of them
 * gave, by lane, until the caller's next meeting.
 */
const uint64_t *fibre_meet(uint32_t mask, uint64_t value);
/* n threads of the block, 0: all. Was `value` true for any of them? */
bool fibre_barrier(int barrier, uint32_t n, bool value);
/* Of n threads of the block, among which others wait by fibre_barrier. */
void fibre_arrive(int barrier, uint32_t n);
void *fibre_dynamic(void); /* shared memory of the launch */
/* The kernel's own that is declared in this line; two per kernel. */
void *fibre_shared(int line, size_t bytes);
/* Done at once or as late as async_wait, which awaits all of the thread. */
void fibre_async_load(void *shared, const void *global, uint32_t bytes);
void fibre_async_wait(void);
/* Done at once or as late as bulk_wait allows. Multiples of 16. */
void fibre_bulk_store(void *to, const void *from, uint32_t bytes);
void fibre_bulk_commit(void);
void fibre_bulk_wait(uint32_t n_groups);
uint64_t fibre_ns(void);

#ifdef __cplusplus
}
#endif

#endif
