/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a slot's phases on any streams, in and out of captures; opening
 * and closing beside captures and beside kernels that wait; what a call costs
 * the host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/clock.h"
#include "lab.h"
#include "moe/drive_inner.h"

enum { MAX_TOKENS = 16, N_CALLS = 2000 };

static struct ferry_moe_config small(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = MAX_TOKENS;
	c.hidden = 264;
	c.topk = 3;
	c.n_experts = 10;
	c.layout = FERRY_EXPERT_PACKED;
	return c;
}

static struct drive_step random_step(const struct drive *d, uint64_t *rng)
{
	struct drive_step step = {.from = FERRY_FROM_PACKED};

	step.spec.seed = traffic_random(rng);
	for (int32_t r = 0; r < d->config.n_ranks; r++)
		step.n_tokens[r] = (int32_t)traffic_between(rng, 0, MAX_TOKENS);
	return step;
}

/* One operation of a channel, with buffers that stay. */
struct bench {
	struct drive *d;
	struct drive_op *op;
	uint64_t rng;
	uint64_t n_dispatches;
};

static struct bench bench_open_at(struct rank *rank,
                                  const struct ferry_moe_config *config)
{
	struct bench b = {.rng = run_args.seed};

	lab_device(rank);
	run_args.streams = 3;
	b.d = drive_open(rank, config, NULL);
	const struct drive_step step = random_step(b.d, &b.rng);

	b.op = drive_begin_lasting(b.d, 0, &step);
	return b;
}

static struct bench bench_open(struct rank *rank)
{
	const struct ferry_moe_config config = small();

	return bench_open_at(rank, &config);
}

/* What the caller has on `first` comes after what is on `second`. */
static void join(struct CUstream_st *first, struct CUstream_st *second)
{
	cudaEvent_t event;

	LAB_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	LAB_OK(cudaEventRecord(event, second));
	LAB_OK(cudaStreamWaitEvent(first, event, 0));
	LAB_OK(cudaEventDestroy(event));
}

static void renew(struct bench *b, struct CUstream_st *stream)
{
	const struct drive_step step = random_step(b->d, &b->rng);

	drive_renew(b->op, &step, b->n_dispatches++);
	drive_refill(b->op, stream);
	rank_memory_sync(b->d->memory, NULL);
}

/*
 * The same on all ranks: streams of the rank, and where each has a GPU for
 * itself also the legacy and the thread's own, which wait for each other.
 */
static struct CUstream_st *random_stream(struct bench *b,
                                         const struct rank *rank)
{
	const bool alone = rank->n_ranks <= rank->n_gpus;
	const int64_t which = traffic_between(&b->rng, 0, 4);

	if (which == 3 && alone)
		return NULL;
	if (which == 4 && alone)
		return cudaStreamPerThread;
	return rank_memory_stream(b->d->memory, (int)which % 3);
}

static void any_streams_body(struct rank *rank)
{
	struct bench b = bench_open(rank);

	for (int i = 0; i < 40; i++) {
		struct CUstream_st *first = rank_memory_stream(b.d->memory, 0);
		struct CUstream_st *stream = first;

		renew(&b, first);
		for (int call = 0; call <= DRIVE_COMBINE_RECV; call++) {
			/* At first one stream serves all. */
			if (i > 3)
				stream = random_stream(&b, rank);
			/* What is not ordered would overtake it. */
			if (traffic_chance(&b.rng, 50))
				LAB_OK(lab_sleep(200000, stream));
			RANKS_OK(drive_issue(b.op, (enum drive_call)call,
			                     stream));
		}
		join(first, stream);
		drive_finish(b.op, true, first);
	}
	drive_close(b.d);
}

static void phases_on_any_streams(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, any_streams_body);
	how.n_ranks = 3;
	ranks_run(&how, any_streams_body);
}

/* Calls first..last in a graph of their own. */
static cudaGraphExec_t capture_calls(struct bench *b, int first, int last)
{
	struct CUstream_st *stream = rank_memory_stream(b->d->memory, 0);

	lab_capture(stream);
	for (int call = first; call <= last; call++)
		RANKS_OK(drive_issue(b->op, (enum drive_call)call, stream));
	return lab_captured(b->d->moe->world, stream);
}

/* Each phase in a graph of its own; then some of them as plain calls. */
static void parts_body(struct rank *rank)
{
	struct bench b = bench_open(rank);
	struct CUstream_st *stream = rank_memory_stream(b.d->memory, 0);
	cudaGraphExec_t exec[4];

	for (int i = 0; i < 4; i++)
		exec[i] = capture_calls(&b, i, i);
	for (int i = 0; i < 10; i++) {
		renew(&b, stream);
		for (int call = 0; call < 4; call++)
			LAB_OK(cudaGraphLaunch(exec[call], stream));
		drive_finish(b.op, true, stream);
	}
	for (int i = 0; i < 4; i++)
		LAB_OK(cudaGraphExecDestroy(exec[i]));
	/* Sends as calls on another stream, recvs in a graph, and again. */
	for (int i = 0; i < 6; i++) {
		struct CUstream_st *other = rank_memory_stream(b.d->memory, 1);

		renew(&b, stream);
		RANKS_OK(drive_issue(b.op, DRIVE_DISPATCH_SEND, other));
		rank_memory_sync(b.d->memory, other);
		exec[0] = capture_calls(&b, DRIVE_DISPATCH_RECV,
		                        DRIVE_COMBINE_SEND);
		LAB_OK(cudaGraphLaunch(exec[0], stream));
		rank_memory_sync(b.d->memory, stream);
		RANKS_OK(drive_issue(b.op, DRIVE_COMBINE_RECV, other));
		drive_finish(b.op, true, other);
		LAB_OK(cudaGraphExecDestroy(exec[0]));
	}
	drive_close(b.d);
}

static void phases_in_graphs_of_their_own(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, parts_body);
}

/* A capture of the strictest kind is going on while channels come and go. */
static void beside_captures_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct bench b = bench_open(rank);
	struct CUstream_st *stream = rank_memory_stream(b.d->memory, 0);
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	/* Ranks may be threads: no test may do what the mode forbids. */
	ranks_meet(0, rank->n_ranks);
	LAB_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	RANKS_OK(drive_issue(b.op, DRIVE_DISPATCH, stream));
	struct ferry_moe *other;

	RANKS_OK(ferry_moe_open(rank->world, &config, &other));
	RANKS_OK(ferry_moe_poll(other, NULL));
	ferry_moe_close(other);
	RANKS_OK(drive_issue(b.op, DRIVE_COMBINE, stream));
	LAB_OK(cudaStreamEndCapture(stream, &graph));
	ranks_meet(1, rank->n_ranks);
	exec = lab_instantiate(rank->world, graph, stream);
	for (int i = 0; i < 3; i++) {
		renew(&b, stream);
		LAB_OK(cudaGraphLaunch(exec, stream));
		drive_finish(b.op, true, stream);
	}
	LAB_OK(cudaGraphExecDestroy(exec));
	LAB_OK(cudaGraphDestroy(graph));
	drive_close(b.d);
}

static void channels_open_and_close_beside_captures(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, beside_captures_body);
}

/*
 * Kernels of one channel wait for rank 1, while another comes and goes. They
 * leave room for the small kernels by which memory is zeroed.
 */
static void beside_waits_body(struct rank *rank)
{
	struct ferry_moe_config config = small();

	config.max_sms = 8;
	config.path = run_args.path;
	struct bench b = bench_open_at(rank, &config);
	struct CUstream_st *stream = rank_memory_stream(b.d->memory, 0);

	renew(&b, stream);
	ranks_meet(0, rank->n_ranks);
	if (rank->rank != 1)
		RANKS_OK(drive_issue(b.op, DRIVE_DISPATCH, stream));
	for (int i = 0; i < 3; i++) {
		const uint64_t begin = ferry_now_ns();
		struct ferry_moe *other;

		RANKS_OK(ferry_moe_open(rank->world, &config, &other));
		ferry_moe_close(other);
		if (ferry_now_ns() - begin > UINT64_C(2000000000))
			RANKS_FAIL(
				"open and close took %llu ms",
				(unsigned long long)(ferry_now_ns() - begin) /
					1000000);
	}
	if (rank->rank == 1)
		RANKS_OK(drive_issue(b.op, DRIVE_DISPATCH, stream));
	RANKS_OK(drive_issue(b.op, DRIVE_COMBINE, stream));
	drive_finish(b.op, true, stream);
	drive_close(b.d);
}

static void channels_open_and_close_beside_waits(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, beside_waits_body);
	how.n_ranks = 4;
	ranks_run(&how, beside_waits_body);
}

/* Closing in the middle: what waits is stopped, what was sent has arrived. */
static void close_body(struct rank *rank)
{
	struct bench b = bench_open(rank);
	struct CUstream_st *stream = rank_memory_stream(b.d->memory, 0);
	uint64_t begin;

	renew(&b, stream);
	ranks_meet(0, rank->n_ranks);
	if (rank->rank != 1)
		RANKS_OK(drive_issue(b.op, DRIVE_DISPATCH, stream));
	begin = ferry_now_ns();
	drive_close(b.d);
	if (ferry_now_ns() - begin > UINT64_C(1000000000))
		RANKS_FAIL("close took %llu ms",
		           (unsigned long long)(ferry_now_ns() - begin) /
		                   1000000);
	lab_alive(rank_memory_of(rank, 1));
}

static void close_stops_what_waits(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, close_body);
	how.n_ranks = 4;
	ranks_run(&how, close_body);
}

/* Rank 0 tells what calls cost its host while kernels keep up. */
static void cost_body(struct rank *rank)
{
	struct bench b = bench_open(rank);
	struct CUstream_st *stream = rank_memory_stream(b.d->memory, 0);
	uint64_t spent = 0;

	renew(&b, stream);
	for (int i = 0; i < N_CALLS; i++) {
		const uint64_t begin = ferry_now_ns();

		RANKS_OK(drive_issue(b.op, DRIVE_DISPATCH, stream));
		RANKS_OK(drive_issue(b.op, DRIVE_COMBINE, stream));
		spent += ferry_now_ns() - begin;
		if (i % 64 == 63)
			rank_memory_sync(b.d->memory, stream);
	}
	drive_finish(b.op, true, stream);
	if (rank->rank == 0)
		printf("# host: %.2f us a call\n",
		       (double)spent / 1e3 / (2.0 * N_CALLS));
	drive_close(b.d);
}

static void what_a_call_costs_the_host(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, cost_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(phases_on_any_streams),
		cmocka_unit_test(phases_in_graphs_of_their_own),
		cmocka_unit_test(channels_open_and_close_beside_captures),
		cmocka_unit_test(channels_open_and_close_beside_waits),
		cmocka_unit_test(close_stops_what_waits),
		cmocka_unit_test(what_a_call_costs_the_host),
	};

	run_args.few_ranks = true;
	lab_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
