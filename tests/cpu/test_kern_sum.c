/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum and scale: the scalar table against the definition in float_ref.h, and
 * every other table that this CPU can run against the scalar one, bit for bit.
 */
#include "kern_cases.h"

#include <stdio.h>
#include <string.h>

#include "core/number.h"
#include "float_ref.h"

enum { GUARD_BYTES = 64, MAX_LEN = 300 };

static const enum ferry_dtype dtypes[] = {FERRY_BF16, FERRY_FP16, FERRY_FP32};

/* One call of sum, without its output. */
struct sum_case {
	enum ferry_dtype in_dtype;
	enum ferry_dtype out_dtype;
	const void *rows[FERRY_SUM_MAX];
	float weight[FERRY_SUM_MAX];
	const float *weights; /* weight or NULL */
	int n;
	const void *residual;
	size_t len;
};

static const struct format *format_of(enum ferry_dtype dtype)
{
	return dtype == FERRY_BF16   ? &BF16
	       : dtype == FERRY_FP16 ? &FP16
	                             : &FP32;
}

static uint32_t code_at(const void *from, enum ferry_dtype dtype, size_t i)
{
	uint32_t wide;
	uint16_t half;

	if (dtype == FERRY_FP32) {
		memcpy(&wide, (const char *)from + 4 * i, 4);
		return wide;
	}
	memcpy(&half, (const char *)from + 2 * i, 2);
	return half;
}

static float value_at(const void *from, enum ferry_dtype dtype, size_t i)
{
	return (float)ref_decode(format_of(dtype), code_at(from, dtype, i));
}

/* Memory at any address; the first of a case ends at a forbidden page. */
static void *random_row(enum ferry_dtype dtype, size_t len,
                        enum flavour flavour)
{
	void *row;

	arena_alloc(random_below(4)); /* any alignment, also odd */
	row = arena_alloc(len * dtype_size(dtype));
	random_fill(row, dtype, len, flavour);
	return row;
}

static void random_case(struct sum_case *c, int n, size_t len)
{
	const enum flavour flavour = random_below(N_FLAVOURS);

	arena_reset();
	c->in_dtype = dtypes[random_below(3)];
	c->out_dtype = dtypes[random_below(3)];
	c->n = n;
	c->len = len;
	for (int j = 0; j < n; j++) {
		c->rows[j] = random_row(c->in_dtype, len, flavour);
		c->weight[j] = random_weight(flavour);
	}
	c->weights = random_below(3) ? c->weight : NULL;
	c->residual =
		random_below(2) ? random_row(c->out_dtype, len, flavour) : NULL;
	if (n == 1 && random_below(2)) { /* a path of its own */
		c->out_dtype = c->in_dtype;
		c->weights = NULL;
		c->residual = NULL;
	}
}

static void ref_sum(const struct sum_case *c, void *out)
{
	for (size_t i = 0; i < c->len; i++) {
		float acc = 0;
		uint32_t code;
		uint16_t half;

		for (int j = 0; j < c->n; j++)
			acc = ref_fma(c->weights ? c->weights[j] : 1,
			              value_at(c->rows[j], c->in_dtype, i),
			              acc);
		if (c->residual != NULL)
			acc += value_at(c->residual, c->out_dtype, i);
		code = ref_encode(format_of(c->out_dtype), (double)acc);
		half = (uint16_t)code;
		if (c->out_dtype == FERRY_FP32)
			memcpy((char *)out + 4 * i, &code, 4);
		else
			memcpy((char *)out + 2 * i, &half, 2);
	}
}

static void run(const struct ferry_kernels *k, const struct sum_case *c,
                const void *residual, void *out)
{
	k->sum(out, c->out_dtype, c->rows, c->in_dtype, c->weights, c->n,
	       residual, c->len);
}

/* Into guarded memory; in every second case on top of the residual. */
static void check_sum(const struct ferry_kernels *k, const struct sum_case *c,
                      const void *want)
{
	const size_t bytes = c->len * dtype_size(c->out_dtype);
	const size_t before = GUARD_BYTES + random_below(64);
	unsigned char got[MAX_LEN * 4 + 3 * GUARD_BYTES];
	unsigned char guard[sizeof(got)];
	const void *residual = c->residual;

	memset(got, 0xa5, sizeof(got));
	memset(guard, 0xa5, sizeof(guard));
	if (residual != NULL && random_below(2)) {
		memcpy(got + before, residual, bytes);
		residual = got + before;
	}
	run(k, c, residual, got + before);
	if (memcmp(got + before, want, bytes) != 0)
		printf("# %s: in %d out %d n %d len %zu weights %d residual "
		       "%d\n",
		       k->name, (int)c->in_dtype, (int)c->out_dtype, c->n,
		       c->len, c->weights != NULL, c->residual != NULL);
	assert_same_bytes(got + before, want, bytes);
	assert_same_bytes(got, guard, before);
	assert_same_bytes(got + before + bytes, guard,
	                  sizeof(got) - before - bytes);
}

static void check_all_tables(int n, size_t len)
{
	const struct ferry_kernels *scalar = ferry_kernels_get("scalar");
	const struct ferry_kernels *k;
	unsigned char want[MAX_LEN * 4];
	struct sum_case c;

	random_case(&c, n, len);
	run(scalar, &c, c.residual, want);
	for (int i = 0; (k = ferry_kernels_at(i)) != NULL; i++)
		check_sum(k, &c, want);
}

static void scalar_is_the_definition(void **unused)
{
	(void)unused;
	for (int i = 0; i < 10000; i++) {
		unsigned char want[MAX_LEN * 4];
		struct sum_case c;

		random_case(&c, (int)random_below(10), random_below(60));
		ref_sum(&c, want);
		check_sum(ferry_kernels_get("scalar"), &c, want);
	}
}

static void every_length(void **unused)
{
	(void)unused;
	for (size_t len = 0; len <= MAX_LEN; len++)
		for (int i = 0; i < 30; i++)
			check_all_tables((int)random_below(12), len);
}

static void every_number_of_rows(void **unused)
{
	(void)unused;
	for (int n = 0; n <= FERRY_SUM_MAX; n++)
		for (int i = 0; i < 30; i++)
			check_all_tables(n, random_below(150));
}

/* Each of the 65536 inputs through each table, alone with weight 1. */
static void every_input(void **unused)
{
	const struct ferry_kernels *k;
	static uint16_t row[1 << 16];
	static uint32_t got[1 << 16];
	const void *const rows[] = {row};

	(void)unused;
	for (uint32_t i = 0; i < 1 << 16; i++)
		row[i] = (uint16_t)i;
	for (int t = 0; (k = ferry_kernels_at(t)) != NULL; t++)
		for (int d = 0; d < 2; d++) {
			k->sum(got, FERRY_FP32, rows, dtypes[d], NULL, 1, NULL,
			       1 << 16);
			for (uint32_t i = 0; i < 1 << 16; i++) {
				/* + 0 turns -0 into +0, as the chain does */
				const double want =
					ref_decode(format_of(dtypes[d]), i) + 0;

				assert_int_equal(got[i],
				                 ref_encode(&FP32, want));
			}
		}
}

static void known_values(void **unused)
{
	const struct ferry_kernels *k;
	const uint16_t nan = 0xff81, one = 0x3f80, minus_zero = 0x8000;
	const void *const rows[] = {&nan, &one};
	const float masked[] = {0, 2};
	uint16_t out;

	(void)unused;
	for (int i = 0; (k = ferry_kernels_at(i)) != NULL; i++) {
		k->sum(&out, FERRY_BF16, rows, FERRY_BF16, masked, 2, NULL, 1);
		assert_int_equal(out, 0x7fff); /* weight 0 does not mask */
		k->sum(&out, FERRY_BF16, rows + 1, FERRY_BF16, masked + 1, 1,
		       &minus_zero, 1);
		assert_int_equal(out, 0x4000);
		k->sum(&out, FERRY_BF16, rows, FERRY_BF16, NULL, 0, &minus_zero,
		       1);
		assert_int_equal(out, 0x0000); /* +0 + -0 */
		k->sum(&out, FERRY_BF16, rows, FERRY_BF16, NULL, 0, NULL, 1);
		assert_int_equal(out, 0x0000);
	}
}

/* One row of weight 1 into its own type: a path of its own. */
static void one_row_of_each_input(void **unused)
{
	const struct ferry_kernels *k;
	static uint16_t row[(1 << 16) + 1], got[(1 << 16) + 1];
	const void *const rows[] = {(const char *)row + 1};
	const float one = 1;

	(void)unused;
	for (uint32_t i = 0; i < 1 << 16; i++) {
		const uint16_t u = (uint16_t)i;

		memcpy((char *)row + 1 + 2 * i, &u, sizeof(u));
	}
	for (int t = 0; (k = ferry_kernels_at(t)) != NULL; t++)
		for (int d = 0; d < 2; d++) {
			const struct format *f = format_of(dtypes[d]);

			k->sum(got, dtypes[d], rows, dtypes[d], d ? &one : NULL,
			       1, NULL, 1 << 16);
			for (uint32_t i = 0; i < 1 << 16; i++)
				assert_int_equal(
					got[i],
					ref_encode(f, ref_decode(f, i) + 0));
		}
}

/*
 * 1 + 2^-23 squared, less its rounded value, is 2^-46: a product that was
 * rounded on its own would give 0.
 */
static void fused(void **unused)
{
	const struct ferry_kernels *k;
	const float x = 1 + 0x1p-23f;
	const float minus = -(1 + 0x1p-22f);
	const void *const rows[] = {&minus, &x};
	const float weights[] = {1, x};
	float out;

	(void)unused;
	for (int i = 0; (k = ferry_kernels_at(i)) != NULL; i++) {
		k->sum(&out, FERRY_FP32, rows, FERRY_FP32, weights, 2, NULL, 1);
		assert_true(out == 0x1p-46f);
	}
}

static void ref_scale(const void *in, enum ferry_dtype dtype, float weight,
                      void *out, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		const float x = (float)((double)value_at(in, dtype, i) *
		                        (double)weight);
		const uint32_t code = ref_encode(format_of(dtype), (double)x);
		const uint16_t half = (uint16_t)code;

		if (dtype == FERRY_FP32)
			memcpy((char *)out + 4 * i, &code, 4);
		else
			memcpy((char *)out + 2 * i, &half, 2);
	}
}

static void scale_every_length(void **unused)
{
	const struct ferry_kernels *k;
	unsigned char want[MAX_LEN * 4];

	(void)unused;
	for (size_t len = 0; len <= MAX_LEN; len++)
		for (int d = 0; d < 3; d++) {
			const enum flavour flavour = random_below(N_FLAVOURS);
			const size_t bytes = len * dtype_size(dtypes[d]);
			const float weight = random_weight(flavour);
			void *in;

			arena_reset();
			in = random_row(dtypes[d], len, flavour);
			ref_scale(in, dtypes[d], weight, want, len);
			for (int i = 0; (k = ferry_kernels_at(i)) != NULL;
			     i++) {
				void *out = arena_alloc(bytes);

				k->scale(out, in, dtypes[d], weight, len);
				assert_same_bytes(out, want, bytes);
				memcpy(out, in, bytes);
				k->scale(out, out, dtypes[d], weight, len);
				assert_same_bytes(out, want, bytes);
			}
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scalar_is_the_definition),
		cmocka_unit_test(every_length),
		cmocka_unit_test(every_number_of_rows),
		cmocka_unit_test(every_input),
		cmocka_unit_test(known_values),
		cmocka_unit_test(one_row_of_each_input),
		cmocka_unit_test(fused),
		cmocka_unit_test(scale_every_length),
	};

	cases_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
