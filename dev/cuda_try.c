/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries the kernels of one path without an engine:
 *
 *	cuda_try check KERNEL RANKS SEED CASES [combine|refused]
 *	                                    against the oracle
 *	cuda_try time  KERNEL [TOKENS...]                  chains in graphs
 *	cuda_try recv  KERNEL [TOKENS...]   recv alone, when all has
 *	                                    arrived: two ranks that have one
 *	                                    GPU in turn
 *
 * KERNEL is lines or chunks, a rung of cuda_rungs.h, or lean, for which cases
 * are made such that it takes them; with combine, every third launch is of
 * lines instead, also of a send alone. Refused: the first batch of a case that
 * is not empty has ids or a count out of range. Prints what it tries; exit 1
 * where bits differ.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cuda_figures.h"
#include "cuda_rungs.h"
#include "cuda_try_check.h"

static int check(struct try_check *run, int argc, char **argv)
{
	const int32_t n_ranks = atoi(argv[0]);
	const uint64_t seed = strtoull(argv[1], NULL, 0);
	const int n_cases = atoi(argv[2]);

	run->refused = argc > 3 && !strcmp(argv[3], "refused");
	run->mixed = run->lean && argc > 3;
	if (argc <= 3)
		run->kernels.combine = NULL;
	for (int i = 0; i < n_cases && run->n_wrong < 5; i++)
		try_check_case(run, seed + (uint64_t)i, n_ranks);
	printf("%d ranks, seeds %llu..: %d operations, %d failed as they "
	       "should, %d wrong\n",
	       n_ranks, (unsigned long long)seed, run->n_steps, run->n_failed,
	       run->n_wrong);
	if (run->lean)
		printf("%d launches of the lean kernel\n", run->n_lean);
	return run->n_wrong != 0;
}

struct split {
	int32_t slot;
	bool recv;
};

static void send_work_recv(struct harness *h, void *arg, int32_t rank)
{
	struct harness_launch l = {((struct split *)arg)->slot,
	                           FERRY_CUDA_SEND};

	harness_dispatch_rank(h, &l, rank);
	harness_spin(h, rank, 20000);
	l.parts = FERRY_CUDA_RECV;
	harness_dispatch_rank(h, &l, rank);
}

enum { MARKS = 32, BLOCKS = 132 };

static int by_size(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Least, median and most of a mark, of blocks behind the first. */
static void print_mark(int64_t (*m)[MARKS], int i)
{
	int64_t v[BLOCKS];
	int n = 0;

	for (int b = 1; b < BLOCKS; b++)
		if (m[b][i])
			v[n++] = m[b][i] - m[b][0];
	if (n == 0)
		return;
	qsort(v, (size_t)n, sizeof(*v), by_size);
	printf("  mark %2d: clerk %6lld, others %6lld %6lld %6lld\n", i,
	       m[0][i] ? (long long)(m[0][i] - m[0][0]) : 0, (long long)v[0],
	       (long long)v[n / 2], (long long)v[n - 1]);
}

/*
 * Of a build with LEAN_TRACE, cycles from mark 0 of each block, as
 * dispatch_lean_trace.cuh has left them.
 */
static void print_marks(struct harness *h)
{
	const uintptr_t at = (uintptr_t)h->op[0][0].scratch;
	int64_t m[BLOCKS][MARKS];

	if (h->op[0][0].scratch_bytes < sizeof(m))
		return;
	if (cudaMemcpy(m, (void *)((at + 15) & ~(uintptr_t)15), sizeof(m),
	               cudaMemcpyDefault))
		exit(1);
	for (int i = 0; i < MARKS; i++)
		print_mark(m, i);
}

static int time_figure(const struct harness_kernels *kernels,
                       const struct figure *f, int32_t n_tokens)
{
	const struct ferry_moe_config config = figure_config(f, n_tokens);
	struct harness *h = harness_open(&config, NULL, kernels, 77);
	struct harness_launch l = {0, FERRY_CUDA_SEND | FERRY_CUDA_RECV};
	struct split split = {.slot = 0};
	struct traffic_spec specs[2];
	double p99;

	for (int i = 0; i < 2; i++)
		specs[i] = (struct traffic_spec){.seed = 11 + (uint64_t)i,
		                                 .n_tokens = n_tokens};
	h->form.leave = ~(1u << 1 | 1u << 2 | 1u << 3 | 1u << 8);
	harness_batch(h, 0, specs);
	if (kernels->in_turn) {
		harness_dispatch(h, 0, FERRY_CUDA_SEND);
		harness_dispatch(h, 0, FERRY_CUDA_RECV);
	} else {
		harness_dispatch(h, 0, l.parts);
	}
	const int wrong = harness_check_dispatch(h, 0);

	if (kernels->in_turn) {
		const double recv =
			harness_time_recv(h, harness_dispatch_rank, 0, 20, 51);

		print_marks(h);
		printf("%-22s %5d tokens: recv %7.2f us, %d wrong\n", f->name,
		       n_tokens, recv, wrong);
		harness_close(h);
		return wrong;
	}
	const double p50 =
		harness_time(h, harness_dispatch_rank, &l, 50, 101, &p99);
	const double both =
		harness_time(h, send_work_recv, &split, 20, 51, NULL);

	print_marks(h);
	printf("%-22s %5d tokens: %7.2f us, p99 %7.2f; split %7.2f + 20, "
	       "%d wrong\n",
	       f->name, n_tokens, p50, p99, both - 20, wrong);
	harness_close(h);
	return wrong;
}

static int times(const struct harness_kernels *kernels, int argc, char **argv)
{
	const int32_t usual[] = {1, 8, 32, 128};
	int wrong = 0;

	for (size_t f = 0; f < N_FIGURES; f++) {
		for (int i = 0; i < (argc ? argc : 4); i++)
			wrong += time_figure(kernels, &figures[f],
			                     argc ? atoi(argv[i]) : usual[i]);
	}
	return wrong != 0;
}

int main(int argc, char **argv)
{
	const bool lean = argc > 2 && strcmp(argv[2], "lean") == 0;
	struct try_check run = {.n_wrong = 0};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || !rungs_find(lean ? "lines" : argv[2], &run.kernels)) {
		printf("cuda_try check|time|recv KERNEL ...: see cuda_try.c\n");
		return 2;
	}
	if (lean)
		try_check_lean(&run);
	run.kernels.in_turn = strcmp(argv[1], "recv") == 0;
	if (strcmp(argv[1], "time") == 0 || run.kernels.in_turn)
		return times(&run.kernels, argc - 3, argv + 3);
	if (strcmp(argv[1], "check") == 0 && argc > 5)
		return check(&run, argc - 3, argv + 3);
	printf("cuda_try check KERNEL RANKS SEED CASES: see cuda_try.c\n");
	return 2;
}
