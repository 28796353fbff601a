/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance: what is refused, and that the message names the argument, its
 * value and what is allowed. A refusal harms nothing: the segment goes on.
 */
#include <stdint.h>
#include <stdio.h>

#include "conformance.h"

enum { BYTES = 8192, SIGNALS = 4 };

static void expect(enum ferry_status got, enum ferry_status want,
                   const char *text)
{
	RANKS_STATUS(got, want);
	RANKS_TEXT(ferry_last_error(), text);
}

static void peers_out_of_range(struct rank *rank)
{
	struct ferry_segment *s = conf_open(rank, BYTES, SIGNALS);
	const int32_t bad[] = {-1, INT32_MIN, rank->n_ranks, INT32_MAX};
	const uint8_t *base = ferry_segment_base(s);
	char text[64];

	for (int i = 0; i < 4; i++) {
		snprintf(text, sizeof(text),
		         "segment_put: peer is %d, allowed are 0..%d", bad[i],
		         rank->n_ranks - 1);
		expect(ferry_segment_put(s, bad[i], 0, base, 1, 0), FERRY_RANGE,
		       text);
		snprintf(text, sizeof(text),
		         "segment_signal: peer is %d, allowed are 0..%d",
		         bad[i], rank->n_ranks - 1);
		expect(ferry_segment_signal(s, bad[i], 0), FERRY_RANGE, text);
		RANKS_CHECK(!ferry_segment_ptr(s, bad[i]));
		RANKS_EQ(ferry_segment_caps(s, bad[i]), 0);
	}
}

static void signals_out_of_range(struct rank *rank)
{
	struct ferry_segment *s = conf_open(rank, BYTES, SIGNALS);
	const uint32_t bad[] = {SIGNALS, UINT32_MAX, UINT32_MAX - 20};
	const uint8_t *base = ferry_segment_base(s);
	char text[64];

	for (int i = 0; i < 3; i++) {
		snprintf(text, sizeof(text), "signal is %u, allowed are 0..3",
		         bad[i]);
		expect(ferry_segment_put(s, 0, 0, base, 1, bad[i]), FERRY_RANGE,
		       text);
		expect(ferry_segment_signal(s, 0, bad[i]), FERRY_RANGE, text);
		expect(ferry_segment_wait(s, bad[i], 1), FERRY_RANGE, text);
		RANKS_EQ(ferry_segment_read(s, bad[i]), 0);
	}
}

static void offsets_out_of_range(struct rank *rank)
{
	struct ferry_segment *s = conf_open(rank, BYTES, SIGNALS);
	const struct {
		size_t offset, bytes;
	} bad[] = {
		{BYTES, 1},    {BYTES - 1, 2},        {SIZE_MAX, 1},
		{SIZE_MAX, 0}, {SIZE_MAX - 100, 101}, {BYTES + 1, 0},
	};
	const int32_t peer = (rank->rank + 1) % rank->n_ranks;
	const uint8_t *base = ferry_segment_base(s);
	char text[128];

	for (int i = 0; i < 6; i++) {
		snprintf(text, sizeof(text),
		         "segment_put: offset is %zu with %zu bytes, the "
		         "segment has 8192",
		         bad[i].offset, bad[i].bytes);
		expect(ferry_segment_put(s, peer, bad[i].offset, base,
		                         bad[i].bytes, 0),
		       FERRY_RANGE, text);
	}
}

static void sources(struct rank *rank)
{
	struct ferry_segment *s = conf_open(rank, BYTES, SIGNALS);
	const int32_t peer = (rank->rank + 1) % rank->n_ranks;
	const bool ldst = ferry_segment_caps(s, peer) & FERRY_CAP_LDST;
	uint8_t *base = ferry_segment_base(s);
	static const uint8_t elsewhere[16];

	expect(ferry_segment_put(s, peer, 0, NULL, 16, 0), FERRY_INVAL,
	       "segment_put: source is NULL with 16 bytes");
	if (ldst) {
		conf_put(s, peer, 0, elsewhere, 16, 0);
		conf_wait(s, 0, 1);
		return;
	}
	const char *text = "source must lie in the own memory";

	expect(ferry_segment_put(s, peer, 0, elsewhere, 16, 0), FERRY_INVAL,
	       text);
	expect(ferry_segment_put(s, peer, 0, base + BYTES - 8, 16, 0),
	       FERRY_INVAL, text);
}

static void null_arguments(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	expect(ferry_segment_open(NULL, 1, 1, &s), FERRY_INVAL,
	       "segment_open: world is NULL");
	expect(ferry_segment_open(rank->world, 1, 1, NULL), FERRY_INVAL,
	       "segment_open: segment is NULL");
	expect(ferry_segment_put(NULL, 0, 0, NULL, 0, 0), FERRY_INVAL,
	       "segment_put: segment is NULL");
	expect(ferry_segment_signal(NULL, 0, 0), FERRY_INVAL,
	       "segment_signal: segment is NULL");
	expect(ferry_segment_kick(NULL), FERRY_INVAL,
	       "segment_kick: segment is NULL");
	expect(ferry_segment_flush(NULL), FERRY_INVAL,
	       "segment_flush: segment is NULL");
	expect(ferry_segment_wait(NULL, 0, 0), FERRY_INVAL,
	       "segment_wait: segment is NULL");
	RANKS_EQ(ferry_segment_read(NULL, 0), 0);
	RANKS_EQ(ferry_segment_caps(NULL, 0), 0);
	RANKS_EQ(ferry_segment_max_put(NULL), 0);
	RANKS_CHECK(!ferry_segment_base(NULL));
	RANKS_CHECK(!ferry_segment_ptr(NULL, 0));
	ferry_segment_close(NULL);
	/* None of these has spoiled the world. */
	conf_open(rank, 1, 1);
}

/* Every rank is told, whichever asks for what cannot be. */
static void bad_opens(struct rank *rank)
{
	struct ferry_segment *s = NULL;
	const bool last = rank->rank == rank->n_ranks - 1;

	expect(ferry_segment_open(rank->world, last ? 0 : 1, 1, &s),
	       FERRY_INVAL, "segment_open: bytes is 0, allowed are 1..");
	expect(ferry_segment_open(rank->world, 1, last ? 0 : 1, &s),
	       FERRY_INVAL, "segment_open: n_signals is 0, allowed are 1..");
	expect(ferry_segment_open(rank->world, SIZE_MAX, 1, &s), FERRY_INVAL,
	       "do not fit in the address space");
	expect(ferry_segment_open(rank->world, 1, UINT32_MAX, &s), FERRY_INVAL,
	       "do not fit in the address space");
	RANKS_CHECK(!s);
	if (rank->n_ranks == 1)
		return;
	expect(ferry_segment_open(rank->world, last ? 5000 : 4000, 2, &s),
	       FERRY_MISMATCH,
	       "asks for 5000 bytes and 2 signals, rank 0 for 4000 and 2");
	expect(ferry_segment_open(rank->world, 10, last ? 3 : 2, &s),
	       FERRY_MISMATCH,
	       "asks for 10 bytes and 3 signals, rank 0 for 10 and 2");
	RANKS_CHECK(!s);
	conf_open(rank, 10, 1);
}

const struct conf_case conf_refusal_cases[] = {
	{"peers_out_of_range", peers_out_of_range, {1, 2}, false},
	{"signals_out_of_range", signals_out_of_range, {2}, false},
	{"offsets_out_of_range", offsets_out_of_range, {1, 2}, false},
	{"sources", sources, {1, 2}, false},
	{"null_arguments", null_arguments, {2}, false},
	{"bad_opens", bad_opens, {1, 3}, false},
	{NULL, NULL, {0}, false},
};
