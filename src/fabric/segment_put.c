/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Put, signal, kick, and what a caller may ask about a segment. Peers that are
 * reached by stores are written to right here, others through the fabric.
 */
#include "segment_break.h"

void *ferry_segment_base(struct ferry_segment *segment)
{
	return segment ? segment->mem->data : NULL;
}

static bool is_peer(const struct ferry_segment *segment, int32_t peer)
{
	return (uint32_t)peer < (uint32_t)segment->world->n_ranks;
}

void *ferry_segment_ptr(struct ferry_segment *segment, int32_t peer)
{
	if (!segment || !is_peer(segment, peer))
		return NULL;
	return segment->peers[peer].data;
}

uint32_t ferry_segment_caps(const struct ferry_segment *segment, int32_t peer)
{
	if (!segment || !is_peer(segment, peer))
		return 0;
	return segment->peers[peer].caps;
}

size_t ferry_segment_max_put(const struct ferry_segment *segment)
{
	return segment ? segment->mem->ops->max_put(segment->mem) : 0;
}

/* Words for a put or signal that may not be; the checks are inline. */
static __attribute__((noinline)) enum ferry_status
refuse(struct ferry_segment *segment, const char *call, int32_t peer,
       uint32_t signal)
{
	if (!segment)
		return ferry_fail(NULL, FERRY_INVAL, "%s: segment is NULL",
		                  call);
	struct ferry_ctx *ctx = &segment->world->ctx;

	if (load_acquire_u32(&segment->broken))
		return ferry_segment_broken(segment);
	if (!is_peer(segment, peer))
		return ferry_fail(ctx, FERRY_RANGE,
		                  "%s: peer is %d, allowed are 0..%d", call,
		                  peer, segment->world->n_ranks - 1);
	return ferry_fail(ctx, FERRY_RANGE,
	                  "%s: signal is %u, allowed are 0..%u", call, signal,
	                  segment->n_signals - 1);
}

static inline bool may_signal(struct ferry_segment *segment, int32_t peer,
                              uint32_t signal)
{
	return segment && !load_relaxed_u32(&segment->broken) &&
	       is_peer(segment, peer) && signal < segment->n_signals;
}

/* Does [source, source + bytes) lie in the own data? */
static bool is_own(const struct ferry_segment *segment, const void *source,
                   size_t bytes)
{
	const uintptr_t base = (uintptr_t)segment->mem->data;
	const uintptr_t at = (uintptr_t)source;

	return at >= base && at - base <= segment->data_bytes - bytes;
}

/* Words for a put whose bytes may not be put. */
static __attribute__((noinline)) enum ferry_status
refuse_bytes(struct ferry_segment *segment, int32_t peer, size_t offset,
             const void *source, size_t bytes)
{
	struct ferry_ctx *ctx = &segment->world->ctx;
	const size_t max_put = ferry_segment_max_put(segment);

	if (offset > segment->data_bytes ||
	    bytes > segment->data_bytes - offset)
		return ferry_fail(ctx, FERRY_RANGE,
		                  "segment_put: offset is %zu with %zu bytes, "
		                  "the segment has %zu",
		                  offset, bytes, segment->data_bytes);
	if (bytes > max_put)
		return ferry_fail(ctx, FERRY_RANGE,
		                  "segment_put: bytes is %zu, allowed are "
		                  "0..%zu",
		                  bytes, max_put);
	if (!source)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "segment_put: source is NULL with %zu bytes",
		                  bytes);
	return ferry_fail(ctx, FERRY_INVAL,
	                  "segment_put: source must lie in the own memory of "
	                  "the segment, because rank %d is not reached by "
	                  "stores",
	                  peer);
}

static inline bool may_put(struct ferry_segment *segment, int32_t peer,
                           size_t offset, const void *source, size_t bytes)
{
	if (offset > segment->data_bytes ||
	    bytes > segment->data_bytes - offset)
		return false;
	if (bytes == 0 || segment->direct)
		return bytes == 0 || source;
	return source && bytes <= ferry_segment_max_put(segment) &&
	       (segment->peers[peer].caps & FERRY_CAP_LDST ||
	        is_own(segment, source, bytes));
}

/* By fault injection, where ranks are threads. */
static bool is_killed(struct ferry_segment *segment)
{
	struct ferry_fabric *fabric = segment->mem->fabric;

	return fabric->ops->dead(fabric, segment->world->rank);
}

/* A fabric that fails ends the segment, like everything that fails. */
static enum ferry_status put_failed(struct ferry_segment *segment,
                                    enum ferry_status status, int32_t peer)
{
	const bool own = status == FERRY_FABRIC || status == FERRY_CUDA;
	struct ferry_verdict mine =
		ferry_verdict_of(status, own ? segment->world->rank : peer);
	struct ferry_gone gone;

	if (status == FERRY_PEER && peer >= 0 && !is_killed(segment)) {
		if (!ferry_segment_await_gone(segment, peer, &gone))
			return ferry_segment_check(segment);
		return ferry_segment_break_gone(segment, &mine, &gone);
	}
	return ferry_segment_break(segment, &mine, ferry_last_error());
}

enum ferry_status ferry_segment_put(struct ferry_segment *segment, int32_t peer,
                                    size_t offset, const void *source,
                                    size_t bytes, uint32_t signal)
{
	if (!may_signal(segment, peer, signal))
		return refuse(segment, "segment_put", peer, signal);
	if (!may_put(segment, peer, offset, source, bytes))
		return refuse_bytes(segment, peer, offset, source, bytes);
	const uint32_t counter = segment->first_signal + signal;

	if (segment->direct) {
		const struct ferry_segment_peer *p = &segment->peers[peer];

		ferry_mem_store(p->data, offset, source, bytes);
		ferry_mem_raise(p->control, segment->counters_offset, counter);
		return FERRY_OK;
	}
	const enum ferry_status status = segment->mem->ops->put(
		segment->mem, peer, segment->data_offset + offset, source,
		bytes, counter);

	return status == FERRY_OK ? FERRY_OK
	                          : put_failed(segment, status, peer);
}

enum ferry_status ferry_segment_signal(struct ferry_segment *segment,
                                       int32_t peer, uint32_t signal)
{
	if (!may_signal(segment, peer, signal))
		return refuse(segment, "segment_signal", peer, signal);
	const uint32_t counter = segment->first_signal + signal;

	if (segment->direct) {
		ferry_mem_raise(segment->peers[peer].control,
		                segment->counters_offset, counter);
		return FERRY_OK;
	}
	const enum ferry_status status = segment->mem->ops->put(
		segment->mem, peer, segment->data_offset, NULL, 0, counter);

	return status == FERRY_OK ? FERRY_OK
	                          : put_failed(segment, status, peer);
}

enum ferry_status ferry_segment_put_from(struct ferry_segment *segment,
                                         int32_t peer, size_t offset,
                                         const void *source, size_t bytes,
                                         uint32_t signal)
{
	if (!may_signal(segment, peer, signal))
		return refuse(segment, "segment_put", peer, signal);
	const enum ferry_status status = segment->mem->ops->put(
		segment->mem, peer, segment->data_offset + offset, source,
		bytes, segment->first_signal + signal);

	return status == FERRY_OK ? FERRY_OK
	                          : put_failed(segment, status, peer);
}

enum ferry_status ferry_segment_note(struct ferry_segment *segment,
                                     const struct ferry_note *note)
{
	if (!may_signal(segment, note->peer, note->signal))
		return refuse(segment, "segment_note", note->peer,
		              note->signal);
	unsigned char *const control = segment->peers[note->peer].control;

	ferry_mem_store(control, segment->notes_offset + note->offset,
	                note->source, note->bytes);
	if (note->behind)
		return ferry_segment_signal(segment, note->peer, note->signal);
	ferry_mem_raise(control, segment->counters_offset,
	                segment->first_signal + note->signal);
	return FERRY_OK;
}

enum ferry_status ferry_segment_kick(struct ferry_segment *segment)
{
	if (!segment)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "segment_kick: segment is NULL");
	if (load_relaxed_u32(&segment->broken))
		return ferry_segment_broken(segment);
	if (segment->direct)
		return FERRY_OK;
	const enum ferry_status status = segment->mem->ops->kick(segment->mem);

	return status == FERRY_OK ? FERRY_OK : put_failed(segment, status, -1);
}

uint64_t ferry_segment_read(const struct ferry_segment *segment,
                            uint32_t signal)
{
	if (!segment || signal >= segment->n_signals)
		return 0;
	return load_acquire_u64(&segment->signals[signal]);
}
