/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered experts: ranks that differ in plan, layer, order or end of a
 * plan, plans that do not fit, calls out of place, configurations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "experts_lab.h"

static uint64_t seed;

/* Rank 2 has planned something else. */
static void other_plan(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	const struct ferry_placement *p =
		ferry_experts_placement(lab->experts, 0);
	struct ferry_plan plan = lab_one_swap(p, 0);
	void *address = ferry_experts_tensor(lab->experts, 0, NULL, 0, 0);

	if (rank->rank == 2)
		plan.hash++;
	RANKS_OK(ferry_experts_start(lab->experts, 0, &plan, NULL, NULL));
	RANKS_STATUS(ferry_experts_commit(lab->experts, 0, NULL, NULL, NULL),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "rank 2 has started plan");
	RANKS_TEXT(ferry_last_error(), "experts_commit: layer 0, version 0");
	RANKS_STATUS(ferry_experts_start(lab->experts, 1, &plan, NULL, NULL),
	             FERRY_BROKEN);
	RANKS_STATUS(ferry_experts_abandon(lab->experts, 0), FERRY_BROKEN);
	RANKS_CHECK(ferry_experts_placement(lab->experts, 0) == p);
	RANKS_CHECK(ferry_experts_tensor(lab->experts, 0, p, 0, 0) == address);
	lab_check(lab, 0, p);
}

/* A swap between ranks 0 and `other`. */
static struct ferry_plan swap_with(const struct ferry_placement *placement,
                                   int32_t layer, int32_t other)
{
	struct ferry_plan plan = {.size = sizeof(plan), .layer = layer};
	const struct ferry_move *const move = &plan.moves[0];

	for (uint64_t s = 0; s < 10000; s++) {
		uint64_t rng = s;

		lab_plan(placement, layer, &rng, 1, false, 1, &plan);
		if (plan.n_moves && move->from_rank + move->to_rank == other &&
		    (!move->from_rank || !move->to_rank))
			return plan;
	}
	const bool ranks_swap = false;

	RANKS_CHECK(ranks_swap);
	return plan;
}

/*
 * Rank 1 starts another layer. Ranks that disagree may push into one staging
 * buffer at once, which nobody reads: between ranks 0 and 2 they do, which
 * among threads is what ThreadSanitizer warns of.
 */
static void other_layer(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	const int32_t layer = rank->rank == 1 ? 2 : 0;
	const struct ferry_placement *const p =
		ferry_experts_placement(lab->experts, layer);
	const bool apart = rank->kind == RANKS_THREADS;
	const struct ferry_plan plan =
		swap_with(p, layer, layer || apart ? 1 : 2);

	RANKS_OK(ferry_experts_start(lab->experts, layer, &plan, NULL, NULL));
	RANKS_STATUS(
		ferry_experts_commit(lab->experts, layer, NULL, NULL, NULL),
		FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "rank 1 has started a plan of layer 2, "
	                               "rank 0 one of layer 0");
	lab_check(lab, layer, ferry_experts_placement(lab->experts, layer));
}

/* Rank 1 abandons what the others commit. */
static void other_end(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	const struct ferry_placement *p =
		ferry_experts_placement(lab->experts, 0);
	const struct ferry_plan plan = lab_one_swap(p, 0);
	enum ferry_status status;

	RANKS_OK(ferry_experts_start(lab->experts, 0, &plan, NULL, NULL));
	if (rank->rank == 1)
		status = ferry_experts_abandon(lab->experts, 0);
	else
		status =
			ferry_experts_commit(lab->experts, 0, NULL, NULL, NULL);
	RANKS_STATUS(status, FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "rank 1 abandons the plan of layer 0, "
	                               "rank 0 commits it");
	RANKS_CHECK(ferry_experts_placement(lab->experts, 0) == p);
	lab_check(lab, 0, p);
}

/* Rank 1 starts its second plan before it has ended the first. */
static void other_order(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	struct ferry_experts *x = lab->experts;
	const struct ferry_plan a =
		lab_one_swap(ferry_experts_placement(x, 0), 0);
	const struct ferry_plan b =
		lab_one_swap(ferry_experts_placement(x, 1), 1);

	RANKS_OK(ferry_experts_start(x, 0, &a, NULL, NULL));
	if (rank->rank == 1)
		RANKS_OK(ferry_experts_start(x, 1, &b, NULL, NULL));
	RANKS_OK(ferry_experts_commit(x, 0, NULL, NULL, NULL));
	if (rank->rank != 1)
		RANKS_OK(ferry_experts_start(x, 1, &b, NULL, NULL));
	RANKS_STATUS(ferry_experts_commit(x, 1, NULL, NULL, NULL),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "after different calls, with "
	                               "other moves, or with different loads");
	lab_check(lab, 0, ferry_experts_placement(x, 0));
	lab_check(lab, 1, ferry_experts_placement(x, 1));
}

static void test_mismatch(void **state)
{
	struct lab_shape shape = lab_small(seed + 9, FERRY_EXPERTS_REMAP);

	struct lab_shape even = shape;

	even.uneven = false; /* each rank has more slots than there are empty */
	lab_run(*state, 4, other_plan, &shape);
	lab_run(*state, 3, other_layer, &even);
	lab_run(*state, 3, other_end, &shape);
	lab_run(*state, 3, other_order, &shape);
	shape.mode = FERRY_EXPERTS_COPY;
	lab_run(*state, 4, other_plan, &shape);
}

static void expect_start(struct lab *lab, const struct ferry_plan *plan,
                         enum ferry_status status, const char *text)
{
	RANKS_STATUS(ferry_experts_start(lab->experts, 0, plan, NULL, NULL),
	             status);
	RANKS_TEXT(ferry_last_error(), text);
	RANKS_EQ(lab_stats(lab).n_started, 0);
}

/* Plans that do not fit the placement. */
static void bad_plans(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	const struct ferry_plan good =
		lab_one_swap(ferry_experts_placement(lab->experts, 0), 0);
	struct ferry_plan bad = good;

	bad.size = 8;
	expect_start(lab, &bad, FERRY_INVAL, "size is 8");
	bad = good;
	bad.n_moves = FERRY_PLAN_MOVES + 1;
	expect_start(lab, &bad, FERRY_RANGE, "n_moves is 257");
	bad = good;
	bad.layer = 2;
	expect_start(lab, &bad, FERRY_INVAL, "the plan is for layer 2");
	bad = good;
	bad.moves[0].expert++;
	expect_start(lab, &bad, FERRY_RANGE, "moves[0].expert is");
	bad = good;
	bad.moves[0].other = -1;
	expect_start(lab, &bad, FERRY_RANGE, "moves[0].other is -1");
	bad = good;
	bad.moves[0].to_slot = 1 << 20;
	expect_start(lab, &bad, FERRY_RANGE, "moves[0].to_slot is 1048576");
	bad = good;
	bad.moves[0].to_rank++;
	expect_start(lab, &bad, FERRY_RANGE, "moves[0].to_rank is");
	bad = good;
	bad.moves[0].kind = (enum ferry_move_kind)7;
	expect_start(lab, &bad, FERRY_INVAL, "moves[0].kind is 7");
	bad = good;
	bad.n_moves = 2;
	bad.moves[1] = bad.moves[0];
	expect_start(lab, &bad, FERRY_INVAL, "is changed by an earlier move");
	expect_start(lab, NULL, FERRY_INVAL, "experts_start: plan is NULL");
	RANKS_STATUS(ferry_experts_start_placement(lab->experts, 0, NULL, NULL),
	             FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(),
	           "experts_start_placement: placement is NULL");
}

/* Placements of another shape. */
static void bad_placements(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *other;

	config.n_experts = 13;
	config.n_ranks = 2;
	RANKS_OK(ferry_placement_create(&config, &other));
	RANKS_STATUS(
		ferry_experts_start_placement(lab->experts, 0, other, NULL),
		FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), "3 ranks, the placement on 2");
	ferry_placement_destroy(other);
	config.n_ranks = 3;
	RANKS_OK(ferry_placement_create(&config, &other));
	RANKS_STATUS(
		ferry_experts_start_placement(lab->experts, 0, other, NULL),
		FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), "slots, by the placement");
	ferry_placement_destroy(other);
	config.n_experts = 12;
	RANKS_OK(ferry_placement_create(&config, &other));
	RANKS_STATUS(
		ferry_experts_start_placement(lab->experts, 0, other, NULL),
		FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), "13 experts, the placement 12");
	ferry_placement_destroy(other);
	RANKS_STATUS(ferry_experts_start_placement(lab->experts, 0, NULL, NULL),
	             FERRY_INVAL);
	RANKS_STATUS(
		ferry_experts_start_placement(NULL, 0, lab->first[0], NULL),
		FERRY_INVAL);
	RANKS_EQ(lab_stats(lab).n_started, 0);
}

/* Calls out of place. */
static void bad_calls(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	struct ferry_experts *x = lab->experts;
	const struct ferry_plan plan =
		lab_one_swap(ferry_experts_placement(x, 0), 0);
	struct CUstream_st *stream = (void *)lab;
	struct ferry_experts_stats unsized = {0};
	bool staged;

	RANKS_STATUS(ferry_experts_start(NULL, 0, &plan, NULL, NULL),
	             FERRY_INVAL);
	RANKS_STATUS(ferry_experts_start(x, 3, &plan, NULL, NULL), FERRY_RANGE);
	RANKS_STATUS(ferry_experts_start(x, 0, &plan, NULL, stream),
	             FERRY_INVAL);
	RANKS_STATUS(ferry_experts_commit(x, 0, NULL, NULL, NULL), FERRY_STATE);
	RANKS_STATUS(ferry_experts_commit(x, -1, NULL, NULL, NULL),
	             FERRY_RANGE);
	RANKS_STATUS(ferry_experts_poll(x, 0, &staged), FERRY_STATE);
	RANKS_STATUS(ferry_experts_abandon(x, 0), FERRY_STATE);
	RANKS_STATUS(ferry_experts_abandon(NULL, 0), FERRY_INVAL);
	RANKS_STATUS(ferry_experts_get_stats(x, &unsized), FERRY_INVAL);
	RANKS_STATUS(ferry_experts_get_stats(NULL, &unsized), FERRY_INVAL);
	RANKS_OK(ferry_experts_start(x, 0, &plan, NULL, NULL));
	RANKS_STATUS(ferry_experts_start(x, 0, &plan, NULL, NULL), FERRY_STATE);
	RANKS_TEXT(ferry_last_error(), "layer 0 has a plan");
	RANKS_STATUS(ferry_experts_poll(x, 0, NULL), FERRY_INVAL);
	RANKS_STATUS(ferry_experts_commit(x, 0, stream, NULL, NULL),
	             FERRY_INVAL);
	RANKS_STATUS(ferry_experts_commit(x, 0, NULL, NULL,
	                                  &(struct ferry_experts_report){0}),
	             FERRY_INVAL);
	RANKS_OK(ferry_experts_commit(x, 0, NULL, NULL, NULL));
}

/* Lookups of what is not there. */
static void lookups(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	struct ferry_experts *x = lab->experts;
	const int32_t n = lab->n_own[0];

	RANKS_CHECK(!ferry_experts_placement(x, -1));
	RANKS_CHECK(!ferry_experts_placement(x, 3));
	RANKS_CHECK(!ferry_experts_placement(NULL, 0));
	RANKS_CHECK(!ferry_experts_acquire(NULL, 0));
	RANKS_CHECK(!ferry_experts_acquire(x, 3));
	ferry_experts_release(NULL, 0, NULL);
	ferry_experts_release(x, 0, NULL);
	ferry_experts_release(x, 0, lab->first[0]); /* not acquired */
	RANKS_CHECK(!ferry_experts_tensor(NULL, 0, NULL, 0, 0));
	RANKS_CHECK(!ferry_experts_tensor(x, 0, NULL, n, 0));
	RANKS_CHECK(!ferry_experts_tensor(x, 0, NULL, -1, 0));
	RANKS_CHECK(!ferry_experts_tensor(x, 0, NULL, 0, 4));
	RANKS_CHECK(!ferry_experts_tensor(x, 0, lab->first[1], 0, 0));
	RANKS_CHECK(ferry_experts_tensor(x, 0, lab->first[0], n - 1, 3) ==
	            ferry_experts_tensor(x, 0, NULL, n - 1, 3));
	RANKS_CHECK(lab_stats(lab).segment_bytes > 0);
}

static void test_refusals(void **state)
{
	struct lab_shape shape = lab_small(seed + 10, FERRY_EXPERTS_REMAP);

	lab_run(*state, 3, bad_plans, &shape);
	lab_run(*state, 3, bad_calls, &shape);
	lab_run(*state, 3, bad_placements, &shape);
	shape.uneven = false;
	lab_run(*state, 3, lookups, &shape);
}

/* Opens with one thing changed on one rank. */
static void expect_open(struct rank *rank, const struct lab_shape *shape,
                        enum ferry_status status, const char *text)
{
	struct lab lab;

	lab_make(&lab, rank, shape);
	const enum ferry_status got = lab_try(&lab);

	lab_close(&lab);
	RANKS_STATUS(got, status);
	RANKS_TEXT(ferry_last_error(), text);
}

static void bad_opens(struct rank *rank)
{
	const struct lab_shape *good = rank->arg;
	struct lab_shape bad = *good;

	bad.n_tensors = 0;
	expect_open(rank, &bad, FERRY_INVAL, "n_tensors is 0");
	bad = *good;
	bad.tensor_bytes[1] = 0;
	expect_open(rank, &bad, FERRY_RANGE, "tensor_bytes[1] is 0");
	bad = *good;
	bad.n_staging = -1;
	expect_open(rank, &bad, FERRY_INVAL, "n_staging is -1");
	bad = *good;
	bad.mode = (enum ferry_experts_mode)2;
	expect_open(rank, &bad, FERRY_INVAL, "mode is 2");
	bad = *good;
	bad.n_staging += rank->rank == 1;
	expect_open(rank, &bad, FERRY_MISMATCH,
	            "n_staging is 7 on rank 1, 6 on rank 0");
	bad = *good;
	bad.tensor_bytes[2] += rank->rank == 2;
	expect_open(rank, &bad, FERRY_MISMATCH,
	            "tensor_bytes[2] is 2 on rank 2, 1 on rank 0");
	bad = *good;
	bad.seed += rank->rank == 1;
	expect_open(rank, &bad, FERRY_MISMATCH, "hash of placements[0] is ");
	/* In hexadecimal, as everywhere: "HASH on". */
	const char *const hash = strstr(ferry_last_error(), "[0] is ");

	RANKS_EQ(hash ? (int)strspn(hash + 7, "0123456789abcdef") : 0, 16);
	bad = *good;
	bad.n_layers -= rank->rank == 2;
	expect_open(rank, &bad, FERRY_MISMATCH, "n_layers is 2 on rank 2");
	RANKS_STATUS(ferry_experts_open(rank->world, NULL,
	                                &(struct ferry_experts *){NULL}),
	             FERRY_INVAL);
	RANKS_STATUS(ferry_experts_open(NULL, NULL, NULL), FERRY_INVAL);
	/* And after all that the right one. */
	struct lab *lab = lab_open(rank, good);

	lab_check(lab, 0, lab->first[0]);
}

static void test_bad_opens(void **state)
{
	struct lab_shape shape = lab_small(seed + 11, FERRY_EXPERTS_REMAP);

	lab_run(*state, 3, bad_opens, &shape);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_mismatch),
	cmocka_unit_test(test_refusals),
	cmocka_unit_test(test_bad_opens),
};

int main(void)
{
	seed = ranks_seed();
	return lab_main(tests, sizeof(tests) / sizeof(*tests));
}
