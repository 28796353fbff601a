/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric p2p on GPUs: its memory, what kernels reach, what the host puts.
 * `test_p2p threads` and `test_p2p processes`; the same on nvshmem, by
 * `test_p2p nvshmem`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cuda_runtime_api.h>

#include "core/bits.h"
#include "core/clock.h"
#include "fabric/world.h"
#include "gpus.h"
#include "p2p_kernels.h"
#include "p2p_ranks.h"
#include "rank_memory.h"

static uint64_t *words(void *address, size_t offset)
{
	return (uint64_t *)(void *)((unsigned char *)address + offset);
}

static void knows_its_device(struct rank *rank)
{
	RANKS_EQ(ferry_world_device(rank->world), FERRY_DEVICE_CUDA);
	RANKS_TEXT(ferry_world_fabric(rank->world), p2p_fabric);
	RANKS_EQ(rank->world->cuda_device, p2p_gpu(rank->rank));
	RANKS_EQ(rank->world->n_gpu_ranks, p2p_gpu_ranks(rank));
}

static void capabilities(struct rank *rank)
{
	struct ferry_segment *s = p2p_open(rank, 100, 1);

	RANKS_CHECK(ferry_segment_ptr(s, rank->rank) == ferry_segment_base(s));
	for (int32_t r = 0; r < rank->n_ranks; r++) {
		const uint32_t caps = ferry_segment_caps(s, r);

		RANKS_CHECK(ferry_segment_ptr(s, r));
		RANKS_CHECK(caps & FERRY_CAP_DEVICE);
		RANKS_CHECK(caps & FERRY_CAP_SAME_HOST);
		RANKS_CHECK(caps & FERRY_CAP_ORDERED);
		RANKS_CHECK(!(caps & FERRY_CAP_LDST));
		if (p2p_gpu(r) == p2p_gpu(rank->rank))
			RANKS_CHECK(caps & FERRY_CAP_NVLINK);
	}
}

/* Also where memory is used again that was full before. */
static void zeroed(struct rank *rank)
{
	enum { BYTES = 5000000, TIMES = 5 };
	struct rank_memory *m = rank_memory_of(rank, 1);
	uint8_t *copy = malloc(BYTES);

	ranks_defer(free, copy);
	CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
	for (int i = 0; i < TIMES; i++) {
		struct ferry_segment *s = NULL;

		RANKS_OK(ferry_segment_open(rank->world, BYTES, 9, &s));
		rank_memory_read(m, copy, ferry_segment_base(s), BYTES);
		for (size_t j = 0; j < BYTES; j++)
			if (copy[j])
				RANKS_FAIL("byte %zu is %u", j, copy[j]);
		RANKS_OK(ferry_world_barrier(rank->world));
		for (int32_t r = 0; r < rank->n_ranks; r++)
			CUDA_OK(p2p_store(ferry_segment_ptr(s, r), BYTES / 8,
			                  ~0u));
		RANKS_OK(ferry_world_barrier(rank->world));
		ferry_segment_close(s);
	}
}

/* Every rank stores an area of every window, and loads them all. */
static void kernels_reach_peers(struct rank *rank)
{
	enum { WORDS = 100003 };
	const int32_t n = rank->n_ranks;
	const size_t area = WORDS * sizeof(uint64_t);
	struct ferry_segment *s = p2p_open(rank, (size_t)n * area, 1);

	CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
	for (int32_t r = 0; r < n; r++) {
		CUDA_OK(p2p_store(words(ferry_segment_ptr(s, r),
		                        (size_t)rank->rank * area),
		                  WORDS, (uint64_t)(rank->rank * 64 + r)));
		RANKS_OK(ferry_segment_signal(s, r, 0));
	}
	RANKS_OK(ferry_segment_wait(s, 0, (uint64_t)n));
	RANKS_OK(ferry_world_barrier(rank->world));
	for (int32_t owner = 0; owner < n; owner++)
		for (int32_t from = 0; from < n; from++) {
			uint64_t differs;

			CUDA_OK(p2p_compare(words(ferry_segment_ptr(s, owner),
			                          (size_t)from * area),
			                    WORDS,
			                    (uint64_t)(from * 64 + owner),
			                    &differs));
			RANKS_EQ(differs, WORDS);
		}
	RANKS_OK(ferry_world_barrier(rank->world));
}

/* What `from` puts to `to` in a round: known on both sides. */
static size_t message_words(uint64_t seed, int32_t from, int32_t to,
                            uint64_t round, size_t most)
{
	return hash_u64(hash_u64(hash_u64(seed, round), (uint64_t)from),
	                (uint64_t)to) %
	       (most + 1);
}

static void check_words(struct rank_memory *m, const uint64_t *at, size_t n,
                        uint64_t key)
{
	uint64_t *copy = malloc((n + 1) * sizeof(*copy));

	rank_memory_read(m, copy, at, n * sizeof(*copy));
	for (size_t i = 0; i < n; i++)
		if (copy[i] != p2p_word(key, i)) {
			free(copy);
			RANKS_FAIL("word %zu of %zu differs", i, n);
		}
	free(copy);
}

/* All to all by puts of the host; every byte is checked. */
static void puts_arrive(struct rank *rank)
{
	enum { ROUNDS = 10, MOST = 40000 };
	const int32_t n = rank->n_ranks;
	const size_t area = MOST * sizeof(uint64_t);
	struct ferry_segment *s = p2p_open(rank, (size_t)n * 2 * area, 2);
	struct rank_memory *m = rank_memory_of(rank, 1);
	const uint64_t seed = *(const uint64_t *)rank->arg;
	unsigned char *base = ferry_segment_base(s);

	CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
	for (uint64_t round = 0; round < ROUNDS; round++) {
		RANKS_OK(ferry_segment_wait(s, 1, round * (uint64_t)n));
		for (int32_t r = 0; r < n; r++) {
			const size_t n_words =
				message_words(seed, rank->rank, r, round, MOST);
			const size_t out = (size_t)r * area;

			CUDA_OK(p2p_store(words(base, out), n_words,
			                  round * 64 + (uint64_t)rank->rank));
			RANKS_OK(ferry_segment_put(
				s, r, (size_t)(n + rank->rank) * area,
				base + out, n_words * 8, 0));
		}
		RANKS_OK(ferry_segment_flush(s));
		RANKS_OK(ferry_segment_wait(s, 0, (round + 1) * (uint64_t)n));
		for (int32_t r = 0; r < n; r++)
			check_words(
				m, words(base, (size_t)(n + r) * area),
				message_words(seed, r, rank->rank, round, MOST),
				round * 64 + (uint64_t)r);
		for (int32_t r = 0; r < n; r++)
			RANKS_OK(ferry_segment_signal(s, r, 1));
	}
	RANKS_OK(ferry_world_barrier(rank->world));
	RANKS_EQ(ferry_segment_read(s, 0), ROUNDS * (uint64_t)n);
}

/* Puts and signals of one thread arrive in their order: more than a queue. */
static void puts_are_ordered(struct rank *rank)
{
	enum { PUTS = 1000 };
	struct ferry_segment *s = p2p_open(rank, PUTS * 16, 1);
	struct rank_memory *m = rank_memory_of(rank, 1);
	unsigned char *base = ferry_segment_base(s);
	const int32_t next = (rank->rank + 1) % rank->n_ranks;

	CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
	CUDA_OK(p2p_store(words(base, 0), PUTS, 5));
	RANKS_OK(ferry_world_barrier(rank->world));
	for (uint64_t i = 0; i < PUTS; i++) {
		RANKS_OK(ferry_segment_put(s, next, (PUTS + i) * 8,
		                           base + i * 8, 8, 0));
		RANKS_OK(ferry_segment_signal(s, next, 0));
	}
	for (uint64_t i = 1; i <= PUTS; i += 111) {
		RANKS_OK(ferry_segment_wait(s, 0, 2 * i));
		check_words(m, words(base, PUTS * 8), i, 5);
	}
	RANKS_OK(ferry_segment_wait(s, 0, 2 * PUTS));
	RANKS_OK(ferry_segment_flush(s));
	RANKS_EQ(ferry_segment_read(s, 0), 2 * PUTS);
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void expect(enum ferry_status got, enum ferry_status want,
                   const char *text)
{
	RANKS_STATUS(got, want);
	RANKS_TEXT(ferry_last_error(), text);
}

static void puts_are_refused(struct rank *rank)
{
	struct ferry_segment *s = p2p_open(rank, 8192, 2);
	unsigned char *base = ferry_segment_base(s);
	unsigned char here[8] = {0};

	expect(ferry_segment_put(s, 0, 0, here, 8, 0), FERRY_INVAL,
	       "source must lie in the own memory");
	expect(ferry_segment_put(s, 0, 0, base + 8190, 8, 0), FERRY_INVAL,
	       "source must lie in the own memory");
	expect(ferry_segment_put(s, 0, 8190, base, 8, 0), FERRY_RANGE,
	       "offset is 8190 with 8 bytes, the segment has 8192");
	expect(ferry_segment_put(s, 0, 0, base, 8, 2), FERRY_RANGE,
	       "signal is 2, allowed are 0..1");
	expect(ferry_segment_put(s, 0, 0, NULL, 8, 0), FERRY_INVAL,
	       "source is NULL with 8 bytes");
	RANKS_OK(ferry_segment_put(s, 0, 0, base, 8, 1));
	RANKS_OK(ferry_segment_flush(s));
	RANKS_OK(ferry_world_barrier(rank->world));
}

static double seconds_of_puts(struct ferry_segment *s, int32_t peer,
                              size_t bytes, int times)
{
	const uint64_t begin = ferry_now_ns();

	for (int i = 0; i < times; i++)
		RANKS_OK(ferry_segment_put(s, peer, 0, ferry_segment_base(s),
		                           bytes, 0));
	RANKS_OK(ferry_segment_flush(s));
	return (double)(ferry_now_ns() - begin) / 1e9;
}

/* Figures for docs/fabric.md: rank 0 puts to the last rank. */
static void put_rates(struct rank *rank)
{
	enum { BIG = 64 << 20, TIMES = 20, TURNS = 200 };
	const int32_t last = rank->n_ranks - 1;
	struct ferry_segment *s = p2p_open(rank, BIG, 2);
	const int32_t other = last - rank->rank;

	if (rank->rank == 0) {
		seconds_of_puts(s, last, BIG, 1);
		printf("# puts of 64 MiB: %.1f GB/s\n",
		       (double)BIG * TIMES /
		               seconds_of_puts(s, last, BIG, TIMES) / 1e9);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
	const uint64_t begin = ferry_now_ns();

	for (uint64_t i = 1; i <= TURNS; i++) {
		if (rank->rank == 0)
			RANKS_OK(ferry_segment_put(
				s, other, 0, ferry_segment_base(s), 8, 1));
		RANKS_OK(ferry_segment_wait(s, 1, i));
		if (rank->rank == last)
			RANKS_OK(ferry_segment_put(
				s, other, 0, ferry_segment_base(s), 8, 1));
	}
	if (rank->rank == 0)
		printf("# put of 8 bytes, one way: %.1f us\n",
		       (double)(ferry_now_ns() - begin) / 1e3 / TURNS / 2);
	RANKS_OK(ferry_segment_flush(s));
	RANKS_OK(ferry_world_barrier(rank->world));
}

P2P_TEST(knows_its_device, 1, 2, 4)
P2P_TEST(capabilities, 1, 2, 4)
P2P_TEST(zeroed, 2)
P2P_TEST(kernels_reach_peers, 1, 2, 4, 8)
P2P_TEST(puts_arrive, 1, 2, 4, 8)
P2P_TEST(puts_are_ordered, 1, 2)
P2P_TEST(puts_are_refused, 2)
P2P_TEST(put_rates, 2)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_knows_its_device),
		cmocka_unit_test(test_capabilities),
		cmocka_unit_test(test_zeroed),
		cmocka_unit_test(test_kernels_reach_peers),
		cmocka_unit_test(test_puts_arrive),
		cmocka_unit_test(test_puts_are_ordered),
		cmocka_unit_test(test_puts_are_refused),
		cmocka_unit_test(test_put_rates),
	};
	const int skip = p2p_begin(argc, argv);

	if (skip)
		return skip;
	p2p_seed = ranks_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
