/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that plan for themselves, from the same inputs: equal plans and hashes
 * on all of them, as threads and as processes; other inputs show in the hash.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/bits.h"
#include "plan_case.h"
#include "ranks.h"

enum { N_PLANS = RANKS_STEPS(40), ODD_PLAN = 7, LIMIT_MS = 120000 };

/* What a rank says of one plan. */
struct word {
	uint64_t hash;
	uint64_t moves;
	int64_t load_after;
	int64_t bound;
};

/* The problem of every rank, and a rank that has other loads. */
struct task {
	uint64_t seed;
	int32_t odd_rank; /* -1: none */
};

struct desk {
	struct ferry_planner *planner;
	struct plan_case problem;
	struct ferry_plan plan;
};

static uint64_t seed;

static void clear_desk(void *arg)
{
	struct desk *const d = arg;

	ferry_planner_destroy(d->planner);
	free(d);
}

static struct desk *make_desk(void)
{
	struct desk *const d = calloc(1, sizeof(*d));

	RANKS_CHECK(d != NULL);
	ranks_defer(clear_desk, d);
	RANKS_OK(ferry_planner_create(PLAN_CASE_SLOTS, PLAN_CASE_SLOTS,
	                              PLAN_CASE_RANKS, &d->planner));
	return d;
}

static void draw(const struct rank *rank, struct plan_case *c, int i,
                 uint64_t *at)
{
	const struct plan_kind kind = {
		.min_ranks = rank->n_ranks,
		.max_ranks = rank->n_ranks,
		.max_slots = 8 * rank->n_ranks,
		.max_swaps = 16,
		.uneven = i & 1,
		.empty = i >> 1 & 1,
		.replicas = i >> 2 & 1,
		.speeds = i >> 3 & 1,
		.costs = i >> 4 & 1,
		.spread = i % 3 == 0,
		.split = (enum ferry_split)(i % 3),
	};

	plan_case_make(c, &kind, at);
	c->in.layer = i;
	c->in.tight_bound = true;
}

static struct word plan_once(struct desk *d)
{
	d->plan.size = sizeof(d->plan);
	RANKS_OK(ferry_plan_make(d->planner, &d->problem.in, &d->plan));
	struct word w = {.hash = d->plan.hash,
	                 .load_after = d->plan.load_after,
	                 .bound = d->plan.bound};

	for (int32_t i = 0; i < d->plan.n_moves; i++) {
		const struct ferry_move *const m = &d->plan.moves[i];

		w.moves = hash_u64(w.moves, (uint64_t)m->expert);
		w.moves = hash_u64(w.moves, (uint64_t)m->other);
		w.moves = hash_u64(w.moves, (uint64_t)m->from_slot);
		w.moves = hash_u64(w.moves, (uint64_t)m->to_slot);
		w.moves = hash_u64(w.moves, (uint64_t)m->gain);
	}
	return w;
}

static void compare(const struct rank *rank, const struct word *own, int i,
                    int32_t odd_rank)
{
	struct word all[RANKS_MAX];

	RANKS_OK(ferry_world_allgather(rank->world, own, all, sizeof(*own)));
	for (int32_t r = 1; r < rank->n_ranks; r++) {
		if (i == ODD_PLAN && r == odd_rank) {
			RANKS_CHECK(all[r].hash != all[0].hash);
			continue;
		}
		RANKS_EQ(all[r].hash, all[0].hash);
		RANKS_EQ(all[r].moves, all[0].moves);
		RANKS_EQ(all[r].load_after, all[0].load_after);
		RANKS_EQ(all[r].bound, all[0].bound);
	}
}

static void body(struct rank *rank)
{
	const struct task *const task = rank->arg;
	struct desk *const d = make_desk();
	uint64_t at = task->seed;

	for (int i = 0; i < N_PLANS; i++) {
		draw(rank, &d->problem, i, &at);
		if (i == ODD_PLAN && rank->rank == task->odd_rank)
			d->problem.loads[0]++;
		const struct word own = plan_once(d);

		plan_case_free(&d->problem);
		compare(rank, &own, i, task->odd_rank);
	}
}

static void run(enum ranks_kind kind, int32_t n_ranks, int32_t odd_rank)
{
	struct task task = {.seed = seed, .odd_rank = odd_rank};
	/* It is about plans, not time: 64 of them may share a busy core. */
	const struct ranks how = {
		.kind = kind,
		.n_ranks = n_ranks,
		.timeout_ms = LIMIT_MS / 2,
		.open_timeout_ms = LIMIT_MS / 2,
		.limit_ms = LIMIT_MS,
		.arg = &task,
	};

	ranks_run(&how, body);
}

static void threads_plan_alike(void **state)
{
	static const int32_t sizes[] = {2, 3, 7, 8, 16, 33, 64};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		run(RANKS_THREADS, sizes[i], -1);
}

static void processes_plan_alike(void **state)
{
	static const int32_t sizes[] = {2, 5, 16, 64};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		run(RANKS_PROCESSES, sizes[i], -1);
}

static void other_loads_show_in_the_hash(void **state)
{
	(void)state;
	run(RANKS_THREADS, 4, 2);
	run(RANKS_PROCESSES, 4, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_plan_alike),
		cmocka_unit_test(processes_plan_alike),
		cmocka_unit_test(other_loads_show_in_the_hash),
	};

	seed = ranks_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
