/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predictions that are corrected by what past ones got wrong, on every fabric:
 * a router that always errs alike, with and without; what counts as a step;
 * equal loads on all ranks.
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

enum { STEPS = 20 };

static struct bal_task task_of(enum ferry_balance_policy policy)
{
	return (struct bal_task){
		.policy = policy,
		.rule = policy & FERRY_BALANCE_FREEBALANCE ? FERRY_RULE_RESELECT
	                                                   : 0,
		.spare = 1,
		.n_staging = 8,
		.max_copies = policy & FERRY_BALANCE_FERRY ? 0 : -1,
		.eplb_every = 100,
		.n_steps = STEPS,
		.biased = true,
	};
}

/* All ranks have planned from the same, and learned the same. */
static void check_equal(const struct bal *m)
{
	uint64_t h = 0;

	for (int32_t l = 0; l < BAL_LAYERS; l++) {
		const struct balancer_layer *layer = &m->balancer->layers[l];
		const struct ferry_calibration *c = &layer->calibration;

		for (int i = 0; i < c->n_steps * BAL_EXPERTS; i++)
			h = hash_u64(h, (uint64_t)c->truth[i]);
		for (int e = 0; e < BAL_EXPERTS; e++) {
			h = hash_u64(h, (uint64_t)layer->loads[e]);
		}
	}
	const struct ferry_agreed own = {"loads", (int64_t)h};

	RANKS_OK(
		ferry_agree_numbers(m->rank->world, "test", FERRY_OK, &own, 1));
}

static struct ferry_balancer_stats run(struct rank *rank, struct bal_task *task)
{
	rank->arg = task;
	struct bal *const m = bal_open(rank);

	bal_run(m);
	check_equal(m);
	return bal_stats(m);
}

/* The same steps twice: what is planned is nearer to the truth, and better. */
static void correct(struct rank *rank)
{
	struct bal_task task = *(const struct bal_task *)rank->arg;
	const struct ferry_balancer_stats off = run(rank, &task);

	task.calibrate = true;
	const struct ferry_balancer_stats on = run(rank, &task);

	RANKS_EQ(off.n_compared, (STEPS - 1) * BAL_LAYERS);
	RANKS_EQ(on.n_compared, off.n_compared);
	RANKS_EQ(on.true_tokens, off.true_tokens);
	RANKS_EQ(on.wrong_tokens, off.wrong_tokens);
	RANKS_EQ(off.wrong_planned_tokens, off.wrong_tokens);
	RANKS_CHECK(on.wrong_planned_tokens < on.wrong_tokens / 2);
	RANKS_CHECK(on.true_ppm < off.true_ppm);
	RANKS_CHECK(on.true_ppm < on.true_first_ppm);
}

static void test_correct(void **state)
{
	for (int p = FERRY_BALANCE_FREEBALANCE; p <= FERRY_BALANCE_EPLB_FERRY;
	     p++) {
		const struct bal_task task =
			task_of((enum ferry_balance_policy)p);

		lab_run(*state, 2 + p % 3, correct, &task);
	}
}

/* Who foresees nothing has nothing to correct. */
static void ignore(struct rank *rank)
{
	struct bal_task task = *(const struct bal_task *)rank->arg;
	const struct ferry_balancer_stats off = run(rank, &task);

	task.calibrate = true;
	const struct ferry_balancer_stats on = run(rank, &task);

	RANKS_EQ(on.true_ppm, off.true_ppm);
	RANKS_EQ(on.n_swaps + on.n_copies, off.n_swaps + off.n_copies);
	RANKS_EQ(on.wrong_planned_tokens, 0);
}

static void test_ignored(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_EPLB);

	task.eplb_every = 4;
	lab_run(*state, 3, ignore, &task);
	task = task_of(FERRY_BALANCE_OFF);
	lab_run(*state, 2, ignore, &task);
}

/* Steps that a layer knows. */
static int32_t learned(const struct bal *m, int32_t layer)
{
	return m->balancer->layers[layer].calibration.n_steps;
}

/* A step counts when it was foreseen, and every rank has observed it once. */
static void count_steps(struct rank *rank)
{
	struct bal *m = bal_open(rank);

	bal_observe(m, 0, 0);
	bal_predict(m, 0, 1); /* the step before was not foreseen */
	bal_commit(m, 0);
	RANKS_EQ(learned(m, 0), 0);
	bal_predict(m, 0, 2); /* nobody has observed */
	bal_commit(m, 0);
	RANKS_EQ(learned(m, 0), 0);
	bal_observe(m, 0, 2);
	bal_predict(m, 0, 3);
	bal_commit(m, 0);
	RANKS_EQ(learned(m, 0), 1);
	if (rank->rank)
		bal_observe(m, 0, 3); /* not all have */
	bal_predict(m, 0, 4);
	bal_commit(m, 0);
	RANKS_EQ(learned(m, 0), 1);
	bal_observe(m, 0, 4);
	bal_observe(m, 0, 5); /* two steps in one */
	bal_predict(m, 0, 6);
	bal_commit(m, 0);
	RANKS_EQ(learned(m, 0), 1);
	RANKS_EQ(learned(m, 1), 0);
	RANKS_EQ(bal_stats(m).n_compared, 1);
	check_equal(m);
}

static void test_steps(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FERRY);

	task.calibrate = true;
	lab_run(*state, 3, count_steps, &task);
}

/* Reports are of what was planned from. */
static void report_planned(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	const struct balancer_layer *l = &m->balancer->layers[0];
	int64_t level;

	for (int32_t turn = 0; turn < 5; turn++) {
		bal_predict(m, 0, turn);
		const struct ferry_placement *p = bal_commit(m, 0);

		RANKS_OK(
			ferry_balancer_level(m->balancer, p, l->loads, &level));
		RANKS_EQ(m->report.after_ppm,
		         ferry_balancer_ppm(m->balancer, level, l->loads,
		                            BAL_EXPERTS));
		RANKS_EQ(memcmp(l->loads, l->foreseen,
		                BAL_EXPERTS * sizeof(*l->loads)) != 0,
		         turn > 0);
		bal_observe(m, 0, turn);
	}
}

static void test_reports(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FERRY);

	task.calibrate = true;
	lab_run(*state, 2, report_planned, &task);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_correct),
	cmocka_unit_test(test_ignored),
	cmocka_unit_test(test_steps),
	cmocka_unit_test(test_reports),
};

int main(void)
{
	bal_seed = ranks_seed();
	return lab_main(tests, sizeof(tests) / sizeof(*tests));
}
