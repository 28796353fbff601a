/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that die: while others still come, while they wait, and while
 * nobody waits. Every survivor is told who it was, long before its timeout.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "meeting.h"

enum { SOON_MS = 3000 };

static void sleep_ms(int ms)
{
	nanosleep(&(struct timespec){0, ms * 1000000L}, NULL);
}

static void on_kinds(ranks_body *body, int32_t killed)
{
	for (int kind = MEET_UNIX; kind <= MEET_TCP; kind++) {
		struct meeting meeting;

		meeting_init(&meeting, (enum meeting_kind)kind);
		meeting.open_timeout_ms = 20000;
		ranks_run(&(struct ranks){.kind = RANKS_PROCESSES,
		                          .n_ranks = 4,
		                          .no_world = true,
		                          .killed = RANKS_BIT(killed),
		                          .arg = &meeting},
		          body);
	}
}

static void dies_while_others_wait(struct rank *rank, int32_t who)
{
	struct visitor *v;
	char text[64];

	RANKS_OK(visitor_open(rank, &v));
	RANKS_OK(visitor_gather(v, 10000));
	if (rank->rank == who) {
		sleep_ms(30);
		ranks_die();
	}
	RANKS_STATUS(visitor_gather(v, 20000), FERRY_PEER);
	RANKS_CHECK(visitor_ms(v) <= SOON_MS);
	snprintf(text, sizeof(text), "boot: rank %d died", who);
	RANKS_TEXT(ferry_last_error(), text);
	RANKS_CHECK(v->boot->ops->dead(v->boot, who));
	ranks_meet(0, 3);
}

static void rank_2_dies(struct rank *rank)
{
	dies_while_others_wait(rank, 2);
}

static void rank_0_dies(struct rank *rank)
{
	dies_while_others_wait(rank, 0);
}

static void test_dies_while_others_wait(void **state)
{
	(void)state;
	on_kinds(rank_2_dies, 2);
	on_kinds(rank_0_dies, 0);
}

static void dies_while_nobody_waits(struct rank *rank)
{
	struct visitor *v;

	RANKS_OK(visitor_open(rank, &v));
	RANKS_OK(visitor_gather(v, 10000));
	if (rank->rank == 3)
		ranks_die();
	const uint64_t end_ns = ferry_deadline_ns(SOON_MS);
	while (!v->boot->ops->dead(v->boot, 3)) {
		RANKS_CHECK(ferry_now_ns() < end_ns);
		sleep_ms(1);
	}
	for (int32_t r = 0; r < 3; r++)
		RANKS_CHECK(!v->boot->ops->dead(v->boot, r));
	ranks_meet(0, 3);
	RANKS_STATUS(visitor_gather(v, 20000), FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "boot: rank 3 died");
	ranks_meet(1, 3);
}

static void test_dies_while_nobody_waits(void **state)
{
	(void)state;
	on_kinds(dies_while_nobody_waits, 3);
}

/* When the hub knows it, also on a busy machine. */
static void *die_soon(void *arg)
{
	sleep_ms(600);
	raise(SIGKILL);
	return arg;
}

/* Rank 1 dies while it waits for rank 3, which never comes. */
static void dies_while_others_come(struct rank *rank)
{
	struct visitor *v;
	pthread_t id;

	if (rank->rank == 3) {
		ranks_meet(0, 3);
		return;
	}
	if (rank->rank == 1) {
		RANKS_EQ(pthread_create(&id, NULL, die_soon, NULL), 0);
		(void)visitor_open(rank, &v);
	}
	const enum ferry_status status = visitor_open(rank, &v);
	RANKS_CHECK(visitor_ms(v) <= SOON_MS);
	RANKS_EQ(status, FERRY_PEER);
	RANKS_TEXT(ferry_last_error(),
	           "boot: rank 1 died while others still came");
	ranks_meet(0, 3);
}

static void test_dies_while_others_come(void **state)
{
	(void)state;
	on_kinds(dies_while_others_come, 1);
}

/* The process of rank 0 stands still: nobody can tell who is absent. */
static void rank_0_stands_still(struct rank *rank)
{
	pid_t *pid_of_0 = rank->shared;
	struct visitor *v;

	RANKS_OK(visitor_open(rank, &v));
	RANKS_OK(visitor_gather(v, 10000));
	if (rank->rank == 0) {
		*pid_of_0 = getpid();
		ranks_meet(0, 3);
		raise(SIGSTOP);
		return;
	}
	ranks_meet(0, 3);
	sleep_ms(50);
	RANKS_STATUS(visitor_gather(v, 400), FERRY_TIMEOUT);
	RANKS_CHECK(visitor_ms(v) >= 400);
	RANKS_CHECK(visitor_ms(v) <= SOON_MS);
	RANKS_TEXT(ferry_last_error(), "boot: rank 0 does not answer for ");
	ranks_meet(1, 2);
	kill(*pid_of_0, SIGCONT);
}

static void test_rank_0_stands_still(void **state)
{
	struct meeting meeting;

	(void)state;
	meeting_init(&meeting, MEET_TCP);
	ranks_run(&(struct ranks){.kind = RANKS_PROCESSES,
	                          .n_ranks = 3,
	                          .no_world = true,
	                          .shared_bytes = sizeof(pid_t),
	                          .arg = &meeting},
	          rank_0_stands_still);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dies_while_others_wait),
		cmocka_unit_test(test_dies_while_nobody_waits),
		cmocka_unit_test(test_dies_while_others_come),
		cmocka_unit_test(test_rank_0_stands_still),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
