/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that never come, die, stall, or abort: every survivor returns in time
 * and names the same root; later calls answer BROKEN; close works; nothing is
 * left in /dev/shm. Failures while a channel opens are in test_open_faults.c.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "broken.h"
#include "core/clock.h"
#include "run_args.h"
#include "shm_names.h"

enum { TIMEOUT_MS = 800 };

static struct ferry_moe_config small(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 4;
	c.hidden = 256;
	c.topk = 3;
	c.n_experts = 8;
	c.n_slots = 2;
	c.layout = FERRY_EXPERT_PACKED;
	return c;
}

static void sleep_ms(int64_t ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static struct drive_step full_step(const struct rank *rank, uint64_t i)
{
	struct drive_step step = {.from = FERRY_FROM_PACKED};

	step.spec.seed = run_args.seed + i;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		step.n_tokens[r] = 4;
	return step;
}

static void warm_up(struct rank *rank, struct drive *d)
{
	for (uint64_t i = 0; i < 3; i++) {
		const struct drive_step step = full_step(rank, i);

		drive_run(d, (int32_t)(i % 2), &step);
	}
}

/* Ranks that nobody is to wait for to the end. */
static void run(int32_t n_ranks, ranks_body *body, uint64_t killed,
                const char *options, void *arg)
{
	struct ranks how = run_args_ranks(n_ranks);
	void *shared;
	char both[256];

	how.killed = killed;
	how.arg = arg;
	how.shared_bytes = BROKEN_SHARED;
	how.shared = &shared;
	if (options != NULL) {
		snprintf(both, sizeof(both), "%s%s%s", options,
		         how.options ? ";" : "",
		         how.options ? how.options : "");
		how.options = both;
	}
	ranks_run(&how, body);
	ranks_free_shared(&how);
}

/* Ranks that give up. */
static void run_short(int32_t n_ranks, ranks_body *body)
{
	struct ranks how = run_args_ranks(n_ranks);
	void *shared;

	how.timeout_ms = TIMEOUT_MS;
	how.shared_bytes = BROKEN_SHARED;
	how.shared = &shared;
	ranks_run(&how, body);
	ranks_free_shared(&how);
}

/* Scheduling on a busy machine is given this much more. */
static void check_time(uint64_t begin_ns, int64_t limit_ms)
{
	const int64_t took_ms = (int64_t)(ferry_now_ns() - begin_ns) / 1000000;

	if (took_ms > limit_ms + 1000)
		RANKS_FAIL("it took %lld ms, allowed are %lld",
		           (long long)took_ms, (long long)limit_ms);
}

/* Rank 1 does not call; the others name it, at their timeout. */
static void absent_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	const struct drive_step step = full_step(rank, 9);
	uint64_t begin;

	warm_up(rank, d);
	if (rank->rank != 1) {
		struct drive_op *op = drive_begin(d, 0, &step);

		drive_dispatch_send(op);
		begin = ferry_now_ns();
		RANKS_STATUS(drive_try_recv(op), FERRY_TIMEOUT);
		check_time(begin, TIMEOUT_MS);
		drive_check_empty(op);
		broken_check(rank, d, FERRY_TIMEOUT, 1, "rank 1");
		drive_end(op);
		broken_same_root(rank, d, 0, rank->n_ranks - 1);
	}
	ranks_meet(1, rank->n_ranks);
}

static void a_rank_that_never_comes_is_named(void **state)
{
	(void)state;
	run_short(4, absent_body);
	run_short(2, absent_body);
}

/* It comes to dispatch, not to combine. */
static void half_absent_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_step step = full_step(rank, 9);
	struct drive_op *op;

	step.spec.routing = TRAFFIC_REMOTE;
	warm_up(rank, d);
	op = drive_begin(d, 0, &step);
	drive_dispatch_send(op);
	drive_dispatch_recv(op);
	if (rank->rank != 1) {
		const uint64_t begin = ferry_now_ns();

		drive_combine_send(op);
		RANKS_STATUS(drive_try_combine_recv(op), FERRY_TIMEOUT);
		check_time(begin, TIMEOUT_MS);
		broken_check(rank, d, FERRY_TIMEOUT, 1, "combine");
		broken_same_root(rank, d, 0, rank->n_ranks - 1);
	}
	drive_end(op);
	ranks_meet(1, rank->n_ranks);
}

static void a_rank_that_leaves_out_combine_is_named(void **state)
{
	(void)state;
	run_short(2, half_absent_body);
}

/* It stalls for twice the timeout, then goes on as if nothing were. */
static void stall_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	const struct drive_step step = full_step(rank, 9);
	struct drive_op *op;
	enum ferry_status status;
	uint64_t begin;

	warm_up(rank, d);
	op = drive_begin(d, 1, &step);
	if (rank->rank == 2)
		sleep_ms(2 * TIMEOUT_MS);
	begin = ferry_now_ns();
	status = drive_try_send(op);
	if (rank->rank != 2)
		RANKS_STATUS(status, FERRY_OK);
	if (status == FERRY_OK)
		status = drive_try_recv(op);
	check_time(begin, TIMEOUT_MS);
	RANKS_STATUS(status, FERRY_TIMEOUT);
	broken_check(rank, d, FERRY_TIMEOUT, 2, "rank 2");
	drive_end(op);
	broken_same_root(rank, d, 0, rank->n_ranks);
}

static void a_rank_that_stalls_is_named(void **state)
{
	(void)state;
	run_short(4, stall_body);
}

/* A short stall harms nobody. */
static void pause_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);

	for (uint64_t i = 0; i < 4; i++) {
		const struct drive_step step = full_step(rank, i);

		if ((int32_t)i == rank->rank)
			sleep_ms(TIMEOUT_MS / 4);
		drive_run(d, 0, &step);
	}
}

static void a_short_pause_harms_nobody(void **state)
{
	(void)state;
	run_short(3, pause_body);
}

/* Where a rank dies. */
enum death {
	BEFORE_SEND,
	BEFORE_RECV,
	BEFORE_COMBINE,
	BEFORE_COMBINE_RECV,
	N_DEATHS,
};

/* The calls up to the first that fails. */
static enum ferry_status go_on(struct drive_op *op, enum death death, bool dies)
{
	enum ferry_status status = FERRY_OK;

	for (int phase = 0; phase < N_DEATHS && status == FERRY_OK; phase++) {
		if (dies && phase == (int)death)
			ranks_die();
		switch (phase) {
		case BEFORE_SEND:
			status = drive_try_send(op);
			break;
		case BEFORE_RECV:
			status = drive_try_recv(op);
			break;
		case BEFORE_COMBINE:
			status = drive_try_combine_send(op);
			break;
		default:
			status = drive_try_combine_recv(op);
		}
	}
	return status;
}

static void death_body(struct rank *rank)
{
	const enum death death = *(const enum death *)rank->arg;
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	const uint64_t begin = ferry_now_ns();
	enum ferry_status status = FERRY_OK;
	struct ferry_moe *moe;

	/* A dead rank's last sends may let peers pass once more. */
	for (uint64_t i = 0; i < 20 && status == FERRY_OK; i++) {
		const struct drive_step step = full_step(rank, i);
		struct drive_op *op = drive_begin(d, 0, &step);

		status = go_on(op, death, rank->rank == 1 && i == 3);
		drive_end(op);
	}
	/* Long before the timeout. */
	check_time(begin, 1500);
	RANKS_STATUS(status, FERRY_PEER);
	broken_check(rank, d, FERRY_PEER, 1, "rank 1");
	broken_same_root(rank, d, 0, rank->n_ranks - 1);
	/* Without that rank nothing opens any more, and nobody waits for it. */
	RANKS_STATUS(ferry_moe_open(rank->world, &config, &moe), FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "1");
}

static void a_death_is_noticed_at_once(void **state)
{
	struct shm_names before;

	(void)state;
	shm_names_take(&before);
	for (int death = 0; death < N_DEATHS; death++)
		run(4, death_body, RANKS_BIT(1), death % 2 ? "SHM=file" : NULL,
		    &death);
	assert_int_equal(shm_names_left(&before), 0);
}

/* Killed by the fabric, in the middle of a send. */
static void killed_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	enum ferry_status status = FERRY_OK;

	for (uint64_t i = 0; i < 50 && status == FERRY_OK; i++) {
		const struct drive_step step = full_step(rank, i);
		struct drive_op *op = drive_begin(d, 0, &step);

		status = go_on(op, BEFORE_SEND, false);
		drive_end(op);
	}
	RANKS_STATUS(status, FERRY_PEER);
	broken_check(rank, d, FERRY_PEER, 1, "rank 1");
	if (rank->rank != 1)
		broken_same_root(rank, d, 0, rank->n_ranks - 1);
}

static void a_death_within_a_send_is_named(void **state)
{
	const int after[] = {1, 2, 5, 11, 23, 40};
	char options[64];

	(void)state;
	if (run_on_gpus())
		skip(); /* kernels send, and fault: sees calls of the host */
	for (size_t i = 0; i < sizeof(after) / sizeof(*after); i++) {
		snprintf(options, sizeof(options), "FAULT=kill:rank=1,after=%d",
		         after[i] + 30);
		run(3, killed_body, RANKS_BIT(1), options, NULL);
	}
}

/* Two ranks die at different places: the survivors agree all the same. */
static void two_deaths_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	enum ferry_status status = FERRY_OK;
	struct ferry_error error = FERRY_ERROR_INIT;

	for (uint64_t i = 0; i < 20 && status == FERRY_OK; i++) {
		const struct drive_step step = full_step(rank, i);
		struct drive_op *op = drive_begin(d, 0, &step);
		const bool dies =
			i == 3 && (rank->rank == 1 || rank->rank == 3);

		status = go_on(op,
		               rank->rank == 1 ? BEFORE_RECV : BEFORE_COMBINE,
		               dies);
		drive_end(op);
	}
	if (rank->rank == 3)
		ranks_die(); /* the first death was faster */
	RANKS_STATUS(status, FERRY_PEER);
	RANKS_STATUS(ferry_moe_poll(d->moe, &error), FERRY_PEER);
	RANKS_CHECK(error.root_rank == 1 || error.root_rank == 3);
	broken_same_root(rank, d, 0, rank->n_ranks - 2);
}

static void of_two_deaths_one_is_named(void **state)
{
	(void)state;
	run(5, two_deaths_body, RANKS_BIT(1) | RANKS_BIT(3), NULL, NULL);
}

/* Rank 1 closes its channel while the others wait for it. */
static void closed_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	const struct drive_step step = full_step(rank, 9);
	enum ferry_status status;
	struct drive_op *op;

	warm_up(rank, d);
	ranks_meet(2, rank->n_ranks); /* all are done with that */
	if (rank->rank == 1) {
		drive_close(d);
		ranks_meet(1, rank->n_ranks);
		return;
	}
	op = drive_begin(d, 0, &step);
	drive_dispatch_send(op);
	status = drive_try_recv(op);
	/* Noticed as such, or, where only puts reach it, by time. */
	RANKS_CHECK(status == FERRY_PEER || status == FERRY_TIMEOUT);
	broken_check(rank, d, status, 1, "rank 1");
	broken_same_root(rank, d, 0, rank->n_ranks - 1);
	drive_end(op);
	ranks_meet(1, rank->n_ranks);
}

static void a_rank_that_closes_early_is_named(void **state)
{
	(void)state;
	run(3, closed_body, 0, NULL, NULL);
}

static void *abort_soon(void *world)
{
	sleep_ms(50);
	ferry_world_abort(world);
	return NULL;
}

/* Another thread of rank 2 aborts while all but rank 1 wait. */
static void abort_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	const struct drive_step step = full_step(rank, 9);
	struct drive_op *op = drive_begin(d, 0, &step);
	const uint64_t begin = ferry_now_ns();
	pthread_t thread;

	if (rank->rank == 2)
		RANKS_EQ(pthread_create(&thread, NULL, abort_soon, rank->world),
		         0);
	if (rank->rank == 1) {
		ranks_meet(0, rank->n_ranks); /* comes late, then asks */
		RANKS_STATUS(drive_try_send(op), FERRY_ABORTED);
	} else {
		drive_dispatch_send(op);
		RANKS_STATUS(drive_try_recv(op), FERRY_ABORTED);
		check_time(begin, 50 + 500);
		ranks_meet(0, rank->n_ranks);
	}
	if (rank->rank == 2)
		pthread_join(thread, NULL);
	broken_check(rank, d, FERRY_ABORTED, 2, "rank 2");
	drive_end(op);
}

static void an_abort_ends_every_wait(void **state)
{
	(void)state;
	run(4, abort_body, 0, NULL, NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_that_never_comes_is_named),
		cmocka_unit_test(a_rank_that_leaves_out_combine_is_named),
		cmocka_unit_test(a_rank_that_stalls_is_named),
		cmocka_unit_test(a_short_pause_harms_nobody),
		cmocka_unit_test(a_death_is_noticed_at_once),
		cmocka_unit_test(a_death_within_a_send_is_named),
		cmocka_unit_test(of_two_deaths_one_is_named),
		cmocka_unit_test(a_rank_that_closes_early_is_named),
		cmocka_unit_test(an_abort_ends_every_wait),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
