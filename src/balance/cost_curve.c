/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of experts that are not in proportion to their tokens. */
#include <ferry/plan.h>

#include "../core/ctx.h"
#include "../core/sized.h"

__extension__ typedef __int128 wide;

/* Points are within 0..FERRY_MAX_LOAD, tokens rise, costs do not fall. */
static enum ferry_status check_point(const struct ferry_cost_curve *curve,
                                     int32_t i)
{
	const int64_t least_tokens = i ? curve->tokens[i - 1] + 1 : 0;
	const int64_t least_cost = i ? curve->cost[i - 1] : 0;

	if (curve->tokens[i] < least_tokens ||
	    curve->tokens[i] > FERRY_MAX_LOAD)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "cost_curve: tokens[%d] is %lld, allowed are "
		                  "%lld..%lld",
		                  i, (long long)curve->tokens[i],
		                  (long long)least_tokens,
		                  (long long)FERRY_MAX_LOAD);
	if (curve->cost[i] < least_cost || curve->cost[i] > FERRY_MAX_LOAD)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "cost_curve: cost[%d] is %lld, allowed are "
		                  "%lld..%lld",
		                  i, (long long)curve->cost[i],
		                  (long long)least_cost,
		                  (long long)FERRY_MAX_LOAD);
	return FERRY_OK;
}

static enum ferry_status check_curve(const struct ferry_cost_curve *curve)
{
	if (curve->n_points < 2)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "cost_curve: n_points is %d, allowed are 2..",
		                  curve->n_points);
	if (!curve->tokens || !curve->cost)
		return ferry_fail(NULL, FERRY_INVAL, "cost_curve: %s is NULL",
		                  curve->tokens ? "cost" : "tokens");
	for (int32_t i = 0; i < curve->n_points; i++)
		FERRY_TRY(check_point(curve, i));
	return FERRY_OK;
}

/* First point of the piece that n tokens are on. */
static int32_t find_piece(const struct ferry_cost_curve *curve, int64_t n)
{
	int32_t low = 0, high = curve->n_points - 2;

	while (low < high) {
		const int32_t middle = low + (high - low + 1) / 2;

		if (curve->tokens[middle] <= n)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

static wide floor_div(wide n, wide by)
{
	return n / by - (n % by < 0);
}

/* The curve at n tokens; below its first point it may be less than 0. */
static wide value_at(const struct ferry_cost_curve *curve, int64_t n)
{
	const int32_t i = find_piece(curve, n);
	const wide run = curve->tokens[i + 1] - curve->tokens[i];
	const wide rise = curve->cost[i + 1] - curve->cost[i];
	const wide twice = 2 * (wide)(n - curve->tokens[i]) * rise;

	return curve->cost[i] + floor_div(twice + run, 2 * run);
}

static enum ferry_status check_in(const struct ferry_cost_curve *curve,
                                  const int64_t *in, int32_t n)
{
	for (int32_t i = 0; i < n; i++) {
		if (in[i] < 0 || in[i] > FERRY_MAX_LOAD)
			return ferry_fail(NULL, FERRY_RANGE,
			                  "cost_curve: in[%d] is %lld, allowed "
			                  "are 0..%lld",
			                  i, (long long)in[i],
			                  (long long)FERRY_MAX_LOAD);
		if (value_at(curve, in[i]) > FERRY_MAX_LOAD)
			return ferry_fail(NULL, FERRY_RANGE,
			                  "cost_curve: in[%d] is %lld and "
			                  "would cost more than %lld",
			                  i, (long long)in[i],
			                  (long long)FERRY_MAX_LOAD);
	}
	return FERRY_OK;
}

enum ferry_status ferry_cost_curve_apply(const struct ferry_cost_curve *curve,
                                         const int64_t *in, int32_t n,
                                         int64_t *out)
{
	struct ferry_cost_curve own;

	FERRY_TRY(ferry_sized_copy(&own, sizeof(own), curve, "cost curve"));
	FERRY_TRY(check_curve(&own));
	if (n < 0 || (n > 0 && (!in || !out)))
		return ferry_fail(NULL, FERRY_INVAL,
		                  "cost_curve_apply: n is %d, in %s NULL, out "
		                  "%s NULL",
		                  n, in ? "not" : "is", out ? "not" : "is");
	FERRY_TRY(check_in(&own, in, n));
	for (int32_t i = 0; i < n; i++) {
		const wide cost = in[i] ? value_at(&own, in[i]) : 0;

		out[i] = cost < 0 ? 0 : (int64_t)cost;
	}
	return FERRY_OK;
}
