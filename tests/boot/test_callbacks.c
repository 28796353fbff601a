/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's own way to meet: it works, it fails, it is not complete. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "boot/boot.h"
#include "support/ranks.h"

enum { N_RANKS = 4, MAX_BYTES = 4096 };

/* The store of an engine, much reduced: one memory and a barrier. */
struct store {
	pthread_barrier_t barrier;
	uint8_t bytes[N_RANKS * MAX_BYTES];
	/* Calls of allgather, counted down; -1: never fails. */
	int fails_after[N_RANKS];
	int barrier_result;
};

struct client {
	struct store *store;
	int32_t rank;
	int n_calls;
};

static int store_allgather(void *arg, const void *in, void *out, size_t bytes)
{
	struct client *c = arg;

	if (c->n_calls++ == c->store->fails_after[c->rank])
		return -5;
	memcpy(c->store->bytes + (size_t)c->rank * bytes, in, bytes);
	pthread_barrier_wait(&c->store->barrier);
	memcpy(out, c->store->bytes, N_RANKS * bytes);
	pthread_barrier_wait(&c->store->barrier);
	return 0;
}

static int store_barrier(void *arg)
{
	const struct client *c = arg;

	return c->store->barrier_result;
}

static void store_init(struct store *store)
{
	memset(store, 0, sizeof(*store));
	pthread_barrier_init(&store->barrier, NULL, N_RANKS);
	for (int r = 0; r < N_RANKS; r++)
		store->fails_after[r] = -1;
}

static void config_init(struct ferry_world_config *config,
                        struct ferry_boot_callbacks *callbacks,
                        struct client *client, const struct rank *rank)
{
	*client = (struct client){.store = rank->arg, .rank = rank->rank};
	*callbacks = (struct ferry_boot_callbacks){client, store_allgather,
	                                           store_barrier};
	ranks_config(config);
	config->team = NULL;
	config->callbacks = callbacks;
	config->rank = rank->rank;
	config->n_ranks = rank->n_ranks;
}

static void run(struct store *store, ranks_body *body)
{
	ranks_run(&(struct ranks){.n_ranks = N_RANKS,
	                          .no_world = true,
	                          .arg = store},
	          body);
	pthread_barrier_destroy(&store->barrier);
}

static void works(struct rank *rank)
{
	struct ferry_world_config config;
	struct ferry_boot_callbacks callbacks;
	struct client client;
	struct ferry_world *world;
	int32_t all[N_RANKS];

	config_init(&config, &callbacks, &client, rank);
	RANKS_OK(ferry_world_open(&config, &world));
	memset(&callbacks, 0, sizeof(callbacks)); /* copied at open */
	RANKS_EQ(ferry_world_size(world), N_RANKS);
	RANKS_EQ(ferry_world_rank(world), rank->rank);
	RANKS_OK(ferry_world_allgather(world, &rank->rank, all, 4));
	for (int32_t r = 0; r < N_RANKS; r++)
		RANKS_EQ(all[r], r);
	RANKS_OK(ferry_world_barrier(world));
	ferry_world_close(world);
}

static void test_works(void **state)
{
	struct store store;

	(void)state;
	store_init(&store);
	run(&store, works);
}

static void barrier_fails(struct rank *rank)
{
	struct ferry_world_config config;
	struct ferry_boot_callbacks callbacks;
	struct client client;
	struct ferry_world *world;

	config_init(&config, &callbacks, &client, rank);
	RANKS_STATUS(ferry_world_open(&config, &world), FERRY_FABRIC);
	RANKS_TEXT(ferry_last_error(), "boot: the caller's barrier on rank ");
	RANKS_TEXT(ferry_last_error(), "returned 42");
}

static void test_barrier_fails(void **state)
{
	struct store store;

	(void)state;
	store_init(&store);
	store.barrier_result = 42;
	run(&store, barrier_fails);
}

static void allgather_fails(struct rank *rank)
{
	struct ferry_world_config config;
	struct ferry_boot_callbacks callbacks;
	struct client client;
	struct ferry_world *world;

	config_init(&config, &callbacks, &client, rank);
	RANKS_STATUS(ferry_world_open(&config, &world), FERRY_FABRIC);
	RANKS_TEXT(ferry_last_error(), "boot: the caller's allgather of ");
	RANKS_TEXT(ferry_last_error(), "returned -5");
}

/* The store fails everywhere, as one that lost its server does. */
static void test_allgather_fails(void **state)
{
	(void)state;
	for (int after = 0; after < 4; after++) {
		struct store store;

		store_init(&store);
		for (int r = 0; r < N_RANKS; r++)
			store.fails_after[r] = after;
		run(&store, allgather_fails);
	}
}

static void sizes_differ(struct rank *rank)
{
	struct ferry_world_config config;
	struct ferry_boot_callbacks callbacks;
	struct client client;
	struct ferry_ctx ctx;
	struct ferry_boot *boot;
	uint8_t mine[32] = {0};
	uint8_t all[32 * N_RANKS];

	config_init(&config, &callbacks, &client, rank);
	RANKS_OK(ferry_ctx_init(&ctx, &config));
	RANKS_OK(ferry_boot_open(&ctx, &config, &boot));
	RANKS_STATUS(boot->ops->allgather(boot, mine, all,
	                                  rank->rank == 2 ? 32 : 16, 0),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "boot: rank 2 gave 32 bytes to an "
	                               "allgather, rank 0 gave 16");
	RANKS_STATUS(boot->ops->allgather(boot, mine, all, 16, 0),
	             FERRY_FABRIC);
	RANKS_CHECK(!boot->ops->dead(boot, 2));
	ferry_boot_close(boot);
	ferry_ctx_destroy(&ctx);
}

static void test_sizes_differ(void **state)
{
	struct store store;

	(void)state;
	store_init(&store);
	run(&store, sizes_differ);
}

static void assert_refused(const struct ferry_world_config *config,
                           const char *text)
{
	struct ferry_world *world = NULL;

	assert_int_equal(ferry_world_open(config, &world), FERRY_INVAL);
	assert_string_equal(ferry_last_error(), text);
	assert_null(world);
}

static void test_refused(void **state)
{
	struct ferry_boot_callbacks callbacks = {NULL, store_allgather,
	                                         store_barrier};
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_team *team;

	(void)state;
	config.callbacks = &callbacks;
	assert_refused(&config, "world_open: n_ranks is 0, with callbacks it "
	                        "must be 1..65536");
	config.n_ranks = INT32_MAX;
	assert_refused(&config, "world_open: n_ranks is 2147483647, with "
	                        "callbacks it must be 1..65536");
	config.n_ranks = 3;
	config.rank = 3;
	assert_refused(&config, "world_open: rank is 3, allowed are 0..2");
	config.rank = -1;
	assert_refused(&config, "world_open: rank is -1, allowed are 0..2");
	config.rank = 0;
	callbacks.barrier = NULL;
	assert_refused(&config, "world_open: callbacks->barrier is NULL, it "
	                        "must be a function");
	callbacks.allgather = NULL;
	assert_refused(&config, "world_open: callbacks->allgather is NULL, it "
	                        "must be a function");

	assert_int_equal(ferry_team_create(2, &team), FERRY_OK);
	config.team = team;
	assert_refused(&config, "world_open: team and callbacks are both "
	                        "given, at most one is allowed");
	config.callbacks = NULL;
	config.rank = 2;
	assert_refused(&config, "world_open: rank is 2, the team has 0..1");
	ferry_team_destroy(team);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_works),
		cmocka_unit_test(test_barrier_fails),
		cmocka_unit_test(test_allgather_fails),
		cmocka_unit_test(test_sizes_differ),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
