/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of test_faults.c in which all ranks live: one is slow to speak, or two
 * do not reach each other any more.
 */
#include "fault_rounds.h"

enum {
	SLOW_MS = 800, /* a timeout with the longest grace */
	GRACE_MS = 200,
	SLOWER_MS = 350,
};

/*
 * Rank 0 waits for rank 1, which is busy until after the grace, and waits for
 * rank 2, which stalls: who is only slow to say so is not blamed.
 */
static void slow_to_say(struct rank *rank)
{
	struct ferry_segment *s = fault_open_segment(rank);
	const struct ferry_wait_item item = {
		.signal = 0, .peer = rank->rank + 1, .value = 1};
	enum ferry_status status;

	ranks_meet(0, rank->n_ranks);
	if (rank->rank == 1)
		fault_pause_ms(SLOW_MS - GRACE_MS + SLOWER_MS);
	if (rank->rank == 2) {
		ranks_meet(1, rank->n_ranks);
		status = ferry_segment_check(s);
	} else {
		status = ferry_segment_wait_all(s, &item, 1, NULL);
		ranks_meet(1, rank->n_ranks);
	}
	fault_expect_failure(rank, s, status, FERRY_TIMEOUT, 2);
}

void fault_test_slow_to_say(void **state)
{
	const struct fault_setting *setting = *state;

	/* A second: the rule is the same for all. */
	if (setting->kind == RANKS_THREADS)
		fault_run(setting,
		          (struct ranks){.n_ranks = 3, .timeout_ms = SLOW_MS},
		          "", slow_to_say);
}

/*
 * Rank 2 stops between two segments that are used in turns: rank 0 misses it in
 * the first, rank 1 is in the second and misses rank 0, too. One of them gives
 * up first.
 */
static void in_turns(struct rank *rank)
{
	const int32_t *late = rank->arg;
	struct ferry_segment *first = fault_open_segment(rank);
	struct ferry_segment *second = fault_open_segment(rank);
	const struct ferry_wait_item items[] = {
		{.signal = 0, .peer = 0, .value = 1},
		{.signal = 2, .peer = 2, .value = 1},
	};
	enum ferry_status status = FERRY_OK;

	ranks_meet(0, rank->n_ranks);
	if (rank->rank == *late)
		fault_pause_ms(GRACE_MS / 2);
	if (rank->rank == 0)
		status = ferry_segment_wait_all(first, &items[1], 1, NULL);
	if (rank->rank == 1)
		status = ferry_segment_wait_all(second, items, 2, NULL);
	ranks_meet(1, rank->n_ranks);
	if (rank->rank == 2)
		status = ferry_segment_check(first);
	fault_expect_failure(rank, rank->rank == 1 ? second : first, status,
	                     FERRY_TIMEOUT, 2);
	ranks_meet(2, rank->n_ranks);
}

void fault_test_in_turns(void **state)
{
	const struct fault_setting *setting = *state;

	for (int32_t late = 0; late < 2; late++)
		fault_run(setting,
		          (struct ranks){.n_ranks = 3,
		                         .timeout_ms = SLOW_MS,
		                         .arg = &late},
		          "", in_turns);
}

/* The connection of ranks 1 and 2 breaks: both live, and nobody says more. */
static void cut(struct rank *rank)
{
	const struct fault_board *board = rank->shared;
	struct ferry_segment *s = fault_open_segment(rank);
	int64_t took_ms;
	const enum ferry_status status = fault_rounds(rank, s, 1000, &took_ms);

	RANKS_CHECK(took_ms < RANKS_AT_ONCE_MS);
	fault_expect_failure(rank, s, status, FERRY_PEER, -1);
	ranks_meet(0, rank->n_ranks);
	for (int32_t r = 0; r < rank->n_ranks; r++) {
		RANKS_EQ(board->roots[r], board->roots[0]);
		RANKS_TEXT(board->texts[r], board->texts[0]);
	}
	RANKS_CHECK(board->roots[0] == 1 || board->roots[0] == 2);
	RANKS_TEXT(board->texts[0],
	           ": the connection between rank 1 and rank 2 broke: cut by "
	           "FERRY_FAULT (noticed by rank ");
}

void fault_test_cut(void **state)
{
	const struct ranks how = {.n_ranks = 4};

	fault_run(*state, how, "cut:rank=2,peer=1,after=30", cut);
}

/* Nobody is there to pass on what the other end has found. */
static void cut_alone(struct rank *rank)
{
	struct ferry_segment *s = fault_open_segment(rank);
	int64_t took_ms;
	const enum ferry_status status = fault_rounds(rank, s, 1000, &took_ms);

	RANKS_CHECK(took_ms < RANKS_AT_ONCE_MS);
	fault_expect_failure(rank, s, status, FERRY_PEER, -1);
	RANKS_TEXT(ferry_last_error(), ": the connection between rank 0 and "
	                               "rank 1 broke: cut by FERRY_FAULT");
}

void fault_test_cut_alone(void **state)
{
	fault_run(*state, (struct ranks){.n_ranks = 2},
	          "cut:rank=0,peer=1,after=9", cut_alone);
}
