/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads of a rank learn of one failure: a watcher that tells the peers,
 * slowly, and a caller who asks meanwhile. He is told, too.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "core/order.h"
#include "fabric/segment_break.h"
#include "ranks.h"

static bool found(void *arg, struct ferry_verdict *verdict, char *text,
                  size_t bytes)
{
	(void)arg;
	*verdict = (struct ferry_verdict){
		.status = FERRY_OVERFLOW, .slot = -1, .token = -1};
	snprintf(text, bytes, "no room");
	return true;
}

static void *watch(void *arg)
{
	(void)ferry_segment_decide(arg);
	return NULL;
}

static void asks_meanwhile(struct ferry_segment *s)
{
	pthread_t watcher;

	s->witness = found;
	RANKS_EQ(pthread_create(&watcher, NULL, watch, s), 0);
	while (!load_seq_u32(&s->told))
		sched_yield();
	RANKS_STATUS(ferry_segment_check(s), FERRY_OVERFLOW);
	RANKS_EQ(pthread_join(watcher, NULL), 0);
	s->witness = NULL;
}

static void body(struct rank *rank)
{
	const struct timespec ms = {0, 1000000};
	struct ferry_segment *s;
	enum ferry_status status;

	RANKS_OK(ferry_segment_open(rank->world, 4096, 1, &s));
	if (rank->rank == 0) {
		asks_meanwhile(s);
	} else {
		while ((status = ferry_segment_check(s)) == FERRY_OK)
			nanosleep(&ms, NULL);
		RANKS_STATUS(status, FERRY_OVERFLOW);
	}
	ferry_segment_close(s);
}

static void who_asks_while_a_watcher_tells_is_told(void **state)
{
	const struct ranks how = {
		.kind = RANKS_THREADS,
		.n_ranks = 3,
		.fabric = "fault:local",
		.options = "FAULT=delay:us=30000,rank=0",
		.timeout_ms = RANKS_LONG_MS,
	};

	(void)state;
	ranks_run(&how, body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_asks_while_a_watcher_tells_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
