/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions corrected by what past ones got wrong. */
#include "calibration.h"

#include <stdlib.h>
#include <string.h>

#include <ferry/plan.h>

#include "../core/bits.h"

__extension__ typedef unsigned __int128 wide;

enum {
	WHOLE = 22,   /* all shares together are 2^WHOLE at most */
	NEAR = 6,     /* d0 is 2^-NEAR of the whole */
	WEIGHT = 16,  /* the nearest step counts 2^WEIGHT */
	PRIOR = 16,   /* an even share is so many priors */
	FRACTION = 8, /* of sums, dropped before they are divided */
	ONE = 28,     /* a factor of 1 is 2^ONE */
};

bool ferry_calibration_init(struct ferry_calibration *calibration,
                            int32_t n_experts)
{
	struct ferry_calibration *const c = calibration;
	const size_t n = (size_t)n_experts;

	*c = (struct ferry_calibration){.n_experts = n_experts};
	c->predicted =
		calloc((2 * CALIBRATION_STEPS + 1) * n, sizeof(*c->predicted));
	c->sums = calloc(2 * n, sizeof(*c->sums));
	if (!c->predicted || !c->sums) {
		ferry_calibration_destroy(c);
		return false;
	}
	c->truth = c->predicted + CALIBRATION_STEPS * n;
	c->now = c->truth + CALIBRATION_STEPS * n;
	return true;
}

void ferry_calibration_destroy(struct ferry_calibration *calibration)
{
	free(calibration->predicted); /* and truth, and now */
	free(calibration->sums);
	*calibration = (struct ferry_calibration){0};
}

/* Of loads that count FERRY_MAX_LOAD at most each. */
static int64_t total_of(const int64_t *loads, int32_t n)
{
	int64_t total = 0;

	for (int32_t e = 0; e < n; e++)
		total += min_i64(loads[e], FERRY_MAX_LOAD);
	return total;
}

static void to_shares(const int64_t *loads, int64_t total, int32_t n,
                      int32_t *shares)
{
	for (int32_t e = 0; e < n; e++)
		shares[e] =
			(int32_t)((min_i64(loads[e], FERRY_MAX_LOAD) << WHOLE) /
		                  total);
}

void ferry_calibration_add(struct ferry_calibration *calibration,
                           const int64_t *predicted, const int64_t *truth)
{
	struct ferry_calibration *const c = calibration;
	const int32_t n = c->n_experts;
	const int64_t all_predicted = total_of(predicted, n);
	const int64_t all_true = total_of(truth, n);
	const int64_t at = (int64_t)c->next * n;

	if (!all_predicted || !all_true)
		return;
	to_shares(predicted, all_predicted, n, c->predicted + at);
	to_shares(truth, all_true, n, c->truth + at);
	c->next = (c->next + 1) % CALIBRATION_STEPS;
	c->n_steps += c->n_steps < CALIBRATION_STEPS;
}

/* How far a step was from what is to be corrected. */
static int64_t distance(const int32_t *a, const int32_t *b, int32_t n)
{
	int32_t sum = 0; /* 2^(WHOLE + 1) at most */

	for (int32_t e = 0; e < n; e++)
		sum += a[e] < b[e] ? b[e] - a[e] : a[e] - b[e];
	return sum;
}

/* What each step counts; the sum of it as the result, at least 2^WEIGHT. */
static int64_t weigh_steps(const struct ferry_calibration *c, int64_t *weights)
{
	const int64_t near = (int64_t)1 << (WHOLE - NEAR);
	int64_t least = INT64_MAX, all = 0;

	for (int32_t s = 0; s < c->n_steps; s++) {
		weights[s] = near +
		             distance(c->now,
		                      c->predicted + (int64_t)s * c->n_experts,
		                      c->n_experts);
		least = min_i64(least, weights[s]);
	}
	for (int32_t s = 0; s < c->n_steps; s++) {
		const int64_t x = (least << WEIGHT) / weights[s];
		const int64_t square = x * x >> WEIGHT;

		weights[s] = square * square >> WEIGHT;
		all += weights[s];
	}
	return all;
}

/* Sums over steps of predicted and true shares: 2^(WHOLE + WEIGHT + 5). */
static void sum_steps(struct ferry_calibration *c, const int64_t *weights)
{
	const int32_t n = c->n_experts;

	memset(c->sums, 0, 2 * (size_t)n * sizeof(*c->sums));
	for (int32_t s = 0; s < c->n_steps; s++) {
		const int32_t *const p = c->predicted + (int64_t)s * n;
		const int32_t *const t = c->truth + (int64_t)s * n;

		for (int32_t e = 0; weights[s] && e < n; e++) {
			c->sums[e] += weights[s] * p[e];
			c->sums[n + e] += weights[s] * t[e];
		}
	}
}

/* Puts each expert's factor into sums: PRIOR * n_experts + 1 at most. */
static void find_factors(struct ferry_calibration *c)
{
	int64_t weights[CALIBRATION_STEPS];
	const int64_t all = weigh_steps(c, weights);
	const int32_t n = c->n_experts;
	const int64_t prior = (all << WHOLE) / PRIOR / n;

	sum_steps(c, weights);
	for (int32_t e = 0; e < n; e++) {
		const uint64_t p = (uint64_t)(c->sums[e] + prior) >> FRACTION;
		const uint64_t t =
			(uint64_t)(c->sums[n + e] + prior) >> FRACTION;

		c->sums[e] = (int64_t)((t << ONE) / p);
	}
}

/*
 * Weights are shared out up to each expert, so that all together are the total
 * and each is its share rounded down or up. Weights are up to 2^86 together,
 * times the total 2^126.
 */
static void share_out(const struct ferry_calibration *c, int64_t *loads,
                      int64_t total)
{
	wide all = 0, upto = 0;
	int64_t given = 0;

	for (int32_t e = 0; e < c->n_experts; e++)
		all += (wide)(uint64_t)loads[e] * (uint64_t)c->sums[e];
	for (int32_t e = 0; e < c->n_experts; e++) {
		upto += (wide)(uint64_t)loads[e] * (uint64_t)c->sums[e];
		const int64_t end = (int64_t)(upto * (uint64_t)total / all);

		loads[e] = end - given;
		given = end;
	}
}

/* Adds up what a plan would take. */
static bool add_up(const int64_t *loads, int32_t n, int64_t *total)
{
	*total = 0;
	for (int32_t e = 0; e < n; e++) {
		if (loads[e] > FERRY_MAX_LOAD - *total)
			return false;
		*total += loads[e];
	}
	return *total > 0;
}

void ferry_calibration_apply(struct ferry_calibration *calibration,
                             const int64_t *predicted, int64_t *loads)
{
	struct ferry_calibration *const c = calibration;
	int64_t total;

	if (loads != predicted)
		memcpy(loads, predicted, (size_t)c->n_experts * sizeof(*loads));
	if (!c->n_steps || !add_up(loads, c->n_experts, &total))
		return;
	to_shares(loads, total, c->n_experts, c->now);
	find_factors(c);
	share_out(c, loads, total);
}
