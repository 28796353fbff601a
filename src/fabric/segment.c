/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a segment. All ranks open together, in three steps:
 * compare the arguments, create and pass handles, attach. Puts are in
 * segment_put.c, waits in segment_wait.c, failures in segment_break.c.
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

/* What the caller asks for beyond bytes and signals. */
struct extras {
	uint32_t n_fan;
	size_t notes_bytes;
};

/* Lays out a rank's memory; false when it does not fit in a size_t. */
static bool lay_out(struct ferry_segment *s, size_t bytes, uint32_t n_signals)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t n_ranks = (size_t)s->world->n_ranks;

	s->n_signals = n_signals;
	/* The caller's counters share no line with those that waits poll. */
	s->first_signal = (uint32_t)round_up(FERRY_SIGNAL_VERDICT + 3 * n_ranks,
	                                     COUNTERS_PER_LINE);
	s->verdicts_offset = sizeof(struct ferry_segment_ctl);
	s->counters_offset =
		s->verdicts_offset + 2 * n_ranks * sizeof(struct ferry_verdict);
	s->notes_offset = round_up(
		s->counters_offset + ((size_t)s->first_signal + n_signals) *
					     sizeof(uint64_t),
		LINE_BYTES);
	s->data_offset = round_up(s->notes_offset + s->notes_bytes, page);
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
	struct ferry_fabric *fabric = s->fabric;
	uint8_t own[FERRY_HANDLE_BYTES] = {0};
	enum ferry_status status;

	if (!handles || !s->peers || !s->here)
		status = ferry_fail(&s->world->ctx, FERRY_NOMEM,
		                    "segment_open: records of %d peers",
		                    s->world->n_ranks);
	else
		status = fabric->ops->mem_create(fabric, s->data_offset,
		                                 s->data_bytes, &s->mem, own);
	if (status == FERRY_OK) {
		s->mem->counters_offset = s->counters_offset;
		s->mem->n_signals = s->first_signal + s->n_signals;
		s->mem->fan_end = s->mem->n_signals;
		s->mem->fan_first = s->mem->fan_end - s->n_fan;
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

	s->spin_ns = (uint64_t)world->ctx.opt.spin_us * 1000;
	if (world->n_machine_ranks <= world->n_machine_cores)
		s->yield_ns = ALONE_NS;
}

/* Looks up once what operations would otherwise ask the fabric for. */
static void learn_peers(struct ferry_segment *s)
{
	const struct ferry_mem *mem = s->mem;
	unsigned char *control = mem->control;

	s->ctl = (struct ferry_segment_ctl *)(void *)control;
	s->verdicts =
		(struct ferry_verdict *)(void *)(control + s->verdicts_offset);
	s->counters = (uint64_t *)(void *)(control + s->counters_offset);
	s->signals = s->counters + s->first_signal;
	s->polled = mem->ops->progress != ferry_fabric_progress_none;
	s->direct = mem->ops->put == ferry_fabric_put_ldst;
	s->shared = true;
	for (int32_t r = 0; r < s->world->n_ranks; r++) {
		s->peers[r].caps = mem->ops->caps(mem, r);
		s->peers[r].control = mem->ops->control(mem, r);
		s->peers[r].data = mem->ops->data(mem, r);
		s->shared = s->shared && s->peers[r].control;
	}
	s->direct = s->direct && s->shared;
}

/* From here on the world's abort and poll know it. */
static void enlist(struct ferry_segment *s)
{
	struct ferry_world *world = s->world;

	pthread_mutex_lock(&world->lock);
	s->next = world->segments;
	world->segments = s;
	world->n_users++;
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

static enum ferry_status open_as(struct ferry_world *world,
                                 struct ferry_fabric *fabric, size_t bytes,
                                 uint32_t n_signals,
                                 const struct extras *extras,
                                 struct ferry_segment **segment)
{
	struct ferry_segment *s = calloc(1, sizeof(*s));
	enum ferry_status status;

	if (!s)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "segment_open: a segment of %zu bytes",
		                  sizeof(*s));
	s->world = world;
	s->fabric = fabric;
	s->n_fan = extras->n_fan;
	s->notes_bytes = extras->notes_bytes;
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

enum ferry_status ferry_segment_open(struct ferry_world *world, size_t bytes,
                                     uint32_t n_signals,
                                     struct ferry_segment **segment)
{
	return ferry_segment_open_fan(world, bytes, n_signals, 0, segment);
}

enum ferry_status ferry_segment_open_fan(struct ferry_world *world,
                                         size_t bytes, uint32_t n_signals,
                                         uint32_t n_fan,
                                         struct ferry_segment **segment)
{
	if (!world || !segment)
		return ferry_fail(world ? &world->ctx : NULL, FERRY_INVAL,
		                  "segment_open: %s is NULL",
		                  world ? "segment" : "world");
	return open_as(world, world->fabric, bytes, n_signals,
	               &(struct extras){.n_fan = n_fan}, segment);
}

enum ferry_status ferry_segment_open_notes(struct ferry_world *world,
                                           size_t bytes, uint32_t n_signals,
                                           size_t notes_bytes,
                                           struct ferry_segment **segment)
{
	return open_as(world, world->fabric, bytes, n_signals,
	               &(struct extras){.notes_bytes = notes_bytes}, segment);
}

enum ferry_status ferry_segment_open_on(struct ferry_world *world,
                                        struct ferry_fabric *fabric,
                                        size_t bytes, uint32_t n_signals,
                                        struct ferry_segment **segment)
{
	return open_as(world, fabric, bytes, n_signals,
	               &(struct extras){.n_fan = 0}, segment);
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
	const struct ferry_verdict goodbye = ferry_verdict_of(FERRY_OK, -1);

	if (!drain(s, deadline))
		return;
	ferry_segment_tell(s, &goodbye, NULL);
	drain(s, deadline);
}

void ferry_segment_close(struct ferry_segment *segment)
{
	if (!segment)
		return;
	struct ferry_world *world = segment->world;

	delist(segment);
	say_goodbye(segment);
	destroy(segment);
	ferry_world_release(world);
}
