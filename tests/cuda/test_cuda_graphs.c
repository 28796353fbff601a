/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured graphs: odd numbers of operations, one graph for every batch size,
 * several graphs over one channel in random order, a channel that begins its
 * life in a capture, TOKEN views of both halves, slots and streams that fork
 * and join. Every replay has fresh data and is compared to the byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lab.h"
#include "moe/drive_inner.h"

enum { MAX_TOKENS = 24, MOST_OPS = 5 };

static struct ferry_moe_config small(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = MAX_TOKENS;
	c.hidden = 264;
	c.topk = 4;
	c.n_experts = 10;
	c.n_slots = 2;
	c.layout = FERRY_EXPERT_PACKED;
	return c;
}

static enum ferry_combine_layout from(const struct drive *d)
{
	return d->config.layout == FERRY_EXPERT_PADDED ? FERRY_FROM_PADDED
	                                               : FERRY_FROM_PACKED;
}

/* A batch that every rank can make: any sizes, 0 and all among them. */
static struct drive_step random_step(const struct drive *d, uint64_t *rng)
{
	struct drive_step step = {.from = from(d)};

	step.spec.seed = traffic_random(rng);
	step.spec.routing = (enum traffic_routing)traffic_between(
		rng, 0, TRAFFIC_N_ROUTINGS - 1);
	step.spec.special = traffic_chance(rng, 30);
	step.values = ORACLE_SPECIAL;
	for (int32_t r = 0; r < d->config.n_ranks; r++) {
		const int64_t n = traffic_between(rng, -3, MAX_TOKENS + 3);

		step.n_tokens[r] = n < 0            ? 0
		                   : n > MAX_TOKENS ? MAX_TOKENS
		                                    : (int32_t)n;
	}
	return step;
}

/* Operations of one slot, captured one after the other. */
struct recording {
	cudaGraphExec_t exec;
	int n_ops;
	bool combined;
	struct drive_op *ops[MOST_OPS];
};

static void issue(struct drive_op *op, bool combined, bool fused,
                  struct CUstream_st *stream)
{
	if (fused) {
		RANKS_OK(drive_issue(op, DRIVE_DISPATCH, stream));
		if (combined)
			RANKS_OK(drive_issue(op, DRIVE_COMBINE, stream));
		return;
	}
	RANKS_OK(drive_issue(op, DRIVE_DISPATCH_SEND, stream));
	RANKS_OK(drive_issue(op, DRIVE_DISPATCH_RECV, stream));
	if (!combined)
		return;
	RANKS_OK(drive_issue(op, DRIVE_COMBINE_SEND, stream));
	RANKS_OK(drive_issue(op, DRIVE_COMBINE_RECV, stream));
}

static struct recording record(struct drive *d, int n_ops, bool combined,
                               uint64_t *rng)
{
	struct CUstream_st *stream = rank_memory_stream(d->memory, 0);
	struct recording r = {.n_ops = n_ops, .combined = combined};

	for (int i = 0; i < n_ops; i++) {
		const struct drive_step step = random_step(d, rng);

		r.ops[i] = drive_begin_lasting(d, 0, &step);
	}
	lab_capture(stream);
	for (int i = 0; i < n_ops; i++)
		issue(r.ops[i], combined, run_args.fused || i % 2, stream);
	r.exec = lab_captured(d->moe->world, stream);
	return r;
}

/* Fresh data for each of its operations, all compared. */
static void replay(struct drive *d, const struct recording *r,
                   uint64_t *n_dispatches, uint64_t *rng)
{
	struct CUstream_st *stream = rank_memory_stream(d->memory, 0);

	for (int i = 0; i < r->n_ops; i++) {
		const struct drive_step step = random_step(d, rng);

		drive_renew(r->ops[i], &step, (*n_dispatches)++);
		drive_refill(r->ops[i], stream);
	}
	LAB_OK(cudaGraphLaunch(r->exec, stream));
	for (int i = 0; i < r->n_ops; i++)
		drive_finish(r->ops[i], r->combined, stream);
}

static void erase(struct recording *r)
{
	LAB_OK(cudaGraphExecDestroy(r->exec));
	for (int i = 0; i < r->n_ops; i++)
		drive_end(r->ops[i]);
}

/* A channel that has done nothing is captured; then all sizes of batch. */
static void fresh_body(struct rank *rank)
{
	const int n_ops = *(const int *)rank->arg;
	const struct ferry_moe_config config = small();
	uint64_t rng = run_args.seed;
	uint64_t n_dispatches = 0;

	lab_device(rank);
	struct drive *d = drive_open(rank, &config, NULL);
	struct recording r = record(d, n_ops, true, &rng);

	for (int i = 0; i < 12; i++)
		replay(d, &r, &n_dispatches, &rng);
	erase(&r);
}

static void any_number_of_operations_in_a_graph(void **state)
{
	(void)state;
	for (int n_ops = 1; n_ops <= 3; n_ops++) {
		struct ranks how = run_args_ranks(2 + n_ops);

		how.arg = &n_ops;
		ranks_run(&how, fresh_body);
	}
}

/* One graph, batch sizes 0, 1, ..., all, on the ranks in opposite order. */
static void sizes_body(struct rank *rank)
{
	struct ferry_moe_config config = small();
	uint64_t rng = run_args.seed;

	config.combine = FERRY_REDUCED;
	config.layout = FERRY_EXPERT_PADDED;
	lab_device(rank);
	struct drive *d = drive_open(rank, &config, NULL);
	struct CUstream_st *stream = rank_memory_stream(d->memory, 0);
	struct recording r = record(d, 1, true, &rng);

	for (int32_t n = 0; n <= MAX_TOKENS; n++) {
		struct drive_step step = random_step(d, &rng);

		for (int32_t i = 0; i < rank->n_ranks; i++)
			step.n_tokens[i] = i % 2 ? MAX_TOKENS - n : n;
		drive_renew(r.ops[0], &step, (uint64_t)n);
		drive_refill(r.ops[0], stream);
		LAB_OK(cudaGraphLaunch(r.exec, stream));
		drive_finish(r.ops[0], true, stream);
	}
	erase(&r);
}

static void one_graph_serves_all_batch_sizes(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, sizes_body);
}

/* DeepEP#93: graphs of one channel, and calls without a graph, in any order. */
static void order_body(struct rank *rank)
{
	enum { N = 4 };
	const struct ferry_moe_config config = small();
	struct recording graphs[N];
	uint64_t rng = run_args.seed;
	uint64_t n_dispatches = 0;

	lab_device(rank);
	struct drive *d = drive_open(rank, &config, NULL);
	struct CUstream_st *stream = rank_memory_stream(d->memory, 0);
	const struct drive_step first = random_step(d, &rng);
	struct drive_op *eager = drive_begin_lasting(d, 0, &first);

	for (int i = 0; i < N; i++)
		graphs[i] = record(d, i + 1, i != 2, &rng);
	for (int i = 0; i < 40; i++) {
		const int64_t which = traffic_between(&rng, 0, N);
		struct drive_step step;

		if (which < N) {
			replay(d, &graphs[which], &n_dispatches, &rng);
			continue;
		}
		step = random_step(d, &rng);
		drive_renew(eager, &step, n_dispatches++);
		drive_refill(eager, stream);
		issue(eager, true, i % 2, stream);
		drive_finish(eager, true, stream);
	}
	for (int i = 0; i < N; i++)
		erase(&graphs[i]);
}

static void several_graphs_in_random_order(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, order_body);
	how.n_ranks = 4;
	ranks_run(&how, order_body);
}

/* The view's half changes from replay to replay; the addresses do not. */
static void token_body(struct rank *rank)
{
	struct ferry_moe_config config = small();
	struct ferry_moe_view views[2] = {FERRY_MOE_VIEW_INIT,
	                                  FERRY_MOE_VIEW_INIT};
	uint64_t rng = run_args.seed;
	uint64_t n_dispatches = 0;

	config.layout = FERRY_TOKEN;
	config.send_weights = true;
	lab_device(rank);
	struct drive *d = drive_open(rank, &config, NULL);
	struct recording r = record(d, 1, *(const bool *)rank->arg, &rng);

	RANKS_OK(ferry_moe_get_view(d->moe, 0, &views[0]));
	for (int i = 0; i < 3; i++)
		replay(d, &r, &n_dispatches, &rng);
	RANKS_OK(ferry_moe_get_view(d->moe, 0, &views[1]));
	RANKS_CHECK(views[0].rows == views[1].rows);
	erase(&r);
}

static void a_token_dispatch_replayed_three_times(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		bool combined = i;
		struct ranks how = run_args_ranks(2);

		how.arg = &combined;
		ranks_run(&how, token_body);
	}
}

/* Two streams of a rank, and an event to join them at the end. */
struct pair {
	struct CUstream_st *first, *second;
};

static struct pair two_streams(struct drive *d)
{
	return (struct pair){rank_memory_stream(d->memory, 0),
	                     rank_memory_stream(d->memory, 1)};
}

static void join(struct pair p)
{
	cudaEvent_t event;

	LAB_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	LAB_OK(cudaEventRecord(event, p.second));
	LAB_OK(cudaStreamWaitEvent(p.first, event, 0));
	LAB_OK(cudaEventDestroy(event));
}

/* Send and recv on different streams: the library forks, the caller joins. */
static void fork_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	uint64_t rng = run_args.seed;

	lab_device(rank);
	run_args.streams = 2;
	struct drive *d = drive_open(rank, &config, NULL);
	const struct pair s = two_streams(d);
	struct drive_step step = random_step(d, &rng);
	struct drive_op *op = drive_begin_lasting(d, 0, &step);

	lab_capture(s.first);
	RANKS_OK(drive_issue(op, DRIVE_DISPATCH_SEND, s.first));
	RANKS_OK(drive_issue(op, DRIVE_DISPATCH_RECV, s.second));
	RANKS_OK(drive_issue(op, DRIVE_COMBINE_SEND, s.second));
	LAB_OK(lab_sleep(20000, s.second));
	RANKS_OK(drive_issue(op, DRIVE_COMBINE_RECV, s.first));
	join(s);
	const cudaGraphExec_t exec = lab_captured(rank->world, s.first);

	for (uint64_t i = 0; i < 9; i++) {
		step = random_step(d, &rng);
		drive_renew(op, &step, i);
		drive_refill(op, s.first);
		LAB_OK(cudaGraphLaunch(exec, s.first));
		drive_finish(op, true, s.first);
	}
	LAB_OK(cudaGraphExecDestroy(exec));
}

static void streams_fork_and_join(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, fork_body);
	how.n_ranks = 4;
	ranks_run(&how, fork_body);
}

/* Two slots in one graph: both are in flight at the same time. */
static void slots_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	uint64_t rng = run_args.seed;
	struct drive_op *ops[2];

	lab_device(rank);
	struct drive *d = drive_open(rank, &config, NULL);
	struct CUstream_st *stream = rank_memory_stream(d->memory, 0);

	for (int slot = 0; slot < 2; slot++) {
		const struct drive_step step = random_step(d, &rng);

		ops[slot] = drive_begin_lasting(d, slot, &step);
	}
	lab_capture(stream);
	for (int call = DRIVE_DISPATCH_SEND; call <= DRIVE_COMBINE_RECV; call++)
		for (int i = 0; i < 2; i++)
			RANKS_OK(drive_issue(ops[(i + call / 2) % 2],
			                     (enum drive_call)call, stream));
	const cudaGraphExec_t exec = lab_captured(rank->world, stream);

	for (uint64_t i = 0; i < 9; i++) {
		for (int slot = 0; slot < 2; slot++) {
			const struct drive_step step = random_step(d, &rng);

			drive_renew(ops[slot], &step, i);
			drive_refill(ops[slot], stream);
		}
		LAB_OK(cudaGraphLaunch(exec, stream));
		drive_finish(ops[0], true, stream);
		drive_finish(ops[1], true, stream);
	}
	LAB_OK(cudaGraphExecDestroy(exec));
}

static void two_slots_in_one_graph(void **state)
{
	const struct ranks how = run_args_ranks(3);

	(void)state;
	ranks_run(&how, slots_body);
}

/* Replays pile up on the stream; the data of the last are compared. */
static void pile_body(struct rank *rank)
{
	struct ferry_moe_config config = small();
	uint64_t rng = run_args.seed;
	uint64_t n_dispatches = 0;

	config.combine = FERRY_REDUCED;
	lab_device(rank);
	struct drive *d = drive_open(rank, &config, NULL);
	struct CUstream_st *stream = rank_memory_stream(d->memory, 0);
	struct recording r = record(d, 3, true, &rng);

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 50; i++)
			LAB_OK(cudaGraphLaunch(r.exec, stream));
		n_dispatches += 150;
		/* Ranks leave this at different times. */
		LAB_OK(lab_sleep((uint64_t)rank->rank * 300000, stream));
		replay(d, &r, &n_dispatches, &rng);
	}
	erase(&r);
}

static void replays_without_a_pause(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, pile_body);
	how.n_ranks = 8;
	ranks_run(&how, pile_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_number_of_operations_in_a_graph),
		cmocka_unit_test(one_graph_serves_all_batch_sizes),
		cmocka_unit_test(several_graphs_in_random_order),
		cmocka_unit_test(a_token_dispatch_replayed_three_times),
		cmocka_unit_test(streams_fork_and_join),
		cmocka_unit_test(two_slots_in_one_graph),
		cmocka_unit_test(replays_without_a_pause),
	};

	lab_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
