/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products in tiles: a row has the same bits at every place, among whatever
 * rows, and is as good as fp32 allows. ctest runs it with each kind of kernels
 * that OpenBLAS has for machines like this one (OPENBLAS_CORETYPE). What
 * happens without tiles is counted and printed, not judged.
 */
#include <cblas.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

#include "alloc.h"
#include "core/bits.h"
#include "lm_blas.h"
#include "lm_made.h"
#include "lm_tile.h"
#include "support/test_seed.h"

/* Not in all versions of cblas.h. */
char *openblas_get_corename(void);

enum { T = LM_TILE_ROWS, MOST_ROWS = 2 * T + 1, GAP = 3 };

static uint64_t seed;

/* Outputs and inputs. */
static const int32_t shapes[][2] = {
	{1, 1},      {1, 33},     {2, 64},    {3, 5},     {7, 100},
	{8, 8},      {12, 128},   {15, 500},  {16, 16},   {17, 31},
	{31, 17},    {32, 128},   {128, 32},  {64, 128},  {100, 33},
	{128, 128},  {255, 127},  {384, 200}, {768, 384}, {6144, 128},
	{768, 2048}, {2048, 768}, {48, 9000},
};

enum { N_SHAPES = sizeof(shapes) / sizeof(*shapes) };

/* A product's weights and rows, with gaps between the rows. */
struct made {
	struct lm_tile_work *work;
	struct lm_matrix weight;
	size_t in_stride, out_stride;
	float *row;      /* [n_in] which is watched */
	float *alone;    /* [n_out] its result alone */
	float *in, *out; /* [MOST_ROWS] rows */
};

static float *floats(size_t n)
{
	return alloc_or_exit(n, sizeof(float));
}

static void product(const struct made *m, int32_t n_rows)
{
	const struct lm_rows in = {m->in, m->in_stride, false};
	const struct lm_rows out = {m->out, m->out_stride, false};

	assert_true(lm_tile_product(m->work, &m->weight, &in, n_rows, &out));
}

static enum lm_type random_type(void)
{
	return (enum lm_type)lm_random_below(&seed, LM_N_TYPES);
}

static void made_open(struct made *m, int32_t n_out, int32_t n_in,
                      enum lm_type type)
{
	struct fault fault;

	assert_true(lm_tile_open(&m->work, &fault));
	m->weight = lm_made_matrix(&seed, type, n_out, n_in, 1);
	m->in_stride = (size_t)n_in + (size_t)lm_random_below(&seed, GAP);
	m->out_stride = (size_t)n_out + (size_t)lm_random_below(&seed, GAP);
	m->row = floats((size_t)n_in);
	m->alone = floats((size_t)n_out);
	m->in = floats(m->in_stride * MOST_ROWS);
	m->out = floats(m->out_stride * MOST_ROWS);
	for (int32_t i = 0; i < n_in; i++)
		m->row[i] = lm_random_float(&seed);
	memcpy(m->in, m->row, (size_t)n_in * sizeof(float));
	product(m, 1);
	memcpy(m->alone, m->out, (size_t)n_out * sizeof(float));
}

static void made_close(struct made *m)
{
	lm_tile_close(m->work);
	free((void *)(uintptr_t)m->weight.data);
	free(m->row);
	free(m->alone);
	free(m->in);
	free(m->out);
}

/* Any float: a number, or one of those that spread. */
static float strange(void)
{
	static const float values[] = {NAN,       INFINITY,   -INFINITY,
	                               0x1p-149f, -0x1p-130f, 0x1.fffffep127f,
	                               -0.0f,     0};

	return lm_random_below(&seed, 4) != 0
	               ? lm_random_float(&seed)
	               : values[lm_random_below(&seed, 8)];
}

/* Rows of company: numbers, or with others among them. */
static void fill_company(const struct made *m, int32_t n_rows)
{
	const bool is_strange = lm_random_below(&seed, 2) != 0;

	for (size_t i = 0; i < (size_t)n_rows * m->in_stride; i++)
		m->in[i] = is_strange ? strange() : lm_random_float(&seed);
}

/* The row at the places whose bits are set, random rows elsewhere. */
static void try_places(const struct made *m, int32_t n_rows, uint64_t places)
{
	const size_t row_bytes = (size_t)m->weight.cols * sizeof(float);
	const size_t bytes = (size_t)m->weight.rows * sizeof(float);

	fill_company(m, n_rows);
	for (int32_t i = 0; i < n_rows; i++)
		if (places >> i & 1)
			memcpy(m->in + (size_t)i * m->in_stride, m->row,
			       row_bytes);
	product(m, n_rows);
	for (int32_t i = 0; i < n_rows; i++)
		if (places >> i & 1 &&
		    memcmp(m->out + (size_t)i * m->out_stride, m->alone,
		           bytes) != 0)
			fail_msg("%d outputs of %d inputs: row %d of %d "
			         "differs",
			         m->weight.rows, m->weight.cols, i, n_rows);
}

/* All places one by one where that is quick, else some at once. */
static void try_rows(const struct made *m, int32_t n_rows)
{
	const bool is_small = m->weight.rows * m->weight.cols <= 4096;

	for (int32_t i = 0; is_small && i < n_rows; i++)
		try_places(m, n_rows, (uint64_t)1 << i);
	if (!is_small)
		try_places(m, n_rows,
		           rng_next(&seed) | (uint64_t)1 << (n_rows - 1));
}

static void test_places(void **state)
{
	(void)state;
	for (int32_t s = 0; s < N_SHAPES; s++) {
		struct made m;

		made_open(&m, shapes[s][0], shapes[s][1], random_type());
		for (int32_t n = 1; n <= MOST_ROWS; n++)
			try_rows(&m, n);
		made_close(&m);
	}
}

/* What is between rows of the result, and behind them, stays. */
static void test_gaps(void **state)
{
	struct made m;

	(void)state;
	made_open(&m, 37, 20, LM_BF16);
	m.out_stride = 37;
	for (size_t i = 0; i < m.out_stride * MOST_ROWS; i++)
		m.out[i] = 12345;
	m.weight.rows = 35;
	fill_company(&m, MOST_ROWS);
	product(&m, MOST_ROWS - 2);
	for (size_t i = 0; i < m.out_stride * MOST_ROWS; i++)
		if (i % m.out_stride >= 35 ||
		    i >= m.out_stride * (MOST_ROWS - 2))
			assert_true(m.out[i] == 12345);
	product(&m, 0);
	made_close(&m);
}

/* Any order of additions is within this of the true sum. */
static void assert_good(const struct made *m, const float *in, int32_t output,
                        float result)
{
	double sum = 0, sizes = 0;

	for (int32_t i = 0; i < m->weight.cols; i++) {
		const double term =
			(double)in[i] *
			(double)lm_element(&m->weight,
		                           (int64_t)output * m->weight.cols +
		                                   i);

		sum += term;
		sizes += fabs(term);
	}
	if (!(fabs((double)result - sum) <=
	      0x1p-24 * (m->weight.cols + 1) * sizes))
		fail_msg("output %d of %d by %d: %g, should be %g", output,
		         m->weight.rows, m->weight.cols, (double)result, sum);
}

static void test_values(void **state)
{
	(void)state;
	for (int32_t s = 0; s < N_SHAPES; s++) {
		struct made m;

		made_open(&m, shapes[s][0], shapes[s][1], random_type());
		for (size_t i = 0; i < m.in_stride * MOST_ROWS; i++)
			m.in[i] = lm_random_float(&seed);
		product(&m, MOST_ROWS);
		for (int32_t i = 0; i < 300; i++) {
			const int32_t r = lm_random_below(&seed, MOST_ROWS);
			const int32_t o = lm_random_below(&seed, m.weight.rows);

			assert_good(
				&m, m.in + (size_t)r * m.in_stride, o,
				m.out[(size_t)r * m.out_stride + (size_t)o]);
		}
		made_close(&m);
	}
}

/* One row with something that spreads: into all outputs. */
static void test_infinities(void **state)
{
	struct made m;

	(void)state;
	made_open(&m, 50, 70, LM_F32);
	float *const w = (float *)(uintptr_t)m.weight.data;

	for (int32_t i = 0; i < 50 * 70; i++)
		w[i] = fabsf(w[i]) + 1;
	m.in[13] = INFINITY;
	product(&m, 1);
	for (int32_t i = 0; i < 50; i++)
		assert_true(m.out[i] == INFINITY);
	m.in[14] = -INFINITY;
	product(&m, 1);
	for (int32_t i = 0; i < 50; i++)
		assert_true(isnan(m.out[i]));
	made_close(&m);
}

/*
 * One tile in lanes by floats, plain or transposed, as attention has them: with
 * the row in one lane and then in another.
 */
static void try_lanes(int32_t n_out, int32_t n_in, bool transposed)
{
	const size_t stride = (size_t)(transposed ? n_out : n_in) + GAP;
	const int32_t first = lm_random_below(&seed, T);
	float *const m = floats(stride * (size_t)(transposed ? n_in : n_out));
	float *const in = floats((size_t)n_in * T);
	float *const out = floats((size_t)n_out * T * 2);
	const struct lm_floats matrix = {m, stride, transposed};

	for (size_t i = 0; i < stride * (size_t)(transposed ? n_in : n_out);
	     i++)
		m[i] = lm_random_float(&seed);
	for (int32_t i = 0; i < n_in * T; i++)
		in[i] = lm_random_float(&seed);
	lm_tile_lanes(&matrix, in, n_in, out, n_out);
	for (int32_t lane = 0; lane < T; lane++) {
		for (int32_t i = 0; i < n_in; i++)
			in[i * T + lane] = in[i * T + first];
		lm_tile_lanes(&matrix, in, n_in, out + n_out * T, n_out);
		for (int32_t i = 0; i < n_out; i++)
			assert_memory_equal(&out[i * T + first],
			                    &out[(n_out + i) * T + lane],
			                    sizeof(float));
	}
	free(m);
	free(in);
	free(out);
}

static void test_lanes(void **state)
{
	(void)state;
	for (int32_t n = 1; n <= 520; n += n < 70 ? 1 : 30) {
		try_lanes(n, 32, true);
		try_lanes(32, n, false);
	}
	try_lanes(1000, 128, true);
	try_lanes(128, 1000, false);
}

static void exact_sgemm(const float *in, int32_t n_rows, const float *w,
                        int32_t n_out, int32_t n_in, float *out)
{
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_rows, n_out,
	            n_in, 1, in, n_in, w, n_in, 0, out, n_out);
}

/*
 * Why there are tiles, and of T rows: products of BLAS with as many rows as
 * there are, all the same row. Counts those that differ from it alone.
 */
static int32_t differing_rows(int32_t n_rows, int32_t n_out, int32_t n_in)
{
	const size_t n = (size_t)n_rows, row = (size_t)n_in;
	float *const w = floats((size_t)n_out * row);
	float *const in = floats(n * row);
	float *const out = floats((n + 1) * (size_t)n_out);
	int32_t n_differ = 0;

	for (size_t i = 0; i < (size_t)n_out * row; i++)
		w[i] = lm_random_float(&seed);
	for (size_t i = 0; i < n * row; i++)
		in[i] = i < row ? lm_random_float(&seed) : in[i - row];
	exact_sgemm(in, 1, w, n_out, n_in, out);
	exact_sgemm(in, n_rows, w, n_out, n_in, out + n_out);
	for (size_t i = 1; i <= n; i++)
		n_differ += memcmp(out, out + i * (size_t)n_out,
		                   (size_t)n_out * sizeof(float)) != 0;
	free(w);
	free(in);
	free(out);
	return n_differ;
}

static void test_without_tiles(void **state)
{
	(void)state;
	printf("sgemm with n rows, %% of them not as alone:");
	for (int32_t n = 4; n <= 64; n += n < 16 ? 1 : 8) {
		int32_t n_differ = 0;

		for (int32_t s = 0; s < N_SHAPES - 4; s++)
			n_differ +=
				differing_rows(n, shapes[s][0], shapes[s][1]);
		printf(" %d: %.0f", n, 100.0 * n_differ / n / (N_SHAPES - 4));
	}
	printf("\n");
}

/* Whether this CPU can run the kernels that the environment asks for. */
static bool can_run(const char *core)
{
#if defined(__x86_64__)
	if (strcasecmp(core, "Cooperlake") == 0 ||
	    strcasecmp(core, "SkylakeX") == 0)
		return __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl") &&
		       __builtin_cpu_supports("avx512dq");
	if (strcasecmp(core, "Haswell") == 0 || strcasecmp(core, "Zen") == 0)
		return __builtin_cpu_supports("avx2") &&
		       __builtin_cpu_supports("fma");
	if (strcasecmp(core, "Sandybridge") == 0)
		return __builtin_cpu_supports("avx");
	return true;
#else
	(void)core;
	return false;
#endif
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_infinities),
		cmocka_unit_test(test_lanes),
		cmocka_unit_test(test_without_tiles),
	};
	const char *const core = getenv("OPENBLAS_CORETYPE");

	printf("kernels for %s\n", openblas_get_corename());
	if (core && (!can_run(core) ||
	             strcasecmp(core, openblas_get_corename()) != 0)) {
		printf("no kernels for %s here\n", core);
		return 77;
	}
	struct fault fault;

	if (!lm_blas_open(&fault)) {
		printf("%s\n", fault.text);
		return 1;
	}
	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
