/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels over hosts whose network is bad. Late, lost, doubled and reordered
 * packets, a slow line and a short cut change no bit. When a cable is cut, or
 * the hosts fall apart into two halves, or a rank is killed, every survivor
 * has an error in time that names a rank which it cannot reach, and closes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/order.h"
#include "fabric/world.h"
#include "fabrics.h"
#include "hosted.h"
#include "moe/drive.h"
#include "moe/run_args.h"

enum {
	N_HOSTS = 4,
	TIMEOUT_MS = 1000,
	PATIENT_MS = 10000,
	/* The promise: timeout and a second; sanitizers slow all down. */
	SLACK_MS = RUN_SLOW ? 4000 : 1000,
	/* Twice a second for what has been put, and a busy machine. */
	CLOSE_MS = RUN_SLOW ? 10000 : 5000,
	N_WARM_UP = 5,  /* steps before anything happens */
	MANY = 1000000, /* more steps than anybody gets to */
	DEATH_MS = RUN_SLOW ? 5000 : 1500,
};

/* Made once, where they can be: joined by a bridge, and by a bad network. */
static struct namespaces bridged, joined_badly;

/* In memory of all ranks. */
struct board {
	uint64_t since_ns; /* when it happened */
};

/* What happens, and to which hosts. */
struct plan {
	void (*act)(const struct plan *plan);
	uint32_t some;      /* hosts, bits: the others are beyond the cut */
	int32_t victim;     /* rank that is killed; -1 */
	int n_steps;        /* where nothing is to fail */
	bool is_large;      /* rows of many packets */
	int32_t timeout_ms; /* of the world, 0: as fits the plan */
};

static struct ferry_moe_config config_of(const struct plan *plan)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 6;
	c.hidden = plan->is_large ? 16384 : 700;
	c.topk = 3;
	c.n_experts = 16;
	c.layout = FERRY_EXPERT_PACKED;
	return c;
}

static struct drive_step step_of(const struct rank *rank, int i)
{
	uint64_t rng = run_args.seed + (uint64_t)i;
	struct drive_step step = {.from = FERRY_FROM_PACKED};

	step.spec.seed = rng;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		step.n_tokens[r] = (int32_t)traffic_between(&rng, 0, 6);
	return step;
}

static void run(ranks_body *body, int32_t n_ranks, const struct plan *plan)
{
	struct ranks how = run_args_ranks(n_ranks);

	hosted_ranks(&how);
	how.open_timeout_ms = 30000;
	how.timeout_ms = TIMEOUT_MS;
	/* The others are not about the timeout. */
	if (plan->n_steps || plan->is_large)
		how.timeout_ms = PATIENT_MS;
	if (plan->timeout_ms)
		how.timeout_ms = plan->timeout_ms;
	how.shared_bytes = sizeof(struct board);
	how.arg = (void *)(uintptr_t)plan;
	if (plan->victim >= 0)
		how.killed = RANKS_BIT(plan->victim);
	ranks_run(&how, body);
}

/* The bad network is to be like this from here on; NULL: the bridge. */
static void with_hosts(const struct rough_link *rough)
{
	struct namespaces *ns = rough ? &joined_badly : &bridged;
	char reason[NAMESPACES_TEXT];

	if (!ns->n_hosts && !namespaces_make(ns, N_HOSTS, rough, reason)) {
		print_message("skipped: %s\n", reason);
		skip();
	}
	hosted_use(ns);
	if (!rough)
		return;
	rough_link_mend(ns->rough);
	store_release_u32(&ns->rough->delay_us, rough->delay_us);
	store_release_u32(&ns->rough->jitter_us, rough->jitter_us);
	store_release_u32(&ns->rough->loss_ppm, rough->loss_ppm);
	store_release_u32(&ns->rough->twice_ppm, rough->twice_ppm);
	store_release_u32(&ns->rough->kib_per_s, rough->kib_per_s);
}

/* Between two calls, or while rows are on their way. */
_Noreturn static void die(const struct plan *plan, struct drive_op *op)
{
	if (plan->is_large && drive_try_send(op) == FERRY_OK)
		nanosleep(&(struct timespec){0, 20000000}, NULL);
	if (plan->is_large) /* the others have it fast again */
		store_release_u32(&joined_badly.rough->kib_per_s, 0);
	ranks_die();
}

/* Until a call fails, which the plan sees to; its status. */
static enum ferry_status step_to_failure(struct rank *rank, struct drive *d)
{
	const struct plan *plan = rank->arg;
	struct board *board = rank->shared;
	const int32_t actor = plan->victim >= 0 ? plan->victim : 0;
	enum ferry_status status = FERRY_OK;

	for (int i = 0; i < MANY && status == FERRY_OK; i++) {
		const struct drive_step step = step_of(rank, i);
		struct drive_op *op = drive_begin(d, 0, &step);

		if (i == N_WARM_UP && rank->rank == actor) {
			plan->act(plan);
			board->since_ns = ferry_now_ns();
		}
		if (i == N_WARM_UP && rank->rank == plan->victim)
			die(plan, op);
		status = drive_try_send(op);
		if (status == FERRY_OK)
			status = drive_try_recv(op);
		if (status == FERRY_OK) {
			drive_check_recv(op);
			status = drive_try_combine_send(op);
		}
		if (status == FERRY_OK)
			status = drive_try_combine_recv(op);
		if (status == FERRY_OK)
			drive_check_combine_recv(op);
		drive_end(op);
	}
	return status;
}

static int64_t ms_since(uint64_t ns)
{
	const uint64_t now_ns = ferry_now_ns();

	return now_ns > ns ? (int64_t)((now_ns - ns) / 1000000) : 0;
}

static bool is_beyond(const struct rank *rank, const struct plan *plan,
                      int32_t other)
{
	const int here = hosted_host(rank->rank, rank->n_ranks);
	const int there = hosted_host(other, rank->n_ranks);

	return (plan->some >> here & 1) != (plan->some >> there & 1);
}

/* The record of the failure names a rank that this one cannot reach. */
static void check_record(struct rank *rank, struct drive *d,
                         enum ferry_status status)
{
	const struct plan *plan = rank->arg;
	struct ferry_error error = FERRY_ERROR_INIT;
	char name[32];

	RANKS_STATUS(ferry_moe_poll(d->moe, &error), status);
	RANKS_CHECK(error.root_rank >= 0);
	snprintf(name, sizeof(name), "rank %d", error.root_rank);
	RANKS_TEXT(error.text, name);
	if (plan->victim >= 0) {
		if (status != FERRY_PEER || error.root_rank != plan->victim)
			RANKS_FAIL("%s: %s", ferry_status_name(status),
			           error.text);
		return;
	}
	if (status != FERRY_TIMEOUT && status != FERRY_PEER)
		RANKS_FAIL("%s: %s", ferry_status_name(status), error.text);
	if (!is_beyond(rank, plan, error.root_rank))
		RANKS_FAIL("rank %d is on this side: %s", error.root_rank,
		           error.text);
}

static void fails(struct rank *rank)
{
	const struct ferry_moe_config config = config_of(rank->arg);
	const struct plan *plan = rank->arg;
	const struct board *board = rank->shared;
	const int64_t limit_ms =
		plan->victim >= 0 ? DEATH_MS : TIMEOUT_MS + SLACK_MS;
	struct drive *d = drive_open(rank, &config, NULL);
	const enum ferry_status status = step_to_failure(rank, d);
	const int64_t took_ms = ms_since(board->since_ns);

	if (took_ms > limit_ms)
		RANKS_FAIL("told after %lld ms", (long long)took_ms);
	check_record(rank, d, status);
	const uint64_t start_ns = ferry_now_ns();

	drive_close(d);
	ferry_world_close(rank->world);
	rank->world = NULL;
	const int64_t close_ms = ms_since(start_ns);
	if (close_ms > CLOSE_MS)
		RANKS_FAIL("closing took %lld ms", (long long)close_ms);
}

static void cut(const struct plan *plan)
{
	rough_link_cut(joined_badly.rough, plan->some);
}

static void pull(const struct plan *plan)
{
	(void)plan;
	RANKS_CHECK(namespaces_cable(&bridged, 3, false));
}

static void nothing(const struct plan *plan)
{
	(void)plan;
}

static const struct rough_link good_link = {.seed = 1};

static void test_cable_pulled(void **state)
{
	(void)state;
	with_hosts(NULL);
	run(fails, 4, &(struct plan){pull, 1 << 3, -1, 0, false, 0});
	assert_true(namespaces_cable(&bridged, 3, true));
}

static void test_host_cut_off(void **state)
{
	(void)state;
	with_hosts(&good_link);
	run(fails, 8, &(struct plan){cut, 1 << 1, -1, 0, false, 0});
}

static void test_partition(void **state)
{
	(void)state;
	with_hosts(&good_link);
	run(fails, 4, &(struct plan){cut, 1 << 0 | 1 << 2, -1, 0, false, 0});
}

static void test_rank_killed(void **state)
{
	(void)state;
	with_hosts(NULL);
	run(fails, 4, &(struct plan){nothing, 0, 2, 0, false, 0});
	run(fails, 4, &(struct plan){nothing, 0, 0, 0, false, 0});
}

static void slow_down(const struct plan *plan)
{
	(void)plan;
	store_release_u32(&joined_badly.rough->kib_per_s, 1024);
}

/*
 * On a line so slow that a row is on its way for 32 ms, the death of its
 * sender cuts it in two. (libfabric's provider for TCP takes the process of
 * the receiver with it where the row itself carries the immediate.)
 */
static void test_killed_in_a_row(void **state)
{
	(void)state;
	for (int32_t victim = 1; victim <= 3; victim += 2) {
		with_hosts(&good_link);
		run(fails, 4, &(struct plan){slow_down, 0, victim, 0, true, 0});
	}
}

/* A channel is to be opened when half of the hosts cannot be reached. */
static void open_fails(struct rank *rank)
{
	const struct ferry_moe_config config = config_of(rank->arg);
	const struct plan *plan = rank->arg;
	struct ferry_moe *moe;

	/* The world itself had all the time that it needed to open. */
	rank->world->open_timeout_ms = TIMEOUT_MS;
	ranks_meet(0, rank->n_ranks);
	if (rank->rank == 0)
		plan->act(plan);
	ranks_meet(1, rank->n_ranks);
	const uint64_t start_ns = ferry_now_ns();

	const enum ferry_status status =
		ferry_moe_open(rank->world, &config, &moe);

	RANKS_CHECK(ms_since(start_ns) < TIMEOUT_MS + SLACK_MS);
	/*
	 * Rank 0 knows who came, and the others know rank 0, whose silence ends
	 * the connection as soon as the wait.
	 */
	if (hosted_host(rank->rank, rank->n_ranks) < 2) {
		RANKS_STATUS(status, FERRY_TIMEOUT);
		RANKS_TEXT(ferry_last_error(),
		           "boot: ranks 2..3 did not come within 1000 ms");
		return;
	}
	RANKS_CHECK(status == FERRY_TIMEOUT || status == FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "boot: rank 0 does not answer");
}

static void test_open_while_cut(void **state)
{
	(void)state;
	with_hosts(&good_link);
	run(open_fails, 4,
	    &(struct plan){cut, 1 << 0 | 1 << 1, -1, 0, false, 0});
}

/*
 * Channels come and go when half of the hosts are cut off. A rank may be late
 * for an open by its timeout, which is long, but not a host that answers
 * nothing. No call takes longer than the other timeout.
 */
static void opens_fail(struct rank *rank)
{
	const struct ferry_moe_config config = config_of(rank->arg);
	const struct plan *plan = rank->arg;
	enum ferry_status status = FERRY_OK;

	for (int i = 0; status == FERRY_OK && i < MANY; i++) {
		struct ferry_moe *moe = NULL;

		if (i == N_WARM_UP && rank->rank == 0)
			plan->act(plan);
		const uint64_t start_ns = ferry_now_ns();

		status = ferry_moe_open(rank->world, &config, &moe);
		RANKS_CHECK(ms_since(start_ns) < plan->timeout_ms + SLACK_MS);
		ferry_moe_close(moe);
	}
	RANKS_STATUS(status, FERRY_PEER);
	RANKS_TEXT(ferry_last_error(),
	           hosted_host(rank->rank, rank->n_ranks) < 2
	                   ? " does not answer"
	                   : "boot: rank 0 does not answer");
}

static void test_opens_cut(void **state)
{
	const struct plan plan = {
		.act = cut,
		.some = 1 << 0 | 1 << 1,
		.victim = -1,
		.timeout_ms = 2000,
	};

	(void)state;
	with_hosts(&good_link);
	run(opens_fail, 4, &plan);
}

/* All of these steps must be good; the oracle compares every byte. */
static void agrees(struct rank *rank)
{
	const struct ferry_moe_config config = config_of(rank->arg);
	const struct plan *plan = rank->arg;
	struct drive *d = drive_open(rank, &config, NULL);

	for (int i = 0; i < plan->n_steps; i++) {
		const struct drive_step step = step_of(rank, i);

		if (i == N_WARM_UP && rank->rank == 0)
			plan->act(plan);
		drive_run(d, 0, &step);
	}
}

static void test_bad_link(void **state)
{
	const struct rough_link bad = {.seed = 1,
	                               .delay_us = 100,
	                               .jitter_us = 400,
	                               .loss_ppm = 10000,
	                               .twice_ppm = 10000};

	(void)state;
	with_hosts(&bad);
	run(agrees, 4, &(struct plan){nothing, 0, -1, 150, false, 0});
	assert_true(load_acquire_u64(&joined_badly.rough->n_lost) > 0);
	assert_true(load_acquire_u64(&joined_badly.rough->n_twice) > 0);
	assert_true(load_acquire_u64(&joined_badly.rough->n_overtook) > 0);
}

/* 30 ms each way, and 2 MiB/s. */
static void test_slow_link(void **state)
{
	const struct rough_link slow = {
		.seed = 1, .delay_us = 30000, .kib_per_s = 2048};

	(void)state;
	with_hosts(&slow);
	run(agrees, 4, &(struct plan){nothing, 0, -1, 8, false, 0});
}

/* Shorter than the timeout: TCP sends it all again. */
static void cut_for_a_while(const struct plan *plan)
{
	if (fork())
		return;
	rough_link_cut(joined_badly.rough, plan->some);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	rough_link_mend(joined_badly.rough);
	_exit(0);
}

static void test_short_cut(void **state)
{
	(void)state;
	with_hosts(&good_link);
	run(agrees, 4,
	    &(struct plan){cut_for_a_while, 1 << 2, -1, 400, false, 0});
	assert_true(load_acquire_u64(&joined_badly.rough->n_cut) > 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_link),
		cmocka_unit_test(test_slow_link),
		cmocka_unit_test(test_short_cut),
		cmocka_unit_test(test_cable_pulled),
		cmocka_unit_test(test_host_cut_off),
		cmocka_unit_test(test_partition),
		cmocka_unit_test(test_rank_killed),
		cmocka_unit_test(test_killed_in_a_row),
		cmocka_unit_test(test_open_while_cut),
		cmocka_unit_test(test_opens_cut),
	};

	run_args_read(argc, argv);
	fabrics_need(run_args.fabric);
	namespaces_need(&bridged, N_HOSTS, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
