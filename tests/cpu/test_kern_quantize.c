/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 to e4m3 with a scale per 128, in every table, from its definition. */
#include "kern_cases.h"

#include <stdio.h>
#include <string.h>

#include "float_ref.h"

enum { BLOCK = 128, MAX_LEN = 3 * BLOCK + 1 };

static double ref_block_scale(const uint16_t *in, size_t n, bool power_of_two)
{
	double amax = 0;
	double scale;
	double power = 0x1p-126;

	for (size_t i = 0; i < n; i++)
		amax = fmax(amax, fabs(ref_decode(&BF16, in[i])));
	scale = (double)(float)(amax / 448);
	if (!power_of_two)
		return fmax(scale, 0x1p-126);
	while (power < scale)
		power *= 2;
	return power;
}

static void ref_block(uint8_t *out, double *scale, const uint16_t *in, size_t n,
                      bool power_of_two)
{
	float reciprocal;

	*scale = ref_block_scale(in, n, power_of_two);
	reciprocal = (float)(1 / *scale);
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)ref_encode(
			&E4M3, (double)(float)(ref_decode(&BF16, in[i]) *
		                               (double)reciprocal));
}

/* What a receiver takes the scale of a block for. */
static double scale_at(const void *scales, enum ferry_scale_type type, size_t b)
{
	float x;

	if (type == FERRY_SCALE_UE8M0) {
		const int e = ((const uint8_t *)scales)[b];

		return e == 255 ? INFINITY : ldexp(1, e - 127);
	}
	memcpy(&x, (const char *)scales + 4 * b, 4);
	return (double)x;
}

/* `in` is what the kernel reads, `same` the same elements, aligned. */
static void check(const struct ferry_kernels *k, enum ferry_scale_type type,
                  const uint16_t *in, const uint16_t *same, size_t len)
{
	const size_t n_blocks = (len + BLOCK - 1) / BLOCK;
	const size_t scale_bytes =
		n_blocks * (type == FERRY_SCALE_UE8M0 ? 1 : 4);
	uint8_t got[MAX_LEN + 2], want[MAX_LEN];
	uint8_t scales[4 * 4 + 1];

	memset(got, 0xa5, sizeof(got));
	memset(scales, 0xa5, sizeof(scales));
	k->quantize(got + 1, scales, type, in, len);
	for (size_t b = 0; b < n_blocks; b++) {
		const size_t at = b * BLOCK;
		const size_t n = len - at < BLOCK ? len - at : BLOCK;
		double scale;

		ref_block(want + at, &scale, same + at, n,
		          type == FERRY_SCALE_UE8M0);
		assert_true(scale_at(scales, type, b) == scale);
	}
	assert_same_bytes(got + 1, want, len);
	assert_int_equal(got[0], 0xa5);
	assert_int_equal(got[len + 1], 0xa5);
	assert_int_equal(scales[scale_bytes], 0xa5);
}

static void check_all(const uint16_t *in, const uint16_t *same, size_t len)
{
	const struct ferry_kernels *k;

	for (int i = 0; (k = ferry_kernels_at(i)) != NULL; i++) {
		check(k, FERRY_SCALE_FP32, in, same, len);
		check(k, FERRY_SCALE_UE8M0, in, same, len);
	}
}

/* Every bf16 that may share a block with amax, 127 at a time. */
static void every_input_with(uint16_t amax)
{
	uint16_t block[BLOCK];
	size_t n = 0;

	block[n++] = amax;
	for (uint32_t h = 0; h <= 0xffff; h++) {
		const uint32_t magnitude = h & 0x7fff;

		if (magnitude > amax && magnitude <= 0x7f80)
			continue;
		block[n++] = (uint16_t)h;
		if (n == BLOCK) {
			check_all(block, block, n);
			n = 1;
		}
	}
	check_all(block, block, n);
}

static void every_input(void **unused)
{
	static const uint16_t traps[] = {0x0000, 0x0001, 0x007f, 0x0080,
	                                 0x04e0, 0x4e0,  0x43e0, 0x3f80,
	                                 0x7f7f, 0x7f80};

	(void)unused;
	for (size_t i = 0; i < sizeof(traps) / sizeof(traps[0]); i++)
		every_input_with(traps[i]);
	for (int i = 0; i < 6; i++)
		every_input_with((uint16_t)random_below(0x7f80));
}

/* Many amax, few values each. */
static void many_scales(void **unused)
{
	uint16_t block[BLOCK];

	(void)unused;
	for (uint32_t amax = 0; amax <= 0x7f80; amax += 1 + random_below(16)) {
		for (int i = 1; i < BLOCK; i++)
			block[i] = (uint16_t)((random_u32() & 0x8000) |
			                      random_below(amax + 1));
		/* Most codes lie within 2^-16 of the largest. */
		for (int i = 1; i < BLOCK / 2 && amax > 0x800; i++)
			block[i] = (uint16_t)(amax - random_below(0x800));
		block[0] = (uint16_t)amax;
		check_all(block, block, BLOCK);
	}
}

static void every_length(void **unused)
{
	(void)unused;
	for (size_t len = 0; len < MAX_LEN; len++)
		for (int i = 0; i < 4; i++) {
			void *in; /* at any address */
			uint16_t aligned[MAX_LEN];

			arena_reset();
			arena_alloc(random_below(3));
			in = arena_alloc(len * sizeof(*aligned));
			random_fill(in, FERRY_BF16, len,
			            random_below(N_FLAVOURS));
			memcpy(aligned, in, len * sizeof(*aligned));
			check_all(in, aligned, len);
		}
}

static void known_values(void **unused)
{
	const uint16_t in[] = {0x43e0, 0xc3e0, 0x8000, 0x7fc0, 0xffff, 0x3f80};
	const uint8_t want[] = {0x7e, 0xfe, 0x80, 0x7f, 0x7f, 0x38};
	const uint16_t with_infinity[] = {0x7f80, 0x3f80, 0xbf80, 0xffc0};
	const uint8_t want_infinity[] = {0x7f, 0x00, 0x80, 0x7f};
	const struct ferry_kernels *k;
	uint8_t got[6];
	float scale;
	uint8_t e;

	(void)unused;
	for (int i = 0; (k = ferry_kernels_at(i)) != NULL; i++) {
		k->quantize(got, &scale, FERRY_SCALE_FP32, in, 6);
		assert_memory_equal(got, want, 6);
		assert_true(scale == 1);
		k->quantize(got, &e, FERRY_SCALE_UE8M0, with_infinity, 4);
		assert_memory_equal(got, want_infinity, 4);
		assert_int_equal(e, 255);
		k->quantize(got, &scale, FERRY_SCALE_FP32, with_infinity, 4);
		assert_memory_equal(got, want_infinity, 4);
		assert_true(isinf(scale));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_input),
		cmocka_unit_test(many_scales),
		cmocka_unit_test(every_length),
		cmocka_unit_test(known_values),
	};

	cases_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
