/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring as Chrome/Perfetto JSON: complete events, pid is the rank, tid the
 * operation slot. Times are CLOCK_MONOTONIC, so files of the ranks of one host
 * can be loaded together.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "../core/log.h"
#include "events.h"

enum {
	N_TRACKS = 257,    /* 256 operation slots and the one below */
	TRACK_OTHER = 256, /* events without a slot */
};

static int track_of(const struct ferry_trace_event *event)
{
	if (event->slot < 0 || event->slot >= TRACK_OTHER)
		return TRACK_OTHER;
	return event->slot;
}

static void put_us(FILE *file, const char *key, uint64_t ns)
{
	fprintf(file, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000,
	        (unsigned)(ns % 1000));
}

static void put_event(FILE *file, int32_t rank,
                      const struct ferry_trace_event *event)
{
	fprintf(file,
	        ",\n{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\","
	        "\"pid\":%" PRId32 ",\"tid\":%d",
	        event->name, event->category, rank, track_of(event));
	put_us(file, "ts", event->begin_ns);
	put_us(file, "dur", event->end_ns - event->begin_ns);
	fprintf(file, ",\"args\":{\"epoch\":%" PRIu64, event->epoch);
	if (event->peer >= 0)
		fprintf(file, ",\"peer\":%" PRId32, event->peer);
	if (event->bytes)
		fprintf(file, ",\"bytes\":%" PRIu64, event->bytes);
	fputs("}}", file);
}

static void put_track_name(FILE *file, int32_t rank, int track)
{
	fprintf(file,
	        ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%" PRId32
	        ",\"tid\":%d,\"args\":{\"name\":\"",
	        rank, track);
	if (track == TRACK_OTHER)
		fputs("fabric\"}}", file);
	else
		fprintf(file, "slot %d\"}}", track);
}

static void put_trace(FILE *file, int32_t rank, struct ferry_trace *trace)
{
	const uint64_t end = ferry_trace_count(trace);
	const uint64_t first =
		end > FERRY_TRACE_EVENTS ? end - FERRY_TRACE_EVENTS : 0;
	struct ferry_trace_event event;
	bool seen[N_TRACKS] = {false};

	fprintf(file,
	        "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"ferry\":\"%s\","
	        "\"lost_events\":%" PRIu64 "},\n\"traceEvents\":[\n"
	        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%" PRId32
	        ",\"args\":{\"name\":\"rank %" PRId32 "\"}}",
	        ferry_version_text(), first, rank, rank);
	for (uint64_t i = first; i < end; i++) {
		if (!ferry_trace_at(trace, i, &event))
			continue;
		seen[track_of(&event)] = true;
		put_event(file, rank, &event);
	}
	for (int track = 0; track < N_TRACKS; track++)
		if (seen[track])
			put_track_name(file, rank, track);
	fputs("\n]}\n", file);
}

enum ferry_status ferry_trace_save(struct ferry_ctx *ctx,
                                   struct ferry_trace *trace, const char *path)
{
	char expanded[1024];
	FILE *file;
	bool bad;

	if (!path || !path[0] ||
	    !ferry_path_expand(expanded, sizeof(expanded), path, ctx->rank))
		return ferry_fail(ctx, FERRY_INVAL,
		                  "trace: path is empty or over %zu bytes",
		                  sizeof(expanded) - 1);
	file = fopen(expanded, "we");
	if (!file)
		return ferry_fail_errno(ctx, FERRY_SYS, errno, "trace: open %s",
		                        expanded);
	put_trace(file, ctx->rank, trace);
	bad = ferror(file);
	if (fclose(file) || bad)
		return ferry_fail_errno(ctx, FERRY_SYS, errno,
		                        "trace: write %s", expanded);
	return FERRY_OK;
}
