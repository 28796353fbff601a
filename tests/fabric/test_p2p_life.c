/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds and segments of GPUs come and go: what they leave behind, what they
 * cost, what they leave alone. `test_p2p_life threads` and `test_p2p_life
 * processes`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "core/clock.h"
#include "fabric/cuda_call.h"
#include "fabric/world.h"
#include "p2p_kernels.h"
#include "p2p_ranks.h"

/* Since *ns, which becomes now. */
static double ms_since(uint64_t *ns)
{
	const uint64_t now = ferry_now_ns();
	const double ms = (double)(now - *ns) / 1e6;

	*ns = now;
	return ms;
}

static size_t free_bytes(struct rank *rank)
{
	size_t left = 0, total;

	RANKS_OK(ferry_world_barrier(rank->world));
	CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
	CUDA_OK(cudaMemGetInfo(&left, &total));
	RANKS_OK(ferry_world_barrier(rank->world));
	return left;
}

static void open_and_close(struct rank *rank, int times)
{
	for (int i = 0; i < times; i++) {
		struct ferry_segment *s = NULL;

		RANKS_OK(ferry_segment_open(rank->world, 10000000, 3, &s));
		RANKS_OK(ferry_segment_put(s, (rank->rank + 1) % rank->n_ranks,
		                           0, ferry_segment_base(s), 100, 1));
		RANKS_OK(ferry_segment_wait(s, 1, 1));
		ferry_segment_close(s);
	}
}

static void expect(enum ferry_status got, enum ferry_status want,
                   const char *text)
{
	RANKS_STATUS(got, want);
	RANKS_TEXT(ferry_last_error(), text);
}

static CUcontext current_context(void)
{
	enum cudaDriverEntryPointQueryResult found;
	PFN_cuCtxGetCurrent_v4000 get = NULL;
	CUcontext context = NULL;
	void *function = NULL;

	CUDA_OK(cudaGetDriverEntryPointByVersion(
		"cuCtxGetCurrent", &function, 4000, cudaEnableDefault, &found));
	memcpy(&get, &function, sizeof(get));
	RANKS_EQ(get(&context), CUDA_SUCCESS);
	return context;
}

/*
 * A thread that has not used CUDA has no context afterwards: it would take 500
 * MiB on a GPU that the rank may have nothing to do with.
 */
static void no_context_comes(struct rank *rank)
{
	struct ferry_segment *s = NULL;
	int device = -1;

	RANKS_CHECK(!current_context());
	RANKS_OK(ferry_segment_open(rank->world, 4096, 1, &s));
	RANKS_OK(ferry_segment_put(s, 0, 0, ferry_segment_base(s), 64, 0));
	RANKS_OK(ferry_segment_flush(s));
	RANKS_OK(ferry_world_barrier(rank->world));
	ferry_segment_close(s);
	RANKS_CHECK(!current_context());
	CUDA_OK(cudaGetDevice(&device));
	RANKS_EQ(device, 0);
}

/* Whatever device the caller has, it stays. */
static void device_stays(struct rank *rank)
{
	const int32_t other = (p2p_gpu(rank->rank) + 1) % p2p_n_gpus;
	struct ferry_segment *s = NULL;
	int device = -1;

	CUDA_OK(cudaSetDevice(other));
	RANKS_OK(ferry_segment_open(rank->world, 4096, 1, &s));
	CUDA_OK(cudaGetDevice(&device));
	RANKS_EQ(device, other);
	RANKS_OK(ferry_segment_put(s, 0, 0, ferry_segment_base(s), 64, 0));
	RANKS_OK(ferry_segment_flush(s));
	CUDA_OK(cudaGetDevice(&device));
	RANKS_EQ(device, other);
	RANKS_OK(ferry_world_barrier(rank->world));
	ferry_segment_close(s);
	CUDA_OK(cudaGetDevice(&device));
	RANKS_EQ(device, other);
	CUDA_OK(cudaPeekAtLastError());
}

/*
 * While a kernel runs, segments open, take puts and close: none of it waits
 * for the kernel, which may itself wait for what this rank does next.
 */
static void beside_a_kernel(struct rank *rank)
{
	enum { WORDS = 1 << 16, KERNEL_US = 1000000 };
	struct ferry_segment *s = NULL;
	uint64_t *own = NULL, *rounds = NULL;
	double ms[3];

	CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
	CUDA_OK(cudaMalloc((void **)&own, WORDS * 8));
	CUDA_OK(cudaHostAlloc((void **)&rounds, 8, cudaHostAllocMapped));
	open_and_close(rank, 1);
	CUDA_OK(p2p_store_for(own, WORDS, KERNEL_US, rounds));
	uint64_t begin = ferry_now_ns();

	RANKS_OK(ferry_segment_open(rank->world, 10000000, 1, &s));
	ms[0] = ms_since(&begin);
	RANKS_OK(ferry_segment_put(s, (rank->rank + 1) % rank->n_ranks, 0,
	                           ferry_segment_base(s), 9000, 0));
	RANKS_OK(ferry_segment_wait(s, 0, 1));
	ms[1] = ms_since(&begin);
	ferry_segment_close(s);
	ms[2] = ms_since(&begin);
	const cudaError_t error = cudaStreamQuery(cudaStreamPerThread);

	CUDA_OK(p2p_sync());
	printf("# rank %d, %s: beside a kernel open %.1f, put %.2f, close %.1f "
	       "ms\n",
	       rank->rank, rank->kind == RANKS_THREADS ? "thread" : "process",
	       ms[0], ms[1], ms[2]);
	RANKS_EQ(error, cudaErrorNotReady);
	CUDA_OK(cudaFree(own));
	CUDA_OK(cudaFreeHost(rounds));
}

/* More than there is: all learn it, and the world goes on. */
static void out_of_memory(struct rank *rank)
{
	struct ferry_segment *s = NULL;
	size_t before = free_bytes(rank);

	expect(ferry_segment_open(rank->world, (size_t)1 << 42, 1, &s),
	       FERRY_NOMEM, "p2p: 4398046511104 bytes on GPU");
	RANKS_CHECK(!s);
	CUDA_OK(cudaGetLastError());
	/* One rank alone: what the others have made goes again. */
	expect(ferry_segment_open(rank->world, rank->rank ? 4096 : 8192, 1, &s),
	       FERRY_MISMATCH, "asks for 4096 bytes");
	RANKS_CHECK(free_bytes(rank) + (4u << 20) > before);
	open_and_close(rank, 1);
}

/* The last rank asks for a GPU that is not there. */
static void bad_ordinal(struct rank *rank)
{
	const bool bad = rank->rank == rank->n_ranks - 1;
	struct ferry_world_config config;
	struct ferry_world *world = NULL;

	ranks_config(&config);
	if (bad)
		config.cuda_device = p2p_n_gpus + 1;
	expect(ferry_world_open(&config, &world), FERRY_RANGE,
	       "(CUDA ordinal + 1) and 0 for the current device");
	RANKS_CHECK(!world);
}

static void nothing_is_left(struct rank *rank)
{
	enum { TIMES = 100 };

	open_and_close(rank, 3);
	const size_t before = free_bytes(rank);
	const uint64_t begin = ferry_now_ns();

	open_and_close(rank, TIMES);
	const uint64_t ns = ferry_now_ns() - begin;
	const size_t after = free_bytes(rank);

	if (rank->rank == 0)
		printf("# %d %s on %d GPUs: open + close of a segment of 10 "
		       "MB: %.2f ms\n",
		       rank->n_ranks,
		       rank->kind == RANKS_THREADS ? "threads" : "processes",
		       p2p_n_gpus, (double)ns / TIMES / 1e6);
	/* Other programs of the machine may have grown. */
	RANKS_CHECK(after + (4u << 20) > before);
}

static struct ferry_world *open_world(const struct rank *rank)
{
	struct ferry_world_config config;
	struct ferry_world *world = NULL;

	(void)rank;
	ranks_config(&config);
	RANKS_OK(ferry_world_open(&config, &world));
	return world;
}

/* Whole worlds, with a segment each. The first one makes the context. */
static void worlds_come_and_go(struct rank *rank)
{
	enum { TIMES = 100 };
	struct ferry_segment *s = NULL;
	size_t left[2] = {0, 0}, total;
	uint64_t first_ns = 0, begin = ferry_now_ns();

	for (int i = 0; i < TIMES; i++) {
		struct ferry_world *world = open_world(rank);

		if (i == 0)
			first_ns = ferry_now_ns() - begin;
		if (i == 1)
			begin = ferry_now_ns();
		RANKS_OK(ferry_segment_open(world, 10000000, 1, &s));
		ferry_segment_close(s);
		RANKS_OK(ferry_world_barrier(world));
		if (i == 1 || i == TIMES - 1) {
			CUDA_OK(cudaSetDevice(p2p_gpu(rank->rank)));
			CUDA_OK(cudaMemGetInfo(&left[i > 1], &total));
		}
		RANKS_OK(ferry_world_barrier(world));
		ferry_world_close(world);
	}
	if (rank->rank == 0)
		printf("# %d %s: first open of a world %.1f ms, then open + "
		       "close of world and segment %.2f ms\n",
		       rank->n_ranks,
		       rank->kind == RANKS_THREADS ? "threads" : "processes",
		       (double)first_ns / 1e6,
		       (double)(ferry_now_ns() - begin) / (TIMES - 1) / 1e6);
	RANKS_CHECK(left[1] + (4u << 20) > left[0]);
}

/* Each process sees its own GPU only, as ordinal 0, as some launchers do. */
static void hidden_peers(struct rank *rank)
{
	const int32_t next = (rank->rank + 1) % rank->n_ranks;
	struct ferry_world_config config;
	struct ferry_world *world = NULL;
	struct ferry_segment *s = NULL;
	uint64_t differs = 0;
	char visible[16];

	snprintf(visible, sizeof(visible), "%d", p2p_gpu(rank->rank));
	setenv("CUDA_VISIBLE_DEVICES", visible, 1);
	ranks_config(&config);
	config.cuda_device = 1;
	RANKS_OK(ferry_world_open(&config, &world));
	ranks_defer((void (*)(void *))ferry_world_close, world);
	RANKS_EQ(world->cuda_device, 0);
	RANKS_EQ(world->n_gpu_ranks, p2p_gpu_ranks(rank));
	RANKS_OK(ferry_segment_open(world, 80000, 2, &s));
	ranks_defer((void (*)(void *))ferry_segment_close, s);
	if (rank->rank == 0)
		printf("# a hidden GPU: capabilities %#x\n",
		       ferry_segment_caps(s, next));
	CUDA_OK(p2p_store(ferry_segment_ptr(s, next), 10000, 8));
	RANKS_OK(ferry_segment_signal(s, next, 0));
	RANKS_OK(ferry_segment_wait(s, 0, 1));
	CUDA_OK(p2p_compare(ferry_segment_base(s), 10000, 8, &differs));
	RANKS_EQ(differs, 10000);
	RANKS_OK(
		ferry_segment_put(s, next, 0, ferry_segment_base(s), 80000, 1));
	RANKS_OK(ferry_segment_wait(s, 1, 1));
	RANKS_OK(ferry_world_barrier(world));
}

P2P_TEST(no_context_comes, 2)
P2P_TEST(device_stays, 2)
P2P_TEST(out_of_memory, 2)
P2P_TEST(beside_a_kernel, 2)
P2P_TEST(nothing_is_left, 2)

/* Bodies that open their worlds. */
static void run_without(ranks_body *body)
{
	struct ranks how = p2p_ranks(2);

	how.no_world = true;
	ranks_run(&how, body);
}

static void test_bad_ordinal(void **state)
{
	(void)state;
	run_without(bad_ordinal);
}

static void test_worlds_come_and_go(void **state)
{
	(void)state;
	run_without(worlds_come_and_go);
}

static void test_hidden_peers(void **state)
{
	(void)state;
	if (p2p_ranks(2).kind == RANKS_THREADS)
		skip(); /* threads see the same devices */
	run_without(hidden_peers);
}

/* Time of making the GPU current and putting it back, as calls do. */
static void scopes_cost_little(struct rank *rank)
{
	enum { TIMES = 20000 };
	struct ferry_cuda_scope scope;
	const uint64_t begin = ferry_now_ns();

	for (int i = 0; i < TIMES; i++) {
		RANKS_OK(ferry_cuda_enter(NULL, rank->world->gpu, &scope));
		ferry_cuda_leave(&scope);
	}
	const double ns = (double)(ferry_now_ns() - begin) / TIMES;

	printf("# enter and leave: %.0f ns\n", ns);
	RANKS_CHECK(ns < 20000);
}

P2P_TEST(scopes_cost_little, 1)

/* 0: the child of a process that has used CUDA was told so. */
static int open_in_child(int32_t cuda_device)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world = NULL;

	alarm(20);
	config.device = FERRY_DEVICE_CUDA;
	config.cuda_device = cuda_device;
	if (ferry_world_open(&config, &world) == FERRY_UNSUPPORTED &&
	    strstr(ferry_last_error(), "was it used before a fork?"))
		return 0;
	fprintf(stderr, "%s\n", ferry_last_error());
	return 1;
}

static void test_after_fork(void **state)
{
	(void)state;
	if (p2p_ranks(1).kind == RANKS_PROCESSES)
		skip(); /* here the parent has not used CUDA */
	for (int32_t device = 0; device <= 1; device++) {
		const pid_t pid = fork();
		int status = -1;

		if (pid == 0)
			_exit(open_in_child(device));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hidden_peers),
		cmocka_unit_test(test_worlds_come_and_go),
		cmocka_unit_test(test_no_context_comes),
		cmocka_unit_test(test_device_stays),
		cmocka_unit_test(test_out_of_memory),
		cmocka_unit_test(test_bad_ordinal),
		cmocka_unit_test(test_beside_a_kernel),
		cmocka_unit_test(test_nothing_is_left),
		cmocka_unit_test(test_scopes_cost_little),
		cmocka_unit_test(test_after_fork),
	};
	const int skip_all = p2p_begin(argc, argv);

	if (skip_all)
		return skip_all;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
