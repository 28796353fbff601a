/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric table: what a transport must do, and nothing else. It fits
 * memory that peers load and store (local, shm, p2p), networks with counted
 * completions, any order and registered memory (wire, ofi), and
 * device-initiated transports (nvshmem), whose kernels get their own handles
 * from `data` and from their module.
 *
 * A fabric moves bytes and raises counters. It knows no slots, phases or
 * epochs. Everything that waits with a bound is in segment.c, for all fabrics.
 *
 * Memory of a rank, as `mem_create` makes it, has two parts. Control: struct
 * ferry_segment_ctl, verdicts, counters (segment.h), always host memory, since
 * waits and failures live there. Data: host memory right behind it, or memory
 * of a GPU. All offsets below count from the start of control, as if data
 * began where control ends.
 */
#ifndef FERRY_FABRIC_OPS_H
#define FERRY_FABRIC_OPS_H

#include <ferry/fabric.h>

#include "../core/ctx.h"

enum {
	FERRY_HANDLE_BYTES = 384, /* of a memory, passed between ranks */
	FERRY_REASON_BYTES = 160,
	/* Of a fabric that works, but is used only when asked for by name. */
	FERRY_SCORE_BY_NAME = 1,
};

struct ferry_world;

/* First member of a fabric's own state: one per world. */
struct ferry_fabric {
	const struct ferry_fabric_ops *ops;
	struct ferry_world *world;
};

/* First member of a fabric's own memory: one per segment. */
struct ferry_mem {
	const struct ferry_fabric_ops *ops;
	struct ferry_fabric *fabric;
	size_t control_bytes;   /* page multiple: offset of the data */
	size_t data_bytes;      /* page multiple */
	size_t counters_offset; /* of counter 0; set before mem_attach */
	uint32_t n_signals;
	/*
	 * Counters [fan_first, fan_end), none by default; set before
	 * mem_attach. Where a put over a network raises one, it is raised at
	 * all ranks of the receiver's host: see net.h.
	 */
	uint32_t fan_first;
	uint32_t fan_end;
	void *control; /* own, page aligned */
	void *data;    /* own, page aligned; an address of device on a GPU */
	bool is_gpus;  /* of the host, and kernels use it at its address */
};

/* What every fabric's mem_create fills in alike. */
static inline void ferry_mem_init(struct ferry_mem *mem,
                                  struct ferry_fabric *fabric,
                                  size_t control_bytes, size_t data_bytes)
{
	mem->ops = fabric->ops;
	mem->fabric = fabric;
	mem->control_bytes = control_bytes;
	mem->data_bytes = data_bytes;
}

/*
 * No slot is NULL: what a fabric cannot do answers UNSUPPORTED. No slot waits
 * for a call of a peer. put, kick, flushed, progress and dead may be called by
 * several threads at once (an abort comes from any thread).
 */
struct ferry_fabric_ops {
	size_t size; /* of the table, for fabrics in modules */
	const char *name;
	const char *summary;
	enum ferry_device device; /* where the data part lies */

	/*
	 * Can it serve? world NULL: on this machine at all; otherwise for the
	 * peers of this world (world->places). A score, higher is better, 0:
	 * no; and one line why. Same answer on all ranks of a world. No side
	 * effects that outlive the call.
	 */
	int (*probe)(const struct ferry_world *world,
	             char reason[FERRY_REASON_BYTES]);

	/* Local set-up of the world's state. */
	enum ferry_status (*open)(struct ferry_world *world,
	                          struct ferry_fabric **fabric);
	/* All memories are destroyed. Never blocks for long. */
	void (*close)(struct ferry_fabric *fabric);

	/*
	 * Zeroed memory of its own that peers will reach, and the handle that
	 * they need for it. What cannot be backed is NOMEM here, never a
	 * signal later. All ranks have agreed on the sizes, page multiples,
	 * and come here at the same time, so a transport may allocate
	 * collectively.
	 */
	enum ferry_status (*mem_create)(struct ferry_fabric *fabric,
	                                size_t control_bytes, size_t data_bytes,
	                                struct ferry_mem **mem,
	                                uint8_t handle[FERRY_HANDLE_BYTES]);
	/*
	 * Connects to all peers' memories; handles is [n_ranks] in rank order.
	 * All peers have created theirs. From here on peers may write. Called
	 * on all ranks or on none.
	 */
	enum ferry_status (*mem_attach)(struct ferry_mem *mem,
	                                const uint8_t *handles);
	/* All ranks have attached: names can go. Also called on failure. */
	void (*mem_seal)(struct ferry_mem *mem);
	/* Local. A peer may still be writing: that must harm nobody. */
	void (*mem_destroy)(struct ferry_mem *mem);

	/* Bits of enum ferry_cap towards a peer, the own rank too. */
	uint32_t (*caps)(const struct ferry_mem *mem, int32_t peer);
	/* Peer's control in this address space; NULL: it is only put to. */
	void *(*control)(const struct ferry_mem *mem, int32_t peer);
	/*
	 * Peer's data for the host's loads and stores (FERRY_CAP_LDST) or for
	 * those of the own GPU (FERRY_CAP_DEVICE); NULL without either.
	 */
	void *(*data)(const struct ferry_mem *mem, int32_t peer);
	/* Most bytes of one put; a constant of the world. */
	size_t (*max_put)(const struct ferry_mem *mem);

	/*
	 * Writes bytes (0: none) to offset in the peer's memory, then adds 1
	 * to its counter, seq_cst and so after the bytes, and rings its
	 * doorbell (ferry_segment_ring). Returns when the put is queued; waits
	 * for the own queue at most timeout_ms. The bytes lie in one part, and
	 * those for control come from control. The source lies in the own
	 * memory unless the peer is FERRY_CAP_LDST, and is read at any time
	 * until `flushed`. Without FERRY_CAP_ORDERED puts arrive in any order,
	 * each whole. Errors: PEER, FABRIC, TIMEOUT.
	 */
	enum ferry_status (*put)(struct ferry_mem *mem, int32_t peer,
	                         size_t offset, const void *source,
	                         size_t bytes, uint32_t signal);
	/* What was put leaves without further calls. Does not block. */
	enum ferry_status (*kick)(struct ferry_mem *mem);
	/*
	 * Have all sources been read? Does not block; may make progress.
	 * What was put before this said true arrives before what is put after
	 * it: so a good-bye does not overtake data.
	 */
	bool (*flushed)(struct ferry_mem *mem);
	/*
	 * Makes progress where no thread does: raises own counters for what
	 * arrived. Called by every wait; true when a wait must not sleep.
	 */
	bool (*progress)(struct ferry_mem *mem);
	/* Has this peer died? Asked by waits, a few hundred times a second. */
	bool (*dead)(struct ferry_fabric *fabric, int32_t peer);
	/*
	 * Has the connection between this memory and the peer's broken, so
	 * that puts of either side may be lost? Then it stays so, and `why`
	 * has the transport's words. The peer may well live: a fabric says
	 * nothing until the news of a death would have come, and never says
	 * it of a peer that has told why it goes. When this returns, what had
	 * arrived from a peer that is dead or cut off has raised its counters.
	 * False: `why`, "" before, may have got words on a peer that takes
	 * nothing, for who gives up waiting for it. Asked as often as `dead`.
	 * Of the own rank: is what arrives here lost, whoever sent it? The
	 * memory can then still be put from, so that peers are told.
	 */
	bool (*cut)(struct ferry_mem *mem, int32_t peer,
	            char why[FERRY_REASON_BYTES]);
};

/* Typed stubs and defaults for slots that a fabric does not fill. */
enum ferry_status ferry_fabric_kick_nothing(struct ferry_mem *mem);
bool ferry_fabric_flushed_always(struct ferry_mem *mem);
bool ferry_fabric_progress_none(struct ferry_mem *mem);
void ferry_fabric_seal_nothing(struct ferry_mem *mem);
bool ferry_fabric_cut_never(struct ferry_mem *mem, int32_t peer,
                            char why[FERRY_REASON_BYTES]);
size_t ferry_fabric_max_put_unbounded(const struct ferry_mem *mem);
/* caps where all memory of a host is loaded and stored. */
uint32_t ferry_fabric_caps_ldst(const struct ferry_mem *mem, int32_t peer);
/* data of fabrics that have it right behind control. */
void *ferry_fabric_data_behind(const struct ferry_mem *mem, int32_t peer);
/* put by memcpy, seq_cst addition and doorbell, for such fabrics. */
enum ferry_status ferry_fabric_put_ldst(struct ferry_mem *mem, int32_t peer,
                                        size_t offset, const void *source,
                                        size_t bytes, uint32_t signal);

/*
 * A world of GPUs on several hosts has a network behind its fabric, with
 * memory of the host; NULL: it has none.
 */
struct ferry_fabric *ferry_fabric_network(struct ferry_fabric *fabric);

/*
 * The fabric whose memory hosts read: the one behind a fabric of GPUs, or
 * `fabric` itself, with its wrappers, in worlds of CPUs. NULL: there is none.
 */
struct ferry_fabric *ferry_fabric_host(struct ferry_fabric *fabric);

/* Is it p2p among the GPUs of one host? */
bool ferry_fabric_is_near(struct ferry_fabric *fabric);

/* The fabrics of this build, best first; ends with NULL. */
extern const struct ferry_fabric_ops *const ferry_fabrics[];

/*
 * Wrappers: a fabric that passes everything on to `inner`, which it owns from
 * here on, and records or disturbs it.
 */
enum ferry_status ferry_fabric_wrap_fault(struct ferry_world *world,
                                          struct ferry_fabric *inner,
                                          struct ferry_fabric **fabric);
enum ferry_status ferry_fabric_wrap_trace(struct ferry_world *world,
                                          struct ferry_fabric *inner,
                                          struct ferry_fabric **fabric);

/*
 * Opens the fabric of a world: by name ("shm", "trace:shm"), or the best by
 * probe; puts the fault wrapper around it where options ask for faults.
 */
enum ferry_status ferry_fabric_open(struct ferry_world *world, const char *name,
                                    struct ferry_fabric **fabric);

#endif
