/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predictions corrected by past ones: totals stay, what is not known stays, a
 * systematic error goes away, and no load or sum is too large.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/plan.h>

#include "../support/test_seed.h"
#include "balance/calibration.h"
#include "core/bits.h"

enum { N = 64 };

static uint64_t seed;

/* A layer, with room for its sums. */
struct layer {
	struct ferry_calibration c;
	int64_t predicted[N];
	int64_t truth[N];
};

static void open_layer(struct layer *l, int32_t n_experts)
{
	memset(l, 0, sizeof(*l));
	l->c.n_experts = n_experts;
	l->c.predicted = l->predicted;
	l->c.truth = l->truth;
}

static int64_t total_of(const int64_t *loads, int32_t n)
{
	int64_t total = 0;

	for (int32_t i = 0; i < n; i++)
		total += loads[i];
	return total;
}

static int64_t distance(const int64_t *a, const int64_t *b, int32_t n)
{
	int64_t sum = 0;

	for (int32_t i = 0; i < n; i++)
		sum += llabs(a[i] - b[i]);
	return sum;
}

static void draw(uint64_t *rng, int64_t *loads, int32_t n, int64_t most)
{
	for (int32_t i = 0; i < n; i++)
		loads[i] = (int64_t)(rng_next(rng) % (uint64_t)(most + 1));
}

#define EXPECT(l, loads, ...)                                                  \
	do {                                                                   \
		const int64_t want_[] = {__VA_ARGS__};                         \
		int64_t got_[N];                                               \
		ferry_calibration_apply(&(l)->c, loads, got_);                 \
		assert_memory_equal(got_, want_, sizeof(want_));               \
	} while (0)

/* Without a past, and after one that was foreseen exactly. */
static void test_identity(void **state)
{
	uint64_t rng = seed;
	struct layer l;
	int64_t past[N], loads[N], got[N];

	(void)state;
	for (int step = 0; step < 50; step++) {
		open_layer(&l, N);
		draw(&rng, loads, N, step % 2 ? 3 : 100000);
		ferry_calibration_apply(&l.c, loads, got);
		assert_memory_equal(got, loads, sizeof(got));
		for (int i = 0; i < step; i++) {
			draw(&rng, past, N, 1000);
			ferry_calibration_add(&l.c, past, past);
		}
		ferry_calibration_apply(&l.c, loads, got);
		assert_memory_equal(got, loads, sizeof(got));
	}
}

/* By hand: the prior is 100, factors are 5/4, 1, 3/4, 1. */
static void test_by_hand(void **state)
{
	const int64_t past[4] = {300, 300, 300, 0};
	const int64_t truth[4] = {400, 300, 200, 0};
	const int64_t loads[4] = {100, 100, 100, 100};
	struct layer l;

	(void)state;
	open_layer(&l, 4);
	ferry_calibration_add(&l.c, past, truth);
	EXPECT(&l, loads, 125, 100, 75, 100);
}

/* As many true tokens as predicted ones are not needed: shares count. */
static void test_sampled(void **state)
{
	const int64_t past[4] = {300, 300, 300, 0};
	const int64_t truth[4] = {4000, 3000, 2000, 0};
	const int64_t loads[4] = {100, 100, 100, 100};
	struct layer l;

	(void)state;
	open_layer(&l, 4);
	ferry_calibration_add(&l.c, past, truth);
	EXPECT(&l, loads, 125, 100, 75, 100);
}

/* Rounded from the first expert on, and none of nothing. */
static void test_rounding(void **state)
{
	const int64_t past[3] = {1000000, 1000000, 1000000};
	const int64_t truth[3] = {1500000, 750000, 750000};
	const int64_t loads[3] = {1, 1, 1};
	const int64_t holes[3] = {0, 5, 0};
	const int64_t none[3] = {0, 0, 0};
	struct layer l;

	(void)state;
	open_layer(&l, 3);
	ferry_calibration_add(&l.c, past, truth);
	EXPECT(&l, loads, 1, 1, 1); /* 1.5, 0.75, 0.75 */
	EXPECT(&l, holes, 0, 5, 0);
	EXPECT(&l, none, 0, 0, 0);
}

/* Steps without predictions or without tokens say nothing. */
static void test_empty_steps(void **state)
{
	const int64_t none[3] = {0, 0, 0};
	const int64_t some[3] = {7, 0, 9};
	struct layer l;

	(void)state;
	open_layer(&l, 3);
	ferry_calibration_add(&l.c, none, some);
	ferry_calibration_add(&l.c, some, none);
	assert_memory_equal(l.predicted, none, sizeof(none));
	assert_memory_equal(l.truth, none, sizeof(none));
	EXPECT(&l, some, 7, 0, 9);
}

/* The same array for both. */
static void test_in_place(void **state)
{
	uint64_t rng = seed;
	struct layer l;
	int64_t past[N], truth[N], loads[N], got[N];

	(void)state;
	open_layer(&l, N);
	draw(&rng, past, N, 1000);
	draw(&rng, truth, N, 1000);
	draw(&rng, loads, N, 1000);
	ferry_calibration_add(&l.c, past, truth);
	ferry_calibration_apply(&l.c, loads, got);
	ferry_calibration_apply(&l.c, loads, loads);
	assert_memory_equal(got, loads, sizeof(got));
}

/* The formula, in double, over real numbers of tokens. */
struct reference {
	double predicted[N];
	double truth[N];
};

static void ref_add(struct reference *r, const int64_t *predicted,
                    const int64_t *truth)
{
	const double keep = 1 - 1.0 / CALIBRATION_STEPS;

	for (int e = 0; e < N; e++) {
		r->predicted[e] = r->predicted[e] * keep + (double)predicted[e];
		r->truth[e] = r->truth[e] * keep + (double)truth[e];
	}
}

static void ref_apply(const struct reference *r, const int64_t *predicted,
                      double *loads)
{
	const double total = (double)total_of(predicted, N);
	double all_predicted = 0, all_true = 0, all = 0;

	for (int e = 0; e < N; e++) {
		all_predicted += r->predicted[e];
		all_true += r->truth[e];
	}
	const double a = total / N, t = all_true / all_predicted;

	for (int e = 0; e < N; e++) {
		loads[e] = (double)predicted[e] * (r->truth[e] + a * t) /
		           (r->predicted[e] + a);
		all += loads[e];
	}
	for (int e = 0; e < N; e++)
		loads[e] *= total / all;
}

static void check_near(const int64_t *got, const double *want, double total)
{
	for (int e = 0; e < N; e++) {
		const double off = (double)got[e] - want[e];
		const double slack = 1.1 + 1e-6 * total / N;

		if (off > slack || off < -slack)
			fail_msg("expert %d: %lld, not %f", e,
			         (long long)got[e], want[e]);
	}
}

/* Loads from a handful of tokens to the most that are allowed. */
static void test_reference(void **state)
{
	uint64_t rng = seed;
	struct layer l;
	struct reference r;
	int64_t predicted[N], truth[N], got[N];
	double want[N];

	(void)state;
	for (int trial = 0; trial < 60; trial++) {
		const int64_t most = FERRY_MAX_LOAD / N >> trial % 32;

		open_layer(&l, N);
		memset(&r, 0, sizeof(r));
		for (int step = 0; step < 30; step++) {
			draw(&rng, predicted, N, most);
			draw(&rng, truth, N, most);
			ferry_calibration_add(&l.c, predicted, truth);
			ref_add(&r, predicted, truth);
		}
		draw(&rng, predicted, N, most);
		ferry_calibration_apply(&l.c, predicted, got);
		ref_apply(&r, predicted, want);
		assert_int_equal(total_of(got, N), total_of(predicted, N));
		check_near(got, want, (double)total_of(got, N));
	}
}

/* A router that foresees twice as much for some experts, half for others. */
static void distort(const int64_t *truth, int64_t *predicted)
{
	for (int e = 0; e < N; e++)
		predicted[e] = e % 2 ? truth[e] * 2 : truth[e] / 2;
}

static void test_bias_goes(void **state)
{
	uint64_t rng = seed;
	struct layer l;
	int64_t predicted[N], truth[N], got[N];

	(void)state;
	open_layer(&l, N);
	for (int step = 0; step < 200; step++) {
		draw(&rng, truth, N, 2000);
		distort(truth, predicted);
		ferry_calibration_apply(&l.c, predicted, got);
		assert_int_equal(total_of(got, N), total_of(predicted, N));
		ferry_calibration_add(&l.c, predicted, truth);
	}
	/* Three quarters were foreseen wrongly. */
	const int64_t all = total_of(truth, N);

	for (int e = 0; e < N; e++)
		got[e] = got[e] * all / total_of(predicted, N);
	assert_true(distance(predicted, truth, N) > all / 2);
	assert_true(distance(got, truth, N) < all / 25);
}

/* Another error takes the place of the one before, in some hundred steps. */
static void test_forgets(void **state)
{
	uint64_t rng = seed;
	struct layer l;
	int64_t predicted[N], truth[N], got[N];

	(void)state;
	open_layer(&l, N);
	for (int step = 0; step < 1300; step++) {
		draw(&rng, truth, N, 2000);
		if (step < 1000)
			distort(truth, predicted);
		else
			memcpy(predicted, truth, sizeof(truth));
		ferry_calibration_add(&l.c, predicted, truth);
	}
	ferry_calibration_apply(&l.c, predicted, got);
	assert_true(distance(got, truth, N) < total_of(truth, N) / 25);
}

/* All tokens on one expert, and on another than foreseen, for ever. */
static void test_extremes(void **state)
{
	int64_t a[N] = {0}, b[N] = {0}, one[N];
	struct layer l;

	(void)state;
	open_layer(&l, N);
	a[0] = b[N - 1] = FERRY_MAX_LOAD;
	for (int step = 0; step < 3000; step++)
		ferry_calibration_add(&l.c, a, b);
	assert_in_range(l.predicted[0], FERRY_MAX_LOAD * 255 * 64,
	                FERRY_MAX_LOAD * 256 * 64 + 64);
	assert_int_equal(l.truth[N - 1], l.predicted[0]);
	ferry_calibration_apply(&l.c, a, one);
	assert_memory_equal(one, a, sizeof(a));
	ferry_calibration_apply(&l.c, b, one);
	assert_memory_equal(one, b, sizeof(b));
	a[0] = a[N - 1] = FERRY_MAX_LOAD / 2;
	ferry_calibration_apply(&l.c, a, one);
	assert_int_equal(total_of(one, N), FERRY_MAX_LOAD);
	assert_in_range(one[0], 1, FERRY_MAX_LOAD / 60);
	/* Factors as far apart as they get. */
	a[0] = a[N - 1] = 1;
	ferry_calibration_apply(&l.c, a, one);
	assert_int_equal(one[0], 0);
	assert_int_equal(one[N - 1], 2);
}

/* What no plan would take stays, and counts no more than allowed. */
static void test_too_much(void **state)
{
	const int64_t past[3] = {INT64_MAX, 1, 1};
	const int64_t loads[3] = {FERRY_MAX_LOAD, 1, 0};
	const int64_t same[3] = {FERRY_MAX_LOAD, 1, 1};
	struct layer l;

	(void)state;
	open_layer(&l, 3);
	ferry_calibration_add(&l.c, past, same);
	assert_memory_equal(l.predicted, l.truth, sizeof(same));
	ferry_calibration_add(&l.c, loads, same);
	EXPECT(&l, loads, FERRY_MAX_LOAD, 1, 0);
}

/* Random loads of every size: totals, zeros, and bounds of a share. */
static void test_random(void **state)
{
	uint64_t rng = seed;
	struct layer l;
	int64_t predicted[N], truth[N], got[N];

	(void)state;
	for (int trial = 0; trial < 500; trial++) {
		const int32_t n = 1 + (int32_t)(rng_next(&rng) % N);

		open_layer(&l, n);
		for (int step = 0; step < 8; step++) {
			const int64_t most =
				FERRY_MAX_LOAD / n >> rng_next(&rng) % 41;

			draw(&rng, predicted, n, most);
			draw(&rng, truth, n, most >> rng_next(&rng) % 4);
			ferry_calibration_apply(&l.c, predicted, got);
			assert_int_equal(total_of(got, n),
			                 total_of(predicted, n));
			for (int32_t e = 0; e < n; e++) {
				assert_in_range(got[e], 0, FERRY_MAX_LOAD);
				assert_true(predicted[e] || !got[e]);
			}
			ferry_calibration_add(&l.c, predicted, truth);
		}
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_identity),    cmocka_unit_test(test_by_hand),
	cmocka_unit_test(test_sampled),     cmocka_unit_test(test_rounding),
	cmocka_unit_test(test_empty_steps), cmocka_unit_test(test_in_place),
	cmocka_unit_test(test_reference),   cmocka_unit_test(test_bias_goes),
	cmocka_unit_test(test_forgets),     cmocka_unit_test(test_extremes),
	cmocka_unit_test(test_too_much),    cmocka_unit_test(test_random),
};

int main(int argc, char **argv)
{
	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
