/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exponential of predictions: its error against long double, its ends, and
 * a hash of many results that every compiler and machine must get.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "balance/fixed_exp.h"
#include "core/bits.h"
#include "test_seed.h"

enum { POINTS = 1000000 };

static uint64_t seed;

static double uniform(uint64_t *rng)
{
	return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

/* Mostly near 0, some as far as it goes. */
static double random_exponent(uint64_t *rng)
{
	const double u = uniform(rng);

	return -u * (rng_next(rng) % 2 ? 20.0 : 650.0);
}

static void test_error_of_exp(void **state)
{
	uint64_t rng = seed;
	long double worst = 0;

	(void)state;
	for (int i = 0; i < POINTS; i++) {
		const double y = random_exponent(&rng);
		const long double want = expl((long double)y);
		const long double error =
			fabsl((long double)fixed_exp(y) - want) / want;

		if (error > worst)
			worst = error;
	}
	printf("exp: worst error 2^%.2f\n", (double)log2l(worst));
	assert_true(worst < 0x1p-51L);
}

static void test_error_of_sigmoid(void **state)
{
	uint64_t rng = seed + 1;
	long double worst = 0;

	(void)state;
	for (int i = 0; i < POINTS; i++) {
		double x = random_exponent(&rng);

		if (rng_next(&rng) % 2)
			x = -x;
		const long double want = 1 / (1 + expl(-(long double)x));
		const long double error =
			fabsl((long double)fixed_sigmoid(x) - want) / want;

		if (error > worst)
			worst = error;
	}
	printf("sigmoid: worst error 2^%.2f\n", (double)log2l(worst));
	assert_true(worst < 0x1p-50L);
}

/* Neither the reduction to r nor the series may fall behind the one before. */
static void test_rises(void **state)
{
	double last = 0;

	(void)state;
	for (int i = POINTS; i >= 0; i--) {
		const double e = fixed_exp(-i * 0x1p-12);

		assert_true(e > last);
		last = e;
	}
	assert_true(last == 1.0);
}

static void test_ends(void **state)
{
	const double inf = (double)INFINITY;

	(void)state;
	assert_true(fixed_exp(0.0) == 1.0);
	assert_true(fixed_exp(-0.0) == 1.0);
	assert_true(fixed_exp(-0x1p-60) == 1.0);
	assert_true(fixed_exp(-650.0) == 0.0);
	assert_true(fixed_exp(-649.999) > 0.0);
	assert_true(fixed_exp(-1e300) == 0.0);
	assert_true(fixed_exp(-inf) == 0.0);
	assert_true(fixed_exp((double)NAN) == 0.0);
	assert_true(fixed_sigmoid(0.0) == 0.5);
	assert_true(fixed_sigmoid(inf) == 1.0);
	assert_true(fixed_sigmoid(-inf) == 0.0);
	assert_true(fixed_sigmoid((double)NAN) == 0.0);
	assert_true(fixed_sigmoid(-700.0) == 0.0);
}

/* Of fixed arguments: the seed of the run has no part in it. */
static void test_same_bits_everywhere(void **state)
{
	uint64_t rng = 1;
	uint64_t hash = 0;

	(void)state;
	for (int i = 0; i < POINTS; i++) {
		const double y = random_exponent(&rng);
		const double values[] = {fixed_exp(y), fixed_sigmoid(y),
		                         fixed_sigmoid(-y)};

		for (int k = 0; k < 3; k++) {
			uint64_t bits;

			memcpy(&bits, &values[k], sizeof(bits));
			hash = hash_u64(hash, bits);
		}
	}
	assert_int_equal(hash, UINT64_C(0x7e40b6efd8ca7eba));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_error_of_exp),
		cmocka_unit_test(test_error_of_sigmoid),
		cmocka_unit_test(test_rises),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_same_bits_everywhere),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
