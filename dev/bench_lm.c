/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of a model's stages on one thread: bench_lm [MODEL [SEQUENCES LENGTH]].
 * Without a model only products are measured, of the shapes of the small model
 * and of Qwen3-30B-A3B. CPU time, least of some runs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/bits.h"
#include "lm_blas.h"
#include "lm_layer.h"

enum { RUNS = 5 };

static uint64_t seed = 1;

/* Of this thread, so that company counts less. */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *memory(size_t n, size_t size)
{
	void *const data = calloc(n + 1, size);

	if (!data)
		exit(1);
	return data;
}

static void good(bool is_good, const struct fault *fault)
{
	if (is_good)
		return;
	fprintf(stderr, "%s\n", fault->text);
	exit(1);
}

static void fill(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(rng_next(&seed) >> 40) * 0x1p-23f - 1;
}

/* Gflop/s of one product. */
static double product(struct lm_tile_work *work, int32_t n_out, int32_t n_in,
                      int32_t n_rows)
{
	uint16_t *const halves = memory((size_t)n_out * (size_t)n_in, 2);
	float *const in = memory((size_t)n_rows * (size_t)n_in, sizeof(*in));
	float *const out = memory((size_t)n_rows * (size_t)n_out, sizeof(*in));
	const struct lm_matrix weight = {halves, LM_BF16, n_out, n_in};
	const struct lm_rows from = {in, (size_t)n_in, false};
	const struct lm_rows to = {out, (size_t)n_out, false};
	const double flops = 2.0 * n_out * n_in * n_rows;
	const int32_t times = 1 + (int32_t)(2e8 / flops);
	uint64_t least = UINT64_MAX;

	for (int64_t i = 0; i < (int64_t)n_out * n_in; i++)
		halves[i] = (uint16_t)(0x3c00 + (rng_next(&seed) & 0x80ff));
	fill(in, (size_t)n_rows * (size_t)n_in);
	for (int32_t run = 0; run < RUNS; run++) {
		const uint64_t start = cpu_ns();

		for (int32_t i = 0; i < times; i++)
			lm_tile_product(work, &weight, &from, n_rows, &to);
		const uint64_t ns = cpu_ns() - start;

		least = ns < least ? ns : least;
	}
	free(halves);
	free(in);
	free(out);
	return flops * times / (double)least;
}

static void products(void)
{
	static const int32_t shapes[][2] = {
		{32, 128},    {128, 32},   {64, 128},     {128, 128},
		{6144, 128},  {768, 2048}, {2048, 768},   {4096, 2048},
		{2048, 4096}, {128, 2048}, {16384, 2048},
	};
	static const int32_t rows[] = {16, 20, 64, 200, 500};
	struct lm_tile_work *work;
	struct fault fault;

	good(lm_tile_open(&work, &fault), &fault);
	printf("# Gflop/s of products\n%7s %6s", "outputs", "inputs");
	for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
		printf(" %5d rows", rows[r]);
	for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
		printf("\n%7d %6d", shapes[s][0], shapes[s][1]);
		for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
			printf(" %10.1f", product(work, shapes[s][0],
			                          shapes[s][1], rows[r]));
	}
	printf("\n");
	lm_tile_close(work);
}

enum stage {
	EMBED,
	ATTENTION,
	ROUTER,
	CHOOSE,
	GATHER,
	EXPERTS,
	HEAD,
	N_STAGES
};

static const char *const stage_names[N_STAGES] = {
	"embed", "attention", "router", "choose", "gather", "experts", "head",
};

struct bench {
	struct lm_model model;
	struct lm_work *work;
	struct lm_batch batch;
	int32_t n;
	float *h, *x, *logits, *weights, *rows, *out, *head;
	int32_t *ids;
	uint64_t mark;
	uint64_t ns[N_STAGES];
};

static void lap(struct bench *b, enum stage stage)
{
	const uint64_t now = cpu_ns();

	b->ns[stage] += now - b->mark;
	b->mark = now;
}

static void experts(struct bench *b, int32_t layer)
{
	const struct lm_config *const c = &b->model.config;
	const size_t hidden = (size_t)c->hidden;

	for (int32_t e = 0; e < c->n_experts; e++) {
		const struct lm_matrix *const m =
			b->model.layers[layer].experts[e];
		const void *const tensors[] = {m[LM_GATE].data, m[LM_UP].data,
		                               m[LM_DOWN].data};
		int32_t n = 0;

		for (int32_t i = 0; i < b->n * c->topk; i++)
			if (b->ids[i] == e)
				memcpy(b->rows + (size_t)n++ * hidden,
				       b->x + (size_t)(i / c->topk) * hidden,
				       hidden * sizeof(*b->x));
		lap(b, GATHER);
		lm_expert(&b->model, b->work, tensors, b->rows, n, b->out);
		lap(b, EXPERTS);
	}
}

static void step(struct bench *b)
{
	struct fault fault;

	memset(b->ns, 0, sizeof(b->ns));
	b->mark = cpu_ns();
	lm_embed(&b->model, &b->batch, b->h);
	lap(b, EMBED);
	for (int32_t l = 0; l < b->model.config.n_layers; l++) {
		lm_attention(&b->model, b->work, l, &b->batch, b->h);
		lap(b, ATTENTION);
		lm_router(&b->model, b->work, l, b->h, b->n, b->x, b->logits);
		lap(b, ROUTER);
		good(lm_choose(&b->model, b->logits, b->n, b->ids, b->weights,
		               &fault),
		     &fault);
		lap(b, CHOOSE);
		experts(b, l);
	}
	lm_head(&b->model, b->work, b->h, b->n, b->head);
	lap(b, HEAD);
}

/* Multiplications and additions of the products of a step. */
static void count_flops(const struct bench *b, double *flops)
{
	const struct lm_config *const c = &b->model.config;
	const double n = 2.0 * b->n, hidden = c->hidden;
	const double q = c->n_heads * c->head_dim;
	const double kv = c->n_kv_heads * c->head_dim;
	const double keys = b->batch.lengths[0] / 2.0;

	flops[ATTENTION] =
		n * c->n_layers * (hidden * (2 * q + 2 * kv) + 2 * q * keys);
	flops[ROUTER] = n * c->n_layers * hidden * c->n_experts;
	flops[EXPERTS] =
		n * c->n_layers * c->topk * 3 * hidden * c->expert_hidden;
	flops[HEAD] = n * hidden * c->vocab;
}

static void bench_open(struct bench *b, const char *directory, int32_t n,
                       int32_t length)
{
	const struct lm_config *const c = &b->model.config;
	struct fault fault;

	good(lm_model_open(directory, &b->model, &fault), &fault);
	b->n = n * length;
	int32_t *const lengths = memory((size_t)n, sizeof(*lengths));
	int32_t *const tokens = memory((size_t)b->n, sizeof(*tokens));
	const size_t rows = (size_t)b->n, hidden = (size_t)c->hidden;

	for (int32_t s = 0; s < n; s++)
		lengths[s] = length;
	for (int32_t i = 0; i < b->n; i++)
		tokens[i] = (int32_t)(rng_next(&seed) % (uint64_t)c->vocab);
	b->batch = (struct lm_batch){n, lengths, tokens};
	b->h = memory(rows * hidden, sizeof(*b->h));
	b->x = memory(rows * hidden, sizeof(*b->x));
	b->logits = memory(rows * (size_t)c->n_experts, sizeof(*b->logits));
	b->weights = memory(rows * (size_t)c->topk, sizeof(*b->weights));
	b->ids = memory(rows * (size_t)c->topk, sizeof(*b->ids));
	b->rows = memory(rows * hidden * (size_t)c->topk, sizeof(*b->rows));
	b->out = memory(rows * hidden * (size_t)c->topk, sizeof(*b->out));
	b->head = memory(rows * (size_t)c->vocab, sizeof(*b->head));
	good(lm_work_open(&b->model, b->n, length, &b->work, &fault), &fault);
}

static void stages(const char *directory, int32_t n, int32_t length)
{
	struct bench b = {.n = 0};
	uint64_t least[N_STAGES], sum = 0;
	double flops[N_STAGES] = {0};

	memset(least, 0xff, sizeof(least));
	bench_open(&b, directory, n, length);
	for (int32_t run = 0; run < RUNS; run++) {
		step(&b);
		for (int32_t s = 0; s < N_STAGES; s++)
			if (b.ns[s] < least[s])
				least[s] = b.ns[s];
	}
	count_flops(&b, flops);
	printf("# %d sequences of %d tokens\n", n, length);
	for (int32_t s = 0; s < N_STAGES; s++) {
		printf("%-9s %9.2f ms %7.1f Gflop/s\n", stage_names[s],
		       (double)least[s] / 1e6, flops[s] / (double)least[s]);
		sum += least[s];
	}
	printf("%-9s %9.2f ms\n", "all", (double)sum / 1e6);
}

int main(int argc, char **argv)
{
	struct fault fault;

	if (!lm_blas_open(&fault)) {
		printf("%s\n", fault.text);
		return 1;
	}
	if (argc < 2)
		products();
	else
		stages(argv[1], argc > 3 ? atoi(argv[2]) : 2,
		       argc > 3 ? atoi(argv[3]) : 512);
	return 0;
}
