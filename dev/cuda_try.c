/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries the kernels of one path without an engine:
 *
 *	cuda_try check KERNEL RANKS SEED CASES [combine]   against the oracle
 *	cuda_try time  KERNEL [TOKENS...]                  chains in graphs
 *
 * KERNEL is lines or chunks, a rung of cuda_rungs.h, or lean, for which cases
 * are made such that it takes them; with combine, every third launch is of
 * lines instead, also of a send alone. Prints what it tries; exit 1 where bits
 * differ.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cuda/dispatch_lean.h"
#include "cuda_figures.h"
#include "cuda_rungs.h"
#include "moe/random_case.h"

/* Launches of the lean kernel; mixed: every third one is not. */
static int n_lean, n_launches;
static bool mixed;

static int launch_lean(const struct ferry_cuda_dispatch *args, int32_t ctas,
                       struct CUstream_st *stream)
{
	static int32_t *unwanted[HARNESS_RANKS];
	struct ferry_cuda_dispatch d = *args;

	if (mixed && n_launches++ % 3 == 0) {
		if (!unwanted[d.ch.rank] &&
		    cudaMalloc((void **)&unwanted[d.ch.rank], 16 << 20))
			return 1;
		d.out.row_token = unwanted[d.ch.rank];
		/* Only recv looks at it, and the lean kernel not at so much. */
		if (d.parts == FERRY_CUDA_SEND)
			d.ch.alignment = 1 << 20;
	}
	if (!ferry_dispatch_lean_fits(&d, ctas))
		return ferry_cuda_dispatch_lines.launch(&d, ctas, stream);
	n_lean++;
	return ferry_dispatch_lean_launch(&d, ctas, stream);
}

/* A case as the lean kernel wants it. */
static void make_lean(struct random_case *c)
{
	struct ferry_moe_config *m = &c->config;
	const bool quantise = c->seed % 3 == 0;

	m->layout = c->seed % 2   ? FERRY_EXPERT_PADDED
	            : c->seed % 4 ? FERRY_TOKEN
	                          : FERRY_EXPERT_PACKED;
	m->group_size = 1;
	m->overflow = 0;
	m->max_recv_rows = 0;
	m->weight_use = FERRY_WEIGHT_OUTPUT;
	m->scale_bytes = m->scale_block = 0;
	m->hidden = (m->hidden % (c->seed % 5 ? 4 : 17) + 1) * 512;
	if (c->seed % 5 == 1) /* about as long as what is guessed of a row */
		m->hidden = (m->hidden / 512 + 13) * 512;
	m->topk = m->topk > 16 ? 16 : m->topk;
	m->dtype = quantise || c->seed % 3 == 1 ? FERRY_FP8_E4M3 : FERRY_BF16;
	m->in_dtype = quantise ? FERRY_BF16 : FERRY_DTYPE_NONE;
	m->scale_type =
		m->dtype == FERRY_BF16 ? FERRY_SCALE_NONE : FERRY_SCALE_FP32;
	if (quantise && c->seed % 5 == 0) {
		m->scale_type = FERRY_SCALE_UE8M0;
		m->hidden = 2048 * (m->hidden / 2048 + 1);
	}
	if (m->layout != FERRY_EXPERT_PADDED)
		return;
	m->alignment = 0;
	/* Room that some batches exceed. */
	if (c->seed % 4 == 1)
		m->max_recv_rows = (int64_t)m->n_ranks * m->max_tokens / 2 + 1;
}

static void step_lean(struct drive_step *s, const struct ferry_moe_config *m)
{
	s->spec.hidden = s->spec.hidden > 512 ? m->hidden / 2048 * 1024 : 0;
	s->leave = (s->leave & 0x70c) | 0x18f0;
	s->slack = s->slack / 16 * 16 % 96;
	s->scale_form = FERRY_SCALES_ROW_MAJOR;
}

struct run {
	struct harness_kernels kernels;
	bool combine, lean;
	uint64_t seed;
	int n_wrong, n_failed, n_steps;
};

static uint64_t seed_of_group(uint64_t seed, int32_t group)
{
	uint64_t state = seed ^ ((uint64_t)(uint32_t)group << 40);

	return traffic_random(&state);
}

static void make_specs(const struct random_case *c,
                       const struct drive_step *step,
                       struct traffic_spec *specs)
{
	for (int32_t r = 0; r < c->config.n_ranks; r++) {
		struct traffic_spec spec = step->spec;
		uint64_t rng;

		spec.favourite = spec.seed;
		spec.seed = seed_of_group(spec.seed, r);
		spec.n_tokens = step->n_tokens[r];
		rng = spec.seed + 1;
		spec.id_type = traffic_chance(&rng, 50) ? FERRY_ID_INT64
		                                        : FERRY_ID_INT32;
		spec.count_by_pointer = traffic_chance(&rng, 30);
		spec.slack = (size_t)traffic_between(&rng, 0, 3);
		spec.no_weights = traffic_chance(&rng, 20);
		specs[r] = spec;
	}
}

static bool both_parts(struct run *run, struct harness *h, int32_t slot,
                       bool fused, bool combine)
{
	const int32_t both = FERRY_CUDA_SEND | FERRY_CUDA_RECV;
	void (*const phase)(struct harness *, int32_t, int32_t) =
		combine ? harness_combine : harness_dispatch;

	if (fused) {
		phase(h, slot, both);
	} else {
		phase(h, slot, FERRY_CUDA_SEND);
		phase(h, slot, FERRY_CUDA_RECV);
	}
	const int wrong = combine ? harness_check_combine(h, slot)
	                          : harness_check_dispatch(h, slot);

	run->n_steps++;
	run->n_wrong += wrong;
	return wrong == 0;
}

static bool step(struct run *run, struct harness *h,
                 const struct random_case *c, int32_t i)
{
	struct traffic_spec specs[HARNESS_RANKS];
	struct drive_step s;
	bool combine;

	random_case_step(c, i, 0, &s, &combine);
	if (run->lean)
		step_lean(&s, &c->config);
	make_specs(c, &s, specs);
	for (int32_t r = 0; run->lean && r < c->config.n_ranks; r++)
		specs[r].slack = specs[r].slack / 3 * 16;
	h->form = (struct harness_form){
		.leave = s.leave,
		.slack = s.slack,
		.scale_form = s.scale_form,
		.from = s.from,
		.residual = s.residual != DRIVE_NO_RESIDUAL,
		.values = s.values,
	};
	const int32_t slot = i % h->shape[0].n_slots;

	harness_batch(h, slot, specs);
	if (!both_parts(run, h, slot, s.fused, false))
		return false;
	if (h->host[0]->record.seal) {
		run->n_failed++;
		return false;
	}
	if (!run->combine || !combine)
		return true;
	harness_answer(h, slot);
	return both_parts(run, h, slot, s.fused, true);
}

static void try_case(struct run *run, uint64_t seed, int32_t n_ranks)
{
	struct random_case c;

	printf("# seed %llu\n", (unsigned long long)seed);
	random_case_make(&c, seed, n_ranks);
	c.config.n_ranks = n_ranks;
	if (run->lean)
		make_lean(&c);
	const char *why = harness_refusal(&c.config, &run->kernels);

	if (why) {
		printf("seed %llu: refused: %s\n", (unsigned long long)seed,
		       why);
		return;
	}
	const int wrong = run->n_wrong;
	struct harness *h =
		harness_open(&c.config, c.placed ? &c.placement : NULL,
	                     &run->kernels, seed * 0x9e3779b97f4a7c15u);
	int32_t i = 0;

	while (i < c.n_steps && step(run, h, &c, i))
		i++;
	if (run->n_wrong != wrong) {
		printf("  step %d of\n", i);
		random_case_print(&c);
	}
	harness_close(h);
}

static int check(const struct harness_kernels *kernels, bool lean, int argc,
                 char **argv)
{
	struct run run = {.kernels = *kernels, .lean = lean};
	const int32_t n_ranks = atoi(argv[0]);
	const uint64_t seed = strtoull(argv[1], NULL, 0);
	const int n_cases = atoi(argv[2]);

	mixed = lean && argc > 3;
	run.combine = argc > 3;
	if (!run.combine)
		run.kernels.combine = NULL;
	for (int i = 0; i < n_cases && run.n_wrong < 5; i++)
		try_case(&run, seed + (uint64_t)i, n_ranks);
	printf("%d ranks, seeds %llu..: %d operations, %d failed as they "
	       "should, %d wrong\n",
	       n_ranks, (unsigned long long)seed, run.n_steps, run.n_failed,
	       run.n_wrong);
	if (lean)
		printf("%d launches of the lean kernel\n", n_lean);
	return run.n_wrong != 0;
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
	harness_dispatch(h, 0, l.parts);
	const int wrong = harness_check_dispatch(h, 0);
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
	struct ferry_cuda_dispatch_ops ops = ferry_cuda_dispatch_lines;
	struct harness_kernels kernels;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || !rungs_find(lean ? "lines" : argv[2], &kernels)) {
		printf("cuda_try check|time KERNEL ...: see cuda_try.c\n");
		return 2;
	}
	ops.launch = launch_lean;
	if (lean)
		kernels.dispatch = &ops;
	if (strcmp(argv[1], "time") == 0)
		return times(&kernels, argc - 3, argv + 3);
	if (strcmp(argv[1], "check") == 0 && argc > 5)
		return check(&kernels, lean, argc - 3, argv + 3);
	printf("cuda_try check KERNEL RANKS SEED CASES: see cuda_try.c\n");
	return 2;
}
