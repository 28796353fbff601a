/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that die in the middle of a push, between staging and commit, or at
 * any put; that stall, abort, or leave: survivors get a clear error with one
 * root, keep placements and weights whole and readable, and can open anew.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/bits.h"
#include "experts_lab.h"

enum { STEPS = 30, SHORT_MS = 800, N_RANKS = 4, SHARED_BYTES = 4096 };

static uint64_t seed;

/* What survivors compare. */
struct board {
	uint64_t versions[RANKS_MAX];
	int32_t roots[RANKS_MAX];
};

struct course {
	struct lab_shape shape;
	int32_t root;
	enum ferry_status status;
	bool same_version; /* death cannot come while a rank is telling */
	bool stalls;       /* the root lives, and is late */
};

static void run(const struct lab_setting *setting, int32_t n_ranks,
                const char *fault, uint64_t killed, ranks_body *body,
                const struct course *course)
{
	void *shared;
	char options[200];
	struct ranks how = {
		.kind = setting->kind,
		.n_ranks = n_ranks,
		.device =
			setting->n_gpus ? FERRY_DEVICE_CUDA : FERRY_DEVICE_CPU,
		.n_gpus = setting->n_gpus,
		.fabric = setting->fabric,
		.options = options,
		.killed = killed,
		.timeout_ms = course->stalls ? SHORT_MS : 0,
		.arg = (void *)(uintptr_t)course,
		.shared_bytes = SHARED_BYTES,
		.shared = &shared,
	};

	snprintf(options, sizeof(options), "%s;FAULT=%s", setting->options,
	         fault);
	ranks_run(&how, body);
	ranks_free_shared(&how);
}

/* A swap of experts of ranks 0 and 1. */
static void make_swap(const struct lab *lab, uint64_t *rng,
                      struct ferry_plan *plan)
{
	const struct ferry_placement *p =
		ferry_experts_placement(lab->experts, 0);

	do
		lab_plan(p, 0, rng, 1, false, 1, plan);
	while (plan->n_moves < 1 ||
	       plan->moves[0].from_rank + plan->moves[0].to_rank != 1);
}

/* Swaps until something fails. */
static enum ferry_status go_on(struct lab *lab, int n_steps)
{
	enum ferry_status status = FERRY_OK;
	uint64_t rng = lab->shape.seed;
	struct ferry_plan plan;

	for (int i = 0; status == FERRY_OK && i < n_steps; i++) {
		make_swap(lab, &rng, &plan);
		status =
			ferry_experts_start(lab->experts, 0, &plan, NULL, NULL);
		if (status == FERRY_OK)
			status = ferry_experts_commit(lab->experts, 0, NULL,
			                              NULL, NULL);
		lab_check(lab, 0, ferry_experts_placement(lab->experts, 0));
	}
	return status;
}

/* What a survivor finds. */
static void expect_end(struct lab *lab, enum ferry_status got)
{
	const struct course *course = lab->rank->arg;
	struct board *board = lab->rank->shared;
	struct ferry_error error = FERRY_ERROR_INIT;
	const struct ferry_placement *p =
		ferry_experts_placement(lab->experts, 0);
	const struct ferry_plan none = {.size = sizeof(none)};
	char name[32];

	snprintf(name, sizeof(name), "rank %d", course->root);
	/* The call that was in time for its plan is followed by this. */
	if (got != FERRY_BROKEN)
		RANKS_STATUS(got, course->status);
	RANKS_TEXT(ferry_last_error(), "experts_");
	RANKS_TEXT(ferry_last_error(), name);
	RANKS_STATUS(ferry_world_poll(lab->rank->world, &error),
	             course->status);
	RANKS_EQ(error.root_rank, course->root);
	RANKS_STATUS(ferry_experts_start(lab->experts, 1, &none, NULL, NULL),
	             FERRY_BROKEN);
	RANKS_STATUS(ferry_experts_commit(lab->experts, 0, NULL, NULL, NULL),
	             FERRY_BROKEN);
	board->versions[lab->rank->rank] = ferry_placement_version(p);
	for (int32_t l = 0; l < lab->shape.n_layers; l++)
		lab_check(lab, l, ferry_experts_placement(lab->experts, l));
}

/* Nobody is more than one version ahead, and then only where it may be. */
static void compare_versions(struct rank *rank)
{
	const struct course *course = rank->arg;
	const struct board *board = rank->shared;
	uint64_t least = UINT64_MAX, most = 0;

	ranks_meet(0, rank->n_ranks - 1);
	for (int32_t r = 0; r < rank->n_ranks; r++) {
		if (r == course->root)
			continue;
		least = board->versions[r] < least ? board->versions[r] : least;
		most = board->versions[r] > most ? board->versions[r] : most;
	}
	RANKS_CHECK(most - least <= !course->same_version);
}

static void killed(struct rank *rank)
{
	const struct course *course = rank->arg;
	struct lab *lab = lab_open(rank, &course->shape);

	const enum ferry_status status = go_on(lab, STEPS);

	if (rank->rank == course->root)
		ranks_die(); /* a thread is only told that it is dead */
	expect_end(lab, status);
	compare_versions(rank);
}

static struct course course_of(enum ferry_experts_mode mode)
{
	struct course course = {
		.shape = lab_small(seed, mode),
		.root = 1,
		.status = FERRY_PEER,
	};

	course.shape.uneven = false;
	course.shape.spare = 0; /* each rank has experts to swap */
	/* Three pieces on wire. */
	course.shape.tensor_bytes[0] = 20000;
	return course;
}

/* Puts of one expert. */
static int pieces(const struct lab_setting *setting,
                  const struct lab_shape *shape)
{
	const size_t piece = strstr(setting->fabric, "wire") ? 8192 : 1 << 20;
	int n = 0;
	size_t at = 0;

	for (int32_t t = 0; t < shape->n_tensors; t++) {
		n += (int)div_up((int64_t)shape->tensor_bytes[t],
		                 (int64_t)piece);
		at = round_up(at, 256) + shape->tensor_bytes[t];
	}
	if (shape->mode == FERRY_EXPERTS_COPY)
		return n;
	return (int)div_up((int64_t)at, (int64_t)piece);
}

/*
 * Rank 1 dies at put i of step 7: those of its expert come first, then to all
 * that it has staged, then to all that it commits. Up to the first of these
 * nobody can have committed.
 */
static void test_killed_in_push(void **state)
{
	for (int m = 0; m < 2; m++) {
		struct course course = course_of((enum ferry_experts_mode)m);
		const int n = pieces(*state, &course.shape);

		course.same_version = true;
		for (int i = (int)(seed % RANKS_STRIDE); i <= n + N_RANKS;
		     i += RANKS_STRIDE) {
			char fault[64];

			snprintf(fault, sizeof(fault), "kill:rank=1,after=%d",
			         7 * (n + 2 * N_RANKS) + i);
			run(*state, N_RANKS, fault, RANKS_BIT(1), killed,
			    &course);
		}
	}
}

/* And while it tells that it commits. */
static void test_killed_telling(void **state)
{
	struct course course = course_of(FERRY_EXPERTS_REMAP);
	const int n = pieces(*state, &course.shape);

	for (int i = 1; i < N_RANKS; i++) {
		char fault[64];

		snprintf(fault, sizeof(fault), "kill:rank=1,after=%d",
		         5 * (n + 2 * N_RANKS) + n + N_RANKS + i);
		run(*state, N_RANKS, fault, RANKS_BIT(1), killed, &course);
	}
}

/*
 * Rank 3 is held up while it tells: 0 and 1 have heard it and are done, 1 dies
 * in its next plan, 0 notices that, and 2 still waits for 3. All must be done.
 */
static void test_killed_ahead(void **state)
{
	struct course course = course_of(FERRY_EXPERTS_REMAP);
	const int n = pieces(*state, &course.shape);
	const int told = 2 * N_RANKS; /* puts of a step that are records */

	course.same_version = true;
	for (int i = 2; i < N_RANKS; i++) {
		char fault[96];

		snprintf(fault, sizeof(fault),
		         "kill:rank=1,after=%d stall:rank=3,ms=80,after=%d",
		         4 * (n + told), 3 * told + N_RANKS + i);
		run(*state, N_RANKS, fault, RANKS_BIT(1), killed, &course);
	}
}

static void test_killed_anywhere(void **state)
{
	uint64_t rng = seed;

	for (int i = 0; i < 6; i++) {
		struct course course =
			course_of((enum ferry_experts_mode)(i % 2));
		const int32_t n_ranks = 3 + (int32_t)(rng_next(&rng) % 3);
		char fault[64];

		course.root = (int32_t)(rng_next(&rng) % (uint64_t)n_ranks);
		snprintf(fault, sizeof(fault), "kill:rank=%d,after=%d",
		         course.root, (int)(rng_next(&rng) % 80));
		run(*state, n_ranks, fault, RANKS_BIT(course.root), killed,
		    &course);
	}
}

static void sleep_ms(int64_t ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Rank 1 has staged, and dies before anybody commits. */
static void dies_staged(struct rank *rank)
{
	const struct course *course = rank->arg;
	struct lab *lab = lab_open(rank, &course->shape);
	const struct ferry_placement *old =
		ferry_experts_placement(lab->experts, 0);
	struct ferry_plan plan;
	uint64_t rng = seed;
	bool staged = false;

	RANKS_OK(go_on(lab, 3));
	old = ferry_experts_placement(lab->experts, 0);
	make_swap(lab, &rng, &plan);
	RANKS_OK(ferry_experts_start(lab->experts, 0, &plan, NULL, NULL));
	while (!staged)
		RANKS_OK(ferry_experts_poll(lab->experts, 0, &staged));
	ranks_meet(1, rank->n_ranks);
	if (rank->rank == 1)
		ranks_die();
	expect_end(lab,
	           ferry_experts_commit(lab->experts, 0, NULL, NULL, NULL));
	RANKS_CHECK(ferry_experts_placement(lab->experts, 0) == old);
	lab_check(lab, 0, old);
	compare_versions(rank);
}

static void test_dies_staged(void **state)
{
	for (int m = 0; m < 2; m++) {
		struct course course = course_of((enum ferry_experts_mode)m);

		course.same_version = true;
		run(*state, 3, "", RANKS_BIT(1), dies_staged, &course);
	}
}

/* Rank 1 stalls in the middle of its push: the others give up, and name it. */
static void stalled(struct rank *rank)
{
	const struct course *course = rank->arg;
	struct lab *lab = lab_open(rank, &course->shape);
	const enum ferry_status status = go_on(lab, STEPS);

	if (rank->rank != 1)
		expect_end(lab, status);
	else
		RANKS_STATUS(status, FERRY_TIMEOUT);
	lab_check(lab, 0, ferry_experts_placement(lab->experts, 0));
}

static void test_stalled(void **state)
{
	struct course course = course_of(FERRY_EXPERTS_REMAP);
	const int n = pieces(*state, &course.shape);
	char fault[64];

	course.status = FERRY_TIMEOUT;
	course.stalls = true;
	snprintf(fault, sizeof(fault), "stall:rank=1,ms=3000,after=%d",
	         4 * (n + 2 * N_RANKS) + n);
	run(*state, N_RANKS, fault, 0, stalled, &course);
}

/*
 * A short stall is only exposed time: nearly all of it to who is on time, and
 * some to who is late as well.
 */
static void late(struct rank *rank)
{
	const struct course *course = rank->arg;
	struct lab *lab = lab_open(rank, &course->shape);

	RANKS_OK(go_on(lab, 6));
	if (rank->rank != 1)
		RANKS_CHECK(lab_stats(lab).exposed_ns > 50000000);
}

static void test_late(void **state)
{
	struct course course = course_of(FERRY_EXPERTS_REMAP);

	run(*state, 3, "stall:rank=1,ms=400,after=10", 0, late, &course);
}

static void aborted(struct rank *rank)
{
	const struct course *course = rank->arg;
	struct lab *lab = lab_open(rank, &course->shape);
	struct ferry_plan plan;
	uint64_t rng = seed;

	RANKS_OK(go_on(lab, 2));
	ranks_meet(0, rank->n_ranks); /* nobody is still in the step before */
	make_swap(lab, &rng, &plan);
	if (rank->rank == 2) {
		sleep_ms(30);
		ferry_world_abort(rank->world);
		return;
	}
	enum ferry_status status =
		ferry_experts_start(lab->experts, 0, &plan, NULL, NULL);

	if (status == FERRY_OK)
		status =
			ferry_experts_commit(lab->experts, 0, NULL, NULL, NULL);
	expect_end(lab, status);
}

static void test_aborted(void **state)
{
	struct course course = course_of(FERRY_EXPERTS_REMAP);

	course.status = FERRY_ABORTED;
	course.root = 2;
	run(*state, 3, "", 0, aborted, &course);
}

/* Rank 2 closes in good order; who needs it learns that at once. */
static void leaves(struct rank *rank)
{
	const struct course *course = rank->arg;
	struct lab *lab = lab_open(rank, &course->shape);

	RANKS_OK(go_on(lab, 3));
	if (rank->rank == 2) {
		lab_close(lab);
		return;
	}
	expect_end(lab, go_on(lab, 1));
}

static void test_leaves(void **state)
{
	struct course course = course_of(FERRY_EXPERTS_REMAP);

	course.root = 2;
	run(*state, 3, "", 0, leaves, &course);
}

/* Who is done earlier than the others harms nobody: it said good-bye. */
static void ends(struct rank *rank)
{
	const struct course *course = rank->arg;
	struct lab *lab = lab_open(rank, &course->shape);

	RANKS_OK(go_on(lab, 4));
	lab_close(lab);
}

static void test_ends(void **state)
{
	struct course course = course_of(FERRY_EXPERTS_COPY);

	for (int i = 0; i < 5; i++)
		run(*state, 4, "", 0, ends, &course);
}

/* Close with plans in flight, and open again in the same world. */
static void reopens(struct rank *rank)
{
	const struct course *course = rank->arg;

	for (int i = 0; i < 4; i++) {
		struct lab *lab = lab_open(rank, &course->shape);
		struct ferry_plan plan;
		uint64_t rng = seed + (uint64_t)i;

		RANKS_OK(go_on(lab, i));
		make_swap(lab, &rng, &plan);
		RANKS_OK(ferry_experts_start(lab->experts, 0, &plan, NULL,
		                             NULL));
		lab_close(lab);
		RANKS_OK(ferry_world_barrier(rank->world));
	}
}

static void test_reopens(void **state)
{
	for (int m = 0; m < 2; m++) {
		struct course course = course_of((enum ferry_experts_mode)m);

		run(*state, 3, "", 0, reopens, &course);
	}
}

/* A team that survivors open anew, in memory that all threads share. */
struct anew {
	struct board board;
	struct ferry_team *team;
};

_Static_assert(sizeof(struct anew) <= SHARED_BYTES, "it fits");

static struct ferry_experts *open_anew(struct ferry_world *world,
                                       const struct lab *lab,
                                       struct ferry_placement **placement)
{
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_experts_config c = FERRY_EXPERTS_CONFIG_INIT;
	struct ferry_experts *x;

	config.n_experts = lab->shape.n_experts;
	config.n_ranks = ferry_world_size(world);
	RANKS_OK(ferry_placement_create(&config, placement));
	c.n_layers = 1;
	c.placements = (const struct ferry_placement *const *)placement;
	c.n_tensors = lab->shape.n_tensors;
	c.tensor_bytes = lab->shape.tensor_bytes;
	RANKS_OK(ferry_experts_open(world, &c, &x));
	return x;
}

/* Copies an expert out of the broken pool if it is there. */
static void rescue(const struct lab *lab, struct ferry_experts *to,
                   int32_t expert, int32_t own_slot)
{
	const struct ferry_placement *p =
		ferry_experts_placement(lab->experts, 0);
	int32_t own = 0;

	for (int32_t s = 0; s < ferry_placement_n_slots(p); s++) {
		if (ferry_placement_rank(p, s) != lab->rank->rank)
			continue;
		if (ferry_placement_expert(p, s) != expert) {
			own++;
			continue;
		}
		for (int32_t t = 0; t < lab->shape.n_tensors; t++)
			memcpy(ferry_experts_tensor(to, 0, NULL, own_slot, t),
			       ferry_experts_tensor(lab->experts, 0, NULL, own,
			                            t),
			       lab->shape.tensor_bytes[t]);
		for (size_t at = 0; at < lab->shape.tensor_bytes[0]; at++)
			RANKS_EQ(((unsigned char *)ferry_experts_tensor(
					 to, 0, NULL, own_slot, 0))[at],
			         lab_byte(lab, 0, expert, 0, at));
		return;
	}
}

/* After a death: a smaller world, and weights from the old one's pool. */
static void goes_on(struct rank *rank)
{
	const struct course *course = rank->arg;
	struct lab *lab = lab_open(rank, &course->shape);
	struct anew *anew = rank->shared;
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	const enum ferry_status status = go_on(lab, STEPS);
	struct ferry_placement *placement;
	struct ferry_world *world;

	if (rank->rank == course->root)
		ranks_die();
	expect_end(lab, status);
	if (rank->rank == 0)
		RANKS_OK(ferry_team_create(rank->n_ranks - 1, &anew->team));
	ranks_meet(2, rank->n_ranks - 1);
	config.team = anew->team;
	config.rank = rank->rank - (rank->rank > course->root);
	config.fabric = "local";
	RANKS_OK(ferry_world_open(&config, &world));
	struct ferry_experts *x = open_anew(world, lab, &placement);

	for (int32_t s = 0, own = 0; s < lab->shape.n_experts; s++)
		if (ferry_placement_rank(placement, s) == config.rank)
			rescue(lab, x, s, own++);
	const struct ferry_plan none = {.size = sizeof(none)};

	RANKS_OK(ferry_experts_start(x, 0, &none, NULL, NULL));
	RANKS_OK(ferry_experts_commit(x, 0, NULL, NULL, NULL));
	ferry_experts_close(x);
	ferry_placement_destroy(placement);
	ferry_world_close(world);
	ranks_meet(3, rank->n_ranks - 1);
	if (rank->rank == 0)
		ferry_team_destroy(anew->team);
}

static void test_goes_on(void **state)
{
	const struct lab_setting *setting = *state;
	struct course course = course_of(FERRY_EXPERTS_REMAP);

	if (strcmp(setting->name, "local"))
		skip();
	run(*state, 3, "kill:rank=1,after=30", RANKS_BIT(1), goes_on, &course);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_killed_in_push),
	cmocka_unit_test(test_killed_telling),
	cmocka_unit_test(test_killed_ahead),
	cmocka_unit_test(test_killed_anywhere),
	cmocka_unit_test(test_dies_staged),
	cmocka_unit_test(test_stalled),
	cmocka_unit_test(test_late),
	cmocka_unit_test(test_aborted),
	cmocka_unit_test(test_leaves),
	cmocka_unit_test(test_ends),
	cmocka_unit_test(test_reopens),
	cmocka_unit_test(test_goes_on),
};

enum { N_TESTS = sizeof(tests) / sizeof(*tests) };

int main(void)
{
	struct CMUnitTest runs[N_TESTS];
	int failed = 0;

	seed = ranks_seed();
	for (const struct lab_setting *s = lab_settings; s->name; s++) {
		if (strstr(s->options, "FAULT") || !ranks_worth(s->kind))
			continue;
		for (int i = 0; i < N_TESTS; i++) {
			runs[i] = tests[i];
			runs[i].initial_state = (void *)(uintptr_t)s;
		}
		failed += _cmocka_run_group_tests(s->name, runs, N_TESTS, NULL,
		                                  NULL);
	}
	return failed;
}
