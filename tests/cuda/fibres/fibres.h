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
	bool early;          /* before the grid in front has ended */
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
/*
 * Other warps may run here, as a draw of one in so many has it: the same one
 * for all lanes that have come together.
 */
void fibre_pause(uint32_t one_in);
/* Done at once or as late as async_wait, which awaits all of the thread. */
void fibre_async_load(void *shared, const void *global, uint32_t bytes);
void fibre_async_wait(void);
/*
 * The copy engine, as unkind as it may be (fibre_flight.c). Multiples of 16.
 * An mbarrier is 8 bytes of shared memory.
 */
void fibre_bulk_load(void *shared, const void *global, uint32_t bytes,
                     uint64_t *mbarrier);
void fibre_bulk_store(void *to, const void *from, uint32_t bytes);
void fibre_bulk_commit(void);
/* Until all but the newest groups are over; read: have read their source. */
void fibre_bulk_wait(uint32_t n_groups, bool read);
void fibre_fence_shared(void);
void fibre_fence_global(void);
void fibre_mbarrier_init(uint64_t *mbarrier, uint32_t n_arrivals);
void fibre_mbarrier_add(uint64_t *mbarrier, uint32_t bytes, bool arrives);
void fibre_mbarrier_wait(uint64_t *mbarrier, uint32_t parity);
/* The grid behind this one may start, as far as this block is concerned. */
void fibre_launch_next(void);
void fibre_wait_previous(void);
uint64_t fibre_ns(void);

#ifdef __cplusplus
}
#endif

#endif
