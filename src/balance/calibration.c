/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions corrected by what past ones got wrong. */
#include "calibration.h"

#include <string.h>

#include <ferry/plan.h>

#include "../core/bits.h"

__extension__ typedef unsigned __int128 wide;

enum {
	FRACTION = 8, /* binary digits of the sums behind the point */
	ONE = 32,     /* a factor of 1 is 2^ONE */
	MOST = 14,    /* factors are within 2^-MOST..2^MOST */
};

static wide sum_of(const int64_t *numbers, int32_t n)
{
	wide sum = 0;

	for (int32_t i = 0; i < n; i++)
		sum += (uint64_t)numbers[i];
	return sum;
}

/* A sum is 64 times the largest step at most, 2^54. */
static void fade_in(int64_t *sums, const int64_t *loads, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		sums[i] += min_i64(loads[i], FERRY_MAX_LOAD) * (1 << FRACTION) -
		           sums[i] / CALIBRATION_STEPS;
}

void ferry_calibration_add(struct ferry_calibration *calibration,
                           const int64_t *predicted, const int64_t *truth)
{
	struct ferry_calibration *const c = calibration;

	if (!sum_of(predicted, c->n_experts) || !sum_of(truth, c->n_experts))
		return;
	fade_in(c->predicted, predicted, c->n_experts);
	fade_in(c->truth, truth, c->n_experts);
}

/* The prior, as predicted load and as what of it turns out true. */
struct prior {
	wide predicted; /* up to 2^48 */
	wide truth;     /* up to 2^62 */
};

static struct prior prior_of(const struct ferry_calibration *c, wide total)
{
	const wide all_predicted = sum_of(c->predicted, c->n_experts);
	const wide all_true = sum_of(c->truth, c->n_experts);
	const wide mean = (total << FRACTION) / (uint32_t)c->n_experts;
	struct prior a = {mean ? mean : 1, mean ? mean : 1};

	if (!all_predicted)
		return a;
	const wide truth = a.predicted * all_true / all_predicted;
	const wide most = a.predicted << MOST;

	a.truth = truth < most ? truth : most;
	return a;
}

static wide factor_of(const struct ferry_calibration *c, int32_t expert,
                      const struct prior *a)
{
	const wide least = (wide)1 << (ONE - MOST);
	const wide most = (wide)1 << (ONE + MOST);
	const wide f = (((uint64_t)c->truth[expert] + a->truth) << ONE) /
	               ((uint64_t)c->predicted[expert] + a->predicted);

	return f < least ? least : f > most ? most : f;
}

static wide weight_of(const struct ferry_calibration *c, int32_t expert,
                      const int64_t *predicted, const struct prior *a)
{
	return predicted[expert] ? (wide)(uint64_t)predicted[expert] *
	                                   factor_of(c, expert, a)
	                         : 0;
}

/*
 * Weights are shared out up to each expert, so that all together are the total
 * and each is its share rounded down or up. Weights are up to 2^86 together,
 * times the total 2^126.
 */
static void share_out(const struct ferry_calibration *c, int64_t *loads,
                      wide total)
{
	const struct prior a = prior_of(c, total);
	wide all = 0, upto = 0, given = 0;

	for (int32_t e = 0; e < c->n_experts; e++)
		all += weight_of(c, e, loads, &a);
	if (!all)
		return; /* nothing is predicted */
	for (int32_t e = 0; e < c->n_experts; e++) {
		upto += weight_of(c, e, loads, &a);
		const wide end = upto * total / all;

		loads[e] = (int64_t)(end - given);
		given = end;
	}
}

void ferry_calibration_apply(const struct ferry_calibration *calibration,
                             const int64_t *predicted, int64_t *loads)
{
	const struct ferry_calibration *const c = calibration;
	const wide total = sum_of(predicted, c->n_experts);

	if (loads != predicted)
		memcpy(loads, predicted, (size_t)c->n_experts * sizeof(*loads));
	if (total <= (wide)FERRY_MAX_LOAD)
		share_out(c, loads, total);
}
