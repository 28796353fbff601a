/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of more than 4 GiB for each rank: puts to, from and across offsets
 * that 31 and 32 bits do not hold. Only the pages that are written exist.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <ferry/fabric.h>

#include "core/bits.h"
#include "ranks.h"
#include "sparse_backing.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

enum { N_RANKS = 2, MOST = 20000 };
static const size_t SEGMENT_BYTES = 4 * GIB + 64 * MIB;

/* Where bytes lie at the source and go to. */
struct place {
	size_t from, to, bytes;
};

/* No two go to the same bytes. */
static const struct place places[] = {
	{2 * GIB + 16384, 2 * GIB - 5000, 10000},
	{4096, 2 * GIB + 65536, 1},
	{16384, 4 * GIB + 32768, MOST},
	{4 * GIB - 777, 4 * GIB + 65536, MOST},
	{4 * GIB + 131072, 4 * GIB - 7777, 3000},
	{65536, 4 * GIB + 64 * MIB - 4099, 4099},
	{4 * GIB + 64 * MIB - 8192, 131072, 12},
	/* Continue each other, over the border, and are put as one. */
	{MIB, 4 * GIB - 4096, 4096},
	{MIB + 4096, 4 * GIB, 4096},
};

enum { N_PLACES = sizeof(places) / sizeof(*places) };

static unsigned char byte_of(int32_t rank, int i, size_t at)
{
	return (unsigned char)hash_u64((uint64_t)rank * 64 + (uint64_t)i, at);
}

static void put_place(struct rank *rank, struct ferry_segment *s, int i)
{
	const struct place *p = &places[i];
	const int32_t other = 1 - rank->rank;
	unsigned char *base = ferry_segment_base(s);

	for (size_t k = 0; k < p->bytes; k++)
		base[p->from + k] = byte_of(rank->rank, i, k);
	RANKS_OK(ferry_segment_put(s, other, p->to, base + p->from, p->bytes,
	                           0));
}

static void check_place(struct ferry_segment *s, int32_t from, int i)
{
	const struct place *p = &places[i];
	const unsigned char *base = ferry_segment_base(s);

	for (size_t k = 0; k < p->bytes; k++)
		if (base[p->to + k] != byte_of(from, i, k))
			RANKS_FAIL("place %d: byte %zu", i, k);
}

/* One at a time, but those that are put as one. */
static void body(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	RANKS_OK(ferry_segment_open(rank->world, SEGMENT_BYTES, 1, &s));
	for (int i = 0; i < N_PLACES; i++) {
		put_place(rank, s, i);
		if (i == N_PLACES - 2)
			continue;
		RANKS_OK(ferry_segment_flush(s));
		RANKS_OK(ferry_segment_wait(s, 0, (uint64_t)i + 1));
		RANKS_OK(ferry_world_barrier(rank->world));
	}
	for (int i = 0; i < N_PLACES; i++)
		check_place(s, 1 - rank->rank, i);
	ferry_segment_close(s);
}

static void run(const char *fabric, const char *options, enum ranks_kind kind)
{
	ranks_run(&(struct ranks){.n_ranks = N_RANKS,
	                          .kind = kind,
	                          .fabric = fabric,
	                          .options = options},
	          body);
}

static void test_ofi_threads(void **state)
{
	(void)state;
	run("ofi", "", RANKS_THREADS);
}

static void test_ofi_processes(void **state)
{
	(void)state;
	run("ofi", "", RANKS_PROCESSES);
}

static void test_between_hosts(void **state)
{
	(void)state;
	run("shm+ofi", "RANKS_PER_HOST=1", RANKS_PROCESSES);
}

static void test_within_a_host(void **state)
{
	(void)state;
	run("shm+ofi", "RANKS_PER_HOST=2", RANKS_PROCESSES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ofi_threads),
		cmocka_unit_test(test_ofi_processes),
		cmocka_unit_test(test_between_hosts),
		cmocka_unit_test(test_within_a_host),
	};

	sparse_backing_need(N_RANKS * SEGMENT_BYTES);
	return cmocka_run_group_tests_name("sparse", tests, NULL, NULL);
}
