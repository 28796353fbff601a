/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to EPLB's placement: in steps that staging can hold, each a valid
 * placement with whole weights, and to its end; hierarchical ones; and one
 * thread that drives the predictions of all ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "balancer_lab.h"
#include "core/bits.h"
#include "migrate/balancer_inner.h"

enum { GOALS = 5 };

/* Loads that have nothing to do with those before. */
static void observe_random(struct bal *m, uint64_t *rng)
{
	int32_t counts[BAL_EXPERTS];

	for (int e = 0; e < BAL_EXPERTS; e++)
		counts[e] = (int32_t)(rng_next(rng) % 1000);
	RANKS_OK(ferry_balancer_observe(m->balancer, 0, counts));
}

static void predict_nothing(struct bal *m)
{
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;

	RANKS_OK(ferry_balancer_predict(m->balancer, 0, &in));
}

/* One goal, from the step that sets it: the steps that it has taken. */
static int32_t walk(struct bal *m)
{
	const struct balancer_layer *l = &m->balancer->layers[0];
	const int32_t most = m->balancer->most_in;
	int32_t n = 0;

	do {
		RANKS_CHECK(ferry_balancer_wants(m->balancer, 0));
		predict_nothing(m);
		bal_commit(m, 0);
		/* Fewer than twice what a step brings: now and then. */
		RANKS_CHECK(!m->report.held_back || m->task->n_staging < 4);
		RANKS_CHECK(m->report.bytes_in <= (uint64_t)most * 577);
		n++;
	} while (l->has_goal);
	RANKS_CHECK(n <= 2 * (l->n_slots + 1));
	if (most > 1)
		RANKS_EQ(memcmp(l->base, l->goal,
		                (size_t)l->n_slots * sizeof(*l->base)),
		         0);
	return n;
}

static void arrive(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	uint64_t rng = bal_seed;
	int32_t n_steps = 0;

	for (int goal = 0; goal < GOALS; goal++) {
		while (!ferry_balancer_wants(m->balancer, 0)) {
			observe_random(m, &rng);
			bal_commit(m, 0);
			RANKS_CHECK(!m->report.predicted);
		}
		n_steps += walk(m);
	}
	const struct ferry_balancer_stats s = bal_stats(m);

	RANKS_EQ(s.n_predictions, n_steps);
	RANKS_CHECK(s.n_by_history > 0);
	RANKS_CHECK(s.n_by_history <= (uint64_t)n_steps);
}

static void test_arrives(void **state)
{
	for (int32_t n_ranks = 2; n_ranks <= 6; n_ranks++)
		for (int32_t staging = 1; staging <= 8; staging *= 2) {
			const struct bal_task task = {
				.policy = FERRY_BALANCE_EPLB,
				.spare = n_ranks % 3,
				.n_staging = staging,
				.eplb_every = 2 * BAL_EXPERTS,
			};

			lab_run(*state, n_ranks, arrive, &task);
		}
}

/* By hosts of two ranks; the reserve for copies stays empty. */
static void by_hosts(struct rank *rank)
{
	struct bal *m = bal_make(rank);
	struct ferry_balancer_config config;
	uint64_t rng = bal_seed;

	bal_config(m, &config);
	config.n_nodes = 2;
	config.eplb_groups = 4;
	config.history_window = 3;
	config.max_copies = 1;
	RANKS_OK(ferry_balancer_open(rank->world, &config, &m->balancer));
	const struct balancer_layer *l = &m->balancer->layers[0];

	while (!l->has_goal) {
		observe_random(m, &rng);
		predict_nothing(m);
		bal_commit(m, 0);
	}
	int32_t n_empty = 0;

	for (int32_t s = 0; s < l->n_slots; s++)
		n_empty += l->goal[s] < 0;
	RANKS_CHECK(n_empty >= rank->n_ranks);
	/* A group of three experts stays on one host. */
	for (int32_t s = 0; s < l->n_slots; s++)
		for (int32_t t = 0; t < l->n_slots; t++)
			if (l->goal[s] >= 0 && l->goal[t] >= 0 &&
			    l->goal[s] / 3 == l->goal[t] / 3)
				RANKS_EQ(s * 2 / l->n_slots,
				         t * 2 / l->n_slots);
}

static void test_hosts(void **state)
{
	const struct bal_task task = {
		.policy = FERRY_BALANCE_EPLB_FERRY,
		.spare = 2,
		.n_staging = 4,
		.eplb_every = 2,
	};

	lab_run(*state, 4, by_hosts, &task);
}

/* Steps in which history moved something, or was given up: counted. */
static void doubt_step(struct bal *m, uint64_t *rng, int32_t n[2])
{
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	const struct balancer_layer *l = &m->balancer->layers[0];
	const bool due = l->since >= m->task->eplb_every;
	int32_t counts[BAL_EXPERTS];

	for (int e = 0; e < BAL_EXPERTS; e++)
		counts[e] = (int32_t)(rng_next(rng) % 1000);
	in.counts = counts;
	in.window_ns = 0; /* no swaps */
	RANKS_OK(ferry_balancer_predict(m->balancer, 0, &in));
	bal_commit(m, 0);
	RANKS_CHECK(m->report.after_ppm <= m->report.before_ppm);
	RANKS_CHECK(!m->report.by_history ||
	            m->report.after_ppm < m->report.before_ppm);
	n[0] += m->report.by_history;
	n[1] += due && !m->report.by_history;
	observe_random(m, rng);
}

static void doubt(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	uint64_t rng = bal_seed;
	int32_t n[2] = {0};

	for (int step = 0; step < 60; step++)
		doubt_step(m, &rng, n);
	RANKS_CHECK(n[0] > 0);
	RANKS_CHECK(n[1] > 0);
}

/* With plans, history has to be better for what is foreseen. */
static void test_doubt(void **state)
{
	const struct bal_task task = {
		.policy = FERRY_BALANCE_EPLB_FREEBALANCE,
		.n_staging = 4 * BAL_EXPERTS,
		.eplb_every = 2,
	};

	lab_run(*state, 2, doubt, &task);
}

/* Slots that EPLB would not give a rank. */
static void uneven(struct rank *rank)
{
	struct bal *m = bal_make(rank);
	struct ferry_balancer_config config;

	bal_config(m, &config);
	config.eplb_groups = 5;
	RANKS_STATUS(ferry_balancer_open(rank->world, &config, &m->balancer),
	             FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), "n_groups");
}

static void test_refused(void **state)
{
	const struct bal_task task = {
		.policy = FERRY_BALANCE_EPLB,
		.spare = 1,
		.n_staging = 4,
	};

	lab_run(*state, 2, uneven, &task);
}

/* The models of all ranks, for the thread of rank 0. */
struct table {
	struct bal *models[RANKS_MAX];
};

static void drive(struct rank *rank)
{
	struct table *table = rank->shared;
	struct bal *m = bal_open(rank);
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	int32_t counts[BAL_EXPERTS];

	table->models[rank->rank] = m;
	bal_lopsided(m, 0, counts);
	in.counts = counts;
	ranks_meet(0, rank->n_ranks);
	for (int32_t r = 0; rank->rank == 0 && r < rank->n_ranks; r++) {
		RANKS_OK(ferry_balancer_predict_send(table->models[r]->balancer,
		                                     0, &in));
	}
	for (int32_t r = 0; rank->rank == 0 && r < rank->n_ranks; r++)
		RANKS_OK(ferry_balancer_predict_start(
			table->models[r]->balancer, 0));
	ranks_meet(1, rank->n_ranks);
	bal_commit(m, 0);
	RANKS_CHECK(m->report.n_swaps + m->report.n_copies > 0);
	RANKS_CHECK(m->report.after_ppm < m->report.before_ppm);
}

static void test_one_thread(void **state)
{
	const struct bal_task task = {
		.policy = FERRY_BALANCE_FERRY,
		.spare = 1,
		.n_staging = 8,
	};
	const struct lab_setting *setting = *state;
	void *shared;

	if (setting->kind != RANKS_THREADS)
		return; /* another process's models are out of reach */
	const struct ranks how = {
		.n_ranks = 3,
		.fabric = setting->fabric,
		.arg = (void *)(uintptr_t)&task,
		.shared_bytes = sizeof(struct table),
		.shared = &shared,
	};

	ranks_run(&how, drive);
	ranks_free_shared(&how);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_arrives),    cmocka_unit_test(test_hosts),
	cmocka_unit_test(test_doubt),      cmocka_unit_test(test_refused),
	cmocka_unit_test(test_one_thread),
};

int main(void)
{
	bal_seed = ranks_seed();
	return lab_main(tests, sizeof(tests) / sizeof(*tests));
}
