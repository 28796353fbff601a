/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: the memory of a segment, its addresses and capabilities. */
#include <string.h>
#include <unistd.h>

#include "conformance.h"

static void expect_zero(struct ferry_segment *s, size_t bytes,
                        uint32_t n_signals)
{
	const uint8_t *base = ferry_segment_base(s);

	for (size_t i = 0; i < bytes; i++)
		if (base[i])
			RANKS_FAIL("byte %zu is %u, not 0", i, base[i]);
	for (uint32_t i = 0; i < n_signals; i++)
		RANKS_EQ(ferry_segment_read(s, i), 0);
}

/* Also where memory is used again that was full before. */
static void zeroed(struct rank *rank)
{
	enum { BYTES = 300000, SIGNALS = 1000 };

	for (int i = 0; i < 5; i++) {
		struct ferry_segment *s = NULL;

		RANKS_OK(ferry_segment_open(rank->world, BYTES, SIGNALS, &s));
		expect_zero(s, BYTES, SIGNALS);
		RANKS_OK(ferry_world_barrier(rank->world));
		memset(ferry_segment_base(s), 0xff, BYTES);
		for (uint32_t j = 0; j < SIGNALS; j += 7)
			RANKS_OK(ferry_segment_signal(s, rank->rank, j));
		RANKS_OK(ferry_world_barrier(rank->world));
		ferry_segment_close(s);
	}
}

static void page_aligned(struct rank *rank)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct ferry_segment *s = conf_open(rank, 1, 1);
	uint8_t *base = ferry_segment_base(s);

	RANKS_EQ((uintptr_t)base % page, 0);
	/* Rounded up to pages: all of it is there. */
	memset(base, 1, page);
}

static void own_rank_is_reachable(struct rank *rank)
{
	const bool cuda = ferry_world_device(rank->world) == FERRY_DEVICE_CUDA;
	const uint32_t all =
		FERRY_CAP_ORDERED | FERRY_CAP_SAME_HOST |
		(cuda ? FERRY_CAP_DEVICE | FERRY_CAP_NVLINK : FERRY_CAP_LDST);
	struct ferry_segment *s = conf_open(rank, 4096, 2);
	uint8_t *base = ferry_segment_base(s);

	RANKS_CHECK(ferry_segment_ptr(s, rank->rank) == base);
	RANKS_EQ(ferry_segment_caps(s, rank->rank), all);
	base[0] = 5;
	conf_put(s, rank->rank, 100, base, 1, 1);
	conf_wait(s, 1, 1);
	RANKS_EQ(base[100], 5);
}

/* An address is there exactly where these say so, and reaches the peer. */
enum { REACHED = FERRY_CAP_LDST | FERRY_CAP_DEVICE };

static void stores_arrive(struct rank *rank)
{
	struct ferry_segment *s = conf_open(rank, 65536, 2);
	uint64_t *base = ferry_segment_base(s);
	uint64_t expected = 0;

	for (int32_t r = 0; r < rank->n_ranks; r++) {
		uint64_t *peer = ferry_segment_ptr(s, r);

		RANKS_EQ(peer != NULL,
		         (ferry_segment_caps(s, r) & REACHED) != 0);
		if (!peer)
			continue;
		peer[rank->rank] = (uint64_t)(rank->rank * 100 + r + 1);
		conf_signal(s, r, 1);
	}
	for (int32_t r = 0; r < rank->n_ranks; r++)
		expected += (ferry_segment_caps(s, r) & REACHED) != 0;
	conf_wait(s, 1, expected);
	for (int32_t r = 0; r < rank->n_ranks; r++)
		if (ferry_segment_caps(s, r) & REACHED)
			RANKS_EQ(base[r], r * 100 + rank->rank + 1);
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void many_segments(struct rank *rank)
{
	enum { SEGMENTS = 8 };
	struct ferry_segment *s[SEGMENTS];
	const int32_t next = (rank->rank + 1) % rank->n_ranks;
	const int32_t last = (rank->rank + rank->n_ranks - 1) % rank->n_ranks;

	for (int i = 0; i < SEGMENTS; i++)
		s[i] = conf_open(rank, (size_t)(i + 1) * 1000, (uint32_t)i + 1);
	for (int i = SEGMENTS - 1; i >= 0; i--) {
		uint8_t *base = ferry_segment_base(s[i]);

		conf_fill(base, 500, (uint64_t)(rank->rank * 100 + i));
		conf_put(s[i], next, 500, base, 500, (uint32_t)i);
	}
	for (int i = 0; i < SEGMENTS; i++) {
		const uint8_t *base = ferry_segment_base(s[i]);

		conf_wait(s[i], (uint32_t)i, 1);
		RANKS_EQ(conf_is_filled(base + 500, 500,
		                        (uint64_t)(last * 100 + i)),
		         -1);
		conf_flush(s[i]);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

const struct conf_case conf_memory_cases[] = {
	{"zeroed", zeroed, {1, 3}, false},
	{"page_aligned", page_aligned, {2}, false},
	{"own_rank_is_reachable", own_rank_is_reachable, {1, 2}, false},
	{"stores_arrive", stores_arrive, {1, 4}, false},
	{"many_segments", many_segments, {2, 5}, true},
	{NULL, NULL, {0}, false},
};
