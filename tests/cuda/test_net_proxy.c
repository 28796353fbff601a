/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring and the proxy without a GPU: threads write records as
 * net_proxy.cuh does, and what they ask for must arrive at the other rank,
 * every byte and every signal. On wire, or on the network of the command line.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/net_proxy.h"
#include "support/fabrics.h"
#include "support/ranks.h"

enum {
	WRITERS = 4,
	IN_BYTES = 1 << 18, /* of the window */
	CELL_BYTES = 64,
	BIG_BYTES = 20000, /* more than two puts of wire */
	COUNTERS = WRITERS + 1,
};

static const char *fabric = "wire";

/* A rank: what a channel has of it, and memory that a GPU would have. */
struct lab {
	struct ferry_segment *segment, *mirror;
	struct ferry_net_ring *ring;
	struct ferry_net_tickets tickets;
	struct ferry_net_proxy proxy;
	unsigned char *in, *out;
	int32_t peer;
};

static void free_lab(void *arg)
{
	struct lab *l = arg;

	ferry_net_proxy_stop(&l->proxy);
	ferry_segment_close(l->mirror);
	ferry_segment_close(l->segment);
	free(l->ring);
	free(l);
}

static struct lab *make_lab(struct rank *rank)
{
	struct lab *l = calloc(1, sizeof(*l));

	RANKS_CHECK(l != NULL);
	ranks_defer(free_lab, l);
	l->ring = calloc(1, sizeof(*l->ring));
	RANKS_CHECK(l->ring != NULL);
	RANKS_OK(ferry_segment_open(rank->world, 64, 1, &l->segment));
	RANKS_OK(ferry_segment_open(rank->world, (size_t)2 * IN_BYTES, COUNTERS,
	                            &l->mirror));
	l->in = ferry_segment_base(l->mirror);
	l->out = l->in + IN_BYTES;
	l->peer = 1 - rank->rank;
	l->proxy.ring = l->ring;
	l->proxy.mirror = l->mirror;
	l->proxy.segment = l->segment;
	l->proxy.in_bytes = IN_BYTES;
	l->proxy.out_offset = IN_BYTES;
	l->proxy.out_bytes = IN_BYTES;
	RANKS_OK(ferry_net_proxy_start(&l->proxy));
	return l;
}

/* K1 to K4 of net_ring.h. */
static void write_record(struct lab *l, const struct ferry_net_record *r)
{
	const uint64_t t = add_seq_u64(&l->tickets.next, 1);
	struct ferry_net_record *at = &l->ring->records[t % FERRY_NET_RECORDS];

	while (load_acquire_u64(&l->ring->done) + FERRY_NET_RECORDS <= t)
		sched_yield();
	memcpy(at, r, offsetof(struct ferry_net_record, seal));
	store_release_u64(&at->seal, t + 1);
}

static void await(const struct lab *l, uint32_t counter, uint64_t value)
{
	for (int i = 0; i < 20000; i++) {
		if (ferry_segment_read(l->mirror, counter) >= value)
			return;
		usleep(1000);
	}
	RANKS_FAIL("counter %u is %llu, not %llu", counter,
	           (unsigned long long)ferry_segment_read(l->mirror, counter),
	           (unsigned long long)value);
}

struct writer {
	struct lab *l;
	int number, n;
};

/* Cell i of a writer holds i; each is put once. */
static void *write_cells(void *arg)
{
	const struct writer *w = arg;
	const size_t cells = IN_BYTES / CELL_BYTES / WRITERS;

	for (int i = 0; i < w->n; i++) {
		const size_t cell =
			(size_t)w->number * cells + (size_t)i % cells;
		const struct ferry_net_record r = {
			.to = cell * CELL_BYTES,
			.from = cell * CELL_BYTES,
			.peer = (uint32_t)w->l->peer,
			.bytes = CELL_BYTES,
			.counter = (uint32_t)w->number,
			.n_signals = 1 + (uint32_t)i % 3,
		};

		write_record(w->l, &r);
	}
	return NULL;
}

static uint64_t signals_of(int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += 1 + (uint64_t)i % 3;
	return sum;
}

/* More records than the ring has, from many threads. */
static void many_body(struct rank *rank)
{
	enum { N = 3000 };
	struct lab *l = make_lab(rank);
	struct writer writers[WRITERS];
	pthread_t threads[WRITERS];

	for (size_t i = 0; i < IN_BYTES; i++)
		l->out[i] = (unsigned char)(i / CELL_BYTES * 7 + i);
	for (int i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){l, i, N};
		RANKS_EQ(pthread_create(&threads[i], NULL, write_cells,
		                        &writers[i]),
		         0);
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t i = 0; i < WRITERS; i++)
		await(l, i, signals_of(N));
	RANKS_BYTES(l->in, l->out, IN_BYTES);
	RANKS_OK(ferry_world_barrier(rank->world));
	/* The peer has all, so this rank has sent all. */
	RANKS_EQ(load_acquire_u64(&l->ring->done), WRITERS * N);
	for (uint32_t i = 0; i < WRITERS; i++)
		RANKS_EQ(ferry_segment_read(l->mirror, i), signals_of(N));
}

static void test_many(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 2,
	                          .fabric = fabric,
	                          .options = "WIRE_DELAY_US=0"},
	          many_body);
}

/* Large ones go in pieces; a nap does not lose what comes meanwhile. */
static void pieces_body(struct rank *rank)
{
	struct lab *l = make_lab(rank);
	struct ferry_net_record r = {
		.to = 4096,
		.from = 8192,
		.peer = (uint32_t)l->peer,
		.bytes = BIG_BYTES,
		.counter = WRITERS,
		.n_signals = 5, /* three with bytes, two empty ones */
	};

	for (size_t i = 0; i < BIG_BYTES; i++)
		l->out[r.from + i] = (unsigned char)(i * 31 >> 3);
	for (uint64_t i = 1; i <= 3; i++) {
		usleep(30000);
		write_record(l, &r);
		await(l, WRITERS, i * r.n_signals);
		RANKS_BYTES(l->in + r.to, l->out + r.from, BIG_BYTES);
		RANKS_EQ(l->in[r.to - 1], 0);
		RANKS_EQ(l->in[r.to + BIG_BYTES], 0);
		RANKS_OK(ferry_world_barrier(rank->world));
		memset(l->in, 0, IN_BYTES);
		RANKS_OK(ferry_world_barrier(rank->world));
	}
}

static void test_pieces(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 2, .fabric = fabric}, pieces_body);
}

/* What is in the ring when it stops is sent. */
static void stop_body(struct rank *rank)
{
	struct lab *l = make_lab(rank);
	struct writer w = {l, 0, 100};

	write_cells(&w);
	ferry_net_proxy_stop(&l->proxy);
	RANKS_EQ(l->proxy.done, 100);
	await(l, 0, signals_of(100));
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_stop(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 2, .fabric = fabric}, stop_body);
}

/* Nothing outside of the window is written, whatever a record says. */
static void unsound_body(struct rank *rank)
{
	const struct ferry_net_record bad[] = {
		{.peer = 2, .n_signals = 1},
		{.to = IN_BYTES, .bytes = 1, .n_signals = 1},
		{.to = UINT64_MAX, .bytes = 2, .n_signals = 1},
		{.from = IN_BYTES - 1, .bytes = 2, .n_signals = 1},
		{.bytes = IN_BYTES + 1, .n_signals = 1000},
		{.counter = COUNTERS, .n_signals = 1},
		{.bytes = BIG_BYTES, .n_signals = 2},
	};
	struct lab *l = make_lab(rank);
	const int which = *(const int *)rank->arg;

	/* Where a put takes it all it needs no more signals. */
	if (bad[which].bytes == BIG_BYTES &&
	    ferry_segment_max_put(l->mirror) >= BIG_BYTES)
		return;
	if (rank->rank == 0)
		write_record(l, &bad[which]);
	const struct ferry_wait_item item = {.peer = -1, .value = 1};

	RANKS_STATUS(ferry_segment_wait_all(l->segment, &item, 1, NULL),
	             FERRY_INTERNAL);
	RANKS_TEXT(ferry_last_error(),
	           rank->rank == 0 ? "proxy: a record" : "");
}

static void test_unsound(void **state)
{
	(void)state;
	for (int i = 0; i < 7; i++)
		ranks_run(&(struct ranks){.n_ranks = 2,
		                          .fabric = fabric,
		                          .arg = &i},
		          unsound_body);
}

/* After the end nothing is sent, and the ring still empties. */
static void ended_body(struct rank *rank)
{
	struct lab *l = make_lab(rank);
	struct writer w = {l, 0, FERRY_NET_RECORDS + 500};
	const struct ferry_wait_item item = {.peer = -1, .value = 1};

	RANKS_OK(ferry_world_barrier(rank->world));
	if (rank->rank == 0)
		ferry_world_abort(rank->world);
	RANKS_STATUS(ferry_segment_wait_all(l->segment, &item, 1, NULL),
	             FERRY_ABORTED);
	write_cells(&w);
	for (int i = 0; i < 5000 && load_acquire_u64(&l->ring->done) <
	                                    FERRY_NET_RECORDS + 500;
	     i++)
		usleep(1000);
	RANKS_EQ(load_acquire_u64(&l->ring->done), FERRY_NET_RECORDS + 500);
	RANKS_EQ(ferry_segment_read(l->mirror, 0), 0);
}

static void test_ended(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 2, .fabric = fabric}, ended_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many),  cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_stop),  cmocka_unit_test(test_unsound),
		cmocka_unit_test(test_ended),
	};

	if (argc > 1)
		fabric = argv[1];
	fabrics_need(fabric);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
