/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of one implementation on one shape, from samples to medians. */
#include "bench_result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"

const char *const bench_phase_names[BENCH_N_PHASES] = {"dispatch", "combine",
                                                       "pair"};

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_percentile(const double *values, int n, double share)
{
	double *sorted = alloc_or_exit((size_t)n, sizeof(*sorted));
	const int rank = (int)ceil(share * n - 1e-9);

	memcpy(sorted, values, (size_t)n * sizeof(*sorted));
	qsort(sorted, (size_t)n, sizeof(*sorted), by_value);
	const double value = sorted[rank < 1 ? 0 : rank - 1];

	free(sorted);
	return value;
}

void bench_summarize(struct bench_result *result, const uint64_t *ns,
                     int32_t n_ranks, int32_t iters)
{
	const size_t n = (size_t)iters;
	double *us = alloc_or_exit(n, sizeof(*us));

	for (size_t p = 0; p < BENCH_N_PHASES; p++) {
		struct bench_figure *figure = &result->phase[p];

		for (size_t i = 0; i < n; i++) {
			us[i] = 0;
			for (size_t r = 0; r < (size_t)n_ranks; r++) {
				const uint64_t t =
					ns[(r * BENCH_N_PHASES + p) * n + i];

				if ((double)t / 1e3 > us[i])
					us[i] = (double)t / 1e3;
			}
		}
		figure->p50_us = bench_percentile(us, iters, 0.50);
		figure->p99_us = bench_percentile(us, iters, 0.99);
		figure->max_us = bench_percentile(us, iters, 1);
	}
	free(us);
}

/* The field of figures that lies `offset` bytes in: its median. */
static double median(const struct bench_result *rounds, int n, int phase,
                     size_t offset)
{
	double *values = alloc_or_exit((size_t)n, sizeof(*values));
	int used = 0;

	for (int i = 0; i < n; i++) {
		const struct bench_figure *f = &rounds[i].phase[phase];

		if (f->p50_us > 0)
			values[used++] = *(
				const double *)(const void *)((const char *)f +
			                                      offset);
	}
	const double middle = used ? bench_percentile(values, used, 0.5) : 0;

	free(values);
	return middle;
}

struct bench_result bench_merge(const struct bench_result *rounds, int n)
{
	struct bench_result all = {0};

	for (int p = 0; p < BENCH_N_PHASES; p++) {
		struct bench_figure *figure = &all.phase[p];

		figure->p50_us = median(rounds, n, p,
		                        offsetof(struct bench_figure, p50_us));
		figure->p99_us = median(rounds, n, p,
		                        offsetof(struct bench_figure, p99_us));
		for (int i = 0; i < n; i++) {
			const struct bench_figure *f = &rounds[i].phase[p];

			if (f->max_us > figure->max_us)
				figure->max_us = f->max_us;
			if (f->wire_bytes)
				figure->wire_bytes = f->wire_bytes;
			if (f->host_bytes)
				figure->host_bytes = f->host_bytes;
			if (rounds[i].least_host_bytes[p])
				all.least_host_bytes[p] =
					rounds[i].least_host_bytes[p];
			figure->wrong += f->wrong;
		}
	}
	for (int i = 0; i < n; i++)
		if (rounds[i].n_hosts) {
			all.n_hosts = rounds[i].n_hosts;
			all.table_bytes = rounds[i].table_bytes;
		}
	return all;
}

struct counts {
	uint64_t tokens;  /* that have any expert */
	uint64_t choices; /* that are not masked */
	uint64_t pairs;   /* different (token, rank) */
};

static void count_token(const struct bench_case *c, const int32_t *ids,
                        struct counts *n)
{
	const uint64_t before = n->choices;

	for (int32_t k = 0; k < c->topk; k++) {
		bool new_rank = ids[k] >= 0;

		n->choices += ids[k] >= 0;
		for (int32_t j = 0; j < k && new_rank; j++)
			new_rank = ids[j] < 0 || bench_owner(c, ids[j]) !=
			                                 bench_owner(c, ids[k]);
		n->pairs += new_rank;
	}
	n->tokens += n->choices > before;
}

void bench_count_bytes(const struct bench_case *c, struct bench_bytes *bytes)
{
	const size_t of_rank = (size_t)c->tokens * (size_t)c->topk;
	int32_t *ids = alloc_or_exit(of_rank, sizeof(*ids));
	float *weights = alloc_or_exit(of_rank, sizeof(*weights));
	const uint64_t raw = (uint64_t)c->hidden * 2;
	const uint64_t row =
		bench_row_bytes(c) + (uint64_t)bench_scales(c) * sizeof(float);
	const bool token = c->layout == FERRY_TOKEN;
	struct counts n = {0};
	uint64_t all_tokens = 0;

	for (int32_t r = 0; r < c->n_ranks; r++) {
		bench_make_routing(c, r, 0, ids, weights);
		for (int32_t t = 0; t < bench_tokens(c, r); t++)
			count_token(c, ids + (size_t)t * (size_t)c->topk, &n);
		all_tokens += (uint64_t)bench_tokens(c, r);
	}
	const uint64_t in = token ? n.pairs : n.choices;
	const uint64_t back =
		token && c->combine == FERRY_REDUCED ? n.pairs : n.choices;
	const uint64_t logical[] = {n.choices * row, n.choices * raw};
	const uint64_t own = c->ready ? row : raw;
	const uint64_t floors[] = {n.tokens * own + in * row,
	                           back * raw + all_tokens * raw};

	*bytes = (struct bench_bytes){
		.logical = {logical[0], logical[1], logical[0] + logical[1]},
		.floor = {floors[0], floors[1], floors[0] + floors[1]},
	};
	free(ids);
	free(weights);
}

/* Other hosts that serve a token of a rank. */
static uint64_t count_hosts(const struct bench_case *c, const int32_t *ids,
                            const int32_t *host, int32_t own)
{
	uint64_t n = 0;

	for (int32_t k = 0; k < c->topk; k++) {
		bool is_new =
			ids[k] >= 0 && host[bench_owner(c, ids[k])] != own;

		for (int32_t j = 0; j < k && is_new; j++)
			is_new = ids[j] < 0 ||
			         host[bench_owner(c, ids[j])] !=
			                 host[bench_owner(c, ids[k])];
		n += is_new;
	}
	return n;
}

void bench_count_host_bytes(const struct bench_case *c, const int32_t *host,
                            uint64_t least[BENCH_N_PHASES])
{
	const size_t of_rank = (size_t)c->tokens * (size_t)c->topk;
	int32_t *ids = alloc_or_exit(of_rank, sizeof(*ids));
	float *weights = alloc_or_exit(of_rank, sizeof(*weights));
	const uint64_t row =
		bench_row_bytes(c) + (uint64_t)bench_scales(c) * sizeof(float);
	uint64_t n = 0;

	for (int32_t r = 0; r < c->n_ranks; r++) {
		bench_make_routing(c, r, BENCH_TIMED_STEP, ids, weights);
		for (int32_t t = 0; t < bench_tokens(c, r); t++)
			n += count_hosts(c, ids + (size_t)t * (size_t)c->topk,
			                 host, host[r]);
	}
	free(ids);
	free(weights);
	least[BENCH_DISPATCH] = n * row;
	least[BENCH_COMBINE] = n * (uint64_t)c->hidden * 2;
	least[BENCH_PAIR] = least[BENCH_DISPATCH] + least[BENCH_COMBINE];
}
