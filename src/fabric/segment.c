/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment: opened by all ranks in three steps (compare the arguments, create
 * and pass handles, attach), then put and signal. Waits are in segment_wait.c,
 * failures in segment_break.c.
 */
#include "segment.h"

#include <stdlib.h>
#include <unistd.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "segment_break.h"

enum {
	LINE_BYTES = 64,
	COUNTERS_PER_LINE = LINE_BYTES / sizeof(uint64_t),
	ALONE_NS = 1000,   /* a spin that takes the core for itself */
	GOODBYE_MS = 1000, /* most time for puts to leave at close */
};

/* What all ranks must ask for alike. */
struct request {
	uint64_t bytes;
	uint64_t n_signals;
};

/* Lays out a rank's memory; false when it does not fit in a size_t. */
static bool lay_out(struct ferry_segment *s, size_t bytes, uint32_t n_signals)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t n_ranks = (size_t)s->world->n_ranks;

	s->n_signals = n_signals;
	/* The caller's counters share no line with those that waits poll. */
	s->first_signal = (uint32_t)round_up(FERRY_SIGNAL_VERDICT + 2 * n_ranks,
	                                     COUNTERS_PER_LINE);
	s->verdicts_offset = sizeof(struct ferry_segment_ctl);
	s->counters_offset =
		s->verdicts_offset + n_ranks * sizeof(struct ferry_verdict);
	s->data_offset = round_up(
		s->counters_offset + ((size_t)s->first_signal + n_signals) *
					     sizeof(uint64_t),
		page);
	s->data_bytes = round_up(bytes, page);
	return n_signals <= UINT32_MAX - s->first_signal &&
	       bytes <= SIZE_MAX / 4 && s->data_bytes >= bytes;
}

static enum ferry_status check_request(struct ferry_segment *s, size_t bytes,
                                       uint32_t n_signals)
{
	if (bytes < 1 || n_signals < 1)
		return ferry_fail(&s->world->ctx, FERRY_INVAL,
		                  "segment_open: %s is 0, allowed are 1..",
		                  bytes < 1 ? "bytes" : "n_signals");
	if (!lay_out(s, bytes, n_signals))
		return ferry_fail(&s->world->ctx, FERRY_INVAL,
		                  "segment_open: %zu bytes with %u signals do "
		                  "not fit in the address space",
		                  bytes, n_signals);
	if (load_seq_u32(&s->world->aborted))
		return ferry_fail(&s->world->ctx, FERRY_ABORTED,
		                  "segment_open: the world was aborted");
	return FERRY_OK;
}

/*
 * All ranks have come and ask for the same, before anybody makes anything: so
 * whatever has a name exists only while everybody is at work on it.
 */
static enum ferry_status agree_request(struct ferry_segment *s, size_t bytes,
                                       uint32_t n_signals, uint64_t deadline)
{
	struct ferry_world *world = s->world;
	const struct request own = {bytes, n_signals};
	struct request *all = calloc((size_t)world->n_ranks, sizeof(*all));
	enum ferry_status status = check_request(s, bytes, n_signals);

	if (!all && status == FERRY_OK)
		status = ferry_fail(&world->ctx, FERRY_NOMEM,
		                    "segment_open: requests of %d ranks",
		                    world->n_ranks);
	status = ferry_agree(world->boot, status, &own, all, sizeof(own),
	                     deadline);
	for (int32_t r = 1; status == FERRY_OK && r < world->n_ranks; r++)
		if (memcmp(&all[r], &all[0], sizeof(*all)))
			status = ferry_fail(
				&world->ctx, FERRY_MISMATCH,
				"segment_open: rank %d asks for %llu bytes and "
				"%llu signals, rank 0 for %llu and %llu",
				r, (unsigned long long)all[r].bytes,
				(unsigned long long)all[r].n_signals,
				(unsigned long long)all[0].bytes,
				(unsigned long long)all[0].n_signals);
	free(all);
	return status;
}

/* Creates the own memory and swaps handles. */
static enum ferry_status create(struct ferry_segment *s, uint8_t *handles,
                                uint64_t deadline)
{
	struct ferry_fabric *fabric = s->world->fabric;
	uint8_t own[FERRY_HANDLE_BYTES] = {0};
	enum ferry_status status;

	if (!handles || !s->peers || !s->here)
		status = ferry_fail(&s->world->ctx, FERRY_NOMEM,
		                    "segment_open: records of %d peers",
		                    s->world->n_ranks);
	else
		status = fabric->ops->mem_create(
			fabric, s->data_offset + s->data_bytes, &s->mem, own);
	if (status == FERRY_OK) {
		s->mem->counters_offset = s->counters_offset;
		s->mem->n_signals = s->first_signal + s->n_signals;
	}
	return ferry_agree(s->world->boot, status, own, handles, sizeof(own),
	                   deadline);
}

static enum ferry_status attach(struct ferry_segment *s, const uint8_t *handles,
                                uint64_t deadline)
{
	enum ferry_status status = s->mem->ops->mem_attach(s->mem, handles);

	status = ferry_agree(s->world->boot, status, NULL, NULL, 0, deadline);
	s->mem->ops->mem_seal(s->mem);
	return status;
}

/*
 * With more ranks than cores, who spins keeps the awaited one from working: he
 * gives way from the start.
 */
static void choose_spin(struct ferry_segment *s)
{
	const struct ferry_world *world = s->world;

	s->spin_ns = (uint64_t)max_i64(world->ctx.opt.spin_us, 0) * 1000;
	if (world->n_host_ranks <= world->n_host_cores)
		s->yield_ns = ALONE_NS;
}

/* Looks up once what operations would otherwise ask the fabric for. */
static void learn_peers(struct ferry_segment *s)
{
	const struct ferry_mem *mem = s->mem;
	unsigned char *base = mem->base;

	s->ctl = (struct ferry_segment_ctl *)(void *)base;
	s->verdicts =
		(struct ferry_verdict *)(void *)(base + s->verdicts_offset);
	s->counters = (uint64_t *)(void *)(base + s->counters_offset);
	s->signals = s->counters + s->first_signal;
	s->polled = mem->ops->progress != ferry_fabric_progress_none;
	s->direct = mem->ops->put == ferry_fabric_put_ldst;
	for (int32_t r = 0; r < s->world->n_ranks; r++) {
		s->peers[r].caps = mem->ops->caps(mem, r);
		s->peers[r].base = mem->ops->ptr(mem, r);
		s->direct = s->direct && s->peers[r].base;
	}
}

/* From here on the world's abort and poll know it. */
static void enlist(struct ferry_segment *s)
{
	struct ferry_world *world = s->world;

	pthread_mutex_lock(&world->lock);
	s->next = world->segments;
	world->segments = s;
	if (load_seq_u32(&world->aborted))
		ferry_segment_abort(s);
	pthread_mutex_unlock(&world->lock);
}

static void delist(struct ferry_segment *s)
{
	struct ferry_world *world = s->world;

	pthread_mutex_lock(&world->lock);
	for (struct ferry_segment **p = &world->segments; *p; p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	pthread_mutex_unlock(&world->lock);
}

static void destroy(struct ferry_segment *s)
{
	if (s->mem)
		s->mem->ops->mem_destroy(s->mem);
	pthread_mutex_destroy(&s->lock);
	free(s->here);
	free(s->peers);
	free(s);
}

static enum ferry_status open_steps(struct ferry_segment *s, size_t bytes,
                                    uint32_t n_signals)
{
	const size_t n_ranks = (size_t)s->world->n_ranks;
	const uint64_t deadline = ferry_deadline_ns(s->world->open_timeout_ms);
	uint8_t *handles;
	enum ferry_status status;

	FERRY_TRY(agree_request(s, bytes, n_signals, deadline));
	handles = calloc(n_ranks, FERRY_HANDLE_BYTES);
	s->peers = calloc(n_ranks, sizeof(*s->peers));
	s->here = calloc(n_ranks, sizeof(*s->here));
	status = create(s, handles, deadline);
	if (status == FERRY_OK)
		status = attach(s, handles, deadline);
	free(handles);
	return status;
}

enum ferry_status ferry_segment_open(struct ferry_world *world, size_t bytes,
                                     uint32_t n_signals,
                                     struct ferry_segment **segment)
{
	struct ferry_segment *s;
	enum ferry_status status;

	if (!world || !segment)
		return ferry_fail(world ? &world->ctx : NULL, FERRY_INVAL,
		                  "segment_open: %s is NULL",
		                  world ? "segment" : "world");
	s = calloc(1, sizeof(*s));
	if (!s)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "segment_open: a segment of %zu bytes",
		                  sizeof(*s));
	s->world = world;
	s->error = (struct ferry_error)FERRY_ERROR_INIT;
	pthread_mutex_init(&s->lock, NULL);
	status = open_steps(s, bytes, n_signals);
	if (status != FERRY_OK) {
		destroy(s);
		return status;
	}
	learn_peers(s);
	choose_spin(s);
	enlist(s);
	*segment = s;
	return FERRY_OK;
}

/* False when the fabric did not get rid of the puts in time. */
static bool drain(struct ferry_segment *s, uint64_t deadline)
{
	struct ferry_mem *mem = s->mem;

	if (mem->ops->kick(mem) != FERRY_OK)
		return false;
	while (!mem->ops->flushed(mem)) {
		if (ferry_now_ns() >= deadline)
			return false;
		usleep(20);
	}
	return true;
}

/*
 * What was put still arrives, and then a word that nothing more will come, so
 * that a peer who waits in vain learns it at once.
 */
static void say_goodbye(struct ferry_segment *s)
{
	const uint64_t deadline =
		ferry_deadline_ns(min_i64(s->world->timeout_ms, GOODBYE_MS));
	const struct ferry_verdict goodbye = {
		.status = FERRY_OK,
		.root = -1,
		.slot = -1,
		.token = -1,
	};

	if (!drain(s, deadline))
		return;
	ferry_segment_tell(s, &goodbye, NULL);
	drain(s, deadline);
}

void ferry_segment_close(struct ferry_segment *segment)
{
	if (!segment)
		return;
	delist(segment);
	say_goodbye(segment);
	destroy(segment);
}

void *ferry_segment_base(struct ferry_segment *segment)
{
	if (!segment)
		return NULL;
	return (unsigned char *)segment->mem->base + segment->data_offset;
}

static bool is_peer(const struct ferry_segment *segment, int32_t peer)
{
	return (uint32_t)peer < (uint32_t)segment->world->n_ranks;
}

void *ferry_segment_ptr(struct ferry_segment *segment, int32_t peer)
{
	if (!segment || !is_peer(segment, peer) || !segment->peers[peer].base)
		return NULL;
	return segment->peers[peer].base + segment->data_offset;
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

/* Does [source, source + bytes) lie in the own memory? */
static bool is_own(const struct ferry_segment *segment, const void *source,
                   size_t bytes)
{
	const uintptr_t base = (uintptr_t)segment->mem->base;
	const uintptr_t at = (uintptr_t)source;

	return at >= base && at - base <= segment->mem->bytes - bytes;
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

/* A fabric that fails ends the segment, like everything that fails. */
static enum ferry_status put_failed(struct ferry_segment *segment,
                                    enum ferry_status status, int32_t peer)
{
	const struct ferry_verdict mine = {
		.status = status,
		.root = peer,
		.slot = -1,
		.token = -1,
	};

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
		unsigned char *base = segment->peers[peer].base;

		ferry_mem_store(base, segment->data_offset + offset, source,
		                bytes);
		ferry_mem_raise(base, segment->counters_offset, counter);
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
		ferry_mem_raise(segment->peers[peer].base,
		                segment->counters_offset, counter);
		return FERRY_OK;
	}
	const enum ferry_status status = segment->mem->ops->put(
		segment->mem, peer, segment->data_offset, NULL, 0, counter);

	return status == FERRY_OK ? FERRY_OK
	                          : put_failed(segment, status, peer);
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
