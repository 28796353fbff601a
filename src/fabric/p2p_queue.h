/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts of fabric p2p that are under way: each raises a counter in the control
 * of a peer when its copy is complete. There is room for a fixed number.
 */
#ifndef FERRY_P2P_QUEUE_H
#define FERRY_P2P_QUEUE_H

#include <pthread.h>

#include "gpu.h"

struct ferry_p2p_queue;

struct ferry_p2p_put {
	void *to; /* device */
	const void *from;
	size_t bytes;           /* 0: only the counter */
	unsigned char *control; /* of the peer */
	uint32_t counter;
};

enum ferry_status ferry_p2p_queue_new(struct ferry_ctx *ctx,
                                      struct ferry_gpu *gpu,
                                      struct ferry_p2p_queue **queue);
/*
 * Waits until nothing is under way, at most until deadline_ns. False: it still
 * is, the queue lives on, and what it copies must do so, too.
 */
bool ferry_p2p_queue_free(struct ferry_p2p_queue *queue, uint64_t deadline_ns);

/* Is nothing under way? */
bool ferry_p2p_queue_empty(struct ferry_p2p_queue *queue);

/*
 * Queues a put, counters_offset into control; waits for room until
 * deadline_ns. Puts are done in their order. Errors: TIMEOUT, CUDA.
 */
enum ferry_status ferry_p2p_queue_put(struct ferry_ctx *ctx,
                                      struct ferry_p2p_queue *queue,
                                      const struct ferry_p2p_put *put,
                                      size_t counters_offset,
                                      uint64_t deadline_ns);

#endif
