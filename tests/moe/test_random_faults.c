/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations on several slots, and at a random call one rank dies,
 * aborts, or stalls until all others have given up. What was answered with
 * success before is right to the byte; all survivors name that rank, soon;
 * nobody hangs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "broken.h"
#include "core/order.h"
#include "run_args.h"

enum { N_SLOTS = 3, N_CALLS = 60, STALL_TIMEOUT_MS = 500 };

enum fault { DIE, ABORT, STALL };

struct plan {
	enum fault fault;
	uint64_t seed;
	int32_t n_ranks;
	int32_t culprit;
	int at; /* call before which it happens */
};

static struct plan make_plan(enum fault fault, uint64_t seed)
{
	uint64_t rng = seed;
	struct plan p = {.fault = fault, .seed = seed};

	p.n_ranks = (int32_t)traffic_between(&rng, 2, 6);
	p.culprit = (int32_t)traffic_between(&rng, 0, p.n_ranks - 1);
	p.at = (int)traffic_between(&rng, 0, N_CALLS / 2);
	return p;
}

static struct ferry_moe_config config_of(const struct plan *p)
{
	uint64_t rng = p->seed + 1;
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 6;
	c.hidden = (int32_t)traffic_between(&rng, 8, 3000);
	c.topk = 2;
	c.n_experts = 8;
	c.n_slots = N_SLOTS;
	c.layout = FERRY_EXPERT_PACKED;
	/* Sums of hosts, where there are hosts that can add. */
	const bool adds = run_args.device == FERRY_DEVICE_CPU &&
	                  strchr(run_args.fabric, '+') != NULL;

	c.combine =
		(enum ferry_combine_mode)traffic_between(&rng, 0, adds ? 2 : 1);
	return c;
}

static struct drive_op *begin(const struct plan *p, struct drive *d,
                              int32_t slot, uint64_t *rng)
{
	struct drive_step step = {.from = FERRY_FROM_PACKED};

	step.spec.seed = traffic_random(rng);
	step.spec.routing = (enum traffic_routing)traffic_between(
		rng, 0, TRAFFIC_N_ROUTINGS - 1);
	for (int32_t r = 0; r < p->n_ranks; r++)
		step.n_tokens[r] = (int32_t)traffic_between(rng, 0, 6);
	return drive_begin(d, slot, &step);
}

static enum ferry_status call(struct drive_op *op, int phase)
{
	enum ferry_status status;

	switch (phase) {
	case 0:
		return drive_try_send(op);
	case 1:
		status = drive_try_recv(op);
		if (status == FERRY_OK)
			drive_check_recv(op);
		else
			drive_check_empty(op);
		return status;
	case 2:
		return drive_try_combine_send(op);
	default:
		status = drive_try_combine_recv(op);
		if (status == FERRY_OK)
			drive_check_combine_recv(op);
		return status;
	}
}

/* How many ranks have seen the failure: behind the opinions of broken.h. */
static uint32_t *n_failed(const struct rank *rank)
{
	return (uint32_t *)((char *)rank->shared + BROKEN_SHARED);
}

/* A machine can stand still for a second: so no time is fixed here. */
static void stall(const struct rank *rank)
{
	while (load_acquire_u32(n_failed(rank)) + 1 < (uint32_t)rank->n_ranks)
		nanosleep(&(struct timespec){0, 5000000}, NULL);
}

static void strike(const struct plan *p, const struct rank *rank)
{
	switch (p->fault) {
	case DIE:
		ranks_die();
	case ABORT:
		ferry_world_abort(rank->world);
		return;
	case STALL:
		stall(rank);
	}
}

/* Calls in an order that all ranks share, until one fails. */
static enum ferry_status work(const struct plan *p, const struct rank *rank,
                              struct drive *d)
{
	struct drive_op *ops[N_SLOTS] = {NULL};
	int phases[N_SLOTS] = {0};
	uint64_t rng = p->seed + 2;
	enum ferry_status status = FERRY_OK;

	/* Until the end of time: the fault ends it. */
	for (int i = 0; status == FERRY_OK; i++) {
		const int32_t slot =
			(int32_t)traffic_between(&rng, 0, N_SLOTS - 1);

		if (i == p->at && rank->rank == p->culprit)
			strike(p, rank);
		if (i > 20 * N_CALLS)
			RANKS_FAIL("nothing has failed");
		if (ops[slot] == NULL)
			ops[slot] = begin(p, d, slot, &rng);
		status = call(ops[slot], phases[slot]);
		if (++phases[slot] < 4)
			continue;
		drive_end(ops[slot]);
		ops[slot] = NULL;
		phases[slot] = 0;
	}
	return status;
}

static void body(struct rank *rank)
{
	static const enum ferry_status expected[] = {[DIE] = FERRY_PEER,
	                                             [ABORT] = FERRY_ABORTED,
	                                             [STALL] = FERRY_TIMEOUT};
	const struct plan *p = rank->arg;
	const struct ferry_moe_config config = config_of(p);
	struct drive *d = drive_open(rank, &config, NULL);

	ranks_meet(1, rank->n_ranks); /* all have opened: begin together */
	const enum ferry_status status = work(p, rank, d);
	const int n_survivors = rank->n_ranks - (p->fault == DIE);
	char culprit[32];

	snprintf(culprit, sizeof(culprit), "rank %d", p->culprit);
	add_seq_u32(n_failed(rank), 1);
	RANKS_STATUS(status, expected[p->fault]);
	broken_check(rank, d, status, p->culprit, culprit);
	broken_same_root(rank, d, 0, n_survivors);
}

/* Over a network a busy machine delays news more. */
static int32_t stall_timeout_ms(void)
{
	if (run_args.hosts)
		return 4 * STALL_TIMEOUT_MS;
	return strstr(run_args.fabric, "ofi") ? 2 * STALL_TIMEOUT_MS
	                                      : STALL_TIMEOUT_MS;
}

static void run(enum fault fault, int n_cases)
{
	for (int i = 0; i < n_cases; i++) {
		struct plan p = make_plan(fault, run_args.seed + (uint64_t)i);
		struct ranks how = run_args_ranks(p.n_ranks);
		void *shared;

		printf("# seed %llu: ranks %d, rank %d at call %d\n",
		       (unsigned long long)p.seed, p.n_ranks, p.culprit, p.at);
		fflush(stdout);
		if (fault == DIE)
			how.killed = RANKS_BIT(p.culprit);
		if (fault == STALL)
			how.timeout_ms = stall_timeout_ms();
		how.arg = &p;
		how.shared_bytes = BROKEN_SHARED + sizeof(uint32_t);
		how.shared = &shared;
		ranks_run(&how, body);
		ranks_free_shared(&how);
	}
}

static int count(int usual)
{
	const int some = RUN_SLOW ? (usual + 3) / 4 : usual;

	return run_args.count ? run_args.count : some;
}

static void a_rank_dies(void **state)
{
	(void)state;
	run(DIE, count(40));
}

static void a_rank_aborts(void **state)
{
	(void)state;
	run(ABORT, count(40));
}

static void a_rank_stalls(void **state)
{
	(void)state;
	run(STALL, count(3));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_dies),
		cmocka_unit_test(a_rank_aborts),
		cmocka_unit_test(a_rank_stalls),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
