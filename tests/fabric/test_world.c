/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds: what is compared at open, which fabric is chosen and why not, and
 * what barrier, allgather and poll refuse.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <ferry/fabric.h>

#include "core/clock.h"
#include "fabric/place.h"
#include "ranks.h"

static void test_fabrics(void **state)
{
	static const char *const names[] = {
		"p2p", "nvshmem", "local",    "shm",      "shm+ofi",
		"ofi", "wire",    "shm+wire", "p2p+wire", "p2p+ofi"};
	const int n = sizeof(names) / sizeof(*names);
	struct ferry_fabric_info info = FERRY_FABRIC_INFO_INIT;
	int score = 1000;

	(void)state;
	for (int i = 0; i < n; i++) {
		assert_true(ferry_fabric_get(i, &info));
		assert_string_equal(info.name, names[i]);
		assert_true(strlen(info.summary) && strlen(info.reason));
		/* Not every machine has a GPU, nor libfabric. */
		if (i < 2 || i == 4 || i == 5 || i > 7)
			continue;
		assert_true(info.score > 0 && info.score <= score);
		score = info.score;
	}
	assert_false(ferry_fabric_get(n, &info));
	assert_false(ferry_fabric_get(-1, &info));
	assert_false(ferry_fabric_get(1000, &info));
	info.size = 0;
	assert_false(ferry_fabric_get(0, &info));
}

static void test_world_of_one(void **state)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_error error = FERRY_ERROR_INIT;
	struct ferry_world *world = NULL;
	int64_t in = 7, out = 0;

	(void)state;
	assert_int_equal(ferry_world_open(NULL, &world), FERRY_OK);
	assert_string_equal(ferry_world_fabric(world), "local");
	ferry_world_close(world);
	config.fabric = "wire";
	assert_int_equal(ferry_world_open(&config, &world), FERRY_OK);
	assert_string_equal(ferry_world_fabric(world), "wire");
	assert_int_equal(ferry_world_rank(world), 0);
	assert_int_equal(ferry_world_size(world), 1);
	assert_int_equal(ferry_world_nodes(world), 1);
	assert_int_equal(ferry_world_barrier(world), FERRY_OK);
	assert_int_equal(ferry_world_allgather(world, &in, &out, sizeof(in)),
	                 FERRY_OK);
	assert_int_equal(out, 7);
	assert_int_equal(ferry_world_poll(world, &error), FERRY_OK);
	assert_int_equal(error.root_rank, -1);
	ferry_world_close(world);
}

/* A world that is closed too early lasts as long as what it holds. */
static void test_closed_before_its_segments(void **state)
{
	static const char *const fabrics[] = {"local", "shm", "wire"};
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_segment *first = NULL, *second = NULL;
	struct ferry_world *world = NULL;

	(void)state;
	for (int i = 0; i < 3; i++) {
		config.fabric = fabrics[i];
		assert_int_equal(ferry_world_open(&config, &world), FERRY_OK);
		assert_int_equal(ferry_segment_open(world, 64, 1, &first),
		                 FERRY_OK);
		assert_int_equal(ferry_segment_open(world, 64, 1, &second),
		                 FERRY_OK);
		ferry_world_close(world);
		assert_int_equal(ferry_segment_signal(first, 0, 0), FERRY_OK);
		assert_int_equal(ferry_segment_wait(first, 0, 1), FERRY_OK);
		ferry_segment_close(first);
		assert_int_equal(ferry_segment_signal(second, 0, 0), FERRY_OK);
		assert_int_equal(ferry_segment_wait(second, 0, 1), FERRY_OK);
		ferry_segment_close(second);
	}
}

static void test_nulls(void **state)
{
	struct ferry_world *world = NULL;
	int64_t word = 0;

	(void)state;
	assert_int_equal(ferry_world_open(NULL, NULL), FERRY_INVAL);
	assert_string_equal(ferry_last_error(), "world_open: world is NULL");
	assert_int_equal(ferry_world_poll(NULL, NULL), FERRY_INVAL);
	assert_int_equal(ferry_world_barrier(NULL), FERRY_INVAL);
	assert_int_equal(ferry_world_allgather(NULL, &word, &word, 8),
	                 FERRY_INVAL);
	ferry_world_abort(NULL);
	ferry_world_close(NULL);
	assert_int_equal(ferry_world_rank(NULL), -1);
	assert_int_equal(ferry_world_size(NULL), 0);
	assert_int_equal(ferry_world_nodes(NULL), 0);
	assert_string_equal(ferry_world_fabric(NULL), "");
	assert_int_equal(ferry_world_open(NULL, &world), FERRY_OK);
	assert_int_equal(ferry_world_allgather(world, NULL, &word, 8),
	                 FERRY_INVAL);
	assert_string_equal(ferry_last_error(), "world_allgather: in is NULL");
	assert_int_equal(ferry_world_allgather(world, &word, NULL, 8),
	                 FERRY_INVAL);
	assert_string_equal(ferry_last_error(), "world_allgather: out is NULL");
	assert_int_equal(ferry_world_allgather(world, &word, &word, 0),
	                 FERRY_INVAL);
	assert_string_equal(
		ferry_last_error(),
		"world_allgather: bytes is 0, allowed are 1..1048576");
	assert_int_equal(ferry_world_allgather(world, &word, &word, 1048577),
	                 FERRY_INVAL);
	ferry_world_close(world);
}

static void expect_refusal(const char *fabric, const char *options,
                           enum ferry_status status, const char *text)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world = NULL;

	config.fabric = fabric;
	config.options = options;
	assert_int_equal(ferry_world_open(&config, &world), status);
	if (!strstr(ferry_last_error(), text))
		fail_msg("'%s' does not contain '%s'", ferry_last_error(),
		         text);
	assert_null(world);
}

static void test_bad_names(void **state)
{
	(void)state;
	expect_refusal(
		"ucx", NULL, FERRY_INVAL,
		"fabric 'ucx' is not known, allowed are auto, p2p, nvshmem, "
		"local, shm, shm+ofi, ofi, wire, shm+wire, p2p+wire, p2p+ofi, "
		"with trace: or fault: before them");
	expect_refusal("trace", NULL, FERRY_INVAL, "fabric 'trace'");
	expect_refusal("trac:shm", NULL, FERRY_INVAL, "fabric 'trac'");
	expect_refusal("fault:nothing", NULL, FERRY_INVAL, "fabric 'nothing'");
	expect_refusal(NULL, "FAULT=kill:rank=1", FERRY_INVAL,
	               "allowed are ranks 0..0");
	expect_refusal("trace:shm", "FAULT=explode", FERRY_INVAL,
	               "fault: 'explode', allowed is kill:rank=R");
}

static void wrapped_names(struct rank *rank)
{
	RANKS_EQ(strcmp(ferry_world_fabric(rank->world), rank->arg), 0);
}

static void run_wrapped(const char *fabric, const char *options, char *name)
{
	const struct ranks how = {
		.n_ranks = 2,
		.fabric = fabric,
		.options = options,
		.arg = name,
	};

	ranks_run(&how, wrapped_names);
}

static void test_wrapped_names(void **state)
{
	char local[] = "local", trace[] = "trace:local", fault[] = "fault:shm",
	     both[] = "trace:fault:wire", implied[] = "fault:trace:local";

	(void)state;
	run_wrapped(NULL, NULL, local);
	run_wrapped("auto", NULL, local);
	run_wrapped("trace:auto", NULL, trace);
	run_wrapped("shm", "FAULT=reorder", fault);
	run_wrapped("trace:fault:wire", "FAULT=reorder", both);
	run_wrapped("trace:local", "FAULT=reorder", implied);
}

/* One rank uses another fabric: all are told which. */
static void other_fabric(const struct rank *rank,
                         struct ferry_world_config *config)
{
	config->fabric = rank->rank == 2 ? "wire" : "shm";
}

static void fabrics_differ(struct rank *rank)
{
	RANKS_STATUS(rank->open_status, FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(),
	           "rank 2 uses fabric wire, rank 0 uses shm");
}

static void test_fabrics_differ(void **state)
{
	const struct ranks how = {
		.n_ranks = 3,
		.configure = other_fabric,
		.open_may_fail = true,
	};

	(void)state;
	ranks_run(&how, fabrics_differ);
}

/* The fabric of one rank cannot be had: all are told why. */
static void unknown_fabric(const struct rank *rank,
                           struct ferry_world_config *config)
{
	config->fabric = rank->rank == 1 ? "carrier-pigeon" : NULL;
}

static void one_fails(struct rank *rank)
{
	RANKS_STATUS(rank->open_status, FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), "fabric 'carrier-pigeon' is not known");
	if (rank->rank != 1)
		RANKS_TEXT(ferry_last_error(), "rank 1: ");
}

static void test_one_fails(void **state)
{
	const struct ranks how = {
		.n_ranks = 3,
		.configure = unknown_fabric,
		.open_may_fail = true,
	};

	(void)state;
	ranks_run(&how, one_fails);
}

static void not_local(struct rank *rank)
{
	RANKS_STATUS(rank->open_status, FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(),
	           "fabric local: ranks are not threads of one team");
}

static void test_not_local(void **state)
{
	const struct ranks how = {
		.n_ranks = 2,
		.kind = RANKS_PROCESSES,
		.fabric = "local",
		.open_may_fail = true,
	};

	(void)state;
	ranks_run(&how, not_local);
}

/* A meeting point of threads that lies about a place. */
struct liar {
	pthread_barrier_t barrier;
	uint8_t *parts[3];
	void (*lie)(struct ferry_place *place);
};

struct liar_rank {
	struct liar *liar;
	int32_t rank;
};

/* Is it the agreement about places? Then rank 1's looks different. */
static void tell_lies(struct liar *liar, uint8_t *out, size_t bytes)
{
	struct ferry_place place;

	if (!liar->lie || bytes < sizeof(place))
		return;
	uint8_t *at = out + 2 * bytes - sizeof(place);

	memcpy(&place, at, sizeof(place));
	if (place.pid != getpid() || place.version != FERRY_VERSION)
		return;
	liar->lie(&place);
	memcpy(at, &place, sizeof(place));
}

static int lying_allgather(void *arg, const void *in, void *out, size_t bytes)
{
	const struct liar_rank *self = arg;
	struct liar *liar = self->liar;

	if (self->rank == 0)
		liar->parts[0] = out;
	pthread_barrier_wait(&liar->barrier);
	memcpy(liar->parts[0] + (size_t)self->rank * bytes, in, bytes);
	pthread_barrier_wait(&liar->barrier);
	if (self->rank == 0)
		tell_lies(liar, out, bytes);
	pthread_barrier_wait(&liar->barrier);
	if (self->rank != 0)
		memcpy(out, liar->parts[0], bytes * 3);
	pthread_barrier_wait(&liar->barrier);
	return 0;
}

static int lying_barrier(void *arg)
{
	pthread_barrier_wait(&((struct liar_rank *)arg)->liar->barrier);
	return 0;
}

/* Opens worlds that meet through the liar; the status of each. */
static enum ferry_status open_with(struct rank *rank, struct liar *liar,
                                   const char *fabric,
                                   struct ferry_world **world)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct liar_rank self = {liar, rank->rank};
	const struct ferry_boot_callbacks callbacks = {&self, lying_allgather,
	                                               lying_barrier};

	config.callbacks = &callbacks;
	config.rank = rank->rank;
	config.n_ranks = rank->n_ranks;
	config.fabric = fabric;
	const enum ferry_status status = ferry_world_open(&config, world);

	/* self ends here, and nothing meets any more. */
	if (status == FERRY_OK) {
		RANKS_EQ(ferry_world_nodes(*world), 1);
		RANKS_EQ(strcmp(ferry_world_fabric(*world), "shm"), 0);
		ferry_world_close(*world);
	}
	return status;
}

static void older_version(struct ferry_place *place)
{
	place->version = 20305;
}

static void other_abi(struct ferry_place *place)
{
	place->abi++;
}

static void other_host(struct ferry_place *place)
{
	place->host_id++;
}

static void lied_to(struct rank *rank)
{
	struct liar *liar = rank->arg;
	struct ferry_world *world = NULL;

	RANKS_OK(open_with(rank, liar, NULL, &world));
	ranks_meet(0, 3);
	if (rank->rank == 0)
		liar->lie = older_version;
	RANKS_STATUS(open_with(rank, liar, NULL, &world), FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "rank 1 has ferry 2.3.5, rank 0 has ");
	ranks_meet(1, 3);
	if (rank->rank == 0)
		liar->lie = other_abi;
	RANKS_STATUS(open_with(rank, liar, NULL, &world), FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "their shared structs differ");
	ranks_meet(2, 3);
	if (rank->rank == 0)
		liar->lie = other_host;
	RANKS_STATUS(open_with(rank, liar, "shm", &world), FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(), "shm: ranks are on 2 hosts");
}

static void test_places_differ(void **state)
{
	struct liar liar = {.lie = NULL};
	const struct ranks how = {
		.n_ranks = 3,
		.no_world = true,
		.arg = &liar,
	};

	(void)state;
	pthread_barrier_init(&liar.barrier, NULL, 3);
	ranks_run(&how, lied_to);
	pthread_barrier_destroy(&liar.barrier);
}

static void test_hosts(void **state)
{
	struct ferry_place places[7];
	const uint64_t hosts[] = {5, 6, 5, 7, 7, 7, 6};

	(void)state;
	memset(places, 0, sizeof(places));
	for (int i = 0; i < 7; i++)
		places[i].host_id = hosts[i], places[i].machine_id = 1;
	assert_int_equal(ferry_place_hosts(places, 7), 3);
	assert_int_equal(ferry_place_hosts(places, 1), 1);
	assert_int_equal(ferry_place_host_ranks(places, 7, 0), 2);
	assert_int_equal(ferry_place_host_ranks(places, 7, 4), 3);
	assert_true(ferry_place_machine_cores(places, 7, 0) >= 1);
}

/* A child is another process, here and now the same one is the same. */
static void test_places(void **state)
{
	struct ferry_place a, b;

	(void)state;
	ferry_place_read(&a);
	ferry_place_read(&b);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(a.pid, getpid());
	assert_int_equal(a.version, FERRY_VERSION);
}

/* 8 ranks open and close a world; the best of a few, on a busy machine. */
static void open_quickly(struct rank *rank)
{
	uint64_t best_ns = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		struct ferry_world_config config;
		struct ferry_world *world = NULL;
		const uint64_t begin = ferry_now_ns();

		ranks_config(&config);
		RANKS_OK(ferry_world_open(&config, &world));
		RANKS_OK(ferry_world_barrier(world));
		ferry_world_close(world);
		const uint64_t ns = ferry_now_ns() - begin;

		best_ns = ns < best_ns ? ns : best_ns;
		ranks_meet(i, rank->n_ranks);
	}
	RANKS_CHECK(best_ns < 200000000);
}

static void test_opens_quickly(void **state)
{
	struct ranks how = {.n_ranks = 8, .no_world = true};

	(void)state;
	for (int i = 0; i < 2; i++) {
		how.kind = i ? RANKS_PROCESSES : RANKS_THREADS;
		ranks_run(&how, open_quickly);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fabrics),
		cmocka_unit_test(test_world_of_one),
		cmocka_unit_test(test_closed_before_its_segments),
		cmocka_unit_test(test_nulls),
		cmocka_unit_test(test_bad_names),
		cmocka_unit_test(test_wrapped_names),
		cmocka_unit_test(test_fabrics_differ),
		cmocka_unit_test(test_one_fails),
		cmocka_unit_test(test_not_local),
		cmocka_unit_test(test_places_differ),
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_opens_quickly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
