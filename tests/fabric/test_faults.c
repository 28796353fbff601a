/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to the others when a rank never comes, dies, stalls, aborts or
 * leaves: every survivor returns in time, all name the same root, later calls
 * say BROKEN, and closing works.
 */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/bits.h"
#include "core/clock.h"
#include "fault_rounds.h"
#include "fault_settings.h"
#include "runs.h"

enum {
	SHORT_MS = 600,
	SLACK_MS = 1000, /* of a busy machine */
	GRACE_NS = 200000000,
};

static void never_comes(struct rank *rank)
{
	const uint64_t begin = ferry_now_ns();
	struct ferry_segment *s = NULL;

	if (rank->rank == 2) {
		ranks_meet(0, rank->n_ranks);
		return;
	}
	RANKS_STATUS(ferry_segment_open(rank->world, 4096, 1, &s),
	             FERRY_TIMEOUT);
	RANKS_TEXT(ferry_last_error(), "rank 2");
	RANKS_CHECK(fault_ms_since(begin) < fault_open_ms + SLACK_MS);
	RANKS_CHECK(!s);
	ranks_meet(0, rank->n_ranks);
}

static void test_never_comes(void **state)
{
	const struct ranks how = {
		.n_ranks = 3,
		.open_timeout_ms = fault_open_ms,
	};

	fault_run(*state, how, "", never_comes);
}

static void dies_before_open(struct rank *rank)
{
	const uint64_t begin = ferry_now_ns();
	struct ferry_segment *s = NULL;

	if (rank->rank == 1)
		ranks_die();
	RANKS_STATUS(ferry_segment_open(rank->world, 4096, 1, &s), FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "rank 1");
	RANKS_CHECK(fault_ms_since(begin) < RANKS_AT_ONCE_MS);
}

static void test_dies_before_open(void **state)
{
	const struct ranks how = {.n_ranks = 3,
	                          .open_timeout_ms = RANKS_LONG_MS,
	                          .killed = RANKS_BIT(1)};

	fault_run(*state, how, "", dies_before_open);
}

/* Rank 1 is killed by the fault wrapper, somewhere in the fault_rounds. */
static void killed(struct rank *rank)
{
	struct ferry_segment *s = fault_open_segment(rank);
	int64_t took_ms;
	const enum ferry_status status = fault_rounds(rank, s, 1000, &took_ms);

	RANKS_CHECK(took_ms < RANKS_AT_ONCE_MS);
	fault_expect_failure(rank, s, status, FERRY_PEER, 1);
}

static void test_killed(void **state)
{
	const int after[] = {0, 1, 2, 3, 37, 200};

	for (int i = 0; i < 6; i++) {
		const struct ranks how = {.n_ranks = 2 + i % 3,
		                          .killed = RANKS_BIT(1)};
		char fault[64];

		snprintf(fault, sizeof(fault), "kill:rank=1,after=%d",
		         after[i]);
		fault_run(*state, how, fault, killed);
	}
}

/* Two die at about the same time: which is the root is open, but it is one. */
static void two_killed(struct rank *rank)
{
	const struct fault_board *board = rank->shared;
	struct ferry_segment *s = fault_open_segment(rank);
	int64_t took_ms;
	const enum ferry_status status = fault_rounds(rank, s, 1000, &took_ms);

	if (rank->rank == 1 || rank->rank == 3)
		return;
	RANKS_CHECK(took_ms < RANKS_AT_ONCE_MS);
	fault_expect_failure(rank, s, status, FERRY_PEER, -1);
	ranks_meet(0, rank->n_ranks - 2);
	RANKS_EQ(board->roots[rank->rank], board->roots[0]);
	RANKS_CHECK(board->roots[0] == 1 || board->roots[0] == 3);
}

static void test_two_killed(void **state)
{
	for (int i = 0; i < 4; i++) {
		const struct ranks how = {
			.n_ranks = 5,
			.killed = RANKS_BIT(1) | RANKS_BIT(3),
		};
		char fault[64];

		snprintf(fault, sizeof(fault),
		         "kill:rank=1,after=%d kill:rank=3,after=%d", 20 + i,
		         20 + 2 * i);
		fault_run(*state, how, fault, two_killed);
	}
}

/*
 * One to three of up to seven ranks die anywhere; whoever survives agrees. The
 * argument has the bits of the dead.
 */
static void random_kills(struct rank *rank)
{
	const uint64_t victims = *(const uint64_t *)rank->arg;
	const struct fault_board *board = rank->shared;
	struct ferry_segment *s = fault_open_segment(rank);
	int32_t first = 0;
	int64_t took_ms;
	const enum ferry_status status =
		fault_rounds(rank, s, 100000, &took_ms);

	if (victims & RANKS_BIT(rank->rank))
		ranks_die(); /* the death of another came first */
	RANKS_CHECK(took_ms < RANKS_AT_ONCE_MS);
	fault_expect_failure(rank, s, status, FERRY_PEER, -1);
	while (victims & RANKS_BIT(first))
		first++;
	ranks_meet(0, rank->n_ranks - __builtin_popcountll(victims));
	RANKS_EQ(board->roots[rank->rank], board->roots[first]);
	RANKS_CHECK(victims & RANKS_BIT(board->roots[first]));
}

static void test_random_kills(void **state)
{
	uint64_t rng = ranks_seed();

	for (int32_t i = 0; i < fault_random_runs; i++) {
		struct ranks how = {.n_ranks =
		                            3 + (int32_t)(rng_next(&rng) % 5)};
		char fault[128] = "";

		for (int k = 0; k < 3; k++) {
			const uint64_t victim =
				rng_next(&rng) % (uint64_t)how.n_ranks;
			const size_t n = strlen(fault);

			if ((how.killed | RANKS_BIT(victim)) + 1 ==
			    RANKS_BIT(how.n_ranks))
				continue;
			how.killed |= RANKS_BIT(victim);
			snprintf(fault + n, sizeof(fault) - n,
			         "kill:rank=%d,after=%d ", (int)victim,
			         (int)(rng_next(&rng) % 60));
		}
		how.arg = &how.killed;
		fault_run(*state, how, fault, random_kills);
	}
}

/* Rank 2 stalls for three times the timeout, and learns afterwards what became.
 */
static void stalls(struct rank *rank)
{
	struct ferry_segment *s = fault_open_segment(rank);
	int64_t took_ms;
	const enum ferry_status status = fault_rounds(rank, s, 1000, &took_ms);

	if (rank->rank != 2)
		RANKS_CHECK(took_ms <= SHORT_MS + SLACK_MS);
	fault_expect_failure(rank, s, status, FERRY_TIMEOUT, 2);
	RANKS_TEXT(ferry_last_error(), "rank 2");
}

static void test_stalls(void **state)
{
	const struct ranks how = {.n_ranks = 4, .timeout_ms = SHORT_MS};

	fault_run(*state, how, "stall:rank=2,ms=1800,after=30", stalls);
}

static void *abort_soon(void *world)
{
	fault_pause_ms(20);
	ferry_world_abort(world);
	return NULL;
}

static void aborted(struct rank *rank)
{
	struct ferry_segment *s = fault_open_segment(rank);
	const uint64_t begin = ferry_now_ns();
	struct ferry_segment *later = NULL;
	pthread_t thread;

	if (rank->rank == 1)
		pthread_create(&thread, NULL, abort_soon, rank->world);
	const enum ferry_status status = ferry_segment_wait(s, 0, 1);

	if (rank->rank == 1)
		pthread_join(thread, NULL);
	RANKS_CHECK(fault_ms_since(begin) < RANKS_AT_ONCE_MS);
	fault_expect_failure(rank, s, status, FERRY_ABORTED, 1);
	RANKS_STATUS(ferry_world_barrier(rank->world), FERRY_ABORTED);
	RANKS_STATUS(ferry_segment_open(rank->world, 1, 1, &later),
	             FERRY_ABORTED);
}

static void test_aborted(void **state)
{
	fault_run(*state, (struct ranks){.n_ranks = 3}, "", aborted);
	fault_run(*state, (struct ranks){.n_ranks = 2}, "", aborted);
}

/* Rank 3 is busy elsewhere while rank 1 dies and the others decide. */
static void learns_late(struct rank *rank)
{
	struct ferry_segment *s = fault_open_segment(rank);
	int64_t took_ms;

	if (rank->rank == 3)
		fault_pause_ms(500);
	const enum ferry_status status = fault_rounds(rank, s, 1000, &took_ms);

	if (rank->rank == 3)
		RANKS_CHECK(took_ms < SLACK_MS);
	fault_expect_failure(rank, s, status, FERRY_PEER, 1);
}

static void test_learns_late(void **state)
{
	const struct ranks how = {.n_ranks = 4, .killed = RANKS_BIT(1)};

	fault_run(*state, how, "kill:rank=1,after=2", learns_late);
}

static void leaves(struct rank *rank)
{
	struct ferry_segment *s = NULL;
	int64_t took_ms;

	RANKS_OK(ferry_segment_open(rank->world, 4096, (uint32_t)rank->n_ranks,
	                            &s));
	RANKS_OK(fault_rounds(rank, s, 10, &took_ms));
	if (rank->rank == 2) {
		ferry_segment_close(s);
		return;
	}
	ranks_defer((void (*)(void *))ferry_segment_close, s);
	const enum ferry_status status = fault_meet_all(rank, s, 11);

	fault_expect_failure(rank, s, status, FERRY_PEER, 2);
	RANKS_TEXT(ferry_last_error(), "closed its segment");
}

static void test_leaves(void **state)
{
	fault_run(*state, (struct ranks){.n_ranks = 4}, "", leaves);
}

/*
 * Two ranks find something by content, while the others wait: the earlier
 * dispatch counts, with what it says about the token, unless a busy machine
 * held its finder up for longer than the grace.
 */
static void content(struct rank *rank)
{
	struct fault_board *board = rank->shared;
	struct ferry_segment *s = fault_open_segment(rank);
	const struct ferry_verdict mine = {
		.status = FERRY_RANGE,
		.root = rank->rank,
		.phase = FERRY_PHASE_DISPATCH_SEND,
		.slot = 0,
		.epoch = rank->rank == 1 ? 8 : 7,
		.token = 3,
		.choice = 1,
		.value = 260,
	};
	enum ferry_status status;

	ranks_meet(0, rank->n_ranks);
	board->told_ns[rank->rank] = ferry_now_ns();
	if (rank->rank == 1 || rank->rank == 2)
		status = ferry_segment_break(s, &mine, NULL);
	else
		status = fault_meet_all(rank, s, 1);
	fault_expect_failure(rank, s, status, FERRY_RANGE, -1);
	RANKS_TEXT(ferry_last_error(), "token 3, choice 1, value 260");
	ranks_meet(1, rank->n_ranks);
	RANKS_EQ(board->roots[rank->rank], board->roots[0]);
	if (board->told_ns[2] < board->told_ns[1] + GRACE_NS / 2) {
		RANKS_EQ(board->roots[0], 2);
		RANKS_TEXT(ferry_last_error(),
		           "dispatch_send: slot 0, dispatch 7");
	}
}

static void test_content(void **state)
{
	fault_run(*state, (struct ranks){.n_ranks = 4}, "", content);
}

/* `n` times, rank 2 later by a step each time, up to past the grace. */
struct late {
	int32_t timeout_ms; /* 4 times the grace */
	int n;
	int64_t step_ms;
	bool in_turns;
};

/* With an election nothing can go wrong, however slow the machine is. */
static const struct late late_elected = {40, 20, 2, false};
/* A rank must not be held up for a grace. */
static const struct late late_in_turns = {800, 5, 50, true};

/*
 * Rank 2 finds something while the others, who have waited the grace for it,
 * decide without it. All are slow to say so, which makes that moment long.
 */
static void late(struct rank *rank)
{
	const struct late *how = rank->arg;
	struct fault_board *board = rank->shared;

	for (int i = 0; i < how->n; i++) {
		struct ferry_segment *s = fault_open_segment(rank);
		const struct ferry_verdict mine = {
			.status = FERRY_RANGE,
			.root = rank->rank,
			.slot = 0,
			.epoch = rank->rank == 2 ? 1 : 2,
			.token = -1,
		};

		RANKS_OK(ferry_world_barrier(rank->world));
		if (rank->rank == 2)
			fault_pause_ms(how->step_ms * i);
		RANKS_STATUS(ferry_segment_break(s, &mine, NULL), FERRY_RANGE);
		board->roots[rank->rank] = s->error.root_rank;
		RANKS_OK(ferry_world_barrier(rank->world));
		RANKS_EQ(board->roots[rank->rank], board->roots[0]);
		/* Rank 0's word may be late, too, where nobody elects. */
		RANKS_CHECK(board->roots[0] == 0 || board->roots[0] == 2 ||
		            (how->in_turns && board->roots[0] == 1));
		RANKS_OK(ferry_world_barrier(rank->world));
	}
}

static void test_late(void **state)
{
	const struct fault_setting *setting = *state;
	const bool in_turns = strstr(setting->fabric, "wire") ||
	                      strstr(setting->fabric, "ofi");
	struct late how = in_turns ? late_in_turns : late_elected;

	fault_run(setting,
	          (struct ranks){
			  .n_ranks = 3,
			  .timeout_ms = how.timeout_ms,
			  .arg = &how,
		  },
	          "delay:us=2000", late);
}

/* A failure of one segment is none of another. */
static void other_segments(struct rank *rank)
{
	struct ferry_segment *bad = fault_open_segment(rank);
	struct ferry_segment *good = fault_open_segment(rank);
	const struct ferry_verdict mine = {
		.status = FERRY_OVERFLOW,
		.root = 0,
		.slot = -1,
		.token = -1,
	};
	enum ferry_status status;
	int64_t took_ms;

	if (rank->rank == 0)
		status = ferry_segment_break(bad, &mine, "words of rank 0");
	else
		status = fault_meet_all(rank, bad, 1);
	fault_expect_failure(rank, bad, status, FERRY_OVERFLOW, 0);
	if (rank->rank == 0)
		RANKS_TEXT(ferry_last_error(), "words of rank 0");
	RANKS_OK(fault_rounds(rank, good, 20, &took_ms));
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void test_other_segments(void **state)
{
	fault_run(*state, (struct ranks){.n_ranks = 3}, "", other_segments);
}

/* Somebody only polls: he learns it, too, and the others need not wait. */
static void polls(struct rank *rank)
{
	struct ferry_segment *s = fault_open_segment(rank);
	struct ferry_error error = FERRY_ERROR_INIT;
	const uint64_t begin = ferry_now_ns();
	int64_t took_ms;

	if (rank->rank != 0) {
		const enum ferry_status status =
			fault_rounds(rank, s, 1000, &took_ms);

		fault_expect_failure(rank, s, status, FERRY_PEER, 1);
		return;
	}
	while (ferry_world_poll(rank->world, &error) == FERRY_OK &&
	       fault_ms_since(begin) < 5000) {
		RANKS_EQ(error.status, FERRY_OK);
		fault_pause_ms(1);
	}
	RANKS_EQ(error.status, FERRY_PEER);
	RANKS_EQ(error.root_rank, 1);
	RANKS_STATUS(ferry_segment_check(s), FERRY_BROKEN);
}

static void test_polls(void **state)
{
	const struct ranks how = {.n_ranks = 4, .killed = RANKS_BIT(1)};

	fault_run(*state, how, "kill:rank=1,after=3", polls);
}

static int count_leftovers(void)
{
	DIR *dir = opendir("/dev/shm");
	int n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));)
		n += !strncmp(e->d_name, "ferry-", 6);
	if (dir)
		closedir(dir);
	return n;
}

/* Other programs of Ferry may be opening worlds meanwhile: they soon end. */
static void test_nothing_left(void **state)
{
	int n = 1;

	(void)state;
	for (int i = 0; n && i < 100; i++) {
		n = count_leftovers();
		if (n)
			fault_pause_ms(20);
	}
	assert_int_equal(n, 0);
}

static const struct fault_test {
	const char *name;
	CMUnitTestFunction test;
} tests[] = {
	{"never_comes", test_never_comes},
	{"dies_before_open", test_dies_before_open},
	{"killed", test_killed},
	{"two_killed", test_two_killed},
	{"stalls", test_stalls},
	{"slow_to_say", fault_test_slow_to_say},
	{"in_turns", fault_test_in_turns},
	{"cut", fault_test_cut},
	{"cut_alone", fault_test_cut_alone},
	{"aborted", test_aborted},
	{"learns_late", test_learns_late},
	{"leaves", test_leaves},
	{"content", test_content},
	{"late", test_late},
	{"other_segments", test_other_segments},
	{"polls", test_polls},
	{"random_kills", test_random_kills},
};

enum { N_TESTS = sizeof(tests) / sizeof(*tests) };

static struct runs runs;

/* All tests of one setting together: who has used CUDA must not fork. */
int main(int argc, char **argv)
{
	fault_n_gpus = fault_gpus();
	if (fault_n_gpus < 0)
		return 77;
	for (const struct fault_setting *s = fault_settings; s->name; s++)
		for (int i = 0; i < N_TESTS; i++)
			if (ranks_worth(s->kind) &&
			    runs_wanted(s->name, argc, argv))
				runs_add(&runs, tests[i].name, tests[i].test,
				         s->name, s);
	runs.tests[runs.n++] =
		(struct CMUnitTest)cmocka_unit_test(test_nothing_left);
	return runs_go(&runs, "faults");
}
