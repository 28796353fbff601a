/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds on fabric nvshmem, on the pretended modules of fake_nvshmem.c: which
 * are refused and why, one after the other, two at a time, without room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/fabric.h>

#include "ranks.h"

#define MODULE(name) "NVSHMEM_MODULE=" FAKE_FOLDER "/" name ".so"

/* A refusal; NULL text: it opens. */
struct plan {
	const char *options;
	enum ferry_status status;
	const char *text;
};

static struct ranks ranks_of(const struct plan *plan, int32_t n_ranks)
{
	return (struct ranks){
		.kind = RANKS_PROCESSES,
		.n_ranks = n_ranks,
		.device = FERRY_DEVICE_CUDA,
		.n_gpus = 2,
		.fabric = "nvshmem",
		.options = plan->options,
		.open_may_fail = true,
		.arg = (void *)(uintptr_t)plan,
	};
}

static void is_refused(struct rank *rank)
{
	const struct plan *plan = rank->arg;

	RANKS_STATUS(rank->open_status, plan->status);
	RANKS_TEXT(ferry_last_error(), plan->text);
}

static void test_refused(void **state)
{
	static const struct plan plans[] = {
		{"NVSHMEM_MODULE=/nowhere/at_all.so", FERRY_UNSUPPORTED,
	         "nvshmem: /nowhere/at_all.so: cannot open shared object"},
		{"NVSHMEM_LIBRARY=/nowhere/host.so;" MODULE("fake_nvshmem"),
	         FERRY_UNSUPPORTED,
	         "nvshmem: /nowhere/host.so: cannot open shared object"},
		{MODULE("fake_nvshmem_entry"), FERRY_UNSUPPORTED,
	         "no function ferry_nvshmem_module"},
		{MODULE("fake_nvshmem_size"), FERRY_UNSUPPORTED,
	         "libferry_nvshmem.so is of another ferry"},
		{MODULE("fake_nvshmem_version"), FERRY_UNSUPPORTED,
	         "libferry_nvshmem.so is of another ferry"},
		{MODULE("fake_nvshmem_minor"), FERRY_UNSUPPORTED,
	         "NVSHMEM 3.3.5 is loaded, the module was built with 3.4.5: "
	         "allowed are 3.4 and later of 3"},
		{MODULE("fake_nvshmem_major"), FERRY_UNSUPPORTED,
	         "NVSHMEM 4.4.5 is loaded, the module was built with 3.4.5"},
		{MODULE("fake_nvshmem") ";NVSHMEM_DIRECT=maybe", FERRY_INVAL,
	         "NVSHMEM_DIRECT"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(plans) / sizeof(*plans); i++) {
		const struct ranks how = ranks_of(&plans[i], 2);

		ranks_run(&how, is_refused);
	}
}

static void test_threads_are_refused(void **state)
{
	const struct plan plan = {MODULE("fake_nvshmem"), FERRY_UNSUPPORTED,
	                          "ranks must be processes, and ranks 0 and 1 "
	                          "are threads of one"};
	struct ranks how = ranks_of(&plan, 2);

	(void)state;
	how.kind = RANKS_THREADS;
	ranks_run(&how, is_refused);
}

static void other_options(const struct rank *rank,
                          struct ferry_world_config *config)
{
	if (rank->rank == 1)
		config->options = MODULE("fake_nvshmem") ";NVSHMEM_DIRECT=off";
}

static void test_ranks_must_agree(void **state)
{
	const struct plan plan = {MODULE("fake_nvshmem"), FERRY_MISMATCH,
	                          "nvshmem: NVSHMEM_DIRECT is off on rank 1 "
	                          "and auto on rank 0"};
	struct ranks how = ranks_of(&plan, 3);

	(void)state;
	how.configure = other_options;
	ranks_run(&how, is_refused);
}

static struct ferry_world *open_world(enum ferry_status status)
{
	struct ferry_world_config config;
	struct ferry_world *world = NULL;

	ranks_config(&config);
	RANKS_STATUS(ferry_world_open(&config, &world), status);
	return world;
}

/* A signal to the next rank and back. */
static void use(struct ferry_world *world)
{
	struct ferry_segment *s = NULL;
	const int32_t n = ferry_world_size(world);
	const int32_t next = (ferry_world_rank(world) + 1) % n;

	RANKS_OK(ferry_segment_open(world, 5000, 1, &s));
	RANKS_OK(ferry_segment_put(s, next, 100, ferry_segment_base(s), 50, 0));
	RANKS_OK(ferry_segment_kick(s));
	RANKS_OK(ferry_segment_wait(s, 0, 1));
	ferry_segment_close(s);
}

static void one_after_the_other(struct rank *rank)
{
	(void)rank;
	for (int i = 0; i < 3; i++) {
		struct ferry_world *world = open_world(FERRY_OK);

		use(world);
		ferry_world_close(world);
	}
}

static void two_at_a_time(struct rank *rank)
{
	struct ferry_world *world = open_world(FERRY_OK);

	(void)rank;
	RANKS_CHECK(!open_world(FERRY_UNSUPPORTED));
	RANKS_TEXT(ferry_last_error(), "NVSHMEM is already open");
	use(world);
	ferry_world_close(world);
}

/* NVSHMEM is left where ranks have failed, and so there is no second one. */
static void after_a_failure(struct rank *rank)
{
	struct ferry_world *world = open_world(FERRY_OK);

	RANKS_OK(ferry_world_barrier(world));
	if (rank->rank == 0)
		ferry_world_abort(world);
	ferry_world_close(world);
	RANKS_CHECK(!open_world(FERRY_UNSUPPORTED));
	RANKS_TEXT(ferry_last_error(), "NVSHMEM is already open");
}

static void test_many_worlds(void **state)
{
	ranks_body *const bodies[] = {one_after_the_other, two_at_a_time,
	                              after_a_failure};
	const struct plan plan = {MODULE("fake_nvshmem"), FERRY_OK, NULL};
	struct ranks how = ranks_of(&plan, 3);

	(void)state;
	how.no_world = true;
	for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++)
		ranks_run(&how, bodies[i]);
}

static void no_room(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	RANKS_STATUS(ferry_segment_open(rank->world, 200000, 1, &s),
	             FERRY_NOMEM);
	RANKS_TEXT(ferry_last_error(), "nvshmem: a block of 200704 bytes");
	use(rank->world);
}

/* What only some could allocate can never be freed: that is the end. */
static void no_room_for_one(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	use(rank->world);
	RANKS_STATUS(ferry_segment_open(rank->world, 200000, 1, &s),
	             FERRY_NOMEM);
	RANKS_TEXT(ferry_last_error(),
	           rank->rank == 1 ? "nvshmem: a block of 200704 bytes"
	                           : "1 of 3 ranks have no block");
	RANKS_STATUS(ferry_segment_open(rank->world, 5000, 1, &s),
	             FERRY_FABRIC);
	RANKS_TEXT(ferry_last_error(), "heaps of the ranks differ");
}

static void test_no_room(void **state)
{
	const struct plan all = {MODULE("fake_nvshmem_room"), FERRY_OK, NULL};
	const struct plan one = {MODULE("fake_nvshmem_room_one"), FERRY_OK,
	                         NULL};
	const struct ranks for_all = ranks_of(&all, 3);
	const struct ranks for_one = ranks_of(&one, 3);

	(void)state;
	ranks_run(&for_all, no_room);
	ranks_run(&for_one, no_room_for_one);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_threads_are_refused),
		cmocka_unit_test(test_ranks_must_agree),
		cmocka_unit_test(test_many_worlds),
		cmocka_unit_test(test_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
