/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: put, signal, wait; what is visible when; sleeping and waking. */
#include <pthread.h>
#include <string.h>

#include "conformance.h"
#include "core/clock.h"

static int32_t next_of(const struct rank *rank)
{
	return (rank->rank + 1) % rank->n_ranks;
}

static int32_t last_of(const struct rank *rank)
{
	return (rank->rank + rank->n_ranks - 1) % rank->n_ranks;
}

/* Round a ring; who sees the counter sees the data. */
static void data_comes_with_the_counter(struct rank *rank)
{
	enum { ROUNDS = 300, BYTES = 1000 };
	struct ferry_segment *s = conf_open(rank, 2 * BYTES, 3);
	uint8_t *base = ferry_segment_base(s);

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		conf_fill(base, BYTES, i * 64 + (uint64_t)rank->rank);
		conf_put(s, next_of(rank), BYTES, base, BYTES, 1);
		conf_wait(s, 1, i);
		RANKS_EQ(conf_is_filled(base + BYTES, BYTES,
		                        i * 64 + (uint64_t)last_of(rank)),
		         -1);
		conf_flush(s);
		conf_signal(s, last_of(rank), 2); /* it may be overwritten */
		conf_wait(s, 2, i);
	}
}

/* On ordered peers the first n are there when the counter shows n. */
static void order_where_ordered(struct rank *rank)
{
	enum { PUTS = 500 };
	struct ferry_segment *s = conf_open(rank, 2 * PUTS * 8, 1);
	uint64_t *base = ferry_segment_base(s);

	if (rank->rank == 0) {
		for (uint64_t i = 0; i < PUTS; i++) {
			base[i] = i + 1;
			conf_put(s, 1, (PUTS + i) * 8, &base[i], 8, 0);
		}
		conf_flush(s);
	} else {
		const bool ordered =
			ferry_segment_caps(s, 0) & FERRY_CAP_ORDERED;
		uint64_t seen = 0;

		while (seen < PUTS) {
			conf_wait(s, 0, seen + 1);
			const uint64_t n = ferry_segment_read(s, 0);

			for (; ordered && seen < n; seen++)
				RANKS_EQ(base[PUTS + seen], seen + 1);
			seen = n;
		}
		for (uint64_t i = 0; i < PUTS; i++)
			RANKS_EQ(base[PUTS + i], i + 1);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

/* The source is the caller's again after flush, and not earlier. */
static void source_after_flush(struct rank *rank)
{
	enum { ROUNDS = 50, PUTS = 20, BYTES = 700 };
	struct ferry_segment *s =
		conf_open(rank, (ROUNDS + 1) * PUTS * BYTES, 1);
	uint8_t *base = ferry_segment_base(s);
	uint8_t *in = base + PUTS * BYTES;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		for (uint64_t p = 0; p < PUTS; p++) {
			conf_fill(base + p * BYTES, BYTES, i * PUTS + p);
			RANKS_OK(ferry_segment_put(s, next_of(rank),
			                           ((i + 1) * PUTS + p) * BYTES,
			                           base + p * BYTES, BYTES, 0));
		}
		conf_flush(s);
		memset(base, 0xee, PUTS * BYTES);
	}
	conf_wait(s, 0, ROUNDS * PUTS);
	for (uint64_t i = 0; i < ROUNDS * PUTS; i++)
		RANKS_EQ(conf_is_filled(in + i * BYTES, BYTES, i), -1);
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void empty_puts_count(struct rank *rank)
{
	struct ferry_segment *s = conf_open(rank, 4096, 2);
	const uint8_t *base = ferry_segment_base(s);

	for (int i = 0; i < 50; i++) {
		RANKS_OK(ferry_segment_put(s, next_of(rank), 0, NULL, 0, 1));
		RANKS_OK(ferry_segment_put(s, next_of(rank), 4096, base, 0, 1));
		RANKS_OK(ferry_segment_signal(s, next_of(rank), 1));
	}
	RANKS_OK(ferry_segment_kick(s));
	conf_wait(s, 1, 150);
	RANKS_OK(ferry_world_barrier(rank->world));
	RANKS_EQ(ferry_segment_read(s, 1), 150);
	RANKS_EQ(ferry_segment_read(s, 0), 0);
	for (int i = 0; i < 4096; i++)
		RANKS_EQ(base[i], 0);
}

/* Many ranks raise one counter: none is lost. */
static void counters_add_up(struct rank *rank)
{
	enum { TIMES = 200 };
	struct ferry_segment *s = conf_open(rank, 1, 1);

	for (int i = 0; i < TIMES; i++)
		for (int32_t r = 0; r < rank->n_ranks; r++)
			RANKS_OK(ferry_segment_signal(s, r, 0));
	RANKS_OK(ferry_segment_kick(s));
	conf_wait(s, 0, (uint64_t)(TIMES * rank->n_ranks));
	RANKS_OK(ferry_world_barrier(rank->world));
	RANKS_EQ(ferry_segment_read(s, 0), TIMES * rank->n_ranks);
}

/* A kick is enough: the sender makes no further call. */
static void kicked_puts_arrive(struct rank *rank)
{
	struct ferry_segment *s = conf_open(rank, 64, 1);
	uint64_t *base = ferry_segment_base(s);

	if (rank->rank == 0) {
		base[0] = 77;
		conf_put(s, 1, 8, base, 8, 0);
	} else {
		conf_wait(s, 0, 1);
		RANKS_EQ(base[1], 77);
	}
	ranks_meet(0, 2);
}

/* Long pauses put the waiter to sleep; each wake-up is prompt. */
static void wakes_from_sleep(struct rank *rank)
{
	enum { ROUNDS = 8, PAUSE_MS = 12 };
	struct ferry_segment *s = conf_open(rank, 1, 1);

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		const uint64_t begin = ferry_now_ns();

		if (rank->rank == (int32_t)(i % 2)) {
			conf_sleep_ms(PAUSE_MS);
			conf_signal(s, 1 - rank->rank, 0);
			continue;
		}
		conf_wait(s, 0, (i + 1 - (uint64_t)rank->rank) / 2);
		RANKS_CHECK(ferry_now_ns() - begin < 2000000000u);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

struct waiter {
	struct ferry_segment *segment;
	uint32_t signal;
	uint64_t n;
	enum ferry_status status;
};

static void *wait_many(void *arg)
{
	struct waiter *w = arg;

	for (uint64_t i = 1; i <= w->n && w->status == FERRY_OK; i++) {
		w->status = ferry_segment_wait(w->segment, w->signal, i);
		if (w->status == FERRY_OK && w->signal == 1)
			w->status = ferry_segment_signal(w->segment, 0, 3);
		if (w->status == FERRY_OK)
			w->status = ferry_segment_kick(w->segment);
	}
	return NULL;
}

/* Three threads of a rank wait for different signals; nobody is forgotten. */
static void threads_wait_together(struct rank *rank)
{
	enum { WAITERS = 3, ROUNDS = 60 };
	struct ferry_segment *s = conf_open(rank, 1, 4);
	struct waiter waiters[WAITERS];
	pthread_t threads[WAITERS];

	for (uint32_t i = 0; rank->rank == 1 && i < WAITERS; i++) {
		waiters[i] = (struct waiter){s, i, ROUNDS, FERRY_OK};
		RANKS_EQ(pthread_create(&threads[i], NULL, wait_many,
		                        &waiters[i]),
		         0);
	}
	for (uint64_t i = 1; rank->rank == 0 && i <= ROUNDS; i++) {
		if (i % 16 == 0)
			conf_sleep_ms(3);
		for (uint32_t w = 0; w < WAITERS; w++)
			conf_signal(s, 1, w);
		conf_wait(s, 3, i);
	}
	for (int i = 0; rank->rank == 1 && i < WAITERS; i++) {
		pthread_join(threads[i], NULL);
		RANKS_OK(waiters[i].status);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

const struct conf_case conf_signal_cases[] = {
	{"data_comes_with_the_counter",
         data_comes_with_the_counter,
         {1, 2, 5},
         false},
	{"order_where_ordered", order_where_ordered, {2}, false},
	{"source_after_flush", source_after_flush, {1, 3}, false},
	{"empty_puts_count", empty_puts_count, {1, 4}, false},
	{"counters_add_up", counters_add_up, {1, 8}, false},
	{"kicked_puts_arrive", kicked_puts_arrive, {2}, false},
	{"wakes_from_sleep", wakes_from_sleep, {2}, false},
	{"threads_wait_together", threads_wait_together, {2}, false},
	{NULL, NULL, {0}, false},
};
