/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The phases of a slot run one after the other, on whatever streams they come:
 * where the stream changes, an event of the library's own orders them.
 *
 * As long as all phases of a slot come on one stream nothing is recorded, and
 * a phase costs its launch alone. At the first change an event is recorded on
 * the old stream, behind everything that is there by then; from then on one is
 * recorded behind every phase, so that a later phase waits for that phase and
 * for nothing else. Under capture one is always recorded: it costs nothing
 * there, and makes the fork and the join of the graph.
 *
 * An event of a capture orders nothing outside of it, nor in another. Between
 * phases that were captured in different graphs, or only one of which was, the
 * order is that of the streams which the graphs are launched on.
 */
#ifndef FERRY_CUDA_ORDER_H
#define FERRY_CUDA_ORDER_H

#include <pthread.h>
#include <stdbool.h>

#include <cuda_runtime_api.h>

struct cuda_order {
	cudaStream_t stream;   /* of the phase before */
	pthread_t thread;      /* that issued it: for cudaStreamPerThread */
	unsigned long long id; /* of its capture, 0: was none */
	bool used;             /* there was a phase before */
	bool eager;            /* record behind every phase */
	cudaEvent_t captured;  /* behind the newest phase in a capture */
	/* Of the newest phase outside of captures. */
	cudaStream_t outside;
	bool pending;  /* there was one */
	bool recorded; /* `event` is behind it */
	cudaEvent_t event;
};

int ferry_cuda_order_init(struct cuda_order *order);
void ferry_cuda_order_destroy(struct cuda_order *order);

/*
 * What is put on `stream` next comes after the phase before. *id is the
 * capture that the stream is then part of, 0: none. A CUDA error, or
 * cudaErrorStreamCaptureIsolation where the old stream has begun a capture and
 * nothing was recorded on it in time.
 */
int ferry_cuda_order_before(struct cuda_order *order, cudaStream_t stream,
                            unsigned long long *id);
/*
 * Waits until the phases that were issued outside of captures are over. The
 * streams must not be in a capture now.
 */
int ferry_cuda_order_wait(struct cuda_order *order);
/*
 * Are they over? Does not block. Not known to be, where the stream is in a
 * capture now; where CUDA fails, they are.
 */
bool ferry_cuda_order_over(struct cuda_order *order);
/* The phase is on the stream. */
int ferry_cuda_order_after(struct cuda_order *order, cudaStream_t stream,
                           unsigned long long id);

#endif
