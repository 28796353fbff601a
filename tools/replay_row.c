/* SPDX-License-Identifier: Apache-2.0 */
/* From the cells of a run to one row of the report. */
#include <stdlib.h>

#include "core/bits.h"
#include "replay.h"
#include "route_parts.h"

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The value that `percent` of the n sorted ones do not exceed. */
static double percentile(const double *sorted, int64_t n, int percent)
{
	return sorted[max_i64(div_up(n * percent, 100) - 1, 0)];
}

static void add_cell(const struct replay_cell *c, struct replay_row *row)
{
	const bool moved = c->n_swaps || c->n_copies || c->n_fetched;

	row->ratio_mean += c->ratio;
	row->before_mean += c->before;
	row->bound_mean += c->bound;
	row->swaps_mean += c->n_swaps;
	row->copies_mean += c->n_copies;
	row->fetched_mean += c->n_fetched;
	row->moved_share += moved;
	row->improved_share += moved && c->ratio < c->before;
	if (c->ratio / c->bound - 1 > row->bound_worst_gap)
		row->bound_worst_gap = c->ratio / c->bound - 1;
}

static void end_means(const struct replay_config *config, double n,
                      struct replay_row *row)
{
	row->improved_share = row->moved_share > 0
	                              ? row->improved_share / row->moved_share
	                              : 0;
	row->ratio_mean /= n;
	row->before_mean /= n;
	row->bound_mean /= n;
	row->swaps_mean /= n;
	row->copies_mean /= n;
	row->fetched_mean /= n;
	row->moved_share /= n;
	row->moves_mean = row->swaps_mean + row->copies_mean;
	row->fetched_bytes_mean =
		row->fetched_mean * (double)config->expert_bytes;
}

static void add_layers(const struct route *route,
                       const struct replay_cell *cells, struct replay_row *row)
{
	for (int32_t layer = 0; layer < route->n_layers; layer++) {
		for (int32_t step = 0; step < route->n_steps; step++) {
			const struct replay_cell *const c =
				&cells[(int64_t)step * route->n_layers + layer];

			row->layer_before[layer] += c->before / route->n_steps;
			row->layer_ratio[layer] += c->ratio / route->n_steps;
		}
	}
}

bool replay_summarise(const struct replay_config *config,
                      enum replay_policy policy,
                      const struct replay_cell *cells, struct replay_row *row,
                      struct fault *fault)
{
	const struct route *const route = config->route;
	const int64_t n = (int64_t)route->n_steps * route->n_layers;
	const size_t n_layers = (size_t)route->n_layers;
	double *ratios = NULL, *times = NULL;

	*row = (struct replay_row){.policy = policy};
	const bool good =
		route_alloc((size_t)n, sizeof(*ratios), &ratios, fault) &&
		route_alloc((size_t)n, sizeof(*times), &times, fault) &&
		route_alloc(n_layers, sizeof(double), &row->layer_before,
	                    fault) &&
		route_alloc(n_layers, sizeof(double), &row->layer_ratio, fault);

	if (good) {
		for (int64_t i = 0; i < n; i++) {
			add_cell(&cells[i], row);
			ratios[i] = cells[i].ratio;
			times[i] = (double)cells[i].plan_ns / 1e3;
		}
		end_means(config, (double)n, row);
		add_layers(route, cells, row);
		qsort(ratios, (size_t)n, sizeof(*ratios), compare);
		qsort(times, (size_t)n, sizeof(*times), compare);
		row->ratio_p95 = percentile(ratios, n, 95);
		row->ratio_worst = ratios[n - 1];
		row->plan_us_p50 = percentile(times, n, 50);
		row->plan_us_p99 = percentile(times, n, 99);
	}
	free(ratios);
	free(times);
	return good;
}

void replay_row_free(struct replay_row *row)
{
	free(row->layer_before);
	free(row->layer_ratio);
}
