/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predictions corrected by past ones: totals stay, what is not known stays, a
 * systematic error goes away, also one that hangs on the text, and no load or
 * sum is too large.
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

static void open_layer(struct ferry_calibration *l, int32_t n_experts)
{
	assert_true(ferry_calibration_init(l, n_experts));
}

static void close_layer(struct ferry_calibration *l)
{
	ferry_calibration_destroy(l);
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
		ferry_calibration_apply(l, loads, got_);                       \
		assert_memory_equal(got_, want_, sizeof(want_));               \
	} while (0)

/* Without a past, and after one that was foreseen exactly. */
static void test_identity(void **state)
{
	uint64_t rng = seed;
	struct ferry_calibration l;
	int64_t past[N], loads[N], got[N];

	(void)state;
	for (int step = 0; step < 50; step++) {
		open_layer(&l, N);
		draw(&rng, loads, N, step % 2 ? 3 : 100000);
		ferry_calibration_apply(&l, loads, got);
		assert_memory_equal(got, loads, sizeof(got));
		for (int i = 0; i < step; i++) {
			draw(&rng, past, N, 1000);
			ferry_calibration_add(&l, past, past);
		}
		ferry_calibration_apply(&l, loads, got);
		assert_memory_equal(got, loads, sizeof(got));
		close_layer(&l);
	}
}

/* By hand: the prior is 1/64, factors are 34/17, 17/17, 9/17, 8/17. */
static void test_by_hand(void **state)
{
	const int64_t past[4] = {48, 48, 48, 48};
	const int64_t truth[4] = {99, 48, 24, 21};
	const int64_t loads[4] = {170, 170, 170, 170};
	struct ferry_calibration l;

	(void)state;
	open_layer(&l, 4);
	ferry_calibration_add(&l, past, truth);
	EXPECT(&l, loads, 340, 170, 90, 80);
	close_layer(&l);
}

/* As many true tokens as predicted ones are not needed: shares count. */
static void test_sampled(void **state)
{
	const int64_t past[4] = {16, 16, 16, 16};
	const int64_t truth[4] = {3300, 1600, 800, 700};
	const int64_t loads[4] = {170, 170, 170, 170};
	struct ferry_calibration l;

	(void)state;
	open_layer(&l, 4);
	ferry_calibration_add(&l, past, truth);
	EXPECT(&l, loads, 340, 170, 90, 80);
	close_layer(&l);
}

/* Rounded from the first expert on, and none of nothing. */
static void test_rounding(void **state)
{
	const int64_t past[3] = {1000000, 1000000, 1000000};
	const int64_t truth[3] = {1500000, 750000, 750000};
	const int64_t loads[3] = {1, 1, 1};
	const int64_t holes[3] = {0, 5, 0};
	const int64_t none[3] = {0, 0, 0};
	struct ferry_calibration l;

	(void)state;
	open_layer(&l, 3);
	ferry_calibration_add(&l, past, truth);
	EXPECT(&l, loads, 1, 1, 1); /* 1.47, 0.76, 0.76 */
	EXPECT(&l, holes, 0, 5, 0);
	EXPECT(&l, none, 0, 0, 0);
	close_layer(&l);
}

/* Steps without predictions or without tokens say nothing. */
static void test_empty_steps(void **state)
{
	const int64_t none[3] = {0, 0, 0};
	const int64_t some[3] = {7, 0, 9};
	struct ferry_calibration l;

	(void)state;
	open_layer(&l, 3);
	ferry_calibration_add(&l, none, some);
	ferry_calibration_add(&l, some, none);
	assert_int_equal(l.n_steps, 0);
	EXPECT(&l, some, 7, 0, 9);
	close_layer(&l);
}

/* The same array for both. */
static void test_in_place(void **state)
{
	uint64_t rng = seed;
	struct ferry_calibration l;
	int64_t past[N], truth[N], loads[N], got[N];

	(void)state;
	open_layer(&l, N);
	draw(&rng, past, N, 1000);
	draw(&rng, truth, N, 1000);
	draw(&rng, loads, N, 1000);
	ferry_calibration_add(&l, past, truth);
	ferry_calibration_apply(&l, loads, got);
	ferry_calibration_apply(&l, loads, loads);
	assert_memory_equal(got, loads, sizeof(got));
	close_layer(&l);
}

/* The formula, in double, over shares of the last steps. */
struct reference {
	int n;
	double predicted[CALIBRATION_STEPS][N];
	double truth[CALIBRATION_STEPS][N];
};

static void shares_of(const int64_t *loads, double *shares)
{
	const double total = (double)total_of(loads, N);

	for (int e = 0; e < N; e++)
		shares[e] = (double)loads[e] / total;
}

static void ref_add(struct reference *r, const int64_t *predicted,
                    const int64_t *truth)
{
	shares_of(predicted, r->predicted[r->n % CALIBRATION_STEPS]);
	shares_of(truth, r->truth[r->n % CALIBRATION_STEPS]);
	r->n++;
}

static double ref_distance(const double *a, const double *b)
{
	double sum = 0;

	for (int e = 0; e < N; e++)
		sum += a[e] < b[e] ? b[e] - a[e] : a[e] - b[e];
	return sum;
}

static void ref_apply(const struct reference *r, const int64_t *predicted,
                      double *loads)
{
	const double total = (double)total_of(predicted, N);
	const int n = r->n < CALIBRATION_STEPS ? r->n : CALIBRATION_STEPS;
	double now[N], p[N] = {0}, t[N] = {0}, weights = 0, all = 0;

	shares_of(predicted, now);
	for (int s = 0; s < n; s++) {
		const double near =
			1 / (1.0 / 64 + ref_distance(now, r->predicted[s]));
		const double weight = near * near * near * near;

		weights += weight;
		for (int e = 0; e < N; e++) {
			p[e] += weight * r->predicted[s][e];
			t[e] += weight * r->truth[s][e];
		}
	}
	for (int e = 0; e < N; e++) {
		const double a = weights / 16 / N;

		loads[e] = (double)predicted[e] * (t[e] + a) / (p[e] + a);
		all += loads[e];
	}
	for (int e = 0; e < N; e++)
		loads[e] *= total / all;
}

static void check_near(const int64_t *got, const double *want, double total)
{
	for (int e = 0; e < N; e++) {
		const double off = (double)got[e] - want[e];
		const double slack = 1.1 + 1e-3 * (total / N + want[e]);

		if (off > slack || off < -slack)
			fail_msg("expert %d: %lld, not %f", e,
			         (long long)got[e], want[e]);
	}
}

/* Loads from a handful of tokens to the most that are allowed. */
static void test_reference(void **state)
{
	uint64_t rng = seed;
	struct ferry_calibration l;
	static struct reference r;
	int64_t predicted[N], truth[N], got[N];
	double want[N];

	(void)state;
	for (int trial = 0; trial < 60; trial++) {
		const int64_t most = FERRY_MAX_LOAD / N >> trial % 32;

		open_layer(&l, N);
		r.n = 0;
		for (int step = 0; step < 1 + trial; step++) {
			draw(&rng, predicted, N, most);
			draw(&rng, truth, N, most);
			ferry_calibration_add(&l, predicted, truth);
			ref_add(&r, predicted, truth);
		}
		/* Every second time what was foreseen last once more. */
		if (trial % 2)
			draw(&rng, predicted, N, most);
		ferry_calibration_apply(&l, predicted, got);
		ref_apply(&r, predicted, want);
		assert_int_equal(total_of(got, N), total_of(predicted, N));
		check_near(got, want, (double)total_of(got, N));
		close_layer(&l);
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
	struct ferry_calibration l;
	int64_t predicted[N], truth[N], got[N];

	(void)state;
	open_layer(&l, N);
	for (int step = 0; step < 200; step++) {
		draw(&rng, truth, N, 2000);
		distort(truth, predicted);
		ferry_calibration_apply(&l, predicted, got);
		assert_int_equal(total_of(got, N), total_of(predicted, N));
		ferry_calibration_add(&l, predicted, truth);
	}
	/* Three quarters were foreseen wrongly. */
	const int64_t all = total_of(truth, N);

	for (int e = 0; e < N; e++)
		got[e] = got[e] * all / total_of(predicted, N);
	assert_true(distance(predicted, truth, N) > all / 2);
	assert_true(distance(got, truth, N) < all / 15);
	close_layer(&l);
}

/* The loads of a text, a little different in every step; a router that errs
 * one way in one and the other way in the other. */
static void draw_text(uint64_t *rng, int text, int64_t *truth,
                      int64_t *predicted)
{
	for (int e = 0; e < N; e++) {
		const bool liked = (e / 2 + text) % 2;
		const bool over = (e + text) % 2;

		truth[e] =
			(liked ? 3000 : 500) + (int64_t)(rng_next(rng) % 100);
		predicted[e] = over ? truth[e] * 3 / 2 : truth[e] / 2;
	}
}

/* Texts in turn, or one for a while and then the other: what is corrected is
 * the error of the text at hand. */
static void test_texts(void **state)
{
	uint64_t rng = seed;
	struct ferry_calibration l;
	int64_t predicted[N], truth[N], got[N];

	(void)state;
	for (int run = 1; run <= 8; run *= 8) {
		open_layer(&l, N);
		for (int step = 0; step < 48; step++) {
			draw_text(&rng, step / run % 2, truth, predicted);
			ferry_calibration_apply(&l, predicted, got);
			ferry_calibration_add(&l, predicted, truth);
			if (step < 2 * run)
				continue;
			const int64_t all = total_of(got, N);

			for (int e = 0; e < N; e++)
				truth[e] = truth[e] * all / total_of(truth, N);
			assert_true(distance(predicted, truth, N) > all / 3);
			assert_true(distance(got, truth, N) < all / 8);
		}
		close_layer(&l);
	}
}

/* Another error takes the place of the one before. */
static void test_forgets(void **state)
{
	uint64_t rng = seed;
	struct ferry_calibration l;
	int64_t predicted[N], truth[N], got[N];

	(void)state;
	open_layer(&l, N);
	for (int step = 0; step < 100 + CALIBRATION_STEPS; step++) {
		draw(&rng, truth, N, 2000);
		if (step < 100)
			distort(truth, predicted);
		else
			memcpy(predicted, truth, sizeof(truth));
		ferry_calibration_add(&l, predicted, truth);
	}
	ferry_calibration_apply(&l, predicted, got);
	assert_memory_equal(got, truth, sizeof(got));
	close_layer(&l);
}

/* All tokens on one expert, and on another than foreseen, for ever. */
static void test_extremes(void **state)
{
	int64_t a[N] = {0}, b[N] = {0}, one[N];
	struct ferry_calibration l;

	(void)state;
	open_layer(&l, N);
	a[0] = b[N - 1] = FERRY_MAX_LOAD;
	for (int step = 0; step < 3 * CALIBRATION_STEPS; step++)
		ferry_calibration_add(&l, a, b);
	assert_int_equal(l.n_steps, CALIBRATION_STEPS);
	assert_int_equal(l.truth[N - 1], l.predicted[0]);
	ferry_calibration_apply(&l, a, one);
	assert_memory_equal(one, a, sizeof(a));
	ferry_calibration_apply(&l, b, one);
	assert_memory_equal(one, b, sizeof(b));
	a[0] = a[N - 1] = FERRY_MAX_LOAD / 2;
	ferry_calibration_apply(&l, a, one);
	assert_int_equal(total_of(one, N), FERRY_MAX_LOAD);
	assert_in_range(one[0], 1, FERRY_MAX_LOAD / 60);
	/* Factors as far apart as they get. */
	a[0] = a[N - 1] = 1;
	ferry_calibration_apply(&l, a, one);
	assert_int_equal(one[0], 0);
	assert_int_equal(one[N - 1], 2);
	close_layer(&l);
}

/* What no plan would take stays, and counts no more than allowed. */
static void test_too_much(void **state)
{
	const int64_t past[3] = {INT64_MAX, 1, 1};
	const int64_t loads[3] = {FERRY_MAX_LOAD, 1, 0};
	const int64_t same[3] = {FERRY_MAX_LOAD, 1, 1};
	struct ferry_calibration l;

	(void)state;
	open_layer(&l, 3);
	ferry_calibration_add(&l, past, same);
	assert_memory_equal(l.predicted, l.truth, 3 * sizeof(*l.truth));
	ferry_calibration_add(&l, loads, same);
	EXPECT(&l, loads, FERRY_MAX_LOAD, 1, 0);
	close_layer(&l);
}

/* Random loads of every size: totals, zeros, and bounds of a share. */
static void test_random(void **state)
{
	uint64_t rng = seed;
	struct ferry_calibration l;
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
			ferry_calibration_apply(&l, predicted, got);
			assert_int_equal(total_of(got, n),
			                 total_of(predicted, n));
			for (int32_t e = 0; e < n; e++) {
				assert_in_range(got[e], 0, FERRY_MAX_LOAD);
				assert_true(predicted[e] || !got[e]);
			}
			ferry_calibration_add(&l, predicted, truth);
		}
		close_layer(&l);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_identity),    cmocka_unit_test(test_by_hand),
	cmocka_unit_test(test_sampled),     cmocka_unit_test(test_rounding),
	cmocka_unit_test(test_empty_steps), cmocka_unit_test(test_in_place),
	cmocka_unit_test(test_reference),   cmocka_unit_test(test_bias_goes),
	cmocka_unit_test(test_texts),       cmocka_unit_test(test_forgets),
	cmocka_unit_test(test_extremes),    cmocka_unit_test(test_too_much),
	cmocka_unit_test(test_random),
};

int main(int argc, char **argv)
{
	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
