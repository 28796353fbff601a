/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of loads over ranks. What engines got wrong has a test by name: sums of
 * the local rank only, counts booked to another layer, and dummy rows of idle
 * ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/balance.h>
#include <ferry/predict.h>

#include "core/bits.h"
#include "fabric/world.h"
#include "ranks.h"
#include "runs.h"
#include "trace/events.h"

enum { EXPERTS = 32, ROUNDS = 30 };

struct setting {
	const char *name;
	const char *fabric;
	enum ranks_kind kind;
	const char *options;
};

static const struct setting settings[] = {
#ifdef FAKE_GPU
	{"p2p", "p2p", RANKS_THREADS, ""},
	{"p2p processes", "p2p", RANKS_PROCESSES, ""},
	{"GPUs of hosts", "p2p+wire", RANKS_PROCESSES, "RANKS_PER_HOST=2"},
#else
	{"local", "local", RANKS_THREADS, ""},
	{"shm", "shm", RANKS_PROCESSES, ""},
	{"wire", "wire", RANKS_PROCESSES, "WIRE_SEED=3"},
	{"hosts of 2", "shm+wire", RANKS_PROCESSES, "RANKS_PER_HOST=2"},
	{"wire threads", "wire", RANKS_THREADS, "FAULT=reorder"},
#endif
};

enum { N_SETTINGS = sizeof(settings) / sizeof(settings[0]) };

static void run(const struct setting *setting, struct ranks how,
                ranks_body *body)
{
	char options[128];

	snprintf(options, sizeof(options), "%s%s", setting->options,
	         how.options ? how.options : "");
	how.fabric = setting->fabric;
	how.kind = setting->kind;
	how.options = options;
#ifdef FAKE_GPU
	how.device = FERRY_DEVICE_CUDA;
	how.n_gpus = 2;
#endif
	ranks_run(&how, body);
}

static struct ferry_totals *open_totals(struct rank *rank, int32_t max_experts)
{
	struct ferry_totals *totals = NULL;

	RANKS_OK(ferry_totals_open(rank->world, max_experts, &totals));
	ranks_defer((void (*)(void *))ferry_totals_close, totals);
	return totals;
}

static struct ferry_totals_in in_of(const int32_t *counts, int32_t n_experts)
{
	struct ferry_totals_in in = FERRY_TOTALS_IN_INIT;

	in.counts = counts;
	in.n_experts = n_experts;
	return in;
}

/* Counts of a rank in a round; some near the largest that int32 holds. */
static void fill(int32_t *counts, int32_t n, uint64_t seed, int32_t rank,
                 uint64_t round)
{
	uint64_t rng = hash_u64(hash_u64(seed, round), (uint64_t)rank);

	for (int32_t e = 0; e < n; e++)
		counts[e] = rng_next(&rng) % 4 ? (int32_t)(rng_next(&rng) % 99)
		                               : INT32_MAX - e;
}

static int64_t window_of(int32_t rank, uint64_t round)
{
	return 1000 + (int64_t)((round * 7 + (uint64_t)rank * 5) % 23);
}

static void check_sums(struct rank *rank, struct ferry_totals *totals,
                       int32_t n, uint64_t round)
{
	const uint64_t seed = *(const uint64_t *)rank->arg;
	int64_t want[EXPERTS] = {0};
	int64_t loads[EXPERTS];
	int64_t windows[RANKS_MAX];
	int64_t least = INT64_MAX;
	int64_t window;
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;

	out.loads = loads;
	out.window_ns = &window;
	out.rank_window_ns = windows;
	RANKS_OK(ferry_totals_recv(totals, &out));
	for (int32_t r = 0; r < rank->n_ranks; r++) {
		int32_t counts[EXPERTS];

		fill(counts, n, seed, r, round);
		for (int32_t e = 0; e < n; e++)
			want[e] += counts[e];
		least = min_i64(least, window_of(r, round));
		RANKS_EQ(windows[r], window_of(r, round));
	}
	RANKS_BYTES(loads, want, (size_t)n * sizeof(*want));
	RANKS_EQ(window, least);
}

/* Numbers of experts change from round to round; nothing stays behind. */
static void sums(struct rank *rank)
{
	const uint64_t seed = *(const uint64_t *)rank->arg;
	struct ferry_totals *totals = open_totals(rank, EXPERTS);

	for (uint64_t round = 0; round < ROUNDS; round++) {
		const int32_t n = 1 + (int32_t)(round * 11 % EXPERTS);
		int32_t counts[EXPERTS];
		struct ferry_totals_in in = in_of(counts, n);

		fill(counts, n, seed, rank->rank, round);
		in.window_ns = window_of(rank->rank, round);
		in.tag = round;
		RANKS_OK(ferry_totals_send(totals, &in));
		memset(counts, 0x55, sizeof(counts));
		check_sums(rank, totals, n, round);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_sums(void **state)
{
	const int32_t n_ranks[] = {1, 2, 3, 8};
	uint64_t seed = ranks_seed();

	for (int i = 0; i < 4; i++)
		run(*state, (struct ranks){.n_ranks = n_ranks[i], .arg = &seed},
		    sums);
}

/*
 * Each rank's tokens choose only a quarter of the experts: the others' quarters
 * must not be 0 in its sums.
 */
static void every_rank_counts(struct rank *rank)
{
	struct ferry_totals *totals = open_totals(rank, EXPERTS);
	int32_t ids[3 * EXPERTS / 4];
	int32_t counts[EXPERTS] = {0};
	int64_t loads[EXPERTS];
	struct ferry_ids chosen = FERRY_IDS_INIT;
	struct ferry_totals_in in = in_of(counts, EXPERTS);
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;

	for (int32_t i = 0; i < 3 * EXPERTS / 4; i++)
		ids[i] = rank->rank * EXPERTS / 4 + i / 3;
	chosen.ids = ids;
	chosen.n_tokens = EXPERTS / 4;
	chosen.topk = 3;
	RANKS_OK(ferry_predict_counts(&chosen, EXPERTS, counts));
	RANKS_OK(ferry_totals_send(totals, &in));
	out.loads = loads;
	RANKS_OK(ferry_totals_recv(totals, &out));
	for (int32_t e = 0; e < EXPERTS; e++)
		RANKS_EQ(loads[e], 3);
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_every_rank_counts(void **state)
{
	run(*state, (struct ranks){.n_ranks = 4}, every_rank_counts);
}

/*
 * Ranks 1 and 3 have no tokens: one says so by NULL, the other runs a dummy
 * batch of padding. Neither adds a load, or limits the window.
 */
static void idle_ranks(struct rank *rank)
{
	struct ferry_totals *totals = open_totals(rank, EXPERTS);
	const int32_t dummy[] = {-1, -1, -1, -1};
	int32_t counts[EXPERTS] = {0};
	int64_t loads[EXPERTS];
	int64_t window = 0;
	struct ferry_totals_in in = in_of(counts, EXPERTS);
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;
	struct ferry_ids chosen = FERRY_IDS_INIT;

	chosen.ids = dummy;
	chosen.n_tokens = 2;
	chosen.topk = 2;
	if (rank->rank == 3)
		RANKS_OK(ferry_predict_counts(&chosen, EXPERTS, counts));
	else if (rank->rank == 1)
		in.counts = NULL;
	else
		counts[5] = 9;
	if (rank->rank % 2 == 0)
		in.window_ns = 4000 + rank->rank;
	RANKS_OK(ferry_totals_send(totals, &in));
	out.loads = loads;
	out.window_ns = &window;
	RANKS_OK(ferry_totals_recv(totals, &out));
	for (int32_t e = 0; e < EXPERTS; e++)
		RANKS_EQ(loads[e], e == 5 ? 18 : 0);
	RANKS_EQ(window, 4000);
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_idle_ranks(void **state)
{
	run(*state, (struct ranks){.n_ranks = 4}, idle_ranks);
}

/*
 * Rank 2 books its counts to layer 6 while the others are at 5: an error on all
 * ranks that names it and both layers. The next round is good again.
 */
static void another_layer(struct rank *rank)
{
	struct ferry_totals *totals = open_totals(rank, EXPERTS);
	int64_t loads[EXPERTS] = {77};
	struct ferry_totals_in in = in_of(NULL, EXPERTS);
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;

	out.loads = loads;
	for (int round = 0; round < 3; round++) {
		in.tag = rank->rank == 2 && round == 1 ? 6 : 5;
		RANKS_OK(ferry_totals_send(totals, &in));
		if (round != 1) {
			RANKS_OK(ferry_totals_recv(totals, &out));
			RANKS_EQ(loads[0], 0);
			loads[0] = 77;
			continue;
		}
		RANKS_STATUS(ferry_totals_recv(totals, &out), FERRY_MISMATCH);
		RANKS_TEXT(ferry_last_error(),
		           "round 1: rank 2 has tag 6 (0x6), rank 0 has 5");
		RANKS_EQ(loads[0], 77);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_another_layer(void **state)
{
	run(*state, (struct ranks){.n_ranks = 3}, another_layer);
}

static void other_experts(struct rank *rank)
{
	struct ferry_totals *totals = open_totals(rank, EXPERTS);
	struct ferry_totals_in in = in_of(NULL, rank->rank == 1 ? 8 : 16);
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;

	RANKS_OK(ferry_totals_send(totals, &in));
	RANKS_STATUS(ferry_totals_recv(totals, &out), FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "rank 1 has 8 experts, rank 0 has 16");
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_other_experts(void **state)
{
	run(*state, (struct ranks){.n_ranks = 2}, other_experts);
}

static void refused(struct rank *rank)
{
	const int32_t counts[EXPERTS] = {0, 0, -1};
	struct ferry_totals *totals = open_totals(rank, EXPERTS);
	struct ferry_totals *none = NULL;
	struct ferry_totals_in in = in_of(counts, EXPERTS);
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;

	RANKS_STATUS(ferry_totals_send(totals, &in), FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "counts[2] is -1, allowed are 0..");
	in.n_experts = EXPERTS + 1;
	RANKS_STATUS(ferry_totals_send(totals, &in), FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "n_experts is 33, allowed are 1..32");
	in.n_experts = 0;
	RANKS_STATUS(ferry_totals_send(totals, &in), FERRY_RANGE);
	RANKS_STATUS(ferry_totals_send(totals, NULL), FERRY_INVAL);
	RANKS_STATUS(ferry_totals_send(NULL, &in), FERRY_INVAL);
	RANKS_STATUS(ferry_totals_recv(totals, &out), FERRY_STATE);
	RANKS_TEXT(ferry_last_error(), "totals: round 0 was not sent");
	in.n_experts = 2;
	RANKS_OK(ferry_totals_send(totals, &in));
	RANKS_STATUS(ferry_totals_send(totals, &in), FERRY_STATE);
	RANKS_STATUS(ferry_totals_recv(totals, NULL), FERRY_INVAL);
	RANKS_STATUS(ferry_totals_recv(NULL, &out), FERRY_INVAL);
	RANKS_OK(ferry_totals_recv(totals, &out));
	RANKS_STATUS(ferry_totals_open(rank->world, 0, &none), FERRY_RANGE);
	RANKS_STATUS(
		ferry_totals_open(rank->world, FERRY_MAX_EXPERTS + 1, &none),
		FERRY_RANGE);
	RANKS_STATUS(ferry_totals_open(NULL, 1, &none), FERRY_INVAL);
	RANKS_STATUS(ferry_totals_open(rank->world, 1, NULL), FERRY_INVAL);
	RANKS_CHECK(!none);
	ferry_totals_close(NULL);
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_refused(void **state)
{
	run(*state, (struct ranks){.n_ranks = 2}, refused);
}

/* Nobody waits for a rank that was refused, and then for another call of it. */
static void one_refused(struct rank *rank)
{
	struct ferry_totals *none = NULL;
	const int32_t mine = rank->rank;

	RANKS_STATUS(ferry_totals_open(rank->world, mine == 1 ? 0 : 8, &none),
	             FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(),
	           "totals_open: max_experts is 0, allowed are 1..16777216");
	if (mine != 1)
		RANKS_TEXT(ferry_last_error(), "rank 1: ");
	RANKS_STATUS(ferry_totals_open(rank->world, 8 + mine, &none),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "max_experts is 9 on rank 1, 8 on rank");
	RANKS_CHECK(!none);
	open_totals(rank, 8);
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_one_refused(void **state)
{
	run(*state, (struct ranks){.n_ranks = 3}, one_refused);
}

/* Who receives after a send that failed hears of the failure again. */
static void aborted(struct rank *rank)
{
	struct ferry_totals *totals = open_totals(rank, EXPERTS);
	struct ferry_totals_in in = in_of(NULL, EXPERTS);
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;

	if (rank->rank == 0)
		ferry_world_abort(rank->world);
	if (ferry_totals_send(totals, &in) == FERRY_OK)
		return; /* it had not heard of it yet */
	const enum ferry_status status = ferry_totals_recv(totals, &out);

	RANKS_CHECK(status == FERRY_ABORTED || status == FERRY_BROKEN);
	RANKS_TEXT(ferry_last_error(), "rank 0 aborted the world");
}

static void test_aborted(void **state)
{
	run(*state, (struct ranks){.n_ranks = 2}, aborted);
}

/* A rank that dies between rounds: the others are told who. */
static void dies(struct rank *rank)
{
	struct ferry_totals *totals = open_totals(rank, EXPERTS);
	struct ferry_totals_in in = in_of(NULL, EXPERTS);
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;
	enum ferry_status status = FERRY_OK;

	for (int round = 0; status == FERRY_OK && round < 100; round++) {
		if (rank->rank == 1 && round == 4)
			ranks_die();
		status = ferry_totals_send(totals, &in);
		if (status == FERRY_OK)
			status = ferry_totals_recv(totals, &out);
	}
	RANKS_STATUS(status, FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "rank 1");
	RANKS_STATUS(ferry_totals_send(totals, &in), FERRY_BROKEN);
}

static void test_dies(void **state)
{
	run(*state, (struct ranks){.n_ranks = 3, .killed = RANKS_BIT(1)}, dies);
}

/* Rounds are events of the trace. */
static void traced(struct rank *rank)
{
	struct ferry_totals *totals = open_totals(rank, EXPERTS);
	struct ferry_totals_in in = in_of(NULL, EXPERTS);
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;
	struct ferry_trace *trace = rank->world->trace;
	struct ferry_trace_event event;
	int n_sends = 0;
	int n_recvs = 0;

	for (int round = 0; round < 3; round++) {
		RANKS_OK(ferry_totals_send(totals, &in));
		RANKS_OK(ferry_totals_recv(totals, &out));
	}
	for (uint64_t i = 0; i < ferry_trace_count(trace); i++) {
		if (!ferry_trace_at(trace, i, &event) ||
		    strcmp(event.category, "balance") != 0)
			continue;
		RANKS_CHECK(event.end_ns >= event.begin_ns);
		if (!strcmp(event.name, "totals_send"))
			RANKS_EQ(event.epoch, n_sends++);
		if (!strcmp(event.name, "totals_recv"))
			RANKS_EQ(event.epoch, n_recvs++);
	}
	RANKS_EQ(n_sends, 3);
	RANKS_EQ(n_recvs, 3);
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_traced(void **state)
{
	run(*state, (struct ranks){.n_ranks = 2, .options = ";TRACE=/dev/null"},
	    traced);
}

/* Speeds of all ranks, through the world. */
static void speeds(struct rank *rank)
{
	const struct ferry_work own = {1000, rank->rank == 2 ? 2000 : 1000};
	int32_t speed[4];

	RANKS_OK(ferry_speeds_gather(rank->world, &own, 10000, speed));
	for (int32_t r = 0; r < 4; r++)
		RANKS_EQ(speed[r], r == 2 ? 500 : 1000);
	RANKS_STATUS(ferry_speeds_gather(NULL, &own, 0, speed), FERRY_INVAL);
	RANKS_STATUS(ferry_speeds_gather(rank->world, NULL, 0, speed),
	             FERRY_INVAL);
	RANKS_STATUS(ferry_speeds_gather(rank->world, &own, 0, NULL),
	             FERRY_INVAL);
}

/* Another tolerance would give a rank other speeds. */
static void other_tolerance(struct rank *rank)
{
	const struct ferry_work own = {1000, 1000 + 100 * rank->rank};
	int32_t speed[3] = {77};

	RANKS_STATUS(ferry_speeds_gather(rank->world, &own,
	                                 rank->rank == 1 ? 500000 : 0, speed),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(),
	           "tolerance_ppm is 500000 on rank 1, 0 on rank 0");
	RANKS_EQ(speed[0], 77);
}

static void test_other_tolerance(void **state)
{
	run(*state, (struct ranks){.n_ranks = 3}, other_tolerance);
}

static void test_speeds(void **state)
{
	run(*state, (struct ranks){.n_ranks = 4}, speeds);
}

static struct runs runs;

int main(void)
{
	for (const struct setting *s = settings; s < settings + N_SETTINGS;
	     s++) {
		if (!ranks_worth(s->kind))
			continue;
		runs_add(&runs, "sums", test_sums, s->name, s);
		runs_add(&runs, "every rank counts", test_every_rank_counts,
		         s->name, s);
		runs_add(&runs, "idle ranks", test_idle_ranks, s->name, s);
		runs_add(&runs, "another layer", test_another_layer, s->name,
		         s);
		runs_add(&runs, "other experts", test_other_experts, s->name,
		         s);
		runs_add(&runs, "refused", test_refused, s->name, s);
		runs_add(&runs, "one refused", test_one_refused, s->name, s);
		runs_add(&runs, "aborted", test_aborted, s->name, s);
		runs_add(&runs, "dies", test_dies, s->name, s);
		runs_add(&runs, "traced", test_traced, s->name, s);
		runs_add(&runs, "speeds", test_speeds, s->name, s);
		runs_add(&runs, "other tolerance", test_other_tolerance,
		         s->name, s);
	}
	return runs_go(&runs, "totals");
}
