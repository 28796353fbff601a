/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of one phase on their way between ranks, and how they are counted.
 *
 * Peers that stores reach: rows are stored straight into the peer's window,
 * and the counter of this rank there is raised once for every chunk of rows,
 * and for the rest. Other peers: a row is staged in the own window and put in
 * pieces, each of which raises the counter. So the number of signals follows
 * from the number of rows, which both sides know from the tables.
 */
#ifndef FERRY_CPU_FLOW_H
#define FERRY_CPU_FLOW_H

#include "cpu_engine.h"

/*
 * Rows per signal to a peer that stores reach: this many bytes, at least one
 * row. Small, so that the receiver starts early; large, so that signals cost
 * nothing.
 */
enum { CPU_CHUNK_BYTES = 128 << 10 };

/*
 * Bytes of the stage that leave at once: what a core's own cache holds. Few of
 * them would need more messages: over TCP between 2 ranks of 128 tokens, hidden
 * 7168, top-8, a pair EXACT took 4.7 ms with 256 KiB, 4.6 with 512, 4.35 with
 * 1 MiB (AMD EPYC of 2 cores with 1 MiB of L2 each, reno, November 2026).
 */
enum { CPU_KICK_BYTES = 1 << 20 };

/*
 * When all ranks of a host together send more than this, rows are stored
 * around the cache: they would leave it before their receiver comes. Less
 * stays in the cache that the ranks share. With 2 ranks of 128 tokens, hidden
 * 7168, top-8, dispatch_send took 67 us, around the cache 114; with 8 ranks
 * dispatch took 11.5 ms, around the cache 10.7 (AMD EPYC of 2 cores with
 * 32 MiB of L3, November 2026).
 */
enum { CPU_SHARED_CACHE_BYTES = 32 << 20 };

struct cpu_flow {
	struct ferry_moe *moe;
	const struct cpu_op *op;
	enum ferry_phase phase;
	enum ferry_stream_kind kind;
	size_t payload_bytes;
	size_t scale_bytes;
	size_t wire_bytes;       /* of a row, up to the last used byte */
	bool far;                /* rows go around the cache */
	int64_t rows_per_signal; /* peers that stores reach */
	int64_t signals_per_row; /* the others */
	int32_t n_staged;
	int32_t rows_per_kick; /* of the stage */
	uint32_t out_signal;   /* raised at receivers that stores reach */
	int32_t n_places;  /* where rows of a rank of another host may land */
	int32_t n_sources; /* of engine->sources */
};

/*
 * PER_HOST: number of the source that the sums of another host are, for own
 * tokens that a rank of the own group carries.
 */
static inline int32_t cpu_flow_sums(const struct cpu_flow *flow, int32_t host,
                                    int32_t carrier)
{
	const struct ferry_shape *shape = &flow->moe->shape;

	return shape->n_ranks + host * shape->group_size +
	       carrier % shape->group_size;
}

/* Number of a source: rows of a rank that land at a place of this host. */
static inline int32_t cpu_flow_source(const struct cpu_flow *flow, int32_t rank,
                                      int32_t place)
{
	return rank * flow->n_places + place;
}

/* To receive, or with ferry_cpu_flow_expect to send. Totals are 0. */
void ferry_cpu_flow_begin(struct cpu_flow *flow, struct ferry_moe *moe,
                          const struct cpu_op *op, enum ferry_phase phase);
/* About this many rows will be sent. */
void ferry_cpu_flow_expect(struct cpu_flow *flow, int64_t n_rows);

/* One row to all of engine->dest. */
enum ferry_status ferry_cpu_flow_send(struct cpu_flow *flow,
                                      const struct cpu_row *row);
/* Signals what is left of the last chunks, and lets everything leave. */
enum ferry_status ferry_cpu_flow_finish_send(struct cpu_flow *flow);

/* Waits for the first n_rows rows of a source. */
enum ferry_status ferry_cpu_flow_await(struct cpu_flow *flow, int32_t source,
                                       int64_t n_rows);

/* Row `ordinal` of those that a source sends is there on FERRY_OK. */
static inline enum ferry_status cpu_flow_take(struct cpu_flow *flow,
                                              int32_t source, int64_t ordinal)
{
	if (ordinal < flow->moe->engine->sources[source].ready)
		return FERRY_OK;
	return ferry_cpu_flow_await(flow, source, ordinal + 1);
}

/*
 * Waits for all rows that engine->sources promises, also those that nobody
 * took; from then on the counters' next rows are those of later epochs.
 */
enum ferry_status ferry_cpu_flow_finish_recv(struct cpu_flow *flow);

/*
 * Waits for engine->items[0..n_items), in a phase of an operation; counts the
 * time for each peer that is not there yet.
 */
enum ferry_status ferry_cpu_wait(struct ferry_moe *moe, const struct cpu_op *op,
                                 enum ferry_phase phase, int32_t n_items);

#endif
