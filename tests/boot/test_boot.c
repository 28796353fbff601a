/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of a boot, on every kind: who comes, who does not, who dies,
 * who leaves, who disagrees; what all the others are told, and how soon.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <time.h>

#include "core/order.h"
#include "meeting.h"

/*
 * A wait that ends well in time does so in microseconds; these bounds are for
 * machines that do other work as well, and far below the timeouts of 20 s. Who
 * begins to wait later than others hears with them, earlier by as much.
 */
enum { SOON_MS = 3000, SHORT_MS = 500, EARLY_MS = 300, LATE_MS = 3000 };

/* Ended by its deadline of SHORT_MS, not by something else. */
static void check_in_time(const struct visitor *v)
{
	const int64_t ms = visitor_ms(v);

	RANKS_CHECK(ms >= SHORT_MS - EARLY_MS);
	RANKS_CHECK(ms <= SHORT_MS + LATE_MS);
}

static void sleep_ms(int ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void on_kind(ranks_body *body, int32_t n_ranks, enum meeting_kind kind,
                    int32_t open_timeout_ms)
{
	struct meeting meeting;

	meeting_init(&meeting, kind);
	meeting.open_timeout_ms = open_timeout_ms;
	ranks_run(&(struct ranks){.n_ranks = n_ranks,
	                          .no_world = true,
	                          .arg = &meeting},
	          body);
}

static void on_all(ranks_body *body, int32_t n_ranks)
{
	for (int kind = 0; kind < N_MEETING_KINDS; kind++)
		on_kind(body, n_ranks, (enum meeting_kind)kind, 0);
}

static void bounds(struct rank *rank)
{
	struct visitor *v;
	uint8_t byte = 0;
	uint8_t all[RANKS_MAX];

	RANKS_OK(visitor_open(rank, &v));
	RANKS_STATUS(v->boot->ops->allgather(v->boot, &byte, all, 0,
	                                     ferry_deadline_ns(1000)),
	             FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(),
	           "allgather: bytes is 0, allowed are 1..1048576");
	RANKS_STATUS(v->boot->ops->allgather(v->boot, &byte, all,
	                                     FERRY_BOOT_MAX_BYTES + 1,
	                                     ferry_deadline_ns(1000)),
	             FERRY_INVAL);
	RANKS_CHECK(!v->boot->ops->dead(v->boot, rank->n_ranks - 1));
	/* Refused arguments harm nobody. */
	RANKS_OK(visitor_gather(v, 10000));
}

static void test_bounds(void **state)
{
	(void)state;
	on_all(bounds, 1);
	on_all(bounds, 4);
}

static void absent(struct rank *rank)
{
	struct visitor *v;

	RANKS_OK(visitor_open(rank, &v));
	RANKS_OK(visitor_gather(v, 10000));
	if (rank->rank == 2) {
		ranks_meet(0, rank->n_ranks);
		/* Too late: it hears that it was missed. */
		RANKS_STATUS(visitor_gather(v, 10000), FERRY_TIMEOUT);
	} else {
		RANKS_STATUS(visitor_gather(v, SHORT_MS), FERRY_TIMEOUT);
		check_in_time(v);
	}
	RANKS_TEXT(ferry_last_error(), "boot: rank 2 did not come within ");
	if (rank->rank != 2)
		ranks_meet(0, rank->n_ranks);
	/* Nothing more can be gathered, and that is said at once. */
	RANKS_STATUS(visitor_gather(v, 10000), FERRY_TIMEOUT);
	RANKS_CHECK(visitor_ms(v) <= SOON_MS);
}

static void test_absent(void **state)
{
	(void)state;
	on_all(absent, 4);
}

/* Rank 1 has used up its time before it comes: the others hear that. */
static void comes_late(struct rank *rank)
{
	struct visitor *v;

	RANKS_OK(visitor_open(rank, &v));
	RANKS_OK(visitor_gather(v, 10000));
	if (rank->rank != 1)
		ranks_meet(0, rank->n_ranks);
	RANKS_STATUS(visitor_gather(v, rank->rank == 1 ? 0 : 10000),
	             FERRY_TIMEOUT);
	RANKS_CHECK(visitor_ms(v) <= SOON_MS);
	/* Rank 1 waits a moment for the answer: a busy machine gives none. */
	if (rank->rank != 1 ||
	    !strstr(ferry_last_error(), "rank 0 does not answer"))
		RANKS_TEXT(ferry_last_error(),
		           "boot: rank 1 came when its time was over, before "
		           "ranks 0, 2");
	if (rank->rank == 1)
		ranks_meet(0, rank->n_ranks);
}

static void test_comes_late(void **state)
{
	(void)state;
	on_all(comes_late, 3);
}

/* Asks for the dead all the time, as a watcher of a channel does. */
struct looker {
	struct ferry_boot *boot;
	uint32_t over;
};

static void *look(void *arg)
{
	struct looker *l = arg;

	while (!load_acquire_u32(&l->over))
		if (l->boot->ops->dead(l->boot, 0))
			break;
	return NULL;
}

/* What another thread reads meanwhile is not lost to an allgather. */
static void looked_at(struct rank *rank)
{
	struct looker looker = {.over = 0};
	struct visitor *v;
	pthread_t thread;
	enum ferry_status status = FERRY_OK;

	RANKS_OK(visitor_open(rank, &v));
	looker.boot = v->boot;
	RANKS_EQ(pthread_create(&thread, NULL, look, &looker), 0);
	for (int i = 0; i < 200 && status == FERRY_OK; i++)
		status = visitor_gather(v, SOON_MS);
	store_release_u32(&looker.over, 1);
	pthread_join(thread, NULL);
	RANKS_OK(status);
}

static void test_looked_at(void **state)
{
	(void)state;
	on_all(looked_at, 3);
}

static void disagree(struct rank *rank)
{
	struct visitor *v;
	uint8_t mine[16] = {0};
	uint8_t all[16 * RANKS_MAX];
	const size_t bytes = rank->rank == 1 ? 16 : 8;

	RANKS_OK(visitor_open(rank, &v));
	RANKS_STATUS(v->boot->ops->allgather(v->boot, mine, all, bytes,
	                                     ferry_deadline_ns(10000)),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "bytes to an allgather, rank ");
	RANKS_TEXT(ferry_last_error(), "16");
}

static void test_disagree(void **state)
{
	(void)state;
	on_all(disagree, 3);
}

static void leave(struct rank *rank, int32_t leaver)
{
	struct visitor *v;
	char text[64];

	RANKS_OK(visitor_open(rank, &v));
	RANKS_OK(visitor_gather(v, 10000));
	if (rank->rank == leaver) {
		sleep_ms(50);
		return;
	}
	RANKS_STATUS(visitor_gather(v, 20000), FERRY_PEER);
	RANKS_CHECK(visitor_ms(v) <= 50 + SOON_MS);
	snprintf(text, sizeof(text), "boot: rank %d closed its world", leaver);
	RANKS_TEXT(ferry_last_error(), text);
	RANKS_CHECK(v->boot->ops->dead(v->boot, leaver));
	RANKS_CHECK(!v->boot->ops->dead(v->boot, rank->rank));
	RANKS_STATUS(visitor_gather(v, 20000), FERRY_PEER);
	ranks_meet(1, rank->n_ranks - 1);
}

static void leave_2(struct rank *rank)
{
	leave(rank, 2);
}

static void leave_0(struct rank *rank)
{
	leave(rank, 0);
}

static void test_leave(void **state)
{
	(void)state;
	on_all(leave_2, 4);
	on_all(leave_0, 4);
}

/* Gone before anybody waits; not needed for the round that it gave to. */
static void leave_early(struct rank *rank)
{
	struct visitor *v;

	RANKS_OK(visitor_open(rank, &v));
	RANKS_OK(visitor_gather(v, 10000));
	if (rank->rank == 1)
		return;
	const uint64_t end_ns = ferry_deadline_ns(5000);
	while (!v->boot->ops->dead(v->boot, 1) && ferry_now_ns() < end_ns)
		sleep_ms(1);
	RANKS_CHECK(v->boot->ops->dead(v->boot, 1));
	RANKS_STATUS(visitor_gather(v, 20000), FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "boot: rank 1 closed its world");
	ranks_meet(1, rank->n_ranks - 1);
}

static void test_leave_early(void **state)
{
	(void)state;
	on_all(leave_early, 4);
}

static void *abort_soon(void *arg)
{
	struct ferry_boot *boot = arg;

	sleep_ms(50);
	boot->ops->abort(boot);
	return NULL;
}

static void aborted(struct rank *rank, int32_t who, bool waits)
{
	struct visitor *v;
	pthread_t id;
	char text[64];

	RANKS_OK(visitor_open(rank, &v));
	RANKS_OK(visitor_gather(v, 10000));
	if (rank->rank == who) {
		RANKS_EQ(pthread_create(&id, NULL, abort_soon, v->boot), 0);
		if (!waits)
			pthread_join(id, NULL);
	}
	/* Rank 3 never comes to this one. */
	if (rank->rank != 3) {
		RANKS_STATUS(visitor_gather(v, 20000), FERRY_ABORTED);
		RANKS_CHECK(visitor_ms(v) <= 50 + SOON_MS);
		snprintf(text, sizeof(text), "rank %d aborted the world", who);
		RANKS_TEXT(ferry_last_error(), text);
	}
	if (rank->rank == who && waits)
		pthread_join(id, NULL);
	ranks_meet(0, rank->n_ranks);
}

static void aborted_waiting(struct rank *rank)
{
	aborted(rank, 1, true);
}

static void aborted_idle(struct rank *rank)
{
	aborted(rank, 2, false);
}

static void aborted_by_0(struct rank *rank)
{
	aborted(rank, 0, true);
}

static void test_abort(void **state)
{
	(void)state;
	on_all(aborted_waiting, 4);
	on_all(aborted_idle, 4);
	on_all(aborted_by_0, 4);
}

static void agreed(struct rank *rank)
{
	struct visitor *v;
	const int32_t mine = rank->rank * 3;
	int32_t all[RANKS_MAX];

	RANKS_OK(visitor_open(rank, &v));
	RANKS_OK(ferry_agree(v->boot, FERRY_OK, &mine, all, 4,
	                     ferry_deadline_ns(10000)));
	for (int32_t r = 0; r < rank->n_ranks; r++)
		RANKS_EQ(all[r], r * 3);
	RANKS_OK(ferry_agree(v->boot, FERRY_OK, NULL, NULL, 0,
	                     ferry_deadline_ns(10000)));

	/* Two fail: each keeps its own message, others hear of the first. */
	enum ferry_status status = FERRY_OK;
	if (rank->rank == 1)
		status = ferry_fail(NULL, FERRY_NOMEM, "no %d GiB", 4);
	if (rank->rank == 2)
		status = ferry_fail(NULL, FERRY_SYS, "no file");
	status = ferry_agree(v->boot, status, &mine, all, 4,
	                     ferry_deadline_ns(10000));
	RANKS_EQ(status, rank->rank == 2 ? FERRY_SYS : FERRY_NOMEM);
	if (rank->rank == 1)
		RANKS_EQ(strcmp(ferry_last_error(), "no 4 GiB"), 0);
	else if (rank->rank == 2)
		RANKS_EQ(strcmp(ferry_last_error(), "no file"), 0);
	else
		RANKS_EQ(strcmp(ferry_last_error(), "rank 1: no 4 GiB"), 0);
	/* A failure that all have heard of does not end the boot. */
	RANKS_OK(visitor_gather(v, 10000));
}

static void test_agree(void **state)
{
	(void)state;
	on_all(agreed, 4);
}

static void own_failure_wins(struct rank *rank)
{
	struct visitor *v;

	RANKS_OK(visitor_open(rank, &v));
	if (rank->rank == 1) {
		ranks_meet(0, rank->n_ranks);
		return;
	}
	enum ferry_status status = FERRY_OK;
	if (rank->rank == 0)
		status = ferry_fail(NULL, FERRY_NOMEM, "mine");
	status = ferry_agree(v->boot, status, NULL, NULL, 0,
	                     ferry_deadline_ns(SHORT_MS));
	RANKS_EQ(status, rank->rank == 0 ? FERRY_NOMEM : FERRY_TIMEOUT);
	RANKS_TEXT(ferry_last_error(),
	           rank->rank == 0 ? "mine" : "rank 1 did not come");
	ranks_meet(0, rank->n_ranks);
}

static void test_own_failure_wins(void **state)
{
	(void)state;
	on_all(own_failure_wins, 3);
}

/* Ranks 1 and 3 never open; or rank 0 does not. */
static void nobody_comes(struct rank *rank, uint64_t missing, const char *text)
{
	struct visitor *v;
	enum ferry_status status;

	if (missing & RANKS_BIT(rank->rank)) {
		ranks_meet(0, rank->n_ranks);
		return;
	}
	status = visitor_open(rank, &v);
	/* A team meets in its first allgather. */
	if (status == FERRY_OK)
		status = visitor_gather(v, SHORT_MS);
	RANKS_EQ(status, FERRY_TIMEOUT);
	RANKS_CHECK(visitor_ms(v) <= SHORT_MS + LATE_MS);
	RANKS_TEXT(ferry_last_error(), text);
	ranks_meet(0, rank->n_ranks);
}

static void without_1_and_3(struct rank *rank)
{
	nobody_comes(rank, RANKS_BIT(1) | RANKS_BIT(3),
	             "boot: ranks 1, 3 did not come within ");
}

static void without_0(struct rank *rank)
{
	nobody_comes(rank, RANKS_BIT(0), "boot: rank 0 did not come within ");
}

static void test_open_times_out(void **state)
{
	(void)state;
	for (int kind = 0; kind < N_MEETING_KINDS; kind++)
		on_kind(without_1_and_3, 5, (enum meeting_kind)kind, SHORT_MS);
	on_kind(without_0, 3, MEET_UNIX, SHORT_MS);
	on_kind(without_0, 3, MEET_TCP, SHORT_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_absent),
		cmocka_unit_test(test_comes_late),
		cmocka_unit_test(test_looked_at),
		cmocka_unit_test(test_disagree),
		cmocka_unit_test(test_leave),
		cmocka_unit_test(test_leave_early),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_agree),
		cmocka_unit_test(test_own_failure_wins),
		cmocka_unit_test(test_open_times_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
