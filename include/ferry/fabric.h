/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/fabric.h: symmetric memory and three primitives over it: put with
 * signal, signal, wait.
 *
 * Every rank of a segment owns `bytes` bytes that all ranks can write and
 * n_signals 64-bit counters that all ranks can raise. A counter only grows.
 * The engine of moe.h stands on nothing else, and so can a caller's own
 * collective.
 *
 * Several threads may use a segment at once; it is closed when none does. A
 * failure ends the segment on all ranks: who is in a call gets the status that
 * the ranks agree on (TIMEOUT, PEER, ABORTED, FABRIC), every later call answers
 * BROKEN, and only close is legal.
 */
#ifndef FERRY_FABRIC_H
#define FERRY_FABRIC_H

#include <ferry/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What this rank can do to one peer's memory; bits of ferry_segment_caps. */
enum ferry_cap {
	/** ferry_segment_ptr gives an address that loads and stores reach. */
	FERRY_CAP_LDST = 1 << 0,
	/**
	 * Puts and signals of one thread to this peer arrive in their order:
	 * when the counter shows n, the data of the first n are there.
	 * Without it a counter tells how many have arrived, not which.
	 */
	FERRY_CAP_ORDERED = 1 << 1,
	/** Same host: the death of the peer is noticed by the kernel. */
	FERRY_CAP_SAME_HOST = 1 << 2,
	/**
	 * CUDA worlds: ferry_segment_ptr gives an address that kernels on this
	 * rank's GPU load and store. The host does not.
	 */
	FERRY_CAP_DEVICE = 1 << 3,
	/** With FERRY_CAP_DEVICE: the same GPU, or one reached over NVLink. */
	FERRY_CAP_NVLINK = 1 << 4,
};

/** One fabric that this build knows; the strings are static. */
struct ferry_fabric_info {
	size_t size;
	const char *name;    /* "shm" */
	const char *summary; /* one line */
	int score;           /* > 0: usable here, higher is chosen first */
	char reason[160];    /* why, or why not */
};
#define FERRY_FABRIC_INFO_INIT                                                 \
	{                                                                      \
		sizeof(struct ferry_fabric_info), NULL, NULL, 0,               \
		{                                                              \
			0                                                      \
		}                                                              \
	}

/**
 * The i-th fabric (0-based) and whether it works on this machine; false when
 * i is past the last or info->size is not set. Needs no world; may take
 * milliseconds.
 */
FERRY_API bool ferry_fabric_get(int i, struct ferry_fabric_info *info);

/** Symmetric memory of a world. */
struct ferry_segment;

/**
 * Opens a segment: `bytes` (>= 1, rounded up to pages) of zeroed memory and
 * n_signals (>= 1) counters at 0 on every rank. Collective, equal arguments
 * on all ranks; returns when every rank has attached every other, at most
 * after open_timeout_ms. *segment is written on success.
 * Errors: INVAL, NOMEM, SYS, TIMEOUT, PEER, MISMATCH, PROTO, ABORTED.
 */
FERRY_API enum ferry_status
ferry_segment_open(struct ferry_world *world, size_t bytes, uint32_t n_signals,
                   struct ferry_segment **segment) FERRY_MUST_CHECK;

/**
 * Closes a segment: local, does not wait for peers. What was put before still
 * arrives (the fabric gets at most a second for it); later writes of peers are
 * lost and harm nobody. NULL is accepted.
 */
FERRY_API void ferry_segment_close(struct ferry_segment *segment);

/**
 * This rank's own memory, page aligned; it lives as long as the segment. In a
 * CUDA world an address of its GPU.
 */
FERRY_API void *ferry_segment_base(struct ferry_segment *segment);

/**
 * Address of a peer's memory in this process, or NULL where the peer has
 * neither FERRY_CAP_LDST nor FERRY_CAP_DEVICE, or is none. The own rank is
 * always reachable. Stores made through it are published by a later signal of
 * the same thread; those of a kernel, when it has ended.
 */
FERRY_API void *ferry_segment_ptr(struct ferry_segment *segment, int32_t peer);

/** Capabilities towards a peer: bits of enum ferry_cap; 0 for no peer. */
FERRY_API uint32_t ferry_segment_caps(const struct ferry_segment *segment,
                                      int32_t peer);

/** Most bytes that one put may carry: the same on all ranks, for ever. */
FERRY_API size_t ferry_segment_max_put(const struct ferry_segment *segment);

/**
 * Writes bytes (0..ferry_segment_max_put) to `offset` in the peer's memory,
 * then adds 1 to its counter `signal`; who sees the counter sees the data.
 * May wait for room in the fabric's own queue, never for a call of the peer.
 * The source may be read until ferry_segment_flush returns, and must lie in
 * this rank's own memory of the segment where the peer has no FERRY_CAP_LDST.
 * In a CUDA world the copy engine copies; kernels that write the source or
 * read what is overwritten must have ended.
 * Nothing need leave before ferry_segment_kick.
 * Errors: INVAL, RANGE (nothing was put), BROKEN, and those that end the
 * segment.
 */
FERRY_API enum ferry_status ferry_segment_put(struct ferry_segment *segment,
                                              int32_t peer, size_t offset,
                                              const void *source, size_t bytes,
                                              uint32_t signal) FERRY_MUST_CHECK;

/**
 * Adds 1 to a counter of the peer: a put of no bytes. Waits and fails as that
 * does.
 */
FERRY_API enum ferry_status
ferry_segment_signal(struct ferry_segment *segment, int32_t peer,
                     uint32_t signal) FERRY_MUST_CHECK;

/**
 * Sends off everything put so far: from here on it arrives without further
 * calls of this rank. Does not block.
 * Errors: INVAL, BROKEN, FABRIC.
 */
FERRY_API enum ferry_status
ferry_segment_kick(struct ferry_segment *segment) FERRY_MUST_CHECK;

/**
 * Returns when the sources of all earlier puts have been read; implies kick.
 * Waits for the fabric, never for a call of a peer; at most timeout_ms.
 * Errors: INVAL, BROKEN, and those that end the segment.
 */
FERRY_API enum ferry_status
ferry_segment_flush(struct ferry_segment *segment) FERRY_MUST_CHECK;

/**
 * Waits until the own counter `signal` is at least `value`. Acquires: data
 * put before the signals are visible. Spins briefly, then sleeps; at most
 * timeout_ms of the world.
 * Errors: INVAL, RANGE, BROKEN, and those that end the segment. PEER where a
 * rank is dead whose signal may be missing.
 */
FERRY_API enum ferry_status ferry_segment_wait(struct ferry_segment *segment,
                                               uint32_t signal,
                                               uint64_t value) FERRY_MUST_CHECK;

/** Value of an own counter now, with acquire order; 0 for none. No wait. */
FERRY_API uint64_t ferry_segment_read(const struct ferry_segment *segment,
                                      uint32_t signal);

#ifdef __cplusplus
}
#endif
#endif
