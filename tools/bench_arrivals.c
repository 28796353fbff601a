/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank must receive, and in which order, from everybody's ids. */
#include <stdlib.h>

#include "alloc.h"
#include "bench_verify.h"

struct routing {
	int32_t *ids;
	float *weights;
};

static void routing_make(struct routing *all, const struct bench_case *c,
                         uint64_t step)
{
	const size_t of_rank = (size_t)c->tokens * (size_t)c->topk;
	const size_t n = of_rank * (size_t)c->n_ranks;

	all->ids = alloc_or_exit(n, sizeof(*all->ids));
	all->weights = alloc_or_exit(n, sizeof(*all->weights));
	for (int32_t r = 0; r < c->n_ranks; r++)
		bench_make_routing(c, r, step, all->ids + (size_t)r * of_rank,
		                   all->weights + (size_t)r * of_rank);
}

static void routing_free(struct routing *all)
{
	free(all->ids);
	free(all->weights);
}

/* Counts rows of each own slot, and tokens that have any. */
static void count(struct bench_arrivals *a, const struct bench_case *c,
                  int32_t first, const struct routing *all)
{
	for (int32_t r = 0; r < c->n_ranks; r++) {
		const int32_t *ids = all->ids + (size_t)r * (size_t)c->tokens *
		                                        (size_t)c->topk;

		for (int32_t t = 0; t < bench_tokens(c, r); t++) {
			bool here = false;

			for (int32_t k = 0; k < c->topk; k++) {
				const int32_t slot = *ids++ - first;

				if (slot < 0 || slot >= a->n_slots)
					continue;
				a->counts[slot]++;
				here = true;
			}
			a->n_tokens += here;
		}
	}
	for (int32_t s = 0; s < a->n_slots; s++)
		a->offsets[s + 1] = a->offsets[s] + a->counts[s];
	a->n = a->offsets[a->n_slots];
}

/* next[slot]: arrivals of the slot that are already in the list. */
static void fill(struct bench_arrivals *a, const struct bench_case *c,
                 int32_t rank, const struct routing *all, int64_t padded_rows,
                 int64_t *next)
{
	const int32_t first = bench_first_expert(c, rank);
	const size_t of_rank = (size_t)c->tokens * (size_t)c->topk;
	int64_t *order = a->order;

	for (int32_t r = 0; r < c->n_ranks; r++)
		for (int32_t i = 0; i < bench_tokens(c, r) * c->topk; i++) {
			const size_t at = (size_t)r * of_rank + (size_t)i;
			const int32_t slot = all->ids[at] - first;

			if (slot < 0 || slot >= a->n_slots)
				continue;
			const int64_t n = next[slot]++;
			const int64_t place = a->offsets[slot] + n;

			*order++ = place;
			a->list[place] = (struct bench_arrival){
				.row = c->layout == FERRY_EXPERT_PADDED
			                       ? slot * padded_rows + n
			                       : place,
				.slot = slot,
				.expert = all->ids[at],
				.source = r,
				.token = i / c->topk,
				.choice = i % c->topk,
				.weight = all->weights[at],
			};
		}
}

void bench_arrivals_make(struct bench_arrivals *arrivals,
                         const struct bench_case *c, int32_t rank,
                         uint64_t step, int64_t padded_rows)
{
	const int32_t first = bench_first_expert(c, rank);
	const size_t n_slots =
		(size_t)(bench_first_expert(c, rank + 1) - first);
	int64_t *next = alloc_or_exit(n_slots, sizeof(*next));
	struct routing all;

	*arrivals = (struct bench_arrivals){
		.n_slots = (int32_t)n_slots,
		.counts = alloc_or_exit(n_slots, sizeof(int64_t)),
		.offsets = alloc_or_exit(n_slots + 1, sizeof(int64_t)),
	};
	routing_make(&all, c, step);
	count(arrivals, c, first, &all);
	arrivals->list =
		alloc_or_exit((size_t)arrivals->n, sizeof(*arrivals->list));
	arrivals->order =
		alloc_or_exit((size_t)arrivals->n, sizeof(*arrivals->order));
	fill(arrivals, c, rank, &all, padded_rows, next);
	routing_free(&all);
	free(next);
}

void bench_arrivals_free(struct bench_arrivals *arrivals)
{
	free(arrivals->list);
	free(arrivals->order);
	free(arrivals->counts);
	free(arrivals->offsets);
	*arrivals = (struct bench_arrivals){0};
}
