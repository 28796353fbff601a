/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of one world: a ring that operations record into, and the
 * writers that turn it and the counters of a channel into text. Knows core
 * only; whoever owns a world or a channel hands in what is needed of it.
 */
#ifndef FERRY_EVENTS_H
#define FERRY_EVENTS_H

#include <ferry/trace.h>

#include "../core/clock.h"
#include "../core/ctx.h"

enum { FERRY_TRACE_EVENTS = 65536 };

/* Strings are of static storage and need no escape in JSON. */
struct ferry_trace_event {
	const char *name;     /* "dispatch_recv", "put" */
	const char *category; /* "moe", "fabric" */
	uint64_t begin_ns;    /* ferry_now_ns */
	uint64_t end_ns;
	uint64_t epoch; /* dispatches of the slot before this one */
	uint64_t bytes; /* 0: does not apply */
	int32_t slot;   /* operation slot, -1: none */
	int32_t peer;   /* -1: none, or all */
};

struct ferry_trace;

/* *trace becomes NULL when FERRY_TRACE is not set. Errors: NOMEM. */
enum ferry_status ferry_trace_open(struct ferry_ctx *ctx,
                                   struct ferry_trace **trace);

/* Writes the file that FERRY_TRACE names, then frees. NULL is accepted. */
void ferry_trace_close(struct ferry_ctx *ctx, struct ferry_trace *trace);

/* Any thread; never waits, allocates or enters the kernel. */
void ferry_trace_record(struct ferry_trace *trace,
                        const struct ferry_trace_event *event);

/*
 * The event that was recorded as number i, counted from the first; false
 * when it was overwritten, or a thread is at it now.
 */
bool ferry_trace_at(struct ferry_trace *trace, uint64_t i,
                    struct ferry_trace_event *event);

/* Events recorded so far; those before the newest 65536 are lost. */
uint64_t ferry_trace_count(const struct ferry_trace *trace);

/*
 * The body of ferry_trace_write.
 * Errors: INVAL, SYS.
 */
enum ferry_status ferry_trace_save(struct ferry_ctx *ctx,
                                   struct ferry_trace *trace, const char *path);

enum ferry_prom_kind {
	FERRY_PROM_COUNT,   /* uint64_t */
	FERRY_PROM_SECONDS, /* uint64_t nanoseconds */
	FERRY_PROM_PPM,     /* uint64_t millionths */
	FERRY_PROM_INDEX,   /* int32_t, -1: none */
};

/* A counter. Of several with one name only the first has a help. */
struct ferry_prom_metric {
	const char *name;
	const char *type;
	const char *phase; /* label, NULL: none */
	enum ferry_prom_kind kind;
	size_t offset; /* in the struct of values */
	const char *help;
};

/* What to render. */
struct ferry_prom {
	const struct ferry_prom_metric *metrics;
	size_t n_metrics;
	const void *values;
	const char *label; /* for name */
	const char *name;  /* NULL: "" */
	int32_t rank;
};

/* As snprintf: always terminated, returns the length of the whole text. */
size_t ferry_prom_text(const struct ferry_prom *prom, char *buffer,
                       size_t bytes);

/* The body of ferry_moe_metrics. */
size_t ferry_prom_render(const struct ferry_moe_stats *stats, const char *name,
                         int32_t rank, char *buffer, size_t bytes);

/* Start of an event: the time, or 0 when nobody records. */
static inline uint64_t ferry_trace_begin(const struct ferry_trace *trace)
{
	return trace ? ferry_now_ns() : 0;
}

/* End of an event: fills in end_ns and records, when somebody does. */
static inline void ferry_trace_end(struct ferry_trace *trace,
                                   struct ferry_trace_event *event)
{
	if (!trace)
		return;
	event->end_ns = ferry_now_ns();
	ferry_trace_record(trace, event);
}

#endif
