/* SPDX-License-Identifier: Apache-2.0 */
/* Times of chains of operations, one graph for each rank. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda_harness_inner.h"

struct chain {
	cudaGraphExec_t exec;
	cudaEvent_t begin, end;
};

/* The first body only brings the ranks together; it is not timed. */
static void record(struct harness *h, struct chain *c,
                   void (*body)(struct harness *h, void *arg, int32_t rank),
                   void *arg, int32_t rank, int32_t n)
{
	struct CUstream_st *s = h->stream[rank];
	cudaGraph_t graph;

	harness_on(h, rank);
	CU(cudaEventCreate(&c->begin));
	CU(cudaEventCreate(&c->end));
	CU(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	for (int32_t i = 0; i < 4; i++)
		body(h, arg, rank);
	CU(cudaEventRecordWithFlags(c->begin, s, cudaEventRecordExternal));
	for (int32_t i = 0; i < n; i++)
		body(h, arg, rank);
	CU(cudaEventRecordWithFlags(c->end, s, cudaEventRecordExternal));
	CU(cudaStreamEndCapture(s, &graph));
	CU(cudaGraphInstantiate(&c->exec, graph, 0));
	CU(cudaGraphUpload(c->exec, s));
	CU(cudaGraphDestroy(graph));
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Slowest rank's mean of one replay. */
static double replay(struct harness *h, struct chain *chains, int32_t n)
{
	double slowest = 0;

	for (int32_t r = 0; r < h->n_ranks; r++) {
		harness_on(h, r);
		CU(cudaGraphLaunch(chains[r].exec, h->stream[r]));
	}
	harness_sync(h);
	for (int32_t r = 0; r < h->n_ranks; r++) {
		float ms;

		harness_on(h, r);
		CU(cudaEventElapsedTime(&ms, chains[r].begin, chains[r].end));
		if ((double)ms * 1e3 / n > slowest)
			slowest = (double)ms * 1e3 / n;
	}
	return slowest;
}

double harness_time(struct harness *h,
                    void (*body)(struct harness *h, void *arg, int32_t rank),
                    void *arg, int32_t n, int32_t replays, double *p99)
{
	struct chain chains[HARNESS_RANKS];
	double *us = calloc((size_t)replays, sizeof(*us));

	for (int32_t r = 0; r < h->n_ranks; r++)
		record(h, &chains[r], body, arg, r, n);
	for (int32_t i = 0; i < 5; i++)
		replay(h, chains, n);
	for (int32_t i = 0; i < replays; i++)
		us[i] = replay(h, chains, n);
	qsort(us, (size_t)replays, sizeof(*us), by_value);
	const double p50 = us[replays / 2];

	if (p99)
		*p99 = us[(int64_t)replays * 99 / 100];
	for (int32_t r = 0; r < h->n_ranks; r++) {
		harness_on(h, r);
		CU(cudaGraphExecDestroy(chains[r].exec));
		CU(cudaEventDestroy(chains[r].begin));
		CU(cudaEventDestroy(chains[r].end));
	}
	free(us);
	return p50;
}

/* One phase of ranks in turn; events NULL: it is not timed. */
static void record_phase(struct harness *h,
                         void (*body)(struct harness *h, void *arg,
                                      int32_t rank),
                         struct harness_launch l, cudaEvent_t (*events)[2])
{
	struct CUstream_st *s = h->stream[0];

	for (int32_t r = 0; r < h->n_ranks; r++) {
		if (events) {
			harness_spin(h, r, 20000);
			CU(cudaEventRecordWithFlags(events[r][0], s,
			                            cudaEventRecordExternal));
		}
		if (body)
			body(h, &l, r);
		if (events)
			CU(cudaEventRecordWithFlags(events[r][1], s,
			                            cudaEventRecordExternal));
	}
}

/* [n][n_ranks] begin and end of each timed phase. */
static cudaGraphExec_t
record_alone(struct harness *h,
             void (*body)(struct harness *h, void *arg, int32_t rank),
             struct harness_launch timed, int32_t n, cudaEvent_t (*events)[2])
{
	struct CUstream_st *s = h->stream[0];
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	CU(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	for (int32_t i = 0; i < n; i++)
		for (int32_t parts = FERRY_CUDA_SEND; parts <= FERRY_CUDA_RECV;
		     parts++)
			record_phase(h, body,
			             (struct harness_launch){timed.slot, parts},
			             parts == timed.parts
			                     ? events + i * h->n_ranks
			                     : NULL);
	CU(cudaStreamEndCapture(s, &graph));
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphUpload(exec, s));
	CU(cudaGraphDestroy(graph));
	return exec;
}

static double replay_alone(struct harness *h, cudaGraphExec_t exec, int32_t n,
                           cudaEvent_t (*events)[2])
{
	double slowest = 0;

	CU(cudaGraphLaunch(exec, h->stream[0]));
	harness_sync(h);
	for (int32_t r = 0; r < h->n_ranks; r++) {
		double sum = 0;

		for (int32_t i = 0; i < n; i++) {
			cudaEvent_t *e = events[i * h->n_ranks + r];
			float ms;

			CU(cudaEventElapsedTime(&ms, e[0], e[1]));
			sum += (double)ms * 1e3 / n;
		}
		slowest = sum > slowest ? sum : slowest;
	}
	return slowest;
}

/* body NULL: only the events. */
static double
median_alone(struct harness *h,
             void (*body)(struct harness *h, void *arg, int32_t rank),
             struct harness_launch timed, int32_t n, int32_t replays)
{
	const size_t n_events = (size_t)n * (size_t)h->n_ranks;
	cudaEvent_t(*events)[2] = calloc(n_events, sizeof(*events));
	double *us = calloc((size_t)replays, sizeof(*us));

	for (size_t i = 0; i < n_events; i++) {
		CU(cudaEventCreate(&events[i][0]));
		CU(cudaEventCreate(&events[i][1]));
	}
	const cudaGraphExec_t exec = record_alone(h, body, timed, n, events);

	for (int32_t i = -3; i < replays; i++) {
		const double one = replay_alone(h, exec, n, events);

		if (i >= 0)
			us[i] = one;
	}
	qsort(us, (size_t)replays, sizeof(*us), by_value);
	const double p50 = us[replays / 2];

	CU(cudaGraphExecDestroy(exec));
	for (size_t i = 0; i < n_events; i++) {
		CU(cudaEventDestroy(events[i][0]));
		CU(cudaEventDestroy(events[i][1]));
	}
	free(events);
	free(us);
	return p50;
}

double
harness_time_alone(struct harness *h,
                   void (*body)(struct harness *h, void *arg, int32_t rank),
                   struct harness_launch timed, int32_t n, int32_t replays)
{
	return median_alone(h, body, timed, n, replays) -
	       median_alone(h, NULL, timed, n, replays);
}

void harness_spin(struct harness *h, int32_t rank, uint32_t ns)
{
	harness_on(h, rank);
	CU(harness_launch_spin(ns, 1, h->stream[rank]));
}
