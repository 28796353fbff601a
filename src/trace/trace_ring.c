/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of events. A writer takes the next number, and its entry by a
 * try-lock: if another thread is at that entry (it was overtaken by a whole
 * round of the ring, or the file is being written), the event is left out
 * rather than waited for.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../core/order.h"
#include "events.h"

struct entry {
	uint32_t busy;
	uint32_t pad;
	uint64_t n; /* number of the event + 1, 0: none yet */
	struct ferry_trace_event event;
};

struct ferry_trace {
	uint64_t n_events;
	struct entry entries[FERRY_TRACE_EVENTS];
};

static struct entry *entry_of(struct ferry_trace *trace, uint64_t i)
{
	return &trace->entries[i % FERRY_TRACE_EVENTS];
}

enum ferry_status ferry_trace_open(struct ferry_ctx *ctx,
                                   struct ferry_trace **trace)
{
	void *memory;

	*trace = NULL;
	if (!ctx->opt.trace[0])
		return FERRY_OK;
	/* Populated, so that no page fault shows up in what is timed. */
	memory = mmap(NULL, sizeof(**trace), PROT_READ | PROT_WRITE,
	              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		return ferry_fail_errno(ctx, FERRY_NOMEM, errno,
		                        "trace: ring of %zu bytes",
		                        sizeof(**trace));
	*trace = memory;
	return FERRY_OK;
}

void ferry_trace_close(struct ferry_ctx *ctx, struct ferry_trace *trace)
{
	if (!trace)
		return;
	if (ferry_trace_save(ctx, trace, ctx->opt.trace) != FERRY_OK)
		ferry_log(ctx, FERRY_LOG_WARN, "%s", ferry_last_error());
	munmap(trace, sizeof(*trace));
}

void ferry_trace_record(struct ferry_trace *trace,
                        const struct ferry_trace_event *event)
{
	const uint64_t i = add_relaxed_u64(&trace->n_events, 1);
	struct entry *entry = entry_of(trace, i);

	if (!cas_seq_u32(&entry->busy, 0, 1))
		return;
	entry->event = *event;
	entry->n = i + 1;
	store_release_u32(&entry->busy, 0);
}

bool ferry_trace_at(struct ferry_trace *trace, uint64_t i,
                    struct ferry_trace_event *event)
{
	struct entry *entry = entry_of(trace, i);
	bool found;

	if (!cas_seq_u32(&entry->busy, 0, 1))
		return false;
	found = entry->n == i + 1;
	if (found)
		*event = entry->event;
	store_release_u32(&entry->busy, 0);
	return found;
}

uint64_t ferry_trace_count(const struct ferry_trace *trace)
{
	return load_relaxed_u64(&trace->n_events);
}
