/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/trace.h: what a channel did. Counters, their Prometheus text, and a
 * ring of timed events that is written as Chrome/Perfetto JSON.
 *
 * The library opens no socket and writes no file unless asked to. With
 * FERRY_TRACE=PATH a world writes its events to PATH when it is closed; %r in
 * PATH is the rank, %p the process, %h the host.
 */
#ifndef FERRY_TRACE_H
#define FERRY_TRACE_H

#include <ferry/base.h>
#include <ferry/moe.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Counters of a channel since it was opened. Bytes are payload and scales. Of a
 * channel on a GPU the host knows n_dispatches and n_combines, as calls made
 * (replays of graphs are not seen), and tokens_sent of the batches whose size
 * it was told; the rest is 0.
 */
struct ferry_moe_stats {
	size_t size;
	uint64_t n_dispatches;  /* completed dispatch_recv calls */
	uint64_t n_combines;    /* completed combine_recv calls */
	uint64_t tokens_sent;   /* own tokens dispatched */
	uint64_t rows_received; /* (token, choice) rows for own experts */
	uint64_t rows_dropped;
	uint64_t wire_bytes_dispatch; /* bytes written to other ranks */
	uint64_t wire_bytes_combine;
	uint64_t logical_bytes_dispatch; /* one row per (token, choice) */
	uint64_t logical_bytes_combine;
	uint64_t wait_ns_dispatch; /* time spent waiting for peers */
	uint64_t wait_ns_combine;
	int32_t hottest_slot;  /* own expert slot with most rows, -1 */
	uint64_t hottest_rows; /* its rows */
	int32_t slowest_peer;  /* peer waited for longest, -1 */
	uint64_t slowest_peer_ns;
	/* Of the wire bytes, those to ranks of other hosts; and the tables
	 * that go there, which wire bytes do not count. */
	uint64_t host_bytes_dispatch;
	uint64_t host_bytes_combine;
	uint64_t host_bytes_tables;
};
#define FERRY_MOE_STATS_INIT                                                   \
	{                                                                      \
		sizeof(struct ferry_moe_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  \
			0, -1, 0, -1, 0, 0, 0, 0                               \
	}

/**
 * Reads the counters of a channel. Same thread as its operations.
 * Errors: INVAL.
 */
FERRY_API enum ferry_status
ferry_moe_get_stats(const struct ferry_moe *moe,
                    struct ferry_moe_stats *stats) FERRY_MUST_CHECK;

/**
 * Renders the counters of a channel as Prometheus text into buffer[bytes],
 * always terminated. Returns the length that the whole text needs, without
 * the 0, as snprintf does: buffer may be NULL where bytes is 0. `name` becomes
 * the label channel; NULL: "". Same thread as the channel's operations. No text
 * for a channel that is NULL.
 */
FERRY_API size_t ferry_moe_metrics(const struct ferry_moe *moe,
                                   const char *name, char *buffer,
                                   size_t bytes);

/**
 * Writes the events of this world so far as Chrome/Perfetto JSON: complete
 * events, pid = rank, tid = slot, microseconds. The newest 65536 are kept.
 * %h, %p and %r in path as above. Any thread; local.
 * Errors: INVAL; UNSUPPORTED when the world was opened without FERRY_TRACE;
 * SYS.
 */
FERRY_API enum ferry_status
ferry_trace_write(struct ferry_world *world, const char *path) FERRY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
