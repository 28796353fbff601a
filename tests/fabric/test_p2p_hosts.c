/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds of GPUs on several hosts, pretended ones on the pretended GPUs of
 * fake_gpu.c: memory of GPUs is mapped inside a host, signals and verdicts
 * reach everybody, and nothing else is promised.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/fabric.h>
#include <ferry/moe.h>

#include "core/order.h"
#include "fabric/segment.h"
#include "fabrics.h"
#include "fake_gpu.h"
#include "ranks.h"

enum { RANKS = 4, PER_HOST = 2, BYTES = 4096 };

/* GPUs 0 and 1 have NVLink; GPU 3 is reached by no other. */
static void configure(const struct rank *rank,
                      struct ferry_world_config *config)
{
	static const int32_t gpus[RANKS] = {0, 1, 3, 3};

	config->device = FERRY_DEVICE_CUDA;
	config->cuda_device = gpus[rank->rank] + 1;
}

static bool is_near(const struct rank *rank, int32_t r)
{
	return r / PER_HOST == rank->rank / PER_HOST;
}

static void look_at_peers(const struct rank *rank, struct ferry_segment *s)
{
	for (int32_t r = 0; r < RANKS; r++) {
		const uint32_t caps = ferry_segment_caps(s, r);

		RANKS_EQ(ferry_segment_ptr(s, r) != NULL, is_near(rank, r));
		RANKS_EQ((caps & FERRY_CAP_DEVICE) != 0, is_near(rank, r));
		RANKS_EQ(caps != 0, is_near(rank, r));
	}
}

/* Signals to all; bytes to the other rank of the host. */
static void body(struct rank *rank)
{
	const int32_t mate = rank->rank ^ 1;
	struct ferry_segment *s = NULL;
	unsigned char *base;

	RANKS_EQ(rank->world->n_nodes, RANKS / PER_HOST);
	RANKS_OK(ferry_segment_open(rank->world, BYTES, 2, &s));
	look_at_peers(rank, s);
	base = ferry_segment_base(s); /* a pretended GPU's: the host's */
	memset(base, 1 + rank->rank, BYTES / 2);
	RANKS_OK(ferry_segment_put(s, mate, BYTES / 2, base, BYTES / 2, 1));
	for (int32_t r = 0; r < RANKS; r++)
		RANKS_OK(ferry_segment_signal(s, r, 0));
	RANKS_OK(ferry_segment_kick(s));
	RANKS_OK(ferry_segment_wait(s, 0, RANKS));
	RANKS_OK(ferry_segment_wait(s, 1, 1));
	RANKS_EQ(base[BYTES / 2], 1 + mate);
	RANKS_EQ(base[BYTES - 1], 1 + mate);
	RANKS_OK(ferry_world_barrier(rank->world));
	if (rank->rank == 0)
		RANKS_STATUS(ferry_segment_put(s, 2, 0, base, 8, 1),
		             FERRY_UNSUPPORTED);
	else
		RANKS_STATUS(ferry_segment_wait(s, 0, RANKS + 1),
		             FERRY_UNSUPPORTED);
	if (rank->rank == 0)
		RANKS_TEXT(ferry_last_error(), "rank 2 is on another one");
	ferry_segment_close(s);
}

static struct ranks over_hosts(enum ranks_kind kind, const char *fabric)
{
	return (struct ranks){
		.kind = kind,
		.n_ranks = RANKS,
		.fabric = fabric,
		.options = "RANKS_PER_HOST=2",
		.configure = configure,
		.open_may_fail = true,
	};
}

static void test_processes(void **state)
{
	const struct ranks how = over_hosts(RANKS_PROCESSES, "p2p+wire");

	(void)state;
	ranks_run(&how, body);
}

static void test_threads(void **state)
{
	const struct ranks how = over_hosts(RANKS_THREADS, "p2p+wire");

	(void)state;
	ranks_run(&how, body);
	assert_int_equal(fake_gpu_memories, 0);
}

static void test_libfabric(void **state)
{
	const struct ranks how = over_hosts(RANKS_PROCESSES, "p2p+ofi");
	const struct ferry_fabric_info info = fabrics_get("shm+ofi");

	(void)state;
	if (info.score <= 0) {
		printf("skipped: fabric %s: %s\n", info.name, info.reason);
		skip();
	}
	ranks_run(&how, body);
}

/* Every rank's word to every other one, by the network. */
static void swap_words(struct rank *rank, struct ferry_segment *s)
{
	uint64_t *words = ferry_segment_base(s);

	for (size_t i = 0; i < BYTES / sizeof(*words); i++)
		RANKS_EQ(words[i], 0);
	RANKS_OK(ferry_world_barrier(rank->world));
	words[rank->rank] = 100 + (uint64_t)rank->rank;
	for (int32_t r = 0; r < RANKS; r++)
		if (r != rank->rank)
			RANKS_OK(ferry_segment_put(
				s, r, sizeof(*words) * (size_t)rank->rank,
				&words[rank->rank], sizeof(*words), 0));
	RANKS_OK(ferry_segment_kick(s));
	RANKS_OK(ferry_segment_wait(s, 0, RANKS - 1));
	for (int32_t r = 0; r < RANKS; r++)
		RANKS_EQ(words[r], 100 + (uint64_t)r);
}

/*
 * A segment on the network behind the GPUs, as channels open for their mirror:
 * memory of the host that is a GPU's, among threads and where GPUs can, and
 * there as long as a rank has it.
 */
static void mirror_body(struct rank *rank)
{
	const bool is_gpus = *(const bool *)rank->arg;
	struct ferry_segment *s = NULL;

	RANKS_OK(ferry_segment_open_on(
		rank->world, ferry_fabric_network(rank->world->fabric), BYTES,
		1, &s));
	RANKS_EQ(s->mem->is_gpus, is_gpus);
	if (rank->kind == RANKS_THREADS)
		RANKS_EQ(fake_gpu_memories, is_gpus ? RANKS : 0);
	swap_words(rank, s);
	RANKS_OK(ferry_world_barrier(rank->world));
	ferry_segment_close(s);
}

static void test_mirror(void **state)
{
	bool is_gpus = false;
	struct ranks how = over_hosts(RANKS_PROCESSES, "p2p+wire");

	(void)state;
	how.arg = &is_gpus;
	ranks_run(&how, mirror_body);
	how.kind = RANKS_THREADS;
	store_seq_u32(&fake_gpu_no_host, 1);
	ranks_run(&how, mirror_body);
	store_seq_u32(&fake_gpu_no_host, 0);
	is_gpus = true;
	ranks_run(&how, mirror_body);
	assert_int_equal(fake_gpu_memories, 0);
}

/* Who is through with it closes; the others still put to what it had. */
static void early_body(struct rank *rank)
{
	struct ferry_segment *s = NULL;
	uint64_t *words;

	RANKS_OK(ferry_segment_open_on(
		rank->world, ferry_fabric_network(rank->world->fabric), BYTES,
		1, &s));
	words = ferry_segment_base(s);
	ranks_meet(0, RANKS);
	if (rank->rank == 0)
		ferry_segment_close(s);
	ranks_meet(1, RANKS);
	RANKS_EQ(fake_gpu_memories, RANKS);
	if (rank->rank > 0) {
		words[0] = 7;
		RANKS_OK(ferry_segment_put(s, 0,
		                           (size_t)rank->rank * sizeof(*words),
		                           words, sizeof(*words), 0));
		RANKS_OK(ferry_segment_kick(s));
	}
	ranks_meet(2, RANKS);
	if (rank->rank > 0)
		ferry_segment_close(s);
}

static void test_early(void **state)
{
	const struct ranks how = over_hosts(RANKS_THREADS, "p2p+wire");

	(void)state;
	ranks_run(&how, early_body);
	assert_int_equal(fake_gpu_memories, 0);
}

static void no_room_body(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	ranks_meet(0, RANKS);
	store_seq_u32(&fake_gpu_fails, 1);
	RANKS_STATUS(
		ferry_segment_open_on(rank->world,
	                              ferry_fabric_network(rank->world->fabric),
	                              BYTES, 1, &s),
		FERRY_NOMEM);
	RANKS_EQ(fake_gpu_memories, 0);
	ranks_meet(1, RANKS);
	store_seq_u32(&fake_gpu_fails, 0);
}

static void test_no_room(void **state)
{
	const struct ranks how = over_hosts(RANKS_THREADS, "p2p+wire");

	(void)state;
	ranks_run(&how, no_room_body);
}

static void is_refused(struct rank *rank)
{
	RANKS_STATUS(rank->open_status, FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(), "ranks are on 2 hosts");
}

/* p2p is for one host. */
static void test_refused(void **state)
{
	const struct ranks how = over_hosts(RANKS_THREADS, "p2p");

	(void)state;
	ranks_run(&how, is_refused);
}

/* Lines do not cross hosts; the refusal comes before any GPU is asked. */
static void wants_lines(struct rank *rank)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe *moe = NULL;

	config.max_tokens = 8;
	config.hidden = 64;
	config.topk = 2;
	config.n_experts = 8;
	config.path = FERRY_PATH_LINES;
	RANKS_STATUS(ferry_moe_open(rank->world, &config, &moe),
	             FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(),
	           "are on different hosts: allowed are CHUNKS and AUTO");
}

static void test_lines(void **state)
{
	const struct ranks how = over_hosts(RANKS_THREADS, "p2p+wire");

	(void)state;
#ifndef HAVE_CUDA
	printf("skipped: this build has no CUDA, and so no lines\n");
	skip();
#endif
	ranks_run(&how, wants_lines);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_libfabric),
		cmocka_unit_test(test_mirror),
		cmocka_unit_test(test_early),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
