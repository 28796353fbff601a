/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered experts on every fabric: random plans for many steps with every
 * byte of every tensor checked in every state, several plans in flight, two
 * micro-batches, bounded staging. What is refused: test_experts_refusals.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <ferry/trace.h>

#include "core/bits.h"
#include "core/placement_inner.h"
#include "experts_lab.h"

enum { STEPS = RANKS_STEPS(24), IN_PER_PLAN = 3 };

static uint64_t seed;

/* Start and commit, as a layer of a forward pass does. */
static const struct ferry_placement *step(struct lab *lab, int32_t layer,
                                          uint64_t *rng, int32_t max_moves)
{
	const struct ferry_placement *old =
		ferry_experts_placement(lab->experts, layer);
	struct ferry_experts_report report = FERRY_EXPERTS_REPORT_INIT;
	const struct ferry_placement *next = NULL;
	struct ferry_plan plan;
	int32_t n_in = 0;

	lab_plan(old, layer, rng, max_moves, true, IN_PER_PLAN, &plan);
	for (int32_t i = 0; i < plan.n_moves; i++) {
		n_in += plan.moves[i].to_rank == lab->rank->rank;
		n_in += plan.moves[i].from_rank == lab->rank->rank &&
		        plan.moves[i].kind == FERRY_MOVE_SWAP;
	}
	RANKS_OK(ferry_experts_start(lab->experts, layer, &plan, NULL, NULL));
	lab_check(lab, layer, old);
	RANKS_OK(ferry_experts_commit(lab->experts, layer, NULL, &next,
	                              &report));
	RANKS_EQ(report.n_in, n_in);
	RANKS_CHECK(report.exposed_ns >= report.wait_ns + report.copy_ns);
	RANKS_CHECK(next == ferry_experts_placement(lab->experts, layer));
	RANKS_EQ(ferry_placement_version(next),
	         ferry_placement_version(old) + (plan.n_moves > 0));
	RANKS_CHECK((next != old) == (plan.n_moves > 0));
	lab_check(lab, layer, next);
	return next;
}

static void random_plans(struct rank *rank)
{
	const struct lab_shape *shape = rank->arg;
	struct lab *lab = lab_open(rank, shape);
	uint64_t rng = shape->seed + 1;

	for (int i = 0; i < STEPS; i++) {
		const int32_t layer =
			(int32_t)(rng_next(&rng) % (uint64_t)shape->n_layers);

		step(lab, layer, &rng, (int32_t)(rng_next(&rng) % 5));
	}
	for (int32_t l = 0; l < shape->n_layers; l++)
		lab_check(lab, l, ferry_experts_placement(lab->experts, l));
	const struct ferry_experts_stats stats = lab_stats(lab);

	RANKS_EQ(stats.n_started, STEPS);
	RANKS_EQ(stats.n_committed, STEPS);
	RANKS_EQ(stats.n_in_flight, 0);
	RANKS_CHECK(stats.staging_most <= shape->n_staging);
	/* Of the last plan; all that came before it is free again. */
	RANKS_CHECK(stats.versions_kept <= 2);
	RANKS_CHECK(stats.staging_in_use <= IN_PER_PLAN);
}

static void test_random_plans(void **state)
{
	for (int32_t n_ranks = 1; n_ranks <= 8; n_ranks++)
		for (int m = 0; m < 2; m++) {
			const struct lab_shape shape = lab_small(
				seed + (uint64_t)n_ranks,
				m ? FERRY_EXPERTS_COPY : FERRY_EXPERTS_REMAP);

			lab_run(*state, n_ranks, random_plans, &shape);
		}
}

/* Larger than a put of any fabric, and than the bounce. */
static void test_large_experts(void **state)
{
	for (int m = 0; m < 2; m++) {
		struct lab_shape shape = {
			.seed = seed,
			.n_layers = 1,
			.n_experts = 3,
			.n_staging = 6,
			.mode = (enum ferry_experts_mode)m,
			.n_tensors = 2,
			.tensor_bytes = {(1 << 20) + 12345, 77777},
		};

		lab_run(*state, 3, random_plans, &shape);
	}
}

/* What a rank keeps in mind of one layer's plan. */
struct pending {
	bool started;
	const struct ferry_placement *old;
};

/* Ends the plan of a layer, in one way or the other. */
static void end_plan(struct lab *lab, int32_t layer, struct pending *p,
                     bool abandon)
{
	if (abandon) {
		RANKS_OK(ferry_experts_abandon(lab->experts, layer));
		RANKS_CHECK(ferry_experts_placement(lab->experts, layer) ==
		            p->old);
	} else {
		RANKS_OK(ferry_experts_commit(lab->experts, layer, NULL, NULL,
		                              NULL));
	}
	p->started = false;
	lab_check(lab, layer, ferry_experts_placement(lab->experts, layer));
}

/* Starts one if there is room; all ranks must say the same. */
static void start_plan(struct lab *lab, int32_t layer, uint64_t *rng,
                       struct pending *p)
{
	struct ferry_plan plan;

	p->old = ferry_experts_placement(lab->experts, layer);
	lab_plan(p->old, layer, rng, 3, true, 2, &plan);
	const enum ferry_status status =
		ferry_experts_start(lab->experts, layer, &plan, NULL, NULL);

	if (status != FERRY_STATE)
		RANKS_OK(status);
	p->started = status == FERRY_OK;
}

static void many_in_flight(struct rank *rank)
{
	const struct lab_shape *shape = rank->arg;
	struct lab *lab = lab_open(rank, shape);
	struct pending pending[LAB_LAYERS] = {{0}};
	uint64_t rng = shape->seed + 2;
	int n_started = 0;

	for (int i = 0; i < 4 * STEPS; i++) {
		const int32_t layer =
			(int32_t)(rng_next(&rng) % (uint64_t)shape->n_layers);
		const uint64_t how = rng_next(&rng);
		struct pending *p = &pending[layer];

		if (!p->started)
			start_plan(lab, layer, &rng, p);
		else if (how % 2)
			end_plan(lab, layer, p, how % 8 == 1);
		n_started += p->started;
		lab_check(lab, layer,
		          ferry_experts_placement(lab->experts, layer));
	}
	RANKS_CHECK(n_started > STEPS / 2);
	for (int32_t l = 0; l < shape->n_layers; l++)
		if (pending[l].started)
			end_plan(lab, l, &pending[l], false);
}

static void test_many_in_flight(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct lab_shape shape =
			lab_small(seed + 17 * (uint64_t)i,
		                  (enum ferry_experts_mode)(i % 2));

		shape.n_layers = 4;
		shape.n_staging = 8;
		lab_run(*state, 2 + i, many_in_flight, &shape);
	}
}

/*
 * Micro-batch A holds the version that it began with while plans are committed
 * for B: its weights stay, byte for byte, until it lets go.
 */
static void two_batches(struct rank *rank)
{
	const struct lab_shape *shape = rank->arg;
	struct lab *lab = lab_open(rank, shape);
	uint64_t rng = shape->seed + 3;

	for (int i = 0; i < STEPS; i++) {
		const int32_t layer = i % shape->n_layers;
		const struct ferry_placement *a =
			ferry_experts_acquire(lab->experts, layer);
		const struct ferry_placement *b = step(lab, layer, &rng, 2);

		lab_check(lab, layer, a);
		step(lab, (layer + 1) % shape->n_layers, &rng, 1);
		step(lab, (layer + 2) % shape->n_layers, &rng, 1);
		lab_check(lab, layer, a);
		lab_check(lab, layer, b);
		ferry_experts_release(lab->experts, layer, a);
		/* Two plans later nobody needs it, and it is gone. */
		step(lab, (layer + 1) % shape->n_layers, &rng, 0);
		step(lab, (layer + 1) % shape->n_layers, &rng, 0);
		if (a != b)
			RANKS_CHECK(!ferry_experts_tensor(lab->experts, layer,
			                                  a, 0, 0));
	}
}

static void test_two_batches(void **state)
{
	struct lab_shape shape = lab_small(seed + 5, FERRY_EXPERTS_REMAP);

	shape.n_staging = 16;
	lab_run(*state, 4, two_batches, &shape);
	lab_run(*state, 2, two_batches, &shape);
}

/*
 * An operation of one layer that never ends keeps that layer's old buffers,
 * and nobody else's.
 */
static void stuck(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	const struct ferry_placement *a =
		ferry_experts_acquire(lab->experts, 0);
	uint64_t rng = lab->shape.seed;

	for (int i = 0; i < 4 * STEPS; i++) {
		step(lab, i < 2 ? 0 : 1 + i % 2, &rng, 1);
		lab_check(lab, 0, a);
	}
	RANKS_EQ(lab_stats(lab).n_held_back, 0);
	ferry_experts_release(lab->experts, 0, a);
	step(lab, 1, &rng, 0);
	RANKS_EQ(lab_stats(lab).versions_kept, 0);
	RANKS_EQ(lab_stats(lab).staging_in_use, 0);
}

static void test_stuck(void **state)
{
	struct lab_shape shape = lab_small(seed + 15, FERRY_EXPERTS_REMAP);

	lab_run(*state, 4, stuck, &shape);
}

/* COPY overwrites: not while somebody reads, and then it is asked again. */
static void copy_in_use(struct rank *rank)
{
	const struct lab_shape *shape = rank->arg;
	struct lab *lab = lab_open(rank, shape);
	const struct ferry_placement *a =
		ferry_experts_acquire(lab->experts, 1);
	const struct ferry_plan plan = lab_one_swap(a, 1);
	const struct ferry_placement *b = NULL;
	struct ferry_usage *usage;

	RANKS_OK(ferry_experts_start(lab->experts, 1, &plan, NULL, NULL));
	for (int i = 0; i < 3; i++) {
		RANKS_STATUS(
			ferry_experts_commit(lab->experts, 1, NULL, &b, NULL),
			FERRY_STATE);
		RANKS_TEXT(ferry_last_error(), "version 1000 is in use");
		lab_check(lab, 1, a);
	}
	RANKS_CHECK(!b);
	/* An operation of a channel counts as well. */
	usage = ferry_placement_enter(a);
	ferry_experts_release(lab->experts, 1, a);
	RANKS_STATUS(ferry_experts_commit(lab->experts, 1, NULL, &b, NULL),
	             FERRY_STATE);
	ferry_usage_leave(usage);
	RANKS_OK(ferry_experts_commit(lab->experts, 1, NULL, &b, NULL));
	RANKS_EQ(ferry_placement_version(b), 1001);
	lab_check(lab, 1, b);
}

static void test_copy_in_use(void **state)
{
	struct lab_shape shape = lab_small(seed + 6, FERRY_EXPERTS_COPY);

	lab_run(*state, 3, copy_in_use, &shape);
}

/* Commits; has it changed anything? The report must say the same. */
static bool end_and_compare(struct lab *lab, int32_t layer,
                            const struct ferry_placement *old)
{
	struct ferry_experts_report report = FERRY_EXPERTS_REPORT_INIT;
	const struct ferry_placement *next;

	RANKS_OK(ferry_experts_commit(lab->experts, layer, NULL, &next,
	                              &report));
	RANKS_EQ(report.n_in, next != old);
	RANKS_EQ(report.held_back, next == old);
	lab_check(lab, layer, next);
	return next != old;
}

static void bounded(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	const struct ferry_placement *p[3];
	struct ferry_plan plan = {.size = sizeof(plan)};
	uint64_t rng = lab->shape.seed;

	for (int32_t l = 0; l < 3; l++)
		p[l] = ferry_experts_placement(lab->experts, l);
	/* Three experts to one rank that has two buffers: never. */
	for (int i = 0; i < 1000 && plan.n_moves < 3; i++)
		lab_plan(p[0], 0, &rng, 3, false, 3, &plan);
	RANKS_EQ(plan.n_moves, 3);
	RANKS_STATUS(ferry_experts_start(lab->experts, 0, &plan, NULL, NULL),
	             FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "3 experts come to rank");
	RANKS_EQ(lab_stats(lab).n_started, 0);
	for (int32_t l = 0; l < 2; l++) {
		plan = lab_one_swap(p[l], l);
		RANKS_OK(ferry_experts_start(lab->experts, l, &plan, NULL,
		                             NULL));
	}
	/* Both are full: not now, and nothing moves. */
	plan = lab_one_swap(p[2], 2);
	RANKS_OK(ferry_experts_start(lab->experts, 2, &plan, NULL, NULL));
	RANKS_EQ(lab_stats(lab).staging_in_use, 2);
	for (int32_t l = 0; l < 3; l++)
		RANKS_CHECK(end_and_compare(lab, l, p[l]) == (l < 2));
	/* Its end has told that what the others replaced is free. */
	RANKS_EQ(lab_stats(lab).staging_in_use, 0);
	RANKS_OK(ferry_experts_start(lab->experts, 2, &plan, NULL, NULL));
	RANKS_CHECK(end_and_compare(lab, 2, p[2]));
	RANKS_EQ(lab_stats(lab).n_held_back, 1);
	for (int32_t l = 0; l < 3; l++)
		lab_check(lab, l, ferry_experts_placement(lab->experts, l));
}

static void test_bounded(void **state)
{
	for (int m = 0; m < 2; m++) {
		struct lab_shape shape =
			lab_small(seed, (enum ferry_experts_mode)m);

		shape.n_staging = 2;
		shape.uneven = false;
		lab_run(*state, 2, bounded, &shape);
	}
}

/* Quotas follow the loads, also where no expert moves. */
static void quotas(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	const struct ferry_placement *old =
		ferry_experts_placement(lab->experts, 0);
	struct ferry_plan plan = {.size = sizeof(plan), .hash = 1};
	const struct ferry_placement *next = NULL;
	int64_t loads[13];

	for (int e = 0; e < 13; e++)
		loads[e] = 10 + e;
	RANKS_OK(ferry_experts_start(lab->experts, 0, &plan, loads, NULL));
	RANKS_OK(ferry_experts_commit(lab->experts, 0, NULL, &next, NULL));
	RANKS_EQ(ferry_placement_version(next), 1);
	RANKS_CHECK(ferry_placement_hash(next) != ferry_placement_hash(old));
	lab_check(lab, 0, old);
	lab_check(lab, 0, next);
	/* Rank 1 has foreseen something else. */
	loads[3] += rank->rank == 1;
	RANKS_OK(ferry_experts_start(lab->experts, 0, &plan, loads, NULL));
	RANKS_STATUS(ferry_experts_commit(lab->experts, 0, NULL, NULL, NULL),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "or with different loads");
}

/*
 * Not every commit copies: here quotas change while the version before is in
 * use, and then an expert moves. Its weights must stay.
 */
static void copy_in_older_use(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	struct ferry_experts *x = lab->experts;
	const struct ferry_placement *a = ferry_experts_acquire(x, 0);
	const struct ferry_plan none = {.size = sizeof(none)};
	const int64_t loads[13] = {3, 1};

	RANKS_OK(ferry_experts_start(x, 0, &none, loads, NULL));
	RANKS_OK(ferry_experts_commit(x, 0, NULL, NULL, NULL));
	const struct ferry_placement *b = ferry_experts_placement(x, 0);
	const struct ferry_plan plan = lab_one_swap(b, 0);

	RANKS_CHECK(a != b);
	RANKS_OK(ferry_experts_start(x, 0, &plan, loads, NULL));
	RANKS_STATUS(ferry_experts_commit(x, 0, NULL, NULL, NULL), FERRY_STATE);
	RANKS_TEXT(ferry_last_error(), "version 0 is in use");
	lab_check(lab, 0, a);
	ferry_experts_release(x, 0, a);
	RANKS_OK(ferry_experts_commit(x, 0, NULL, NULL, NULL));
	lab_check(lab, 0, ferry_experts_placement(x, 0));
}

static void test_quotas(void **state)
{
	struct lab_shape shape = lab_small(seed + 12, FERRY_EXPERTS_REMAP);

	shape.split = FERRY_SPLIT_QUOTA;
	lab_run(*state, 3, quotas, &shape);
	shape.mode = FERRY_EXPERTS_COPY;
	lab_run(*state, 3, copy_in_older_use, &shape);
}

/* To placements that no plan leads to. */
static void other_placements(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	struct ferry_experts *x = lab->experts;
	uint64_t rng = lab->shape.seed;
	int32_t n_in = 0, of_all[RANKS_MAX];

	for (int i = 0; i < STEPS; i++) {
		const int32_t layer = i % lab->shape.n_layers;
		const struct ferry_placement *old =
			ferry_experts_placement(x, layer);
		struct ferry_experts_report report = FERRY_EXPERTS_REPORT_INIT;
		struct ferry_placement *to = lab_other(old, &rng);
		const struct ferry_placement *next = NULL;
		const uint64_t version = ferry_placement_version(old);

		RANKS_OK(ferry_experts_start_placement(x, layer, to, NULL));
		lab_check(lab, layer, old);
		RANKS_OK(ferry_experts_commit(x, layer, NULL, &next, &report));
		RANKS_EQ(ferry_placement_hash(next), ferry_placement_hash(to));
		RANKS_EQ(ferry_placement_version(next),
		         version + (next != old));
		lab_check(lab, layer, next);
		n_in += report.n_in;
		ferry_placement_destroy(to);
	}
	/* A rank may have no slots. */
	RANKS_OK(ferry_world_allgather(rank->world, &n_in, of_all,
	                               sizeof(n_in)));
	n_in = 0;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		n_in += of_all[r];
	RANKS_CHECK(n_in > 0);
}

/* Replicas come by a plan and go by themselves: nothing is moved for that. */
static void replicas_go(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	struct ferry_experts *x = lab->experts;
	struct ferry_experts_report report = FERRY_EXPERTS_REPORT_INIT;
	const struct ferry_placement *first = lab->first[0];
	struct ferry_plan plan = {.size = sizeof(plan)};
	uint64_t rng = lab->shape.seed;

	for (int i = 0; i < STEPS; i++) {
		do
			lab_plan(first, 0, &rng, 1, true, 1, &plan);
		while (plan.n_moves < 1 ||
		       plan.moves[0].kind != FERRY_MOVE_COPY);
		RANKS_OK(ferry_experts_start(x, 0, &plan, NULL, NULL));
		RANKS_OK(ferry_experts_commit(x, 0, NULL, NULL, &report));
		RANKS_EQ(report.n_in, plan.moves[0].to_rank == rank->rank);
		lab_check(lab, 0, ferry_experts_placement(x, 0));
		RANKS_OK(ferry_experts_start_placement(x, 0, first, NULL));
		RANKS_OK(ferry_experts_commit(x, 0, NULL, NULL, &report));
		RANKS_EQ(report.n_in + report.n_out, 0);
		lab_check(lab, 0, ferry_experts_placement(x, 0));
	}
}

static void test_placements(void **state)
{
	for (int m = 0; m < 2; m++) {
		struct lab_shape shape =
			lab_small(seed + 14, (enum ferry_experts_mode)m);

		lab_run(*state, 3, replicas_go, &shape);
		shape.n_staging = 16;
		lab_run(*state, 3, other_placements, &shape);
		lab_run(*state, 5, other_placements, &shape);
	}
}

/* With FERRY_TRACE pushes and commits are events. */
static void traced(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	uint64_t rng = lab->shape.seed;
	static _Thread_local char text[1 << 16];
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/tmp/ferry-test-%d-%d.json",
	         (int)getpid(), rank->rank);
	step(lab, 0, &rng, 2);
	RANKS_OK(ferry_trace_write(rank->world, path));
	file = fopen(path, "r");
	RANKS_CHECK(file != NULL);
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	fclose(file);
	remove(path);
	RANKS_TEXT(text, "experts_start");
	RANKS_TEXT(text, "experts_commit");
	RANKS_TEXT(text, "migrate");
}

static void test_traced(void **state)
{
	const struct lab_setting *setting = *state;
	const struct lab_setting with = {
		.fabric = setting->fabric,
		.kind = setting->kind,
		.options = "TRACE=/dev/null",
		.n_gpus = setting->n_gpus,
	};
	struct lab_shape shape = lab_small(seed + 13, FERRY_EXPERTS_REMAP);

	lab_run(&with, 2, traced, &shape);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_random_plans),
	cmocka_unit_test(test_large_experts),
	cmocka_unit_test(test_many_in_flight),
	cmocka_unit_test(test_two_batches),
	cmocka_unit_test(test_stuck),
	cmocka_unit_test(test_copy_in_use),
	cmocka_unit_test(test_bounded),
	cmocka_unit_test(test_quotas),
	cmocka_unit_test(test_placements),
	cmocka_unit_test(test_traced),
};

int main(void)
{
	seed = ranks_seed();
	return lab_main(tests, sizeof(tests) / sizeof(*tests));
}
