/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries the kernels of one path without an engine:
 *
 *	cuda_try check KERNEL RANKS SEED CASES [combine|quotas|refused]
 *	                                    against the oracle
 *	cuda_try time  KERNEL [even|quota] [TOKENS...]     chains in graphs
 *	cuda_try send  KERNEL [even|quota] [TOKENS...]     send alone
 *	cuda_try recv  KERNEL [even|quota] [TOKENS...]
 *	                                    recv alone, when all has arrived:
 *	                                    as send, two ranks that have one
 *	                                    GPU in turn
 *
 * KERNEL is lines or chunks, a rung of cuda_rungs.h, or lean, for which cases
 * are made such that it takes them; with combine, every third launch is of
 * lines instead, also of a send alone. Quotas: every expert is on every rank,
 * and tokens go by split QUOTA. Refused: the first batch of a case that is not
 * empty has ids or a count out of range. even, quota: a quarter of the experts
 * has two replicas, and the placement this split. Prints what it tries; exit 1
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
	run->quotas = argc > 3 && !strcmp(argv[3], "quotas");
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

/* What is timed. */
struct timed {
	const struct harness_kernels *kernels;
	int32_t parts; /* alone; 0: chains */
	bool placed;
	enum ferry_split split;
};

enum { PER_RANK = 128, COPIES = 32, SLOTS = 2 * (PER_RANK + COPIES) };

/* Each rank has half of the experts, and copies of some of the other's. */
static struct harness *open_figure(const struct timed *t,
                                   struct ferry_moe_config config)
{
	static const int32_t slots[2] = {PER_RANK + COPIES, PER_RANK + COPIES};
	static struct ferry_placement_config p = FERRY_PLACEMENT_CONFIG_INIT;
	static int32_t expert[SLOTS];
	static int64_t quota[SLOTS];

	if (!t->placed)
		return harness_open(&config, NULL, t->kernels, 77);
	for (int32_t s = 0; s < SLOTS; s++) {
		const int32_t rank = s / slots[0], own = s % slots[0];

		expert[s] = own < PER_RANK
		                    ? rank * PER_RANK + own
		                    : (1 - rank) * PER_RANK + own - PER_RANK;
		quota[s] = 1 + s % 7;
	}
	config.expert_slots = slots;
	p.n_experts = config.n_experts;
	p.n_ranks = config.n_ranks;
	p.expert_slots = slots;
	p.slot_expert = expert;
	p.split = t->split;
	p.quota = t->split == FERRY_SPLIT_QUOTA ? quota : NULL;
	return harness_open(&config, &p, t->kernels, 77);
}

static int time_figure(const struct timed *t, const struct figure *f,
                       int32_t n_tokens)
{
	const struct harness_kernels *kernels = t->kernels;
	struct harness *h = open_figure(t, figure_config(f, n_tokens));
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
		l.parts = t->parts;
		const double alone =
			harness_time_alone(h, harness_dispatch_rank, l, 20, 51);

		print_marks(h);
		printf("%-22s %5d tokens: %s %7.2f us, %d wrong\n", f->name,
		       n_tokens, t->parts == FERRY_CUDA_SEND ? "send" : "recv",
		       alone, wrong);
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

static int times(struct timed *t, int argc, char **argv)
{
	const int32_t usual[] = {1, 8, 32, 128};
	int wrong = 0;

	if (argc && (!strcmp(argv[0], "even") || !strcmp(argv[0], "quota"))) {
		t->placed = true;
		t->split =
			*argv[0] == 'q' ? FERRY_SPLIT_QUOTA : FERRY_SPLIT_EVEN;
		argc--;
		argv++;
	}
	for (size_t f = 0; f < N_FIGURES; f++) {
		for (int i = 0; i < (argc ? argc : 4); i++)
			wrong += time_figure(t, &figures[f],
			                     argc ? atoi(argv[i]) : usual[i]);
	}
	return wrong != 0;
}

int main(int argc, char **argv)
{
	const bool lean = argc > 2 && strcmp(argv[2], "lean") == 0;
	struct try_check run = {.n_wrong = 0};
	struct timed timed = {.kernels = &run.kernels};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || !rungs_find(lean ? "lines" : argv[2], &run.kernels)) {
		printf("cuda_try check|time|send|recv KERNEL ...: see "
		       "cuda_try.c\n");
		return 2;
	}
	if (lean)
		try_check_lean(&run);
	if (strcmp(argv[1], "send") == 0)
		timed.parts = FERRY_CUDA_SEND;
	if (strcmp(argv[1], "recv") == 0)
		timed.parts = FERRY_CUDA_RECV;
	run.kernels.in_turn = timed.parts != 0;
	if (strcmp(argv[1], "time") == 0 || run.kernels.in_turn)
		return times(&timed, argc - 3, argv + 3);
	if (strcmp(argv[1], "check") == 0 && argc > 5)
		return check(&run, argc - 3, argv + 3);
	printf("cuda_try check KERNEL RANKS SEED CASES: see cuda_try.c\n");
	return 2;
}
