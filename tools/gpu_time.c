/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of operations, captured once and replayed; see gpu_time.h. */
#include "gpu_time.h"

#include <stdlib.h>

#include "alloc.h"
#include "core/clock.h"

enum { HOST_CALLS = 96, HOST_BURST = 8 };

/* before (n_before times), timed (n times), after (n_after times). */
struct gpu_chain {
	const struct gpu_seat *seat;
	void *arg;
	int32_t n_before, n, n_after;
	gpu_op *before, *timed, *after;
	cudaEvent_t start, end;
	cudaGraphExec_t exec; /* NULL: launched one by one */
};

static bool repeat(const struct gpu_chain *c, gpu_op *op, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		if (!op(c->arg, i))
			return false;
	return true;
}

/* flags: how the events are recorded. */
static bool enqueue(const struct gpu_chain *c, unsigned flags)
{
	const struct gpu_seat *s = c->seat;

	return repeat(c, c->before, c->n_before) &&
	       gpu_good(s->me,
	                cudaEventRecordWithFlags(c->start, s->stream, flags),
	                "event") &&
	       repeat(c, c->timed, c->n) &&
	       gpu_good(s->me,
	                cudaEventRecordWithFlags(c->end, s->stream, flags),
	                "event") &&
	       repeat(c, c->after, c->n_after);
}

static bool capture(struct gpu_chain *c)
{
	const struct gpu_seat *s = c->seat;
	cudaGraph_t graph = NULL;

	if (!gpu_good(s->me,
	              cudaStreamBeginCapture(s->stream,
	                                     cudaStreamCaptureModeThreadLocal),
	              "capture"))
		return false;
	bool good = enqueue(c, cudaEventRecordExternal);
	const cudaError_t ended = cudaStreamEndCapture(s->stream, &graph);

	good = good && gpu_good(s->me, ended, "end of capture") &&
	       gpu_good(s->me, cudaGraphInstantiate(&c->exec, graph, 0),
	                "making a graph");
	if (graph)
		cudaGraphDestroy(graph);
	return good;
}

static bool chain_make(struct gpu_chain *c, bool graph)
{
	const struct crew_member *me = c->seat->me;

	return gpu_good(me, cudaEventCreate(&c->start), "event") &&
	       gpu_good(me, cudaEventCreate(&c->end), "event") &&
	       (!graph || capture(c));
}

static void chain_destroy(struct gpu_chain *c)
{
	if (c->exec)
		cudaGraphExecDestroy(c->exec);
	if (c->start)
		cudaEventDestroy(c->start);
	if (c->end)
		cudaEventDestroy(c->end);
}

bool gpu_time_meet(const struct gpu_seat *seat)
{
	return crew_good(seat->me, ferry_world_barrier(seat->world),
	                 "waiting for all graphs");
}

/* One replay: nanoseconds of each timed operation. */
static bool replay(struct gpu_chain *c, double *ns)
{
	const struct gpu_seat *s = c->seat;
	float ms = 0;

	if (!(c->exec ? gpu_good(s->me, cudaGraphLaunch(c->exec, s->stream),
	                         "graph")
	              : enqueue(c, cudaEventRecordDefault)) ||
	    !gpu_good(s->me, cudaStreamSynchronize(s->stream), "waiting") ||
	    !gpu_good(s->me, cudaEventElapsedTime(&ms, c->start, c->end),
	              "elapsed time"))
		return false;
	*ns = (double)ms * 1e6 / c->n;
	return true;
}

/* Replays two chains in turns, so that a drifting clock hurts both. */
static bool replay_both(struct gpu_chain *chains,
                        const struct gpu_timing *timing, double *first,
                        double *second)
{
	for (int32_t i = -timing->warmup; i < timing->iters; i++) {
		double ns[2];

		if (!replay(&chains[0], &ns[0]) || !replay(&chains[1], &ns[1]))
			return false;
		if (i < 0)
			continue;
		first[i] = ns[0];
		second[i] = ns[1];
	}
	return true;
}

static uint64_t as_ns(double ns)
{
	return ns > 1 ? (uint64_t)ns : 1;
}

bool gpu_time_ops(const struct gpu_seat *seat, gpu_op *op, gpu_op *pair,
                  void *arg, const struct gpu_timing *timing)
{
	const size_t n = (size_t)timing->iters;
	double *ops = alloc_or_exit(n, sizeof(*ops));
	double *pairs = alloc_or_exit(n, sizeof(*pairs));
	struct gpu_chain chains[2] = {{.timed = op, .before = op},
	                              {.timed = pair, .before = pair}};
	bool good = true;

	for (int i = 0; i < 2; i++) {
		chains[i].seat = seat;
		chains[i].arg = arg;
		chains[i].n_before = 1;
		chains[i].n = timing->chain;
		good = good && chain_make(&chains[i], timing->graph);
	}
	good = good && (!timing->graph || gpu_time_meet(seat)) &&
	       replay_both(chains, timing, ops, pairs);
	for (size_t i = 0; good && i < n; i++) {
		const double middle = bench_percentile(ops, (int)n, 0.5);

		timing->ns[BENCH_DISPATCH * n + i] = as_ns(ops[i]);
		timing->ns[BENCH_COMBINE * n + i] = as_ns(pairs[i] - middle);
		timing->ns[BENCH_PAIR * n + i] = as_ns(pairs[i]);
	}
	for (int i = 0; i < 2; i++)
		chain_destroy(&chains[i]);
	free(ops);
	free(pairs);
	return good;
}

static bool one_dispatch(void *arg, int32_t i)
{
	(void)i;
	return gpu_rank_dispatch(arg, 0);
}

static bool one_pair(void *arg, int32_t i)
{
	return one_dispatch(arg, i) && gpu_rank_combine(arg, 0);
}

bool gpu_time_phases(struct gpu_rank *rank, const struct gpu_timing *timing)
{
	return gpu_time_ops(rank->seat, one_dispatch, one_pair, rank, timing) &&
	       gpu_rank_sync(rank);
}

bool gpu_time_host(struct gpu_rank *rank, double host_us[BENCH_N_PHASES])
{
	double dispatch[HOST_CALLS], combine[HOST_CALLS];

	for (int i = 0; i < HOST_CALLS; i++) {
		const uint64_t start = ferry_now_ns();

		if (!gpu_rank_dispatch(rank, 0))
			return false;
		const uint64_t middle = ferry_now_ns();

		if (!gpu_rank_combine(rank, 0))
			return false;
		dispatch[i] = (double)(middle - start) / 1e3;
		combine[i] = (double)(ferry_now_ns() - middle) / 1e3;
		/* A full queue of the driver would be counted too. */
		if (i % HOST_BURST == HOST_BURST - 1 && !gpu_rank_sync(rank))
			return false;
	}
	host_us[BENCH_DISPATCH] = bench_percentile(dispatch, HOST_CALLS, 0.5);
	host_us[BENCH_COMBINE] = bench_percentile(combine, HOST_CALLS, 0.5);
	host_us[BENCH_PAIR] = host_us[BENCH_DISPATCH] + host_us[BENCH_COMBINE];
	return true;
}
