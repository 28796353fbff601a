/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fabrics over a network have in common. Memory comes from an inner
 * fabric of the machine: local for threads of a team, shm for processes. Each
 * network has two names: in `NET` all peers are put to, in `shm+NET` those of
 * the own host are loaded and stored and only the others put to.
 *
 * A network's own file has open, mem_create, mem_attach and mem_destroy that
 * call those below, then put, kick, flushed and a thread that takes what
 * arrives. Everything else in its tables is from here.
 */
#ifndef FERRY_NET_H
#define FERRY_NET_H

#include "registry.h"
#include "wrap.h"

/*
 * The inner fabric's part of a handle comes first, the network's own after it:
 * handle + FERRY_NET_HANDLE_AT, FERRY_HANDLE_BYTES - FERRY_NET_HANDLE_AT bytes.
 */
enum { FERRY_NET_HANDLE_AT = 128 };

/* First member of a network's state. */
struct ferry_net {
	struct ferry_wrap wrap; /* inner: memory */
	bool stores;        /* shm+NET: peers of the own host are stored to */
	int32_t *next_mate; /* [n_ranks] next rank of the same host, round */
};

/* First member of a network's memory. */
struct ferry_net_mem {
	struct ferry_wrap_mem wrap; /* inner: what is mapped here */
};

static inline struct ferry_net *ferry_net_of(const struct ferry_mem *mem)
{
	return (struct ferry_net *)mem->fabric;
}

/*
 * Fills in *net, whose ops and mem_bytes of wrap the caller has set, and opens
 * the inner fabric. `stores` as above; reach: what shm maps, at least
 * FERRY_REACH_HOST where stores is set. On failure nothing is left.
 * Errors: NOMEM and those of the inner fabric.
 */
enum ferry_status ferry_net_open(struct ferry_world *world, bool stores,
                                 enum ferry_reach reach, struct ferry_net *net);
/* Closes the inner fabric and frees the network's state. */
void ferry_net_close(struct ferry_fabric *fabric);

/* Is the peer, or the own rank, reached by loads and stores? */
static inline bool ferry_net_stores(const struct ferry_mem *mem, int32_t peer)
{
	return mem->ops->control(mem, peer) != NULL;
}

/*
 * A put has arrived in the own memory, and its bytes lie there: raises the
 * counter and rings. A counter in the memory's fan range (fabric_ops.h) is
 * raised at all ranks of the own host that stores reach, at the own one last.
 * Any thread.
 */
void ferry_net_arrived(const struct ferry_mem *mem, uint32_t counter);

/* The same for a memory that the inner fabric maps. For tests: wire. */
void ferry_net_arrived_at(const struct ferry_mem *mem, int32_t rank,
                          uint32_t counter);

/* Slots. mem_create, mem_attach and mem_destroy are ferry_wrap_mem_...() */
uint32_t ferry_net_caps(const struct ferry_mem *mem, int32_t peer);
void *ferry_net_control(const struct ferry_mem *mem, int32_t peer);

#endif
