/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures while kernels wait or a long graph is under way: everything drains
 * at once, what comes after a failure has counts of 0, the CUDA context lives,
 * close returns, and the world's next channel works. What single calls answer
 * is in test_moe_faults.c, which runs on GPUs, too.
 *
 * With --processes: a process that is killed, and what contexts a process has;
 * else all the rest, with threads.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "core/clock.h"
#include "gpus.h"
#include "lab.h"
#include "moe/broken.h"

enum {
	N_PAIRS = 60,     /* two waits each */
	N_BEHIND = 8,     /* pairs of calls without a graph */
	TIMEOUT_MS = 800, /* of runs in which a rank is missing */
	/* A busy machine may wake a thread late, not 120 times a timeout. */
	AT_ONCE_MS = 600,
};

static struct ferry_moe_config small(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 16;
	c.hidden = 512;
	c.topk = 3;
	c.n_experts = 8;
	c.n_slots = 2;
	c.layout = FERRY_EXPERT_PACKED;
	return c;
}

static void sleep_ms(int64_t ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static int64_t since_ms(uint64_t begin_ns)
{
	return (int64_t)(ferry_now_ns() - begin_ns) / 1000000;
}

static struct drive_step step_of(const struct drive *d, uint64_t seed)
{
	struct drive_step step = {.from = FERRY_FROM_PACKED};

	step.spec.seed = seed;
	for (int32_t r = 0; r < d->config.n_ranks; r++)
		step.n_tokens[r] = 1 + (int32_t)((seed + (uint64_t)r) % 16);
	return step;
}

/* 120 waits in one graph: N_PAIRS times dispatch and combine. */
struct long_graph {
	struct drive *d;
	struct CUstream_st *stream;
	struct drive_op *op;
	cudaGraphExec_t exec;
};

static struct long_graph record(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct long_graph g = {.d = drive_open(rank, &config, NULL)};
	const struct drive_step step = step_of(g.d, run_args.seed);

	g.stream = rank_memory_stream(g.d->memory, 0);
	g.op = drive_begin_lasting(g.d, 0, &step);
	drive_renew(g.op, &step, 1);
	drive_refill(g.op, g.stream);
	lab_capture(g.stream);
	for (int i = 0; i < N_PAIRS; i++) {
		RANKS_OK(drive_issue(g.op, DRIVE_DISPATCH, g.stream));
		RANKS_OK(drive_issue(g.op, DRIVE_COMBINE, g.stream));
	}
	g.exec = lab_captured(rank->world, g.stream);
	LAB_OK(cudaGraphLaunch(g.exec, g.stream));
	drive_finish(g.op, true, g.stream);
	return g;
}

/* A rank whose own kernels did not wait is told by the others' hosts. */
static void hear_of_it(const struct long_graph *g)
{
	const uint64_t begin = ferry_now_ns();

	while (ferry_moe_poll(g->d->moe, NULL) == FERRY_OK &&
	       since_ms(begin) < AT_ONCE_MS)
		sleep_ms(1);
}

/* After the failure: nothing is left of it but the record. */
static void check_end(struct rank *rank, struct long_graph *g,
                      enum ferry_status status, int32_t root)
{
	struct ferry_error error = FERRY_ERROR_INIT;
	uint64_t begin = ferry_now_ns();

	RANKS_STATUS(ferry_moe_poll(g->d->moe, &error), status);
	RANKS_EQ(error.root_rank, root);
	/* A replay of a broken channel is over at once, with counts of 0. */
	drive_refill(g->op, g->stream);
	LAB_OK(cudaGraphLaunch(g->exec, g->stream));
	drive_finish_empty(g->op, g->stream);
	if (since_ms(begin) > AT_ONCE_MS)
		RANKS_FAIL("a graph of a broken channel took %lld ms",
		           (long long)since_ms(begin));
	if (rank->rank == 0)
		printf("# replayed when broken: %lld us\n",
		       (long long)(ferry_now_ns() - begin) / 1000);
	lab_alive(g->d->memory);
	LAB_OK(cudaGraphExecDestroy(g->exec));
	begin = ferry_now_ns();
	drive_close(g->d);
	if (since_ms(begin) > AT_ONCE_MS)
		RANKS_FAIL("close took %lld ms", (long long)since_ms(begin));
	lab_alive(rank_memory_of(rank, 1));
}

/* And the world is as good as new. */
static void check_world(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);

	for (uint64_t i = 0; i < 3; i++) {
		const struct drive_step step = step_of(d, run_args.seed + i);

		drive_run(d, (int32_t)i % 2, &step);
	}
	drive_close(d);
}

/* Rank 1 does not replay its graph. */
static void absent_body(struct rank *rank)
{
	uint64_t begin;

	lab_device(rank);
	struct long_graph g = record(rank);

	ranks_meet(0, rank->n_ranks);
	if (rank->rank == 1) {
		ranks_meet(1, rank->n_ranks);
		hear_of_it(&g);
	}
	begin = ferry_now_ns();
	if (rank->rank != 1) {
		LAB_OK(cudaGraphLaunch(g.exec, g.stream));
		drive_finish_empty(g.op, g.stream);
		if (since_ms(begin) > TIMEOUT_MS + AT_ONCE_MS)
			RANKS_FAIL("120 waits took %lld ms to end, %d allowed",
			           (long long)since_ms(begin),
			           TIMEOUT_MS + AT_ONCE_MS);
		if (rank->rank == 0)
			printf("# drained after %lld ms, timeout %d\n",
			       (long long)since_ms(begin), TIMEOUT_MS);
		ranks_meet(1, rank->n_ranks);
	}
	check_end(rank, &g, FERRY_TIMEOUT, 1);
	check_world(rank);
}

static void a_graph_drains_when_a_rank_is_absent(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	how.timeout_ms = TIMEOUT_MS;
	ranks_run(&how, absent_body);
	how.n_ranks = 4;
	ranks_run(&how, absent_body);
}

static void *abort_soon(void *world)
{
	sleep_ms(60);
	ferry_world_abort(world);
	return NULL;
}

/* A thread of rank 0 aborts while kernels of all but rank 1 wait. */
static void abort_body(struct rank *rank)
{
	pthread_t thread;
	uint64_t begin;

	lab_device(rank);
	struct long_graph g = record(rank);

	ranks_meet(0, rank->n_ranks);
	begin = ferry_now_ns();
	if (rank->rank == 0)
		RANKS_EQ(pthread_create(&thread, NULL, abort_soon, rank->world),
		         0);
	if (rank->rank != 1) {
		LAB_OK(cudaGraphLaunch(g.exec, g.stream));
		drive_finish_empty(g.op, g.stream);
		if (since_ms(begin) > 60 + AT_ONCE_MS)
			RANKS_FAIL("it took %lld ms to end",
			           (long long)since_ms(begin));
	}
	if (rank->rank == 0)
		pthread_join(thread, NULL);
	ranks_meet(1, rank->n_ranks);
	check_end(rank, &g, FERRY_ABORTED, 0);
}

static void an_abort_ends_waiting_kernels(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, abort_body);
	how.n_ranks = 4;
	ranks_run(&how, abort_body);
}

/* Rank 1 dies while the kernels of all others store into its window. */
static void death_body(struct rank *rank)
{
	uint64_t begin = ferry_now_ns();

	lab_device(rank);
	struct long_graph g = record(rank);

	ranks_meet(0, rank->n_ranks);
	for (int i = 0; i < 2000; i++) {
		LAB_OK(cudaGraphLaunch(g.exec, g.stream));
		if (i == 3 && rank->rank == 1) {
			sleep_ms(1);
			ranks_die();
		}
		if (i % 4)
			continue;
		begin = ferry_now_ns();
		LAB_OK(cudaStreamSynchronize(g.stream));
		if (ferry_moe_poll(g.d->moe, NULL) != FERRY_OK)
			break;
	}
	if (since_ms(begin) > 2000)
		RANKS_FAIL("a death was noticed after %lld ms",
		           (long long)since_ms(begin));
	check_end(rank, &g, FERRY_PEER, 1);
}

static void a_killed_process_harms_no_context(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	how.killed = RANKS_BIT(1);
	ranks_run(&how, death_body);
	how.n_ranks = 3; /* two of them take turns on a GPU */
	ranks_run(&how, death_body);
}

/* Calls of a thread that has chosen no device: none on another GPU. */
static void no_context_body(struct rank *rank)
{
	PFN_cuDevicePrimaryCtxGetState_v7000 get_state = NULL;
	enum cudaDriverEntryPointQueryResult found;
	void *function = NULL;

	check_world(rank);
	LAB_OK(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState",
	                                        &function, 7000,
	                                        cudaEnableDefault, &found));
	memcpy(&get_state, &function, sizeof(get_state));
	for (int g = 0; g < rank->n_gpus; g++) {
		unsigned flags;
		int active;

		LAB_OK(get_state(g, &flags, &active));
		RANKS_EQ(active, g == gpus_of_rank(rank->rank, rank->n_gpus));
	}
}

static void no_context_comes(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, no_context_body);
}

/* Its GPU stands still for twice the timeout; the host of it is fast. */
static void stall_body(struct rank *rank)
{
	lab_device(rank);
	struct long_graph g = record(rank);

	ranks_meet(0, rank->n_ranks);
	if (rank->rank == 1)
		LAB_OK(lab_sleep(2 * (uint64_t)TIMEOUT_MS * 1000000, g.stream));
	LAB_OK(cudaGraphLaunch(g.exec, g.stream));
	drive_finish_empty(g.op, g.stream);
	ranks_meet(1, rank->n_ranks);
	check_end(rank, &g, FERRY_TIMEOUT, 1);
	check_world(rank);
}

static void a_stalled_gpu_is_named(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	how.timeout_ms = TIMEOUT_MS;
	ranks_run(&how, stall_body);
	how.n_ranks = 3;
	ranks_run(&how, stall_body);
}

/* A slow rank is not a failure: its GPU is late every time. */
static void slow_body(struct rank *rank)
{
	lab_device(rank);
	struct long_graph g = record(rank);

	for (int i = 0; i < 4; i++) {
		LAB_OK(lab_sleep(i % rank->n_ranks == rank->rank
		                         ? TIMEOUT_MS * UINT64_C(250000)
		                         : 0,
		                 g.stream));
		LAB_OK(cudaGraphLaunch(g.exec, g.stream));
	}
	drive_finish(g.op, true, g.stream);
	LAB_OK(cudaGraphExecDestroy(g.exec));
}

static void a_slow_gpu_harms_nobody(void **state)
{
	struct ranks how = run_args_ranks(3);

	(void)state;
	how.timeout_ms = TIMEOUT_MS;
	ranks_run(&how, slow_body);
}

/*
 * Closed while kernels wait, and more of them stand behind those: a rank leaves
 * in the middle. A graph may not run any more when its channel is closed.
 */
static void close_body(struct rank *rank)
{
	uint64_t begin;

	lab_device(rank);
	struct long_graph g = record(rank);

	ranks_meet(0, rank->n_ranks);
	for (int i = 0; i < N_BEHIND && rank->rank != 1; i++) {
		RANKS_OK(drive_issue(g.op, DRIVE_DISPATCH, g.stream));
		RANKS_OK(drive_issue(g.op, DRIVE_COMBINE, g.stream));
	}
	sleep_ms(20);
	begin = ferry_now_ns();
	drive_close(g.d);
	if (since_ms(begin) > 1000 + AT_ONCE_MS)
		RANKS_FAIL("close took %lld ms", (long long)since_ms(begin));
	lab_alive(rank_memory_of(rank, 1));
	LAB_OK(cudaGraphExecDestroy(g.exec));
	ranks_meet(1, rank->n_ranks);
	check_world(rank);
}

static void close_returns_while_kernels_wait(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, close_body);
	how.n_ranks = 4;
	ranks_run(&how, close_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest processes[] = {
		cmocka_unit_test(no_context_comes),
		cmocka_unit_test(a_killed_process_harms_no_context),
	};
	const struct CMUnitTest threads[] = {
		cmocka_unit_test(a_graph_drains_when_a_rank_is_absent),
		cmocka_unit_test(an_abort_ends_waiting_kernels),
		cmocka_unit_test(a_stalled_gpu_is_named),
		cmocka_unit_test(a_slow_gpu_harms_nobody),
		cmocka_unit_test(close_returns_while_kernels_wait),
	};

	lab_read(argc, argv);
	if (run_args.kind == RANKS_PROCESSES)
		return cmocka_run_group_tests(processes, NULL, NULL);
	return cmocka_run_group_tests(threads, NULL, NULL);
}
