/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes and arrivals that libfabric fails or loses, which cannot be mended:
 * all ranks are told in time what it was, and nobody goes on as if nothing had
 * happened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/clock.h"
#include "fabric/segment.h"
#include "injected.h"

enum {
	ROUNDS = 1000,
	FAIL_MS = 4000,
	LAST_MS = 8000, /* 0.7 to 1.8 s are needed on a busy machine */
	CELL = 64,      /* bytes of a put */
};

/* All signal all, round by round, until that is over. */
static enum ferry_status signal_rounds(struct rank *rank,
                                       struct ferry_segment *s)
{
	enum ferry_status status = FERRY_OK;

	for (uint64_t i = 1; status == FERRY_OK && i < ROUNDS; i++) {
		for (int32_t r = 0; r < rank->n_ranks && status == FERRY_OK;
		     r++)
			status = ferry_segment_signal(s, r, 0);
		if (status == FERRY_OK)
			status = ferry_segment_wait(
				s, 0, i * (uint64_t)rank->n_ranks);
	}
	return status;
}

/* A connection that broke, seen from its ends and by others. */
static void must_end(struct rank *rank, enum ferry_status status,
                     uint64_t since)
{
	const int64_t ms = (int64_t)(ferry_now_ns() - since) / 1000000;

	if (status != FERRY_PEER && status != FERRY_FABRIC &&
	    status != FERRY_TIMEOUT)
		RANKS_FAIL("%s: %s", ferry_status_name(status),
		           ferry_last_error());
	RANKS_CHECK(ms < FAIL_MS + 1000);
	RANKS_STATUS(ferry_world_poll(rank->world, NULL), status);
}

static void write_fails(struct rank *rank)
{
	struct ferry_segment *s = injected_open(rank, 4096, 1);
	const uint64_t begin = ferry_now_ns();
	const enum ferry_status status = signal_rounds(rank, s);

	must_end(rank, status, begin);
	/* Who cannot be told by rank 1 itself is told by the third. */
	RANKS_STATUS(status, FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "the connection between rank ");
	RANKS_TEXT(ferry_last_error(), rank->arg);
	/* All have been told before anybody's world is closed. */
	ranks_meet(0, rank->n_ranks);
}

/* One that has begun, in either kind of world, and one that never does. */
static void test_a_write_fails(void **state)
{
	static const struct ofi_faults later = {.ranks = RANKS_BIT(1),
	                                        .fail_write = 20};
	static const struct ofi_faults at_once = {.ranks = RANKS_BIT(1),
	                                          .deny_write = 20};
	static char later_text[] = "Input/output error";
	static char at_once_text[] = "Invalid argument";
	struct ofi_faults_done done;
	struct ranks how = {.n_ranks = 3, .timeout_ms = FAIL_MS};

	(void)state;
	injected_ranks(&how);
	for (int i = 0; i < 3; i++) {
		how.kind = i == 1 ? RANKS_PROCESSES : RANKS_THREADS;
		how.arg = i == 2 ? at_once_text : later_text;
		injected_set(i == 2 ? &at_once : &later);
		ranks_run(&how, write_fails);
		injected_done(&done);
		assert_int_equal(done.errors, 1);
	}
}

/* Rank 1 puts to all; what has arrived has its bytes. */
static enum ferry_status byte_round(struct rank *rank, struct ferry_segment *s,
                                    uint64_t i)
{
	const size_t at = (size_t)i * CELL;
	unsigned char *base = ferry_segment_base(s);
	unsigned char *source = base + (size_t)ROUNDS * CELL + at;
	const unsigned char byte = (unsigned char)(i % 255 + 1);
	enum ferry_status status = FERRY_OK;

	memset(source, byte, CELL);
	if (rank->rank == 1) {
		for (int32_t r = 0; r < rank->n_ranks && status == FERRY_OK;
		     r++)
			status = ferry_segment_put(s, r, at, source, CELL, 0);
		/* Else one immediate would stand for many. */
		return status ? status : ferry_segment_flush(s);
	}
	status = ferry_segment_wait(s, 0, i);
	for (size_t k = 0; k < CELL && status == FERRY_OK; k++)
		RANKS_EQ(base[at + k], byte);
	return status;
}

static void write_is_lost(struct rank *rank)
{
	struct ferry_segment *s =
		injected_open(rank, (size_t)2 * ROUNDS * CELL, 2);
	const uint64_t begin = ferry_now_ns();
	enum ferry_status status = FERRY_OK;

	for (uint64_t i = 1; status == FERRY_OK && i < ROUNDS; i++)
		status = byte_round(rank, s, i);
	if (!*(const char *)rank->arg) {
		RANKS_OK(status);
		RANKS_OK(ferry_world_barrier(rank->world));
		return;
	}
	if (status == FERRY_OK)
		status = ferry_segment_wait(s, 1, 1);
	must_end(rank, status, begin);
	RANKS_STATUS(status, FERRY_PEER);
	RANKS_CHECK((int64_t)(ferry_now_ns() - begin) / 1000000 < FAIL_MS / 2);
	RANKS_TEXT(ferry_last_error(), "rank 1");
	RANKS_TEXT(ferry_last_error(), rank->arg);
	ranks_meet(0, rank->n_ranks);
}

/* A connection that is made anew in silence: nobody goes on as if nothing. */
static void test_a_write_is_lost(void **state)
{
	static const struct {
		struct ofi_faults faults;
		char text[64];
	} cases[] = {
		{{.lose_immediate = 21}, "was lost: arrival "},
		{{.double_immediate = 21}, "came again: arrival "},
		{{.lose_bytes = 21, .lose_immediate = 21},
	         "was lost: arrival "},
		{{.lose_bytes = 21}, ""}, /* they go again */
	};
	struct ranks how = {.timeout_ms = FAIL_MS};

	(void)state;
	injected_ranks(&how);
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++) {
		struct ofi_faults faults = cases[i / 2].faults;
		struct ofi_faults_done done;
		char text[64];

		/* In a world of two nobody else can pass it on. */
		how.n_ranks = i % 2 ? 3 : 2;
		how.kind = i % 2 ? RANKS_PROCESSES : RANKS_THREADS;
		memcpy(text, cases[i / 2].text, sizeof(text));
		how.arg = text;
		faults.ranks = RANKS_BIT(1);
		injected_set(&faults);
		ranks_run(&how, write_is_lost);
		injected_done(&done);
		assert_int_equal(
			done.lost,
			faults.lose_bytes && faults.lose_immediate ? 2 : 1);
	}
}

/* Nothing comes behind what rank 1 lost: it waits itself. */
static void last_write_is_lost(struct rank *rank)
{
	struct ferry_segment *s = injected_open(rank, 4096, 1);
	const uint64_t begin = ferry_now_ns();

	RANKS_OK(ferry_segment_signal(s, 1 - rank->rank, 0));
	RANKS_OK(ferry_segment_wait(s, 0, 1));
	if (rank->rank == 1)
		RANKS_OK(ferry_segment_signal(s, 0, 0));
	must_end(rank, ferry_segment_wait(s, 0, 2), begin);
	RANKS_CHECK((int64_t)(ferry_now_ns() - begin) / 1000000 < LAST_MS / 2);
	RANKS_TEXT(ferry_last_error(), "a write of rank 1 to rank 0 was lost: "
	                               "arrival 3 came after 1");
	ranks_meet(0, rank->n_ranks);
}

/* As threads and as processes: the second immediate of rank 1 is lost. */
static void lose_second(ranks_body *body, int timeout_ms)
{
	const struct ofi_faults faults = {.ranks = RANKS_BIT(1),
	                                  .lose_immediate = 2};
	struct ofi_faults_done done;
	struct ranks how = {.n_ranks = 2, .timeout_ms = timeout_ms};

	injected_ranks(&how);
	for (int i = 0; i < 2; i++) {
		how.kind = i ? RANKS_PROCESSES : RANKS_THREADS;
		injected_set(&faults);
		ranks_run(&how, body);
		injected_done(&done);
		assert_int_equal(done.lost, 1);
	}
}

static void test_the_last_write_is_lost(void **state)
{
	(void)state;
	lose_second(last_write_is_lost, LAST_MS);
}

/* Rank 1 leaves in good order, and its good-bye does not arrive. */
static void goodbye_is_lost(struct rank *rank)
{
	struct ferry_segment *s = injected_open(rank, 4096, 1);
	const struct ferry_wait_item more = {.peer = 1, .value = 2};

	RANKS_OK(ferry_segment_signal(s, 1 - rank->rank, 0));
	RANKS_OK(ferry_segment_wait(s, 0, 1));
	if (rank->rank == 1)
		return;
	RANKS_STATUS(ferry_segment_wait_all(s, &more, 1, NULL), FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "rank 1 closed its segment");
}

static void test_a_goodbye_is_lost(void **state)
{
	(void)state;
	lose_second(goodbye_is_lost, FAIL_MS);
}

enum { PAUSES = 3, PAUSE_MS = 700 };

/* Words behind the last write count nothing, and there is one for each. */
static void pause_often(struct rank *rank)
{
	struct ferry_segment *s = injected_open(rank, 4096, 1);

	for (uint64_t i = 1; i <= PAUSES; i++) {
		RANKS_OK(ferry_segment_signal(s, 1 - rank->rank, 0));
		RANKS_OK(ferry_segment_wait(s, 0, i));
		nanosleep(&(struct timespec){0, PAUSE_MS * 1000000}, NULL);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
	RANKS_EQ(ferry_segment_read(s, 0), PAUSES);
}

static void test_pauses(void **state)
{
	static const struct ofi_faults faults = {0};
	struct ofi_faults_done done;

	struct ranks how = {.n_ranks = 2, .kind = RANKS_PROCESSES};

	(void)state;
	injected_ranks(&how);
	injected_set(&faults);
	ranks_run(&how, pause_often);
	injected_done(&done);
	/* Signals and a good-bye, a word for each, a question. */
	assert_in_range(done.writes, 3 * PAUSES, 4 * PAUSES + 6);
}

/* Rank 1 loses what came from rank 0, says so, and others only wait. */
static void queue_overruns(struct rank *rank)
{
	struct ferry_segment *s = injected_open(rank, 4096, 2);
	struct ferry_error error = FERRY_ERROR_INIT;

	for (int32_t r = 0; r < rank->n_ranks; r++)
		RANKS_OK(ferry_segment_signal(s, r, 1));
	RANKS_OK(ferry_segment_wait(s, 1, (uint64_t)rank->n_ranks));
	RANKS_OK(ferry_world_barrier(rank->world));
	const uint64_t begin = ferry_now_ns();

	if (rank->rank == 0)
		RANKS_OK(ferry_segment_signal(s, 1, 0));
	const enum ferry_status status = ferry_segment_wait(s, 0, 1);

	must_end(rank, status, begin);
	RANKS_STATUS(status, FERRY_FABRIC);
	RANKS_CHECK((int64_t)(ferry_now_ns() - begin) / 1000000 < FAIL_MS / 2);
	RANKS_TEXT(ferry_last_error(), "the queue overran");
	RANKS_STATUS(ferry_world_poll(rank->world, &error), FERRY_FABRIC);
	RANKS_EQ(error.root_rank, 1);
	RANKS_STATUS(ferry_segment_flush(s), FERRY_BROKEN);
}

static void test_a_queue_overruns(void **state)
{
	struct ofi_faults_done done;
	struct ranks how = {.timeout_ms = FAIL_MS};

	(void)state;
	injected_ranks(&how);
	how.options = "LOG_LEVEL=error;OFI_LIBRARY=" FAULTS_LIBRARY;
	for (int i = 0; i < 2; i++) {
		how.n_ranks = 2 + i;
		how.kind = i ? RANKS_PROCESSES : RANKS_THREADS;
		injected_set(
			&(struct ofi_faults){.ranks = RANKS_BIT(1),
		                             .overrun = (uint32_t)how.n_ranks});
		ranks_run(&how, queue_overruns);
		injected_done(&done);
		assert_int_equal(done.overruns, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_write_fails),
		cmocka_unit_test(test_a_write_is_lost),
		cmocka_unit_test(test_the_last_write_is_lost),
		cmocka_unit_test(test_a_goodbye_is_lost),
		cmocka_unit_test(test_pauses),
		cmocka_unit_test(test_a_queue_overruns),
	};

	injected_begin();
	return cmocka_run_group_tests_name("losses", tests, NULL, NULL);
}
