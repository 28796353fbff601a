/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of fabric nvshmem: its state, its memory, its heap. */
#ifndef FERRY_NVSHMEM_INNER_H
#define FERRY_NVSHMEM_INNER_H

#include "nvshmem_module.h"
#include "wrap.h"

enum { FERRY_NVSHMEM_BLOCKS = 64 /* segments at a time */ };

/*
 * What was allocated: NVSHMEM frees collectively, and a segment is closed
 * alone. So a block is only done with then, and freed by all at the next
 * allocation, when they are all done with it.
 */
struct ferry_nvshmem_block {
	void *memory; /* NULL: free */
	bool done;
};

struct ferry_nvshmem_fabric {
	struct ferry_wrap wrap; /* inner: control */
	const struct ferry_nvshmem_ops *module;
	struct ferry_nvshmem *pe; /* NULL: not open */
	bool direct;              /* store where NVSHMEM maps a peer */
	bool lost;                /* the ranks' heaps differ: leave them */
	pthread_mutex_t lock;     /* of what follows */
	struct ferry_nvshmem_block blocks[FERRY_NVSHMEM_BLOCKS];
};

/* The world's fabric, behind its wrappers; NULL: it is another one. */
struct ferry_nvshmem_fabric *ferry_nvshmem_of(const struct ferry_world *world);

/*
 * Collective, bounded by open_timeout_ms: whoever brings a failure, `mine`,
 * is a failure for all. The block has the same index on all ranks.
 */
enum ferry_status ferry_nvshmem_take(struct ferry_nvshmem_fabric *f,
                                     enum ferry_status mine, size_t bytes,
                                     int32_t *block);
#ifdef __clang_analyzer__
/* What the analyzer cannot see: who brings a failure gets that failure. */
#define ferry_nvshmem_take(f, mine, ...)                                       \
	((mine) == FERRY_OK                                                    \
	         ? ferry_nvshmem_take(f, mine, __VA_ARGS__)                    \
	         : (ferry_nvshmem_take(f, mine, __VA_ARGS__), (mine)))
#endif

/* Local: the block is freed some day. */
void ferry_nvshmem_give(struct ferry_nvshmem_fabric *f, int32_t block);

/* nvshmem_mem.c: slots of the table. */
enum ferry_status ferry_nvshmem_mem_create(struct ferry_fabric *fabric,
                                           size_t control_bytes,
                                           size_t data_bytes,
                                           struct ferry_mem **mem,
                                           uint8_t handle[FERRY_HANDLE_BYTES]);
enum ferry_status ferry_nvshmem_mem_attach(struct ferry_mem *mem,
                                           const uint8_t *handles);
void ferry_nvshmem_mem_destroy(struct ferry_mem *mem);
uint32_t ferry_nvshmem_caps(const struct ferry_mem *mem, int32_t peer);
void *ferry_nvshmem_data(const struct ferry_mem *mem, int32_t peer);
enum ferry_status ferry_nvshmem_put(struct ferry_mem *mem, int32_t peer,
                                    size_t offset, const void *source,
                                    size_t bytes, uint32_t signal);
bool ferry_nvshmem_flushed(struct ferry_mem *mem);

#endif
