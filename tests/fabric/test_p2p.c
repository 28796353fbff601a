/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric p2p on GPUs: its memory, what kernels reach, what the host puts, what
 * is left after close. `test_p2p threads` and `test_p2p processes`.
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

static struct ferry_segment *open_segment(struct rank *rank, size_t bytes,
                                          uint32_t n_signals)
{
	struct ferry_segment *segment = NULL;

	RANKS_OK(ferry_segment_open(rank->world, bytes, n_signals, &segment));
	ranks_defer((void (*)(void *))ferry_segment_close, segment);
	return segment;
}

static void cuda_ok(int error, const char *what)
{
	if (error)
		RANKS_FAIL("%s: %s", what,
		           cudaGetErrorName((cudaError_t)error));
}

#define CUDA_OK(call) cuda_ok((int)(call), #call)

/* Ranks by GPU: dealt out in turn. */
static int32_t gpu_ranks(const struct rank *rank)
{
	int32_t n = 0;

	for (int32_t r = 0; r < rank->n_ranks; r++)
		n += p2p_gpu(r) == p2p_gpu(rank->rank);
	return n;
}

static void knows_its_device(struct rank *rank)
{
	RANKS_EQ(ferry_world_device(rank->world), FERRY_DEVICE_CUDA);
	RANKS_TEXT(ferry_world_fabric(rank->world), "p2p");
	RANKS_EQ(rank->world->cuda_device, p2p_gpu(rank->rank));
	RANKS_EQ(rank->world->n_gpu_ranks, gpu_ranks(rank));
}

static void capabilities(struct rank *rank)
{
	struct ferry_segment *s = open_segment(rank, 100, 1);

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
	struct ferry_segment *s = open_segment(rank, (size_t)n * area, 1);

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
	struct ferry_segment *s = open_segment(rank, (size_t)n * 2 * area, 2);
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
	struct ferry_segment *s = open_segment(rank, PUTS * 16, 1);
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
	struct ferry_segment *s = open_segment(rank, 8192, 2);
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

/* Whatever device the caller has, it stays. */
static void device_stays(struct rank *rank)
{
	const int32_t other = (p2p_gpu(rank->rank) + 1) % p2p_n_gpus;
	struct ferry_segment *s = NULL;
	int device = -1;

	CUDA_OK(cudaSetDevice(other));
	RANKS_OK(ferry_segment_open(rank->world, 4096, 1, &s));
	CUDA_OK(cudaGetDevice(&device));
	RANKS_EQ(device, other);
	RANKS_OK(ferry_segment_put(s, 0, 0, ferry_segment_base(s), 64, 0));
	RANKS_OK(ferry_segment_flush(s));
	CUDA_OK(cudaGetDevice(&device));
	RANKS_EQ(device, other);
	RANKS_OK(ferry_world_barrier(rank->world));
	ferry_segment_close(s);
	CUDA_OK(cudaGetDevice(&device));
	RANKS_EQ(device, other);
	CUDA_OK(cudaPeekAtLastError());
}

static void open_and_close(struct rank *rank, int times)
{
	for (int i = 0; i < times; i++) {
		struct ferry_segment *s = NULL;

		RANKS_OK(ferry_segment_open(rank->world, 10000000, 3, &s));
		RANKS_OK(ferry_segment_put(s, (rank->rank + 1) % rank->n_ranks,
		                           0, ferry_segment_base(s), 100, 1));
		RANKS_OK(ferry_segment_wait(s, 1, 1));
		ferry_segment_close(s);
	}
}

/* Since *ns, which becomes now. */
static double ms_since(uint64_t *ns)
{
	const uint64_t now = ferry_now_ns();
	const double ms = (double)(now - *ns) / 1e6;

	*ns = now;
	return ms;
}

/*
 * While a kernel runs, segments open, take puts and close: none of it waits
 * for the kernel, which may itself wait for what this rank does next.
 */
static void beside_a_kernel(struct rank *rank)
{
	enum { WORDS = 1 << 16, KERNEL_US = 1000000 };
	struct ferry_segment *s = NULL;
	uint64_t *own = NULL, *rounds = NULL;
	double ms[3];

	CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
	CUDA_OK(cudaMalloc((void **)&own, WORDS * 8));
	CUDA_OK(cudaHostAlloc((void **)&rounds, 8, cudaHostAllocMapped));
	open_and_close(rank, 1);
	CUDA_OK(p2p_store_for(own, WORDS, KERNEL_US, rounds));
	uint64_t begin = ferry_now_ns();

	RANKS_OK(ferry_segment_open(rank->world, 10000000, 1, &s));
	ms[0] = ms_since(&begin);
	RANKS_OK(ferry_segment_put(s, (rank->rank + 1) % rank->n_ranks, 0,
	                           ferry_segment_base(s), 9000, 0));
	RANKS_OK(ferry_segment_wait(s, 0, 1));
	ms[1] = ms_since(&begin);
	ferry_segment_close(s);
	ms[2] = ms_since(&begin);
	const cudaError_t error = cudaStreamQuery(cudaStreamPerThread);

	CUDA_OK(p2p_sync());
	printf("# rank %d, %s: beside a kernel open %.1f, put %.2f, close %.1f "
	       "ms\n",
	       rank->rank, rank->kind == RANKS_THREADS ? "thread" : "process",
	       ms[0], ms[1], ms[2]);
	RANKS_EQ(error, cudaErrorNotReady);
	CUDA_OK(cudaFree(own));
	CUDA_OK(cudaFreeHost(rounds));
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
	struct ferry_segment *s = open_segment(rank, BIG, 2);
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

static size_t free_bytes(struct rank *rank)
{
	size_t left = 0, total;

	RANKS_OK(ferry_world_barrier(rank->world));
	CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
	CUDA_OK(cudaMemGetInfo(&left, &total));
	RANKS_OK(ferry_world_barrier(rank->world));
	return left;
}

static void nothing_is_left(struct rank *rank)
{
	enum { TIMES = 100 };

	open_and_close(rank, 3);
	const size_t before = free_bytes(rank);
	const uint64_t begin = ferry_now_ns();

	open_and_close(rank, TIMES);
	const uint64_t ns = ferry_now_ns() - begin;
	const size_t after = free_bytes(rank);

	if (rank->rank == 0)
		printf("# %d %s on %d GPUs: open + close of a segment of 10 "
		       "MB: %.2f ms\n",
		       rank->n_ranks,
		       rank->kind == RANKS_THREADS ? "threads" : "processes",
		       p2p_n_gpus, (double)ns / TIMES / 1e6);
	/* Other programs of the machine may have grown. */
	RANKS_CHECK(after + (4u << 20) > before);
}

static struct ferry_world *open_world(const struct rank *rank)
{
	struct ferry_world_config config;
	struct ferry_world *world = NULL;

	(void)rank;
	ranks_config(&config);
	RANKS_OK(ferry_world_open(&config, &world));
	return world;
}

/* Whole worlds, with a segment each. The first one makes the context. */
static void worlds_come_and_go(struct rank *rank)
{
	enum { TIMES = 100 };
	struct ferry_segment *s = NULL;
	size_t left[2] = {0, 0}, total;
	uint64_t first_ns = 0, begin = ferry_now_ns();

	for (int i = 0; i < TIMES; i++) {
		struct ferry_world *world = open_world(rank);

		if (i == 0)
			first_ns = ferry_now_ns() - begin;
		if (i == 1)
			begin = ferry_now_ns();
		RANKS_OK(ferry_segment_open(world, 10000000, 1, &s));
		ferry_segment_close(s);
		RANKS_OK(ferry_world_barrier(world));
		if (i == 1 || i == TIMES - 1) {
			CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
			CUDA_OK(cudaMemGetInfo(&left[i > 1], &total));
		}
		RANKS_OK(ferry_world_barrier(world));
		ferry_world_close(world);
	}
	if (rank->rank == 0)
		printf("# %d %s: first open of a world %.1f ms, then open + "
		       "close of world and segment %.2f ms\n",
		       rank->n_ranks,
		       rank->kind == RANKS_THREADS ? "threads" : "processes",
		       (double)first_ns / 1e6,
		       (double)(ferry_now_ns() - begin) / (TIMES - 1) / 1e6);
	RANKS_CHECK(left[1] + (4u << 20) > left[0]);
}

/* Each process sees its own GPU only, as ordinal 0, as some launchers do. */
static void hidden_peers(struct rank *rank)
{
	const int32_t next = (rank->rank + 1) % rank->n_ranks;
	struct ferry_world_config config;
	struct ferry_world *world = NULL;
	struct ferry_segment *s = NULL;
	uint64_t differs = 0;
	char visible[16];

	snprintf(visible, sizeof(visible), "%d", p2p_gpu(rank->rank));
	setenv("CUDA_VISIBLE_DEVICES", visible, 1);
	ranks_config(&config);
	config.cuda_device = 1;
	RANKS_OK(ferry_world_open(&config, &world));
	ranks_defer((void (*)(void *))ferry_world_close, world);
	RANKS_EQ(world->cuda_device, 0);
	RANKS_EQ(world->n_gpu_ranks, gpu_ranks(rank));
	RANKS_OK(ferry_segment_open(world, 80000, 2, &s));
	ranks_defer((void (*)(void *))ferry_segment_close, s);
	if (rank->rank == 0)
		printf("# a hidden GPU: capabilities %#x\n",
		       ferry_segment_caps(s, next));
	CUDA_OK(p2p_store(ferry_segment_ptr(s, next), 10000, 8));
	RANKS_OK(ferry_segment_signal(s, next, 0));
	RANKS_OK(ferry_segment_wait(s, 0, 1));
	CUDA_OK(p2p_compare(ferry_segment_base(s), 10000, 8, &differs));
	RANKS_EQ(differs, 10000);
	RANKS_OK(
		ferry_segment_put(s, next, 0, ferry_segment_base(s), 80000, 1));
	RANKS_OK(ferry_segment_wait(s, 1, 1));
	RANKS_OK(ferry_world_barrier(world));
}

static uint64_t seed;

static void test_hidden_peers(void **state)
{
	struct ranks how = p2p_ranks(2);

	(void)state;
	how.no_world = true;
	if (how.kind == RANKS_THREADS)
		skip(); /* threads see the same devices */
	ranks_run(&how, hidden_peers);
}

static void test_worlds_come_and_go(void **state)
{
	struct ranks how = p2p_ranks(2);

	(void)state;
	how.no_world = true;
	ranks_run(&how, worlds_come_and_go);
}

static void run(int32_t n_ranks, ranks_body *body)
{
	struct ranks how = p2p_ranks(n_ranks);

	how.arg = &seed;
	ranks_run(&how, body);
}

#define TEST(name, ...)                                                        \
	static void test_##name(void **state)                                  \
	{                                                                      \
		static const int32_t n_ranks[] = {__VA_ARGS__};                \
                                                                               \
		(void)state;                                                   \
		for (size_t i = 0; i < sizeof(n_ranks) / 4; i++)               \
			run(n_ranks[i], name);                                 \
	}

TEST(knows_its_device, 1, 2, 4)
TEST(capabilities, 1, 2, 4)
TEST(zeroed, 2)
TEST(kernels_reach_peers, 1, 2, 4, 8)
TEST(puts_arrive, 1, 2, 4, 8)
TEST(puts_are_ordered, 1, 2)
TEST(puts_are_refused, 2)
TEST(device_stays, 2)
TEST(beside_a_kernel, 2)
TEST(put_rates, 2)
TEST(nothing_is_left, 2)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hidden_peers),
		cmocka_unit_test(test_worlds_come_and_go),
		cmocka_unit_test(test_knows_its_device),
		cmocka_unit_test(test_capabilities),
		cmocka_unit_test(test_zeroed),
		cmocka_unit_test(test_kernels_reach_peers),
		cmocka_unit_test(test_puts_arrive),
		cmocka_unit_test(test_puts_are_ordered),
		cmocka_unit_test(test_puts_are_refused),
		cmocka_unit_test(test_device_stays),
		cmocka_unit_test(test_beside_a_kernel),
		cmocka_unit_test(test_put_rates),
		cmocka_unit_test(test_nothing_is_left),
	};
	const int skip = p2p_begin(argc, argv);

	if (skip)
		return skip;
	seed = ranks_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
