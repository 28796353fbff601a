/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and streams of a rank of a test. In a CPU world a buffer is memory of
 * the host. In a CUDA world it lies on the rank's GPU and has a mirror on the
 * host, which the test reads and writes; push and pull copy on a stream, in
 * its order. A test that goes through here runs in both.
 *
 *	struct mirror x = mirror_make(memory, bytes, bytes);
 *	fill(x.host);
 *	mirror_push(memory, &x, stream);
 *	in.x = x.device;
 *
 * Nothing here waits for a kernel, rank_memory_sync excepted: ranks of one GPU
 * would wait for each other.
 */
#ifndef RANK_MEMORY_H
#define RANK_MEMORY_H

#include "ranks.h"

struct CUstream_st;

/* One rank's; every thread may use it, one at a time. */
struct rank_memory;

struct mirror {
	uint8_t *host;   /* what a test reads and writes; NULL: none */
	uint8_t *device; /* what the library is given */
	size_t bytes;    /* of these are in use, and copied and filled */
	size_t host_room, device_room;
};

/* What a kind of memory does: the host's, or a GPU's. */
struct rank_memory_ops {
	/* NULL where there is none: the body has then failed. */
	struct rank_memory *(*open)(const struct rank *rank, int n_streams);
	void (*close)(struct rank_memory *m);
	struct CUstream_st *(*stream)(struct rank_memory *m, int i);
	void (*make)(struct rank_memory *m, struct mirror *mirror);
	void (*drop)(struct rank_memory *m, struct mirror *mirror);
	void (*push)(struct rank_memory *m, const struct mirror *mirror,
	             struct CUstream_st *stream);
	void (*pull)(struct rank_memory *m, const struct mirror *mirror,
	             struct CUstream_st *stream);
	/* The device's bytes; in a CPU world these are the mirror's, too. */
	void (*fill)(struct rank_memory *m, const struct mirror *mirror,
	             int byte, struct CUstream_st *stream);
	/* Any address of the rank's GPU, the window's too; waits. */
	void (*read)(struct rank_memory *m, void *to, const void *from,
	             size_t bytes);
	void (*write)(struct rank_memory *m, void *to, const void *from,
	              size_t bytes);
	/* Waits for all work of a stream, or of all streams: NULL. */
	void (*sync)(struct rank_memory *m, struct CUstream_st *stream);
};

/* First member of every kind. */
struct rank_memory {
	const struct rank_memory_ops *ops;
	bool is_device; /* pointers are the GPU's, results come later */
	int n_streams;
	int turn;
};

enum { RANK_MEMORY_STREAMS = 8 };

/*
 * The memory of a rank, by the device of its world; the same in all calls of
 * one body, and gone when the body has ended. n_streams (1..8) counts at the
 * first call.
 */
struct rank_memory *rank_memory_of(const struct rank *rank, int n_streams);

/* bytes of device memory, of which the first `mirrored` have a mirror. */
struct mirror mirror_make(struct rank_memory *m, size_t bytes, size_t mirrored);
/* Makes it with at least `room`, or takes the one there is; `bytes` in use. */
void mirror_use(struct rank_memory *m, struct mirror *mirror, size_t bytes,
                size_t room);
/* All work on it must be over; a mirror of zeros is accepted. */
void mirror_drop(struct rank_memory *m, struct mirror *mirror);
void mirror_push(struct rank_memory *m, const struct mirror *mirror,
                 struct CUstream_st *stream);
void mirror_pull(struct rank_memory *m, const struct mirror *mirror,
                 struct CUstream_st *stream);
void mirror_fill(struct rank_memory *m, const struct mirror *mirror, int byte,
                 struct CUstream_st *stream);

/* Stream i; NULL in a CPU world, whose calls take no other. */
struct CUstream_st *rank_memory_stream(struct rank_memory *m, int i);
/* One after the other. */
struct CUstream_st *rank_memory_next_stream(struct rank_memory *m);
void rank_memory_sync(struct rank_memory *m, struct CUstream_st *stream);
void rank_memory_read(struct rank_memory *m, void *to, const void *from,
                      size_t bytes);
void rank_memory_write(struct rank_memory *m, void *to, const void *from,
                       size_t bytes);

/* NULL in a build without CUDA. */
const struct rank_memory_ops *rank_memory_cuda(void);

#endif
