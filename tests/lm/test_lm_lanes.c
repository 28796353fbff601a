/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels beside the products: plain ones against double arithmetic, and
 * those for other instruction sets against the plain ones, bit for bit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc.h"
#include "core/bits.h"
#include "core/number.h"
#include "lm_lanes.h"
#include "lm_made.h"
#include "support/test_seed.h"

enum { T = LM_TILE_ROWS, MOST = 300 };

static uint64_t seed;

static const struct lm_lanes *const plain = &lm_lanes_plain;

/* Numbers of -scale..scale. */
static void fill(float *x, int32_t n, float scale)
{
	for (int32_t i = 0; i < n; i++)
		x[i] = lm_random_float(&seed) * scale;
}

/* Any bits, often infinite, NaN or denormal. */
static void fill_strange(float *x, int32_t n)
{
	for (int32_t i = 0; i < n; i++) {
		const uint32_t bits = (uint32_t)rng_next(&seed);

		switch (bits % 4) {
		case 0:
			x[i] = f32_from_bits(bits | 0x7f800000);
			break;
		case 1:
			x[i] = f32_from_bits(bits & 0x807fffff);
			break;
		default:
			x[i] = f32_from_bits(bits);
		}
	}
}

/* One NaN is as good as another. */
static void assert_same(const float *x, const float *y, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		if (!(isnan(x[i]) && isnan(y[i])) &&
		    f32_bits(x[i]) != f32_bits(y[i]))
			fail_msg("element %d of %d: %a and %a", i, n,
			         (double)x[i], (double)y[i]);
}

/* x is within some units in the last place of y. */
static void assert_ulps(float x, double y, double units)
{
	int exponent;

	frexp(y, &exponent);
	if (!(fabs((double)x - y) <= units * ldexp(1, exponent - 24)))
		fail_msg("%a, should be %a", (double)x, y);
}

static void assert_exp(float x, float y)
{
	const double e = exp((double)x);

	if (isnan(x))
		assert_true(isnan(y));
	else if (x < -0x1.5d589ep6f)
		assert_true(y == 0 && !signbit(y));
	else if (x > 0x1.62e42ep6f)
		assert_true(y == INFINITY);
	else
		assert_ulps(y, e, 1);
}

static void test_exp(void **state)
{
	enum { N = 1 << 16 };
	float *const x = alloc_or_exit(N, sizeof(*x));
	float *const y = alloc_or_exit(N, sizeof(*y));

	(void)state;
	for (int32_t pass = 0; pass < 6; pass++) {
		if (pass < 5)
			fill(x, N, (float[]){100, 88, 2, 0.1f, 1e-6f}[pass]);
		else
			fill_strange(x, N);
		plain->exp(x, y, N);
		for (int32_t i = 0; i < N; i++)
			assert_exp(x[i], y[i]);
	}
	free(x);
	free(y);
}

static void test_exp_ends(void **state)
{
	/* Where it becomes infinite and 0, and exact ones. */
	static const float x[] = {
		0x1.62e42ep6f, 0x1.62e43p6f, -0x1.5d589ep6f,  -0x1.5d58ap6f,
		INFINITY,      -INFINITY,    0x1.fffffep127f, 0,
		-0.0f};
	static const float y[] = {0x1.ffff08p127f,
	                          INFINITY,
	                          0x1.00004cp-126f,
	                          0,
	                          INFINITY,
	                          0,
	                          INFINITY,
	                          1,
	                          1};
	float out[9];

	(void)state;
	plain->exp(x, out, 9);
	assert_memory_equal(out, y, sizeof(y));
}

static void test_swiglu(void **state)
{
	float gate[MOST], up[MOST], y[MOST];

	(void)state;
	fill(gate, MOST, 95);
	fill(up, MOST, 1);
	memcpy(y, gate, sizeof(y));
	plain->swiglu(y, up, MOST);
	for (int32_t i = 0; i < MOST; i++) {
		const double x = (double)gate[i];
		const double silu = x / (1 + exp(-x)) * (double)up[i];

		assert_true(fabs((double)y[i] - silu) <=
		            0x1p-21 * fabs(silu) + 0x1p-121);
	}
	gate[0] = -INFINITY;
	gate[1] = INFINITY;
	gate[2] = NAN;
	up[0] = up[1] = up[2] = 2;
	plain->swiglu(gate, up, 3);
	/* As x * sigmoid(x) would have it: infinity times 0. */
	assert_true(isnan(gate[0]) && gate[1] == INFINITY && isnan(gate[2]));
}

static void test_widen(void **state)
{
	enum { N = 1 << 16 };
	uint16_t *const codes = alloc_or_exit(N, sizeof(*codes));
	float *const y = alloc_or_exit(N, sizeof(*y));

	(void)state;
	for (int32_t i = 0; i < N; i++)
		codes[i] = (uint16_t)i;
	for (int32_t type = LM_BF16; type <= LM_F16; type++) {
		const struct lm_matrix m = {codes, (enum lm_type)type, 1, N};

		for (int32_t t = 0; lm_lanes_at(t); t++) {
			lm_lanes_at(t)->widen(&m, 5, N - 5, y);
			for (int32_t i = 5; i < N; i++)
				assert_int_equal(f32_bits(y[i - 5]),
				                 f32_bits(lm_element(&m, i)));
		}
	}
	free(codes);
	free(y);
}

static void test_norm(void **state)
{
	float x[MOST * T], w[MOST], row[MOST], y[MOST];

	(void)state;
	for (int32_t n = 1; n <= MOST; n++) {
		double squares = 0;

		fill(row, n, 3);
		fill(w, n, 2);
		plain->norm_row(row, w, 1e-5f, n, y);
		fill(x, n * T, 100);
		for (int32_t i = 0; i < n; i++) {
			squares += (double)row[i] * (double)row[i];
			x[i * T + n % T] = row[i];
		}
		plain->norm_lanes(x, w, 1e-5f, n);
		for (int32_t i = 0; i < n; i++) {
			const double right = (double)row[i] * (double)w[i] /
			                     sqrt(squares / n + 1e-5);

			assert_true(fabs((double)y[i] - right) <
			            1e-6 * fabs(right) + 1e-30);
			assert_true(fabs((double)x[i * T + n % T] - right) <
			            3e-6 * fabs(right) + 1e-30);
		}
	}
}

static void test_rotate(void **state)
{
	enum { N = 10 };
	float x[N * T], y[N * T], cosines[N / 2 * T], sines[N / 2 * T];

	(void)state;
	fill(x, N * T, 1);
	fill(cosines, N / 2 * T, 1);
	fill(sines, N / 2 * T, 1);
	memcpy(y, x, sizeof(y));
	plain->rotate_lanes(y, cosines, sines, N);
	for (int32_t i = 0; i < N / 2 * T; i++) {
		const double a = (double)x[i], b = (double)x[i + N / 2 * T];
		const double c = (double)cosines[i], s = (double)sines[i];

		assert_true(fabs((double)y[i] - (a * c - b * s)) < 3e-7);
		assert_true(fabs((double)y[i + N / 2 * T] - (b * c + a * s)) <
		            3e-7);
	}
}

static void softmax_is_near(int32_t n)
{
	float scores[MOST * T], y[MOST * T], sums[T];

	fill(scores, n * T, 30);
	memcpy(y, scores, sizeof(y));
	plain->softmax_lanes(y, 0.5f, n, sums);
	for (int32_t lane = 0; lane < T; lane++) {
		const int32_t seen = n - T + 1 + lane;
		double largest = -INFINITY, sum = 0;

		for (int32_t i = 0; i < seen; i++)
			largest = fmax(largest, (double)scores[i * T + lane]);
		for (int32_t i = 0; i < n; i++) {
			const double right = exp(
				((double)scores[i * T + lane] - largest) / 2);

			assert_true(i < seen ? fabs((double)y[i * T + lane] -
			                            right) < 1e-5 * right
			                     : f32_bits(y[i * T + lane]) == 0);
			sum += i < seen ? right : 0;
		}
		assert_true(fabs((double)sums[lane] - sum) < 1e-5 * sum);
	}
}

static void test_softmax(void **state)
{
	(void)state;
	for (int32_t n = T; n <= MOST; n += T)
		softmax_is_near(n);
}

static void test_sum_exp(void **state)
{
	float x[MOST], largest;

	(void)state;
	for (int32_t n = 1; n <= MOST; n++) {
		double sum = 0, top = -INFINITY;

		fill(x, n, 20);
		const double got = plain->sum_exp(x, n, &largest);

		for (int32_t i = 0; i < n; i++)
			top = fmax(top, (double)x[i]);
		for (int32_t i = 0; i < n; i++)
			sum += exp((double)x[i] - top);
		assert_true((double)largest == top);
		assert_true(fabs(got - sum) < 1e-5 * sum);
	}
}

static void test_transpose(void **state)
{
	float lanes[MOST * T], rows[T * MOST];

	(void)state;
	fill(lanes, MOST * T, 1);
	for (int32_t n = 1; n < 40; n++)
		for (int32_t n_rows = 1; n_rows <= T; n_rows++) {
			memset(rows, 0, sizeof(rows));
			plain->rows_from_lanes(lanes, n, rows, 41, n_rows);
			for (int32_t i = 0; i < T * 41; i++)
				assert_true(
					rows[i] ==
					(i / 41 < n_rows && i % 41 < n
				                 ? lanes[i % 41 * T + i / 41]
				                 : 0));
		}
}

/* Every kernel of a table on the same input as the plain one. */
static void same_bits(const struct lm_lanes *table, int32_t n, bool is_strange)
{
	float x[MOST * T], w[MOST * T], a[MOST * T], b[MOST * T], s[T], t[T];
	double sums[2];
	float largest[2];

	fill(x, n * T, 9);
	fill(w, n * T, 9);
	if (is_strange)
		fill_strange(x, n * T);

	plain->exp(x, a, n);
	table->exp(x, b, n);
	assert_same(a, b, n);
	plain->norm_row(x, w, 1e-6f, n, a);
	table->norm_row(x, w, 1e-6f, n, b);
	assert_same(a, b, n);
	plain->rows_from_lanes(x, n, a, (size_t)n, T);
	table->rows_from_lanes(x, n, b, (size_t)n, T);
	assert_same(a, b, n * T);
	sums[0] = plain->sum_exp(x, n, &largest[0]);
	sums[1] = table->sum_exp(x, n, &largest[1]);
	assert_same(&largest[0], &largest[1], 1);
	assert_true(sums[0] == sums[1] || (isnan(sums[0]) && isnan(sums[1])));

	memcpy(a, x, sizeof(a));
	memcpy(b, x, sizeof(b));
	plain->norm_lanes(a, w, 1e-6f, n);
	table->norm_lanes(b, w, 1e-6f, n);
	assert_same(a, b, n * T);
	plain->rotate_lanes(a, w, w + n, n / 2 * 2);
	table->rotate_lanes(b, w, w + n, n / 2 * 2);
	assert_same(a, b, n * T);
	plain->swiglu(a, w, n * T - 3);
	table->swiglu(b, w, n * T - 3);
	assert_same(a, b, n * T);
	plain->add_weighted(a, 1.1f, w, n);
	table->add_weighted(b, 1.1f, w, n);
	assert_same(a, b, n * T);
	plain->softmax_lanes(a, 0.3f, n, s);
	table->softmax_lanes(b, 0.3f, n, t);
	assert_same(a, b, n * T);
	assert_same(s, t, T);
	plain->divide_lanes(a, s, n);
	table->divide_lanes(b, t, n);
	assert_same(a, b, n * T);
}

static void test_same_bits(void **state)
{
	(void)state;
	for (int32_t t = 0; lm_lanes_at(t); t++)
		for (int32_t n = T; n < MOST; n += 7) {
			same_bits(lm_lanes_at(t), n, false);
			same_bits(lm_lanes_at(t), n, true);
		}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exp),
		cmocka_unit_test(test_exp_ends),
		cmocka_unit_test(test_swiglu),
		cmocka_unit_test(test_widen),
		cmocka_unit_test(test_norm),
		cmocka_unit_test(test_rotate),
		cmocka_unit_test(test_softmax),
		cmocka_unit_test(test_sum_exp),
		cmocka_unit_test(test_transpose),
		cmocka_unit_test(test_same_bits),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
