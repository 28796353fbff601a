/* SPDX-License-Identifier: Apache-2.0 */
/* The two floors of a figure, from everybody's ids. */
#include "gpu_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "alloc.h"

/* See gpu_count_flow. */
struct flow {
	uint64_t *tokens, *choices;
};

static void count_token(const struct bench_case *c, const int32_t *ids,
                        uint64_t *tokens, uint64_t *choices)
{
	for (int32_t k = 0; k < c->topk; k++) {
		if (ids[k] < 0)
			continue;
		const int32_t owner = bench_owner(c, ids[k]);
		bool first = true;

		for (int32_t j = 0; j < k && first; j++)
			first = ids[j] < 0 || bench_owner(c, ids[j]) != owner;
		tokens[owner] += first;
		choices[owner]++;
	}
}

void gpu_count_flow(const struct bench_case *c, uint64_t *tokens,
                    uint64_t *choices)
{
	const size_t n = (size_t)c->n_ranks;
	const size_t of_rank = (size_t)c->tokens * (size_t)c->topk;
	int32_t *ids = alloc_or_exit(of_rank, sizeof(*ids));
	float *weights = alloc_or_exit(of_rank, sizeof(*weights));

	memset(tokens, 0, n * n * sizeof(*tokens));
	memset(choices, 0, n * n * sizeof(*choices));
	for (int32_t r = 0; r < c->n_ranks; r++) {
		bench_make_routing(c, r, BENCH_TIMED_STEP, ids, weights);
		for (int32_t t = 0; t < bench_tokens(c, r); t++)
			count_token(c, ids + (size_t)t * (size_t)c->topk,
			            tokens + (size_t)r * n,
			            choices + (size_t)r * n);
	}
	free(ids);
	free(weights);
}

/* Traffic of one GPU. */
struct load {
	uint64_t out, in, memory;
};

static uint64_t most(const struct load *loads, int32_t n, bool link)
{
	uint64_t most = 0;

	for (int32_t g = 0; g < n; g++) {
		const uint64_t one = !link ? loads[g].memory
		                     : loads[g].out > loads[g].in ? loads[g].out
		                                                  : loads[g].in;

		most = one > most ? one : most;
	}
	return most;
}

/* Rows of rank `from` for rank `to`, which are not the same. */
static void add_row_flow(struct load *loads, int32_t n_gpus, int32_t from,
                         int32_t to, uint64_t bytes)
{
	if (from % n_gpus == to % n_gpus)
		return;
	loads[from % n_gpus].out += bytes;
	loads[to % n_gpus].in += bytes;
}

static void count_dispatch(const struct bench_case *c, const struct flow *f,
                           int32_t n_gpus, struct gpu_bytes *bytes,
                           struct load *loads)
{
	const uint64_t raw = (uint64_t)c->hidden * 2;
	const uint64_t row =
		bench_row_bytes(c) + (uint64_t)bench_scales(c) * sizeof(float);
	const bool token = c->layout == FERRY_TOKEN;

	for (int32_t to = 0; to < c->n_ranks; to++) {
		struct load *load = &loads[to % n_gpus];

		load->memory +=
			(uint64_t)bench_tokens(c, to) * (c->ready ? row : raw);
		for (int32_t from = 0; from < c->n_ranks; from++) {
			const int32_t at = from * c->n_ranks + to;
			const uint64_t rows = f->tokens[at] * row;

			if (!token)
				load->memory += f->choices[at] * row;
			if (from == to) {
				load->memory += token ? rows : 0;
				continue;
			}
			load->memory += token ? rows : 2 * rows;
			bytes->wire[BENCH_DISPATCH] += rows;
			add_row_flow(loads, n_gpus, from, to, rows);
		}
	}
}

static void count_combine(const struct bench_case *c, const struct flow *f,
                          int32_t n_gpus, struct gpu_bytes *bytes,
                          struct load *loads)
{
	const uint64_t raw = (uint64_t)c->hidden * 2;
	const bool exact = c->combine == FERRY_EXACT;
	const bool summed = !exact && c->layout == FERRY_TOKEN;

	/* Tokens of `home` were served at `at`; rows go home. */
	for (int32_t home = 0; home < c->n_ranks; home++) {
		struct load *load = &loads[home % n_gpus];

		load->memory += (uint64_t)bench_tokens(c, home) * raw;
		for (int32_t at = 0; at < c->n_ranks; at++) {
			const int32_t i = home * c->n_ranks + at;
			const uint64_t rows =
				(exact ? f->choices[i] : f->tokens[i]) * raw;

			loads[at % n_gpus].memory +=
				summed ? rows : f->choices[i] * raw;
			if (home == at)
				continue;
			load->memory += 2 * rows;
			bytes->wire[BENCH_COMBINE] += rows;
			add_row_flow(loads, n_gpus, at, home, rows);
		}
	}
}

void gpu_count_bytes(const struct bench_case *c, int32_t n_gpus,
                     struct gpu_bytes *bytes)
{
	const size_t n = (size_t)n_gpus;
	struct load *loads = alloc_or_exit(2 * n, sizeof(*loads));
	const size_t pairs = (size_t)c->n_ranks * (size_t)c->n_ranks;
	const struct flow f = {
		alloc_or_exit(pairs, sizeof(*f.tokens)),
		alloc_or_exit(pairs, sizeof(*f.choices)),
	};

	*bytes = (struct gpu_bytes){0};
	gpu_count_flow(c, f.tokens, f.choices);
	count_dispatch(c, &f, n_gpus, bytes, loads);
	count_combine(c, &f, n_gpus, bytes, loads + n);
	for (int p = BENCH_DISPATCH; p <= BENCH_COMBINE; p++) {
		bytes->link[p] = most(loads + (size_t)p * n, n_gpus, true);
		bytes->memory[p] = most(loads + (size_t)p * n, n_gpus, false);
		bytes->wire[BENCH_PAIR] += bytes->wire[p];
		bytes->link[BENCH_PAIR] += bytes->link[p];
		bytes->memory[BENCH_PAIR] += bytes->memory[p];
	}
	free(loads);
	free(f.tokens);
	free(f.choices);
}

void gpu_count_exchange(const struct bench_case *c, bool dense,
                        struct gpu_bytes *bytes)
{
	const size_t pairs = (size_t)c->n_ranks * (size_t)c->n_ranks;
	const uint64_t row =
		bench_row_bytes(c) + (uint64_t)bench_scales(c) * sizeof(float);
	const struct flow f = {
		alloc_or_exit(pairs, sizeof(*f.tokens)),
		alloc_or_exit(pairs, sizeof(*f.choices)),
	};
	uint64_t rows = 0;

	gpu_count_flow(c, f.tokens, f.choices);
	for (int32_t from = 0; from < c->n_ranks; from++)
		for (int32_t to = 0; to < c->n_ranks; to++) {
			const int32_t experts = bench_first_expert(c, to + 1) -
			                        bench_first_expert(c, to);

			if (from != to)
				rows += dense ? (uint64_t)experts *
				                        (uint64_t)c->tokens
				              : f.choices[from * c->n_ranks +
				                          to];
		}
	bytes->wire[BENCH_DISPATCH] = rows * row;
	bytes->wire[BENCH_COMBINE] = rows * (uint64_t)c->hidden * 2;
	bytes->wire[BENCH_PAIR] = bytes->wire[0] + bytes->wire[1];
	free(f.tokens);
	free(f.choices);
}

double gpu_floor_us(const struct gpu_bytes *bytes, int phase,
                    double link_bytes_per_s, double memory_bytes_per_s)
{
	const double link =
		link_bytes_per_s > 0
			? (double)bytes->link[phase] / link_bytes_per_s * 1e6
			: 0;
	const double memory = memory_bytes_per_s > 0
	                              ? (double)bytes->memory[phase] /
	                                        memory_bytes_per_s * 1e6
	                              : 0;

	return link > memory ? link : memory;
}
