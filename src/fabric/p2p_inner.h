/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of fabric p2p: its state and its memory. See fab_p2p.c. */
#ifndef FERRY_P2P_INNER_H
#define FERRY_P2P_INNER_H

#include "fd_post.h"
#include "p2p_queue.h"
#include "shm_file.h"
#include "wrap.h"

/* Of a handle of the inner fabric: shm's, and what a network adds to it. */
enum { FERRY_P2P_INNER_BYTES = 296 };

_Static_assert(sizeof(struct ferry_shm_handle) <= FERRY_P2P_INNER_BYTES,
               "a handle holds the inner one");

struct ferry_p2p {
	struct ferry_wrap wrap; /* inner: control */
	bool team;              /* ranks are threads of one team, or one */
	bool net;               /* inner is a network, some ranks are far */
	uint32_t *caps;         /* [n_ranks] 0: far, on another host */
};

/* Memory of a GPU, mapped once for all who refer to it. */
struct ferry_p2p_block {
	struct ferry_gpu_memory *memory;
	uint32_t n_refs;
};

struct ferry_p2p_handle {
	uint8_t inner[FERRY_P2P_INNER_BYTES];
	uint64_t bytes;                /* of the GPU memory */
	struct ferry_p2p_block *block; /* team */
	struct ferry_fd_address address;
};

_Static_assert(sizeof(struct ferry_p2p_handle) <= FERRY_HANDLE_BYTES,
               "a handle must hold how to find a memory");

struct ferry_p2p_mem {
	struct ferry_wrap_mem wrap; /* inner: control */
	struct ferry_p2p_block *own;
	bool attached;
	struct ferry_p2p_block **blocks; /* [n_ranks], NULL: not mapped */
	struct ferry_fd_post post;
	struct ferry_p2p_queue *queue;
};

static inline struct ferry_p2p *ferry_p2p_of(const struct ferry_mem *mem)
{
	return (struct ferry_p2p *)mem->fabric;
}

/* Is its memory mapped here? Otherwise it is on another host. */
static inline bool ferry_p2p_is_near(const struct ferry_mem *mem, int32_t peer)
{
	return ferry_p2p_of(mem)->caps[peer] != 0;
}

/* The slot mem_attach: p2p_attach.c. */
enum ferry_status ferry_p2p_attach(struct ferry_mem *mem,
                                   const uint8_t *handles);

#endif
