/* SPDX-License-Identifier: Apache-2.0 */
/* What a balancer has done: counters, and their Prometheus text. */
#include "../core/sized.h"
#include "../trace/events.h"
#include "balancer_inner.h"

#define FIELD(field) offsetof(struct ferry_balancer_stats, field)

/* Rows of one name follow each other. */
static const struct ferry_prom_metric metrics[] = {
	{"ferry_balancer_commits_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(n_commits), "Steps of layers."},
	{"ferry_balancer_predictions_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(n_predictions), "Of them with a prediction."},
	{"ferry_balancer_left_alone_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(n_left_alone), "Predictions below the threshold."},
	{"ferry_balancer_below_margin_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(n_below_margin), "Predictions whose plan promised too little."},
	{"ferry_balancer_moved_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(n_moved), "Steps that moved experts of any rank."},
	{"ferry_balancer_by_history_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(n_by_history), "Of them towards EPLB's placement."},
	{"ferry_balancer_held_back_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(n_held_back), "Plans without enough staging."},
	{"ferry_balancer_moves_total", "counter", "swap", FERRY_PROM_COUNT,
         FIELD(n_swaps), "Moves of committed plans."},
	{"ferry_balancer_moves_total", "counter", "copy", FERRY_PROM_COUNT,
         FIELD(n_copies), NULL},
	{"ferry_balancer_predicted_imbalance_total", "counter", "before",
         FERRY_PROM_PPM, FIELD(before_ppm),
         "Sums of max/mean over predictions."},
	{"ferry_balancer_predicted_imbalance_total", "counter", "after",
         FERRY_PROM_PPM, FIELD(after_ppm), NULL},
	{"ferry_balancer_compared_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(n_compared), "Predictions whose truth is known."},
	{"ferry_balancer_true_tokens_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(true_tokens), "True loads of those."},
	{"ferry_balancer_wrong_tokens_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(wrong_tokens), "Sums of |predicted - true| of those."},
	{"ferry_balancer_wrong_planned_tokens_total", "counter", NULL,
         FERRY_PROM_COUNT, FIELD(wrong_planned_tokens),
         "The same of loads as they were planned from."},
	{"ferry_balancer_true_imbalance_total", "counter", "first",
         FERRY_PROM_PPM, FIELD(true_first_ppm),
         "Sums of max/mean of true loads of those."},
	{"ferry_balancer_true_imbalance_total", "counter", "committed",
         FERRY_PROM_PPM, FIELD(true_ppm), NULL},
	{"ferry_balancer_seconds_total", "counter", "plan", FERRY_PROM_SECONDS,
         FIELD(plan_ns), "Time for planning, pushing, and in commit."},
	{"ferry_balancer_seconds_total", "counter", "push", FERRY_PROM_SECONDS,
         FIELD(push_ns), NULL},
	{"ferry_balancer_seconds_total", "counter", "exposed",
         FERRY_PROM_SECONDS, FIELD(exposed_ns), NULL},
	{"ferry_balancer_wait_seconds_total", "counter", NULL,
         FERRY_PROM_SECONDS, FIELD(wait_ns),
         "In commit: waiting for ranks to stage."},
	{"ferry_balancer_bytes_total", "counter", "in", FERRY_PROM_COUNT,
         FIELD(bytes_in), "Weights that came and went."},
	{"ferry_balancer_bytes_total", "counter", "out", FERRY_PROM_COUNT,
         FIELD(bytes_out), NULL},
};

static struct ferry_balancer_stats read_stats(const struct ferry_balancer *b)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&b->lock;

	pthread_mutex_lock(lock);
	const struct ferry_balancer_stats stats = b->stats;

	pthread_mutex_unlock(lock);
	return stats;
}

enum ferry_status
ferry_balancer_get_stats(const struct ferry_balancer *balancer,
                         struct ferry_balancer_stats *stats)
{
	if (!balancer)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "balancer_get_stats: balancer is NULL");
	const struct ferry_balancer_stats found = read_stats(balancer);

	return ferry_sized_give(stats, &found, sizeof(found),
	                        "balancer_get_stats: stats");
}

size_t ferry_balancer_metrics(const struct ferry_balancer *balancer,
                              const char *name, char *buffer, size_t bytes)
{
	if (!balancer) {
		if (bytes)
			buffer[0] = 0;
		return 0;
	}
	const struct ferry_balancer_stats stats = read_stats(balancer);
	const struct ferry_prom prom = {
		.metrics = metrics,
		.n_metrics = sizeof(metrics) / sizeof(*metrics),
		.values = &stats,
		.label = "balancer",
		.name = name,
		.rank = balancer->world->rank,
	};

	return ferry_prom_text(&prom, buffer, bytes);
}
