/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_order.h. */
#include "cuda_order.h"

int ferry_cuda_order_init(struct cuda_order *order)
{
	cudaError_t error =
		cudaEventCreateWithFlags(&order->event, cudaEventDisableTiming);

	if (error == cudaSuccess)
		error = cudaEventCreateWithFlags(&order->captured,
		                                 cudaEventDisableTiming);
	return (int)error;
}

void ferry_cuda_order_destroy(struct cuda_order *order)
{
	if (order->event)
		(void)cudaEventDestroy(order->event);
	if (order->captured)
		(void)cudaEventDestroy(order->captured);
	order->event = NULL;
	order->captured = NULL;
}

/* NULL and cudaStreamLegacy are one stream; it is never captured. */
static bool is_legacy(cudaStream_t stream)
{
	return !stream || stream == cudaStreamLegacy;
}

/* The capture that a stream is part of, 0: none. */
static cudaError_t capture_of(cudaStream_t stream, unsigned long long *id)
{
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	cudaError_t error;

	*id = 0;
	if (is_legacy(stream))
		return cudaSuccess;
	error = cudaStreamGetCaptureInfo(stream, &status, id, NULL, NULL, NULL,
	                                 NULL);
	if (error == cudaSuccess && status == cudaStreamCaptureStatusNone)
		*id = 0;
	return error;
}

/* One handle stands for the stream of each thread. */
static bool is_same(const struct cuda_order *order, cudaStream_t stream)
{
	if (is_legacy(stream) && is_legacy(order->stream))
		return true;
	return stream == order->stream &&
	       (stream != cudaStreamPerThread ||
	        pthread_equal(order->thread, pthread_self()));
}

/* The phase before was captured: is that capture still being made? */
static cudaError_t is_open(const struct cuda_order *order, bool *open)
{
	unsigned long long id;
	const cudaError_t error = capture_of(order->stream, &id);

	*open = id == order->id;
	return error;
}

/* After a captured phase: a stream outside joins its capture. */
static cudaError_t join_capture(struct cuda_order *order, cudaStream_t stream,
                                unsigned long long *id)
{
	cudaError_t error;
	bool open = true;

	if (*id != order->id) {
		if (*id)
			return cudaSuccess; /* of another capture */
		error = is_open(order, &open);
		if (error != cudaSuccess || !open)
			return error;
	}
	error = cudaStreamWaitEvent(stream, order->captured,
	                            cudaEventWaitDefault);
	if (error == cudaSuccess)
		*id = order->id;
	return error;
}

/* `event` stands behind the newest phase outside of captures. */
static cudaError_t record_late(struct cuda_order *order)
{
	unsigned long long id;
	cudaError_t error;

	if (order->recorded)
		return cudaSuccess;
	error = capture_of(order->outside, &id);
	if (error == cudaSuccess && id)
		error = cudaErrorStreamCaptureIsolation;
	if (error == cudaSuccess)
		error = cudaEventRecord(order->event, order->outside);
	order->recorded = error == cudaSuccess;
	return error;
}

int ferry_cuda_order_before(struct cuda_order *order, cudaStream_t stream,
                            unsigned long long *id)
{
	cudaError_t error = capture_of(stream, id);

	if (error != cudaSuccess || !order->used || is_same(order, stream))
		return (int)error;
	if (order->id)
		return (int)join_capture(order, stream, id);
	if (*id) /* the caller's graph, the caller's order */
		return (int)cudaSuccess;
	order->eager = true;
	error = record_late(order);
	if (error == cudaSuccess)
		error = cudaStreamWaitEvent(stream, order->event,
		                            cudaEventWaitDefault);
	return (int)error;
}

int ferry_cuda_order_after(struct cuda_order *order, cudaStream_t stream,
                           unsigned long long id)
{
	cudaError_t error = cudaSuccess;

	order->stream = stream;
	order->thread = pthread_self();
	order->id = id;
	order->used = true;
	if (id)
		return (int)cudaEventRecord(order->captured, stream);
	order->outside = stream;
	order->pending = true;
	order->recorded = false;
	if (order->eager || stream == cudaStreamPerThread) {
		error = cudaEventRecord(order->event, stream);
		order->recorded = error == cudaSuccess;
	}
	return (int)error;
}

int ferry_cuda_order_wait(struct cuda_order *order)
{
	cudaError_t error;

	if (!order->pending)
		return (int)cudaSuccess;
	error = record_late(order);
	if (error == cudaSuccess)
		error = cudaEventSynchronize(order->event);
	return (int)error;
}

bool ferry_cuda_order_over(struct cuda_order *order)
{
	cudaError_t error;

	if (!order->pending)
		return true;
	error = record_late(order);
	/* Behind what came before a capture that is still being made. */
	if (error == cudaErrorStreamCaptureIsolation)
		return false;
	if (error == cudaSuccess)
		error = cudaEventQuery(order->event);
	return error != cudaErrorNotReady;
}
