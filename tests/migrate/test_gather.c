/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathering of a few bytes from all ranks, round after round, on every fabric:
 * every byte of every rank is checked, with ranks that are late, that read
 * late, that die or stall, and with one thread that drives all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/bits.h"
#include "core/clock.h"
#include "core/ctx.h"
#include "migrate/gather.h"
#include "ranks.h"
#include "runs.h"

enum {
	ROUNDS = RANKS_STEPS(60),
	SHORT_MS = 400,
	MOST_BYTES = 20000,
};

struct setting {
	const char *name;
	const char *fabric;
	enum ranks_kind kind;
	const char *options;
};

static const struct setting settings[] = {
	{"local", "local", RANKS_THREADS, ""},
	{"shm threads", "shm", RANKS_THREADS, "SPIN_US=0"},
	{"shm", "shm", RANKS_PROCESSES, ""},
	{"hosts of 2", "shm+wire", RANKS_THREADS, "RANKS_PER_HOST=2"},
	{"wire at once", "wire", RANKS_THREADS, "WIRE_DELAY_US=0;WIRE_SEED=7"},
	{"wire", "wire", RANKS_PROCESSES, "WIRE_SEED=3"},
	{"trace", "trace:shm", RANKS_PROCESSES, ""},
};

static const struct setting reordering[] = {
	{"local", "local", RANKS_THREADS, "FAULT=reorder"},
	{"shm", "shm", RANKS_PROCESSES, "FAULT=reorder delay:us=5,rank=0"},
	{"wire", "trace:fault:wire", RANKS_THREADS, "FAULT=reorder"},
};

enum {
	N_SETTINGS = sizeof(settings) / sizeof(settings[0]),
	N_REORDERING = sizeof(reordering) / sizeof(reordering[0]),
};

/* What a run is about. */
struct task {
	uint64_t seed;
	size_t bytes;
	bool pauses;
};

static void run(const struct setting *setting, struct ranks how,
                const char *fault, ranks_body *body)
{
	char options[200];

	snprintf(options, sizeof(options), "%s%s%s", setting->options,
	         fault[0] ? ";FAULT=" : "", fault);
	how.fabric = setting->fabric;
	how.kind = setting->kind;
	how.options = options;
	ranks_run(&how, body);
}

static void pause_us(int64_t us)
{
	const struct timespec t = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&t, NULL);
}

static int64_t ms_since(uint64_t ns)
{
	return (int64_t)((ferry_now_ns() - ns) / 1000000);
}

static struct ferry_gather *open_gather(struct rank *rank, size_t bytes)
{
	struct ferry_gather *gather = NULL;

	RANKS_OK(ferry_gather_open(rank->world, "test", bytes, &gather));
	ranks_defer((void (*)(void *))ferry_gather_close, gather);
	return gather;
}

/* Bytes that follow from seed, rank and round. */
static void fill(uint8_t *to, size_t bytes, uint64_t seed, int32_t rank,
                 uint64_t round)
{
	uint64_t rng = hash_u64(hash_u64(seed, round), (uint64_t)rank);

	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)rng_next(&rng);
}

static void send_round(struct ferry_gather *gather, const struct task *task,
                       int32_t rank, uint64_t round)
{
	uint8_t own[MOST_BYTES];

	fill(own, task->bytes, task->seed, rank, round);
	RANKS_OK(ferry_gather_send(gather, own));
	memset(own, 0xee, sizeof(own)); /* it has been read */
}

static void check_round(const void *all, size_t stride, const struct task *task,
                        int32_t n_ranks, uint64_t round)
{
	uint8_t want[MOST_BYTES];

	for (int32_t r = 0; r < n_ranks; r++) {
		fill(want, task->bytes, task->seed, r, round);
		RANKS_BYTES((const uint8_t *)all + (size_t)r * stride, want,
		            task->bytes);
	}
}

/* Now and then a rank is late to send, to receive, or to read. */
static void pause_sometimes(const struct task *task, uint64_t *rng)
{
	if (task->pauses && rng_next(rng) % 8 == 0)
		pause_us((int64_t)(rng_next(rng) % 3000));
}

static void many_rounds(struct rank *rank)
{
	const struct task *task = rank->arg;
	struct ferry_gather *gather = open_gather(rank, task->bytes);
	uint64_t rng = hash_u64(task->seed, (uint64_t)rank->rank);

	for (uint64_t round = 0; round < ROUNDS; round++) {
		const void *all = NULL;
		size_t stride = 0;

		pause_sometimes(task, &rng);
		send_round(gather, task, rank->rank, round);
		pause_sometimes(task, &rng);
		RANKS_OK(ferry_gather_recv(gather, &all, &stride));
		pause_sometimes(task, &rng);
		check_round(all, stride, task, rank->n_ranks, round);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

/* 20000 bytes are three puts of the fabric wire. */
static void run_sizes(const struct setting *setting, uint64_t seed)
{
	const size_t bytes[] = {1, 64, 1000, MOST_BYTES};
	const int32_t n_ranks[] = {1, 2, 3, 5, 8};

	for (int i = 0; i < 20; i++) {
		struct task task = {hash_u64(seed, (uint64_t)i), bytes[i % 4],
		                    i % 2 == 0};

		run(setting,
		    (struct ranks){.n_ranks = n_ranks[i % 5], .arg = &task}, "",
		    many_rounds);
	}
}

static void test_many_rounds(void **state)
{
	run_sizes(*state, ranks_seed());
}

/* Puts of a round overtake those of the one before wherever they may. */
static void test_reordered(void **state)
{
	const uint64_t seed = ranks_seed();

	(void)state;
	for (int i = 0; i < N_REORDERING; i++)
		run_sizes(&reordering[i], seed);
}

/* Sending never waits: one thread sends for all ranks, then receives. */
static void driven(struct rank *rank)
{
	struct ferry_gather **gathers = rank->shared;
	const struct task *task = rank->arg;

	gathers[rank->rank] = open_gather(rank, task->bytes);
	ranks_meet(0, rank->n_ranks);
	for (uint64_t round = 0; rank->rank == 0 && round < ROUNDS; round++) {
		for (int32_t r = 0; r < rank->n_ranks; r++)
			send_round(gathers[r], task, r, round);
		for (int32_t r = rank->n_ranks - 1; r >= 0; r--) {
			const void *all = NULL;
			size_t stride = 0;

			RANKS_OK(ferry_gather_recv(gathers[r], &all, &stride));
			check_round(all, stride, task, rank->n_ranks, round);
		}
	}
	ranks_meet(1, rank->n_ranks);
}

static void test_driven(void **state)
{
	const struct setting *setting = *state;
	struct task task = {ranks_seed(), 100, false};
	struct ranks how = {
		.n_ranks = 4,
		.arg = &task,
		.shared_bytes = RANKS_MAX * sizeof(struct ferry_gather *),
	};

	run(setting, how, "", driven);
}

/* Rounds until something fails. */
static enum ferry_status rounds_until_failure(struct rank *rank,
                                              struct ferry_gather *gather)
{
	const struct task *task = rank->arg;
	uint8_t own[MOST_BYTES];
	const void *all;
	size_t stride;

	for (uint64_t round = 0;; round++) {
		fill(own, task->bytes, task->seed, rank->rank, round);
		FERRY_TRY(ferry_gather_send(gather, own));
		FERRY_TRY(ferry_gather_recv(gather, &all, &stride));
		check_round(all, stride, task, rank->n_ranks, round);
	}
}

static void expect_failure(struct rank *rank, struct ferry_gather *gather,
                           enum ferry_status got, enum ferry_status want,
                           const char *text)
{
	struct ferry_error error = FERRY_ERROR_INIT;
	uint8_t own[MOST_BYTES] = {0};

	RANKS_STATUS(got, want);
	RANKS_TEXT(ferry_last_error(), "test: round ");
	RANKS_TEXT(ferry_last_error(), text);
	RANKS_STATUS(ferry_world_poll(rank->world, &error), want);
	RANKS_TEXT(error.text, text);
	RANKS_STATUS(ferry_gather_send(gather, own), FERRY_BROKEN);
	RANKS_TEXT(ferry_last_error(), text);
	RANKS_STATUS(ferry_gather_send(gather, own), FERRY_BROKEN);
}

static void killed(struct rank *rank)
{
	const struct task *task = rank->arg;
	struct ferry_gather *gather = open_gather(rank, task->bytes);
	const uint64_t begin = ferry_now_ns();
	const enum ferry_status status = rounds_until_failure(rank, gather);

	if (rank->rank == 1)
		return;
	RANKS_CHECK(ms_since(begin) < RANKS_AT_ONCE_MS);
	expect_failure(rank, gather, status, FERRY_PEER, "rank 1");
}

static void test_killed(void **state)
{
	const int after[] = {0, 1, 2, 5, 40, 100};

	for (int i = 0; i < 6; i++) {
		struct task task = {ranks_seed(), i % 2 ? 100 : MOST_BYTES,
		                    false};
		const struct ranks how = {
			.n_ranks = 2 + i % 4,
			.killed = RANKS_BIT(1),
			.timeout_ms = RANKS_LONG_MS,
			.arg = &task,
		};
		char fault[64];

		snprintf(fault, sizeof(fault), "kill:rank=1,after=%d",
		         after[i]);
		run(*state, how, fault, killed);
	}
}

/* A rank that does not come any more, though it lives. */
static void stalls(struct rank *rank)
{
	const struct task *task = rank->arg;
	struct ferry_gather *gather = open_gather(rank, task->bytes);
	const enum ferry_status status = rounds_until_failure(rank, gather);

	expect_failure(rank, gather, status, FERRY_TIMEOUT, "rank 2");
}

static void test_stalls(void **state)
{
	struct task task = {ranks_seed(), 100, false};
	const struct ranks how = {
		.n_ranks = 4,
		.timeout_ms = SHORT_MS,
		.arg = &task,
	};

	run(*state, how, "stall:rank=2,ms=1200,after=30", stalls);
}

/* One closes after ten rounds: the others learn it, and at once. */
static void leaves(struct rank *rank)
{
	const struct task *task = rank->arg;
	struct ferry_gather *gather = NULL;
	uint64_t begin;

	RANKS_OK(ferry_gather_open(rank->world, "test", task->bytes, &gather));
	for (uint64_t round = 0; round < 10; round++) {
		const void *all;
		size_t stride;

		send_round(gather, task, rank->rank, round);
		RANKS_OK(ferry_gather_recv(gather, &all, &stride));
	}
	begin = ferry_now_ns();
	if (rank->rank != 2) {
		ranks_defer((void (*)(void *))ferry_gather_close, gather);
		expect_failure(rank, gather, rounds_until_failure(rank, gather),
		               FERRY_PEER, "rank 2");
		RANKS_CHECK(ms_since(begin) < RANKS_AT_ONCE_MS);
	} else {
		ferry_gather_close(gather);
	}
}

static void test_leaves(void **state)
{
	struct task task = {ranks_seed(), 100, false};

	run(*state,
	    (struct ranks){
		    .n_ranks = 4, .timeout_ms = RANKS_LONG_MS, .arg = &task},
	    "", leaves);
}

static void out_of_turn(struct rank *rank)
{
	struct ferry_gather *gather = open_gather(rank, 8);
	const uint64_t own = (uint64_t)rank->rank + 100;
	const void *all = NULL;
	size_t stride = 0;
	uint64_t got;

	RANKS_STATUS(ferry_gather_recv(gather, &all, &stride), FERRY_STATE);
	RANKS_TEXT(ferry_last_error(), "test: round 0 was not sent");
	RANKS_OK(ferry_gather_send(gather, &own));
	RANKS_STATUS(ferry_gather_send(gather, &own), FERRY_STATE);
	RANKS_TEXT(ferry_last_error(), "round 0 was sent and not received");
	RANKS_CHECK(!all);
	RANKS_OK(ferry_gather_recv(gather, &all, &stride));
	for (int32_t r = 0; r < rank->n_ranks; r++) {
		memcpy(&got, (const uint8_t *)all + (size_t)r * stride, 8);
		RANKS_EQ(got, r + 100);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_out_of_turn(void **state)
{
	run(*state, (struct ranks){.n_ranks = 3}, "", out_of_turn);
}

/* 60 and 64 bytes need the same room; they are no match all the same. */
static void differ(struct rank *rank)
{
	struct ferry_gather *gather = NULL;

	RANKS_STATUS(ferry_gather_open(rank->world, "test",
	                               rank->rank == 1 ? 60 : 64, &gather),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "rank 1");
	RANKS_CHECK(!gather);
	RANKS_STATUS(ferry_gather_open(rank->world, "test", 0, &gather),
	             FERRY_INVAL);
	RANKS_STATUS(ferry_gather_open(rank->world, "test", 1, NULL),
	             FERRY_INVAL);
	RANKS_STATUS(ferry_gather_open(NULL, "test", 1, &gather), FERRY_INVAL);
	RANKS_STATUS(ferry_gather_open(rank->world, "test", SIZE_MAX, &gather),
	             FERRY_NOMEM);
	ferry_gather_close(NULL);
}

static void test_differ(void **state)
{
	run(*state, (struct ranks){.n_ranks = 3}, "", differ);
}

static struct runs runs;

int main(void)
{
	for (const struct setting *s = settings; s < settings + N_SETTINGS;
	     s++) {
		if (!ranks_worth(s->kind))
			continue;
		runs_add(&runs, "many rounds", test_many_rounds, s->name, s);
		if (s->kind == RANKS_THREADS)
			runs_add(&runs, "driven", test_driven, s->name, s);
		runs_add(&runs, "killed", test_killed, s->name, s);
		runs_add(&runs, "stalls", test_stalls, s->name, s);
		runs_add(&runs, "leaves", test_leaves, s->name, s);
		runs_add(&runs, "out of turn", test_out_of_turn, s->name, s);
		runs_add(&runs, "differ", test_differ, s->name, s);
	}
	runs.tests[runs.n++] =
		(struct CMUnitTest)cmocka_unit_test(test_reordered);
	return runs_go(&runs, "gather");
}
