/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance: all to all with random sizes and offsets, every byte checked;
 * puts of the largest size; 1 to 16 ranks.
 */
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "core/bits.h"

enum {
	ROUNDS = RANKS_STEPS(12),
	AREA = 20000, /* bytes that one rank sends to another in a round */
	SIGNAL_DATA = 0,
	SIGNAL_FREE = 1,
};

/* What `from` sends to `to` in a round: known on both sides. */
struct message {
	size_t bytes;
	size_t piece; /* bytes of each put but the last */
	uint64_t key;
};

static struct message message_of(struct rank *rank, struct ferry_segment *s,
                                 int32_t from, int32_t to, uint64_t round)
{
	const size_t max_put = ferry_segment_max_put(s);
	uint64_t rng = *(const uint64_t *)rank->arg;
	struct message m;

	rng = hash_u64(hash_u64(hash_u64(rng, round), (uint64_t)from),
	               (uint64_t)to);
	m.key = rng_next(&rng);
	m.bytes = rng_next(&rng) % 4 ? rng_next(&rng) % AREA
	                             : rng_next(&rng) % 16;
	m.piece = 1 + rng_next(&rng) % AREA;
	if (m.piece < m.bytes / 8)
		m.piece = m.bytes / 8;
	if (m.piece > max_put)
		m.piece = max_put;
	return m;
}

static uint64_t pieces(const struct message *m)
{
	return (uint64_t)div_up((int64_t)m->bytes, (int64_t)m->piece);
}

/* Out: [to] areas; in: [from] areas behind them. */
static void send_message(struct rank *rank, struct ferry_segment *s, int32_t to,
                         uint64_t round)
{
	const struct message m = message_of(rank, s, rank->rank, to, round);
	uint8_t *out = (uint8_t *)ferry_segment_base(s) + to * AREA;
	const size_t in = (size_t)(rank->n_ranks + rank->rank) * AREA;

	conf_fill(out, m.bytes, m.key);
	for (size_t at = 0; at < m.bytes; at += m.piece) {
		const size_t left = m.bytes - at;

		RANKS_OK(ferry_segment_put(s, to, in + at, out + at,
		                           left < m.piece ? left : m.piece,
		                           SIGNAL_DATA));
	}
}

static void check_message(struct rank *rank, struct ferry_segment *s,
                          int32_t from, uint64_t round)
{
	const struct message m = message_of(rank, s, from, rank->rank, round);
	uint8_t *in = (uint8_t *)ferry_segment_base(s) +
	              (size_t)(rank->n_ranks + from) * AREA;

	RANKS_EQ(conf_is_filled(in, m.bytes, m.key), -1);
	for (size_t i = m.bytes; i < AREA; i++)
		if (in[i])
			RANKS_FAIL("round %d: byte %zu of rank %d is not 0",
			           (int)round, i, from);
	memset(in, 0, AREA);
}

static void all_to_all(struct rank *rank)
{
	const int32_t n = rank->n_ranks;
	struct ferry_segment *s = conf_open(rank, (size_t)n * 2 * AREA, 2);
	uint64_t arrived = 0;

	for (uint64_t round = 0; round < ROUNDS; round++) {
		conf_wait(s, SIGNAL_FREE, round * (uint64_t)n);
		for (int32_t i = 0; i < n; i++)
			send_message(rank, s, (rank->rank + i) % n, round);
		RANKS_OK(ferry_segment_kick(s));
		for (int32_t r = 0; r < n; r++) {
			const struct message m =
				message_of(rank, s, r, rank->rank, round);

			arrived += pieces(&m);
		}
		conf_wait(s, SIGNAL_DATA, arrived);
		RANKS_EQ(ferry_segment_read(s, SIGNAL_DATA), arrived);
		for (int32_t r = 0; r < n; r++)
			check_message(rank, s, r, round);
		conf_flush(s);
		for (int32_t r = 0; r < n; r++)
			conf_signal(s, r, SIGNAL_FREE);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

/* The largest put, up to the last byte of the memory. */
static void largest_put(struct rank *rank)
{
	const size_t most = 3 << 20;
	struct ferry_segment *s = conf_open(rank, 2 * most, 1);
	const int32_t next = (rank->rank + 1) % rank->n_ranks;
	const size_t max_put = ferry_segment_max_put(s);
	const size_t bytes = max_put < most ? max_put : most;
	uint8_t *base = ferry_segment_base(s);

	RANKS_CHECK(max_put >= 4096);
	conf_fill(base, bytes, 9);
	conf_put(s, next, 2 * most - bytes, base, bytes, 0);
	conf_wait(s, 0, 1);
	RANKS_EQ(conf_is_filled(base + 2 * most - bytes, bytes, 9), -1);
	conf_flush(s);
	RANKS_OK(ferry_world_barrier(rank->world));
	if (max_put >= most)
		return;
	RANKS_STATUS(ferry_segment_put(s, next, 0, base, bytes + 1, 0),
	             FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "allowed are 0..");
}

/* The next rank, up or down, that stores reach; the own one at the least. */
static int32_t next_reached(const struct rank *rank, struct ferry_segment *s,
                            int32_t step)
{
	int32_t r = rank->rank;

	do
		r = (r + step + rank->n_ranks) % rank->n_ranks;
	while (!ferry_segment_ptr(s, r));
	return r;
}

/* Stores and one signal for all of them, as the engine does. */
static void stores_in_bulk(struct rank *rank)
{
	enum { BULK = 100, BYTES = 4000 };
	struct ferry_segment *s = conf_open(rank, 2 * BYTES, 2);
	const int32_t next = next_reached(rank, s, 1);
	const int32_t last = next_reached(rank, s, -1);
	uint8_t *peer = ferry_segment_ptr(s, next);

	for (uint64_t i = 1; i <= BULK; i++) {
		const size_t half = i % 2 * BYTES;

		conf_fill(peer + half, BYTES, i + (uint64_t)rank->rank);
		conf_signal(s, next, 0);
		conf_wait(s, 0, i);
		RANKS_EQ(conf_is_filled((uint8_t *)ferry_segment_base(s) + half,
		                        BYTES, i + (uint64_t)last),
		         -1);
		conf_signal(s, last, 1); /* that half is free */
		conf_wait(s, 1, i - 1);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

const struct conf_case conf_traffic_cases[] = {
	{"all_to_all", all_to_all, {1, 2, 3, 5, 8, 16}, false},
	{"largest_put", largest_put, {1, 2}, false},
	{"stores_in_bulk", stores_in_bulk, {1, 2, 4}, false},
	{NULL, NULL, {0}, false},
};
