/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans that promise too little, on every fabric: who foresees all takes every
 * plan, who is wrong takes those that promise more than that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "balancer_lab.h"
#include "core/bits.h"
#include "migrate/agree_numbers.h"
#include "migrate/balancer_inner.h"

enum { STEPS = RANKS_STRIDE > 1 ? 8 : 16, ONE = 1000000 };

static struct bal_task task_of(enum ferry_balance_policy policy)
{
	return (struct bal_task){
		.policy = policy,
		.rule = policy & FERRY_BALANCE_FREEBALANCE ? FERRY_RULE_RESELECT
	                                                   : 0,
		.spare = 1,
		.n_staging = 8,
		.max_copies = policy & FERRY_BALANCE_FERRY ? 0 : -1,
		.eplb_every = 5,
		.n_steps = STEPS,
	};
}

/* Errors are the same on all ranks. */
static void check_equal(const struct bal *m)
{
	uint64_t h = 0;

	for (int32_t l = 0; l < BAL_LAYERS; l++) {
		const struct ferry_margin *margin =
			&m->balancer->layers[l].margin;

		h = hash_u64(h, (uint64_t)margin->mean_square);
		h = hash_u64(h, (uint64_t)margin->n_plans);
	}
	const struct ferry_agreed own = {"margins", (int64_t)h};

	RANKS_OK(
		ferry_agree_numbers(m->rank->world, "test", FERRY_OK, &own, 1));
}

static struct ferry_balancer_stats run(struct rank *rank, struct bal_task *task,
                                       int64_t margin_ppm)
{
	task->margin_ppm = margin_ppm;
	rank->arg = task;
	struct bal *const m = bal_open(rank);

	bal_run(m);
	check_equal(m);
	return bal_stats(m);
}

static void same(const struct ferry_balancer_stats *a,
                 const struct ferry_balancer_stats *b)
{
	RANKS_EQ(a->n_moved, b->n_moved);
	RANKS_EQ(a->n_swaps, b->n_swaps);
	RANKS_EQ(a->n_copies, b->n_copies);
	RANKS_EQ(a->true_ppm, b->true_ppm);
	RANKS_EQ(a->after_ppm, b->after_ppm);
}

/* What is foreseen comes: every plan keeps its promise, and none is refused. */
static void foresee_all(struct rank *rank)
{
	struct bal_task task = *(const struct bal_task *)rank->arg;
	const struct ferry_balancer_stats off = run(rank, &task, 0);
	const struct ferry_balancer_stats on =
		run(rank, &task, MARGIN_MOST_PPM);

	RANKS_CHECK(off.n_swaps + off.n_copies > 0);
	RANKS_EQ(on.n_below_margin, 0);
	same(&on, &off);
}

static void test_no_error(void **state)
{
	for (int p = FERRY_BALANCE_FREEBALANCE; p <= FERRY_BALANCE_EPLB_FERRY;
	     p++) {
		struct bal_task task = task_of((enum ferry_balance_policy)p);

		task.split = p % 2 ? FERRY_SPLIT_EXACT : FERRY_SPLIT_EVEN;
		lab_run(*state, 2 + p % 3, foresee_all, &task);
	}
}

/*
 * Half is foreseen wrongly. A margin that nothing reaches lets plans through
 * only while nothing is known; that of an ordinary error some more, and none
 * all of them. So many steps that chance cannot turn this round.
 */
static void foresee_half(struct rank *rank)
{
	struct bal_task task = *(const struct bal_task *)rank->arg;
	const struct ferry_balancer_stats off = run(rank, &task, 0);
	const struct ferry_balancer_stats some = run(rank, &task, ONE);
	const struct ferry_balancer_stats most =
		run(rank, &task, MARGIN_MOST_PPM);

	RANKS_EQ(off.n_below_margin, 0);
	RANKS_CHECK(some.n_below_margin > 0);
	RANKS_CHECK(some.n_below_margin < most.n_below_margin);
	RANKS_CHECK(some.n_moved < off.n_moved);
	RANKS_CHECK(some.n_moved > most.n_moved);
}

static void test_errors(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FREEBALANCE);

	task.noise = 8;
	task.n_steps = 2 * STEPS;
	lab_run(*state, 3, foresee_half, &task);
	task.calibrate = true;
	lab_run(*state, 4, foresee_half, &task);
}

/* A plan that is refused is reported so, and the layer stays. */
static void refuse(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	const struct balancer_layer *l = &m->balancer->layers[0];
	uint64_t before = ferry_placement_hash(
		ferry_experts_placement(m->lab.experts, 0));
	int32_t n_refused = 0;

	for (int32_t turn = 0; turn < STEPS; turn++) {
		bal_predict(m, 0, turn);
		const struct ferry_placement *p = bal_commit(m, 0);

		RANKS_CHECK(!m->report.below_margin || turn > 0);
		n_refused += m->report.below_margin;
		if (m->report.below_margin) {
			RANKS_EQ(ferry_placement_hash(p), before);
			RANKS_EQ(m->report.n_swaps + m->report.n_copies, 0);
			RANKS_EQ(m->report.after_ppm, m->report.before_ppm);
			RANKS_CHECK(l->promised_ppm > 0);
		}
		before = ferry_placement_hash(p);
		bal_observe(m, 0, turn);
	}
	RANKS_CHECK(n_refused > STEPS / 2);
	RANKS_EQ(bal_stats(m).n_below_margin, n_refused);
}

static void test_reports(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FREEBALANCE);

	task.noise = 8;
	task.margin_ppm = MARGIN_MOST_PPM;
	lab_run(*state, 2, refuse, &task);
}

/*
 * A plan whose truth not all ranks have seen says nothing. Which turns find a
 * plan at all hangs on the loads; those that do are of both kinds.
 */
static void judge_whole_steps(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	const struct ferry_margin *margin = &m->balancer->layers[0].margin;
	int32_t n_whole = 0, n_partly = 0;

	for (int32_t turn = 0; turn < STEPS; turn++) {
		const bool whole = turn % 2;

		bal_predict(m, 0, turn);
		bal_commit(m, 0);
		RANKS_EQ(margin->n_plans, n_whole);
		if (whole || rank->rank)
			bal_observe(m, 0, turn);
		if (!m->report.n_swaps && !m->report.below_margin)
			continue;
		n_whole += whole;
		n_partly += !whole;
	}
	RANKS_CHECK(n_whole > 0 && n_partly > 0);
}

static void test_whole_steps(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FREEBALANCE);

	task.noise = 8;
	task.margin_ppm = ONE / 1000;
	lab_run(*state, 3, judge_whole_steps, &task);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_no_error),
	cmocka_unit_test(test_errors),
	cmocka_unit_test(test_reports),
	cmocka_unit_test(test_whole_steps),
};

int main(void)
{
	bal_seed = ranks_seed();
	return lab_main(tests, sizeof(tests) / sizeof(*tests));
}
