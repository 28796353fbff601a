/* SPDX-License-Identifier: Apache-2.0 */
/* What recv adds to the stream behind other work; see gpu_time.h. */
#include <stdlib.h>

#include "alloc.h"
#include "cuda/cuda_yard.h"
#include "gpu_time.h"

struct split;
typedef bool split_op(struct split *split);

/* A rank whose operations are taken apart, with an event on either side. */
struct split {
	struct gpu_rank *rank;
	uint64_t work_ns;
	unsigned flags;     /* how events are recorded */
	int32_t n;          /* operations of a replay */
	cudaEvent_t *begin; /* [n] */
	cudaEvent_t *end;   /* [n] */
};

static bool mark(const struct split *s, cudaEvent_t event)
{
	return gpu_good(s->rank->seat->me,
	                cudaEventRecordWithFlags(event, s->rank->seat->stream,
	                                         s->flags),
	                "event");
}

static bool work(const struct split *s)
{
	return gpu_good(s->rank->seat->me,
	                (cudaError_t)ferry_cuda_yard_spin(
				s->work_ns, s->rank->seat->stream),
	                "other work");
}

static bool dispatch_apart(struct split *s)
{
	struct gpu_rank *r = s->rank;
	const struct crew_member *me = r->seat->me;
	cudaStream_t stream = r->seat->stream;

	for (int32_t i = 0; i < s->n; i++)
		if (!crew_good(me,
		               ferry_dispatch_send(r->moe, 0, &r->in, stream),
		               "dispatch_send") ||
		    !work(s) || !mark(s, s->begin[i]) ||
		    !crew_good(me,
		               ferry_dispatch_recv(r->moe, 0, &r->got, stream),
		               "dispatch_recv") ||
		    !mark(s, s->end[i]))
			return false;
	return true;
}

static bool combine_apart(struct split *s)
{
	struct gpu_rank *r = s->rank;
	const struct crew_member *me = r->seat->me;
	cudaStream_t stream = r->seat->stream;

	for (int32_t i = 0; i < s->n; i++)
		if (!gpu_rank_dispatch(r, 0) ||
		    !crew_good(me,
		               ferry_combine_send(r->moe, 0, &r->back, stream),
		               "combine_send") ||
		    !work(s) || !mark(s, s->begin[i]) ||
		    !crew_good(me,
		               ferry_combine_recv(r->moe, 0, &r->sum, stream),
		               "combine_recv") ||
		    !mark(s, s->end[i]))
			return false;
	return true;
}

static bool only_events(struct split *s)
{
	for (int32_t i = 0; i < s->n; i++)
		if (!work(s) || !mark(s, s->begin[i]) || !mark(s, s->end[i]))
			return false;
	return true;
}

/* NULL after a complaint. */
static cudaGraphExec_t capture(struct split *s, split_op *op)
{
	const struct gpu_seat *seat = s->rank->seat;
	cudaGraphExec_t exec = NULL;
	cudaGraph_t graph = NULL;

	if (!gpu_good(seat->me,
	              cudaStreamBeginCapture(seat->stream,
	                                     cudaStreamCaptureModeThreadLocal),
	              "capture"))
		return NULL;
	const bool good = op(s);
	const cudaError_t ended = cudaStreamEndCapture(seat->stream, &graph);

	if (good && gpu_good(seat->me, ended, "end of capture") &&
	    !gpu_good(seat->me, cudaGraphInstantiate(&exec, graph, 0),
	              "making a graph"))
		exec = NULL;
	if (graph)
		cudaGraphDestroy(graph);
	return exec;
}

/*
 * One replay: nanoseconds between the events of an operation, the mean. The
 * first one brings the ranks together and does not count.
 */
static bool replay(struct split *s, cudaGraphExec_t exec, split_op *op,
                   double *ns)
{
	const struct gpu_seat *seat = s->rank->seat;
	double sum = 0;

	if (!(exec ? gpu_good(seat->me, cudaGraphLaunch(exec, seat->stream),
	                      "graph")
	           : op(s)) ||
	    !gpu_good(seat->me, cudaStreamSynchronize(seat->stream), "waiting"))
		return false;
	for (int32_t i = 1; i < s->n; i++) {
		float ms = 0;

		if (!gpu_good(seat->me,
		              cudaEventElapsedTime(&ms, s->begin[i], s->end[i]),
		              "elapsed time"))
			return false;
		sum += (double)ms * 1e6;
	}
	*ns = sum / (s->n - 1);
	return true;
}

static bool replays(struct split *s, split_op *op,
                    const struct gpu_timing *timing, double *ns)
{
	cudaGraphExec_t exec = timing->graph ? capture(s, op) : NULL;
	bool good = !timing->graph || (exec && gpu_time_meet(s->rank->seat));

	for (int32_t i = -timing->warmup; good && i < timing->iters; i++) {
		double one = 0;

		good = replay(s, exec, op, &one);
		if (i >= 0)
			ns[i] = one;
	}
	if (exec)
		cudaGraphExecDestroy(exec);
	return good;
}

/* The three chains, one after the other; the last one is subtracted. */
static bool measure(struct split *s, const struct gpu_timing *timing)
{
	static split_op *const ops[] = {dispatch_apart, combine_apart};
	const size_t n = (size_t)timing->iters;
	double *ns = alloc_or_exit(n, sizeof(*ns));
	bool good = replays(s, only_events, timing, ns);
	const double nothing = good ? bench_percentile(ns, (int)n, 0.5) : 0;

	for (size_t p = BENCH_DISPATCH; good && p <= BENCH_COMBINE; p++) {
		good = replays(s, ops[p], timing, ns);
		for (size_t i = 0; good && i < n; i++)
			timing->ns[p * n + i] =
				ns[i] > nothing + 1
					? (uint64_t)(ns[i] - nothing)
					: 1;
	}
	free(ns);
	return good && gpu_rank_sync(s->rank);
}

bool gpu_time_split(struct gpu_rank *rank, const struct gpu_timing *timing)
{
	const int32_t n = timing->chain > 2 ? timing->chain : 2;
	struct split s = {
		.rank = rank,
		.work_ns = (uint64_t)timing->split_us * 1000,
		.flags = timing->graph ? cudaEventRecordExternal
	                               : cudaEventRecordDefault,
		.n = n,
		.begin = alloc_or_exit((size_t)n, sizeof(*s.begin)),
		.end = alloc_or_exit((size_t)n, sizeof(*s.end)),
	};
	bool good = true;

	for (int32_t i = 0; good && i < n; i++)
		good = gpu_good(rank->seat->me, cudaEventCreate(&s.begin[i]),
		                "event") &&
		       gpu_good(rank->seat->me, cudaEventCreate(&s.end[i]),
		                "event");
	good = good && measure(&s, timing);
	for (int32_t i = 0; i < n; i++) {
		if (s.begin[i])
			cudaEventDestroy(s.begin[i]);
		if (s.end[i])
			cudaEventDestroy(s.end[i]);
	}
	free(s.begin);
	free(s.end);
	return good;
}
