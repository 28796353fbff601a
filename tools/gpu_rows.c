/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows ferry bench --device cuda measures: those of the options, or
 * those of --figures with the targets of docs/performance.md.
 */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "gpu_bench.h"

const char *const gpu_impl_names[] = {"ferry", "nccl", "nccl-dense",
                                      "nvshmem-dense"};

enum {
	ROWS_MAX = 512,
	REPLAY_US = 800,
	LARGE_REPLAYS = 40, /* of operations that take long */
	LARGE_US = 150,
	CHAIN_MIN = 4,
	CHAIN_MAX = 48,
};

/* A dense exchange beyond this says nothing new and takes long. */
static const uint64_t DENSE_MAX_BYTES = 512ull << 20;

static const int32_t figure_tokens[] = {1,   8,   32,   64,   128,
                                        256, 512, 1024, 2048, 4096};

enum { N_FIGURE_TOKENS = sizeof(figure_tokens) / sizeof(*figure_tokens) };

/* Where rows go, for a target. */
enum where { EXPERT_MAJOR, TOKENS, ANYWHERE };
enum type { BF16_ROWS, FP8_ROWS, ANY_ROWS };

struct target {
	int32_t tokens;
	enum bench_phase phase;
	enum type type;
	enum where where;
	int combine; /* enum ferry_combine_mode; -1: any */
	int32_t max_sms, split_us;
	double us;
};

/* Of two H200s, a rank each, hidden 7168, top-8 of 256; ends with 0 tokens. */
static const struct target targets_of_2[] = {
	{1, BENCH_DISPATCH, FP8_ROWS, EXPERT_MAJOR, -1, 0, 0, 5.5},
	{1, BENCH_COMBINE, ANY_ROWS, EXPERT_MAJOR, FERRY_REDUCED, 0, 0, 6},
	{128, BENCH_DISPATCH, FP8_ROWS, EXPERT_MAJOR, -1, 0, 0, 9.5},
	{128, BENCH_DISPATCH, BF16_ROWS, EXPERT_MAJOR, -1, 0, 0, 12},
	{128, BENCH_DISPATCH, BF16_ROWS, TOKENS, -1, 0, 0, 10},
	{128, BENCH_COMBINE, ANY_ROWS, ANYWHERE, FERRY_EXACT, 0, 0, 27},
	{128, BENCH_COMBINE, ANY_ROWS, EXPERT_MAJOR, FERRY_REDUCED, 0, 0, 11},
	{128, BENCH_COMBINE, ANY_ROWS, TOKENS, FERRY_REDUCED, 0, 0, 9},
	{4096, BENCH_DISPATCH, FP8_ROWS, TOKENS, -1, 0, 0, 95},
	{4096, BENCH_DISPATCH, FP8_ROWS, EXPERT_MAJOR, -1, 0, 0, 130},
	{4096, BENCH_DISPATCH, BF16_ROWS, TOKENS, -1, 0, 0, 175},
	{4096, BENCH_DISPATCH, BF16_ROWS, EXPERT_MAJOR, -1, 0, 0, 235},
	{4096, BENCH_COMBINE, ANY_ROWS, TOKENS, FERRY_REDUCED, 0, 0, 185},
	{4096, BENCH_COMBINE, ANY_ROWS, EXPERT_MAJOR, FERRY_REDUCED, 0, 0, 230},
	{4096, BENCH_COMBINE, ANY_ROWS, ANYWHERE, FERRY_EXACT, 0, 0, 720},
	/* 15 % more on 32 multiprocessors. */
	{4096, BENCH_DISPATCH, FP8_ROWS, TOKENS, -1, 32, 0, 109.25},
	{4096, BENCH_DISPATCH, BF16_ROWS, TOKENS, -1, 32, 0, 201.25},
	{4096, BENCH_COMBINE, ANY_ROWS, TOKENS, FERRY_REDUCED, 32, 0, 212.75},
	/* What recv adds behind 20 us of other work. */
	{128, BENCH_DISPATCH, ANY_ROWS, TOKENS, -1, 0, 20, 3},
	{128, BENCH_DISPATCH, FP8_ROWS, EXPERT_MAJOR, -1, 0, 20, 7},
	{128, BENCH_DISPATCH, BF16_ROWS, EXPERT_MAJOR, -1, 0, 20, 9},
	{128, BENCH_COMBINE, ANY_ROWS, ANYWHERE, FERRY_REDUCED, 0, 20, 3},
	{128, BENCH_COMBINE, ANY_ROWS, ANYWHERE, FERRY_EXACT, 0, 20, 7},
	{0},
};

/* The same of eight. */
static const struct target targets_of_8[] = {
	{1, BENCH_DISPATCH, FP8_ROWS, EXPERT_MAJOR, -1, 0, 0, 9},
	{1, BENCH_COMBINE, ANY_ROWS, EXPERT_MAJOR, FERRY_REDUCED, 0, 0, 9},
	{128, BENCH_DISPATCH, FP8_ROWS, EXPERT_MAJOR, -1, 0, 0, 20},
	{128, BENCH_COMBINE, ANY_ROWS, EXPERT_MAJOR, FERRY_REDUCED, 0, 0, 32},
	{4096, BENCH_DISPATCH, FP8_ROWS, TOKENS, -1, 32, 0, 450},
	{4096, BENCH_COMBINE, ANY_ROWS, TOKENS, FERRY_REDUCED, 32, 0, 875},
	{0},
};

static bool target_fits(const struct target *t, const struct gpu_row *row)
{
	const struct bench_case *c = &row->shape;
	const bool token = c->layout == FERRY_TOKEN;

	return t->tokens == c->tokens && t->max_sms == c->max_sms &&
	       t->split_us == row->split_us &&
	       (t->type == ANY_ROWS || (t->type == FP8_ROWS) == c->ready) &&
	       !(t->phase == BENCH_DISPATCH && c->fp8 && !c->ready) &&
	       (t->where == ANYWHERE || (t->where == TOKENS) == token) &&
	       (t->combine < 0 || t->combine == (int)c->combine);
}

static void set_targets(struct gpu_row *row)
{
	const struct bench_case *c = &row->shape;
	const struct target *t = c->n_ranks == 2   ? targets_of_2
	                         : c->n_ranks == 8 ? targets_of_8
	                                           : NULL;

	if (!t || row->impl != GPU_FERRY || c->hidden != 7168 || c->topk != 8 ||
	    c->experts != 256 || c->routing != BENCH_UNIFORM)
		return;
	for (; t->tokens; t++)
		if (target_fits(t, row))
			row->target_us[t->phase] = t->us;
}

bool gpu_row_is_dense(const struct gpu_row *row)
{
	return row->impl == GPU_NCCL_DENSE || row->impl == GPU_NVSHMEM_DENSE;
}

/* Of a pair, by rates that GPUs reach. */
static double guess_us(const struct gpu_row *row)
{
	return 20 + gpu_floor_us(&row->bytes, BENCH_PAIR, 2e11, 2e12);
}

/*
 * Operations of a replay, about REPLAY_US: a pure function of the shape,
 * because ranks must agree.
 */
static int32_t chain_of(const struct gpu_bench *b, const struct gpu_row *row)
{
	const int64_t asked = b->run->options->chain;
	const int32_t n = (int32_t)(REPLAY_US / guess_us(row));

	if (asked)
		return (int32_t)asked;
	if (gpu_row_is_dense(row))
		return 1; /* a multiple of any other's bytes */
	return n < CHAIN_MIN ? CHAIN_MIN : n > CHAIN_MAX ? CHAIN_MAX : n;
}

static struct gpu_row *add_row(struct gpu_bench *b, const struct bench_case *c,
                               enum gpu_impl impl, int32_t split_us)
{
	if (b->n_rows == ROWS_MAX)
		return &b->rows[ROWS_MAX - 1];
	struct gpu_row *row = &b->rows[b->n_rows++];

	*row = (struct gpu_row){
		.shape = *c,
		.impl = impl,
		.split_us = split_us,
		.rounds = alloc_or_exit((size_t)b->n_rounds,
	                                sizeof(struct bench_result)),
	};
	set_targets(row);
	return row;
}

/* Exchanges that move the same bytes are measured once. */
static bool has_baseline(const struct gpu_bench *b, const struct bench_case *c,
                         enum gpu_impl impl)
{
	for (int i = 0; i < b->n_rows; i++) {
		const struct bench_case *other = &b->rows[i].shape;

		if (b->rows[i].impl == impl && other->tokens == c->tokens &&
		    other->hidden == c->hidden && other->topk == c->topk &&
		    other->experts == c->experts && other->fp8 == c->fp8)
			return true;
	}
	return false;
}

static uint64_t dense_bytes(const struct bench_case *c)
{
	const uint64_t experts =
		(uint64_t)c->experts / (uint64_t)c->n_ranks + 1;

	return experts * (uint64_t)c->tokens * (uint64_t)c->n_ranks *
	       (uint64_t)c->hidden * 2;
}

static void add_baseline(struct gpu_bench *b, const struct bench_case *c)
{
	const int baseline = b->run->options->baseline;
	const bool dense = dense_bytes(c) <= DENSE_MAX_BYTES;

	if (baseline == BENCH_BASELINE_NCCL && !has_baseline(b, c, GPU_NCCL)) {
		add_row(b, c, GPU_NCCL, 0);
		if (dense)
			add_row(b, c, GPU_NCCL_DENSE, 0);
	}
	if (baseline == BENCH_BASELINE_NVSHMEM && dense &&
	    !has_baseline(b, c, GPU_NVSHMEM_DENSE))
		add_row(b, c, GPU_NVSHMEM_DENSE, 0);
}

/* How a shape of the figures is asked for. */
struct variant {
	bool fp8, ready;
	enum ferry_layout layout;
	enum ferry_combine_mode combine;
};

/*
 * Every layout with every type, and every combine. The first ones have every
 * layout and combine too, and are what other shapes are measured with. What
 * quantises on the way has no target.
 */
static const struct variant variants[] = {
	{true, true, FERRY_EXPERT_PACKED, FERRY_REDUCED},
	{false, false, FERRY_EXPERT_PADDED, FERRY_EXACT},
	{false, false, FERRY_TOKEN, FERRY_REDUCED},
	{false, false, FERRY_EXPERT_PACKED, FERRY_REDUCED},
	{true, true, FERRY_EXPERT_PADDED, FERRY_EXACT},
	{true, true, FERRY_TOKEN, FERRY_REDUCED},
	{true, false, FERRY_EXPERT_PADDED, FERRY_REDUCED},
	{true, false, FERRY_TOKEN, FERRY_EXACT},
};

enum {
	N_FIRST_VARIANTS = 3,
	N_VARIANTS = sizeof(variants) / sizeof(*variants),
};

static struct bench_case vary(const struct bench_case *c, int v, int32_t tokens)
{
	struct bench_case varied = *c;

	varied.tokens = tokens;
	varied.fp8 = variants[v].fp8;
	varied.ready = variants[v].ready;
	varied.layout = variants[v].layout;
	varied.combine = variants[v].combine;
	return varied;
}

bool gpu_row_has_target(const struct gpu_row *row)
{
	for (int p = 0; p < BENCH_N_PHASES; p++)
		if (row->target_us[p] > 0)
			return true;
	return false;
}

/* At which the less common shapes are measured. */
static const int32_t fewer_tokens[] = {1, 128, 4096};

enum { N_FEWER_TOKENS = sizeof(fewer_tokens) / sizeof(*fewer_tokens) };

static bool few_tokens(int32_t tokens)
{
	for (int i = 0; i < N_FEWER_TOKENS; i++)
		if (fewer_tokens[i] == tokens)
			return true;
	return false;
}

static void add_variants(struct gpu_bench *b, const struct bench_case *c,
                         int32_t tokens, int n_variants)
{
	const bool only_targets =
		b->run->options->figures == BENCH_FIGURES_TARGETS;

	for (int v = 0; v < n_variants; v++) {
		const struct bench_case one = vary(c, v, tokens);
		const struct gpu_row *row = add_row(b, &one, GPU_FERRY, 0);
		const bool quantises = one.fp8 && !one.ready;

		if ((only_targets || (quantises && !few_tokens(tokens))) &&
		    !gpu_row_has_target(row))
			free(b->rows[--b->n_rows].rounds);
		else if (c->hidden == 7168 && c->experts == 256)
			add_baseline(b, &one);
	}
}

static void add_special(struct gpu_bench *b, const struct bench_case *c)
{
	for (int v = 0; v < N_VARIANTS; v++) {
		struct bench_case one = vary(c, v, 4096);

		one.max_sms = 32;
		if (one.layout == FERRY_TOKEN && one.fp8 == one.ready)
			add_row(b, &one, GPU_FERRY, 0);
	}
	for (int v = 0; v < N_VARIANTS; v++) {
		const struct bench_case one = vary(c, v, 128);

		if (!one.fp8 || one.ready)
			add_row(b, &one, GPU_FERRY, 20);
	}
}

static void add_other_shapes(struct gpu_bench *b, const struct bench_case *c)
{
	static const struct {
		int32_t hidden, experts, topk;
	} shapes[] = {
		{2048, 128, 8}, {2880, 32, 4}, {4096, 8, 2}, {7168, 384, 8}};

	for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++)
		for (int t = 0; t < N_FEWER_TOKENS; t++) {
			struct bench_case one = *c;

			one.hidden = shapes[s].hidden;
			one.experts = shapes[s].experts;
			one.topk = shapes[s].topk;
			add_variants(b, &one, fewer_tokens[t],
			             N_FIRST_VARIANTS);
		}
}

static void add_figures(struct gpu_bench *b)
{
	struct bench_case c = bench_shape(b->run->options, 0);

	c.hidden = 7168;
	c.experts = 256;
	c.topk = 8;
	for (int i = 0; i < N_FIGURE_TOKENS; i++)
		add_variants(b, &c, figure_tokens[i], N_VARIANTS);
	add_special(b, &c);
	if (b->run->options->figures == BENCH_FIGURES_ALL)
		add_other_shapes(b, &c);
}

static void add_options(struct gpu_bench *b)
{
	const struct bench_options *o = b->run->options;
	const int n = o->sweep ? N_FIGURE_TOKENS : o->tokens.n;

	for (int i = 0; i < n; i++) {
		struct bench_case c = bench_shape(o, o->sweep ? 0 : i);

		if (o->sweep)
			c.tokens = figure_tokens[i];
		add_row(b, &c, GPU_FERRY, 0);
		if (o->split)
			add_row(b, &c, GPU_FERRY, (int32_t)o->split);
		add_baseline(b, &c);
	}
}

void gpu_rows_make(struct gpu_bench *b)
{
	const int32_t n_ranks = (int32_t)b->run->options->ranks;
	const int32_t n_gpus = b->facts.n_devices < 1 ? 1
	                       : b->facts.n_devices < n_ranks
	                               ? b->facts.n_devices
	                               : n_ranks;

	b->rows = alloc_or_exit(ROWS_MAX, sizeof(*b->rows));
	if (b->run->options->figures == BENCH_FIGURES_NONE)
		add_options(b);
	else
		add_figures(b);
	for (int i = 0; i < b->n_rows; i++) {
		struct gpu_row *row = &b->rows[i];

		bench_count_bytes(&row->shape, &row->logical);
		gpu_count_bytes(&row->shape, n_gpus, &row->bytes);
		if (row->impl != GPU_FERRY)
			gpu_count_exchange(&row->shape, gpu_row_is_dense(row),
			                   &row->bytes);
		row->chain = chain_of(b, row);
		row->iters = b->iters;
		if (guess_us(row) > LARGE_US && b->iters > LARGE_REPLAYS &&
		    b->run->options->figures != BENCH_FIGURES_NONE)
			row->iters = LARGE_REPLAYS;
	}
}

void gpu_rows_free(struct gpu_bench *b)
{
	for (int i = 0; i < b->n_rows; i++)
		free(b->rows[i].rounds);
	free(b->rows);
}
