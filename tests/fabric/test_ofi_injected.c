/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts over a libfabric that takes nothing for a while, or brings things late
 * and in another order: none is lost, and nobody spins. What it loses is in
 * test_ofi_losses.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <rdma/fi_errno.h>

#include "core/bits.h"
#include "core/clock.h"
#include "injected.h"

enum {
	PUTS = 1500, /* to each peer: more than a queue has room for */
	CELL = 64,
	MOST = 48, /* of a put, so that none continues another */
	SIGNALS = 3,
};

/* What the put number `i` of a rank carries: 0..MOST bytes. */
static size_t put_bytes(int i)
{
	return (size_t)i * 7 % (MOST + 1);
}

static unsigned char put_byte(int32_t from, int i, size_t at)
{
	return (unsigned char)hash_u64((uint64_t)from << 32 | (uint64_t)i, at);
}

/* Where it goes: any two are apart. */
static size_t put_cell(int32_t from, int i)
{
	return ((size_t)from * PUTS + (size_t)(i * 1009 % PUTS)) * CELL;
}

/* All cells that others write, then the sources. */
static size_t source_at(const struct rank *rank, int i)
{
	return ((size_t)rank->n_ranks * PUTS + (size_t)i) * CELL;
}

static void put_all(struct rank *rank, struct ferry_segment *s)
{
	unsigned char *base = ferry_segment_base(s);

	for (int i = 0; i < PUTS; i++)
		for (size_t k = 0; k < put_bytes(i); k++)
			base[source_at(rank, i) + k] =
				put_byte(rank->rank, i, k);
	for (int i = 0; i < PUTS; i++)
		for (int32_t r = 0; r < rank->n_ranks; r++)
			RANKS_OK(ferry_segment_put(
				s, r, put_cell(rank->rank, i),
				base + source_at(rank, i), put_bytes(i),
				(uint32_t)i % SIGNALS));
	RANKS_OK(ferry_segment_flush(s));
}

static void check_all(struct rank *rank, struct ferry_segment *s)
{
	const unsigned char *base = ferry_segment_base(s);

	for (int32_t r = 0; r < rank->n_ranks; r++)
		for (int i = 0; i < PUTS; i++) {
			const unsigned char *at = base + put_cell(r, i);

			for (size_t k = 0; k < CELL; k++)
				RANKS_EQ(at[k], k < put_bytes(i)
				                        ? put_byte(r, i, k)
				                        : 0);
		}
}

/* All put to all, before anybody looks whether something has come. */
static void all_put(struct rank *rank)
{
	const uint64_t each =
		(uint64_t)rank->n_ranks * (uint64_t)PUTS / SIGNALS;
	struct ferry_segment *s = injected_open(
		rank, ((size_t)rank->n_ranks + 1) * (size_t)PUTS * CELL,
		SIGNALS);

	put_all(rank, s);
	for (uint32_t i = 0; i < SIGNALS; i++)
		RANKS_OK(ferry_segment_wait(s, i, each));
	check_all(rank, s);
	RANKS_OK(ferry_world_barrier(rank->world));
	for (uint32_t i = 0; i < SIGNALS; i++)
		RANKS_EQ(ferry_segment_read(s, i), each);
}

static void run(ranks_body *body, enum ranks_kind kind,
                const struct ofi_faults *faults, struct ofi_faults_done *done)
{
	struct ranks how = {.n_ranks = 2, .kind = kind, .limit_ms = 8000};

	injected_ranks(&how);
	injected_set(faults);
	ranks_run(&how, body);
	injected_done(done);
}

static void test_every_other_write_is_refused(void **state)
{
	const struct ofi_faults faults = {.again_every = 2};
	struct ofi_faults_done done;

	(void)state;
	run(all_put, RANKS_PROCESSES, &faults, &done);
	assert_in_range(done.again, PUTS, 100 * PUTS);
	assert_in_range(done.writes, 2 * PUTS, 100 * PUTS);
}

/* Both fill their queues, and nobody reads. */
static void test_queues_are_full_both_ways(void **state)
{
	const struct ofi_faults faults = {.again_ms = 150};
	struct ofi_faults_done done;

	(void)state;
	run(all_put, RANKS_THREADS, &faults, &done);
	assert_true(done.again > 0);
}

/* A provider of any order, over TCP. */
static void test_any_order(void **state)
{
	const struct ofi_faults faults = {.as = "efa",
	                                  .hold_us = 400,
	                                  .late_us = 200,
	                                  .again_every = 5,
	                                  .seed = (uint32_t)ranks_seed()};
	struct ofi_faults_done done;

	(void)state;
	run(all_put, RANKS_THREADS, &faults, &done);
	assert_in_range(done.held, PUTS, 100 * PUTS);
	assert_in_range(done.late, PUTS, 100 * PUTS);
}

/* TCP itself keeps its order; what is read may still be late. */
static void test_late(void **state)
{
	const struct ofi_faults faults = {.late_us = 500,
	                                  .seed = (uint32_t)ranks_seed()};
	struct ofi_faults_done done;

	(void)state;
	run(all_put, RANKS_PROCESSES, &faults, &done);
	assert_in_range(done.late, PUTS, 100 * PUTS);
}

enum { COOL_MS = 300 };

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* COOL_MS have gone, and less than half of them on a core. */
static void check_cool(uint64_t wall_since, uint64_t cpu_since)
{
	const int64_t wall_us = (int64_t)(ferry_now_ns() - wall_since) / 1000;
	const int64_t cpu_us = (int64_t)(cpu_ns() - cpu_since) / 1000;

	RANKS_CHECK(wall_us > COOL_MS * 900);
	/* 4 to 18 in 100, with 20 threads at work beside it. */
	if (cpu_us > wall_us / 2)
		RANKS_FAIL("%" PRId64 " us of a core in %" PRId64 " us", cpu_us,
		           wall_us);
}

/*
 * Rank 0, which may come late, waits for its own put to leave, the other for it
 * to come.
 */
static void put_late(struct rank *rank, long late_ns)
{
	struct ferry_segment *s = injected_open(rank, 4096, 1);

	RANKS_OK(ferry_world_barrier(rank->world));
	const uint64_t wall = ferry_now_ns();
	const uint64_t cpu = cpu_ns();

	if (rank->rank == 0) {
		nanosleep(&(struct timespec){0, late_ns}, NULL);
		RANKS_OK(ferry_segment_signal(s, 1, 0));
		RANKS_OK(ferry_segment_flush(s));
	} else {
		RANKS_OK(ferry_segment_wait(s, 0, 1));
	}
	check_cool(wall, cpu);
}

static void wait_long(struct rank *rank)
{
	put_late(rank, 0);
}

static void test_nobody_spins(void **state)
{
	const struct ofi_faults faults = {.again_ms = COOL_MS};
	struct ofi_faults_done done;

	(void)state;
	run(wait_long, RANKS_PROCESSES, &faults, &done);
	/* Tried now and then, not all the time. */
	assert_in_range(done.again, COOL_MS / 10, COOL_MS * 100);
}

/* The other waits for rank 0, and has nothing to do. */
static void wait_idle(struct rank *rank)
{
	put_late(rank, COOL_MS * 1000000);
}

static void test_no_descriptor_to_sleep_on(void **state)
{
	const struct ofi_faults restless = {.restless = 1};
	const struct ofi_faults none = {
		.call = OFI_CALL_CQ_OPEN, .nth = 1, .error = FI_ENOSYS};
	struct ofi_faults_done done;

	(void)state;
	run(wait_idle, RANKS_PROCESSES, &restless, &done);
	run(wait_idle, RANKS_PROCESSES, &none, &done);
	assert_int_equal(done.failed, 2);
}

/* Rank 0 leaves in good order, the other has yet to read what it sent. */
static void leave(struct rank *rank)
{
	struct ferry_segment *s = injected_open(rank, 4096, 1);

	if (rank->rank == 0)
		RANKS_OK(ferry_segment_signal(s, 1, 0));
	else
		RANKS_OK(ferry_segment_wait(s, 0, 1));
}

static void test_the_last_word_lies_behind_much_else(void **state)
{
	const struct ofi_faults faults = {.ranks = RANKS_BIT(1),
	                                  .behind = 4000};
	struct ofi_faults_done done;

	(void)state;
	run(leave, RANKS_PROCESSES, &faults, &done);
	assert_true(done.late > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_other_write_is_refused),
		cmocka_unit_test(test_queues_are_full_both_ways),
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_nobody_spins),
		cmocka_unit_test(test_no_descriptor_to_sleep_on),
		cmocka_unit_test(test_the_last_word_lies_behind_much_else),
	};

	injected_begin();
	return cmocka_run_group_tests_name("injected", tests, NULL, NULL);
}
