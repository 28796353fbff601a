/* SPDX-License-Identifier: Apache-2.0 */
/* The small float formats against their definitions, exhaustively. */
#include "kern_cases.h"

#include <stdio.h>

#include "core/number.h"
#include "float_ref.h"

/* A float that has the value of `want` in every bit that counts. */
static void assert_widens(float got, double want)
{
	if (isnan(want)) {
		assert_true(isnan(got));
		return;
	}
	assert_true((double)got == want);
	assert_int_equal(signbit(got) != 0, signbit(want) != 0);
}

static void widen_all_16(void **unused)
{
	(void)unused;
	for (uint32_t h = 0; h <= 0xffff; h++) {
		assert_widens(f32_from_bf16((uint16_t)h), ref_decode(&BF16, h));
		assert_widens(f32_from_fp16((uint16_t)h), ref_decode(&FP16, h));
	}
}

static void widen_all_8(void **unused)
{
	(void)unused;
	for (uint32_t q = 0; q <= 0xff; q++) {
		assert_widens(f32_from_e4m3((uint8_t)q), ref_decode(&E4M3, q));
		assert_widens(f32_from_e5m2((uint8_t)q), ref_decode(&E5M2, q));
		assert_widens(f32_from_ue8m0((uint8_t)q),
		              q == 255 ? INFINITY : ldexp(1, (int)q - 127));
	}
	assert_widens(f32_from_e4m3(0x7e), 448);
	assert_widens(f32_from_e5m2(0xfb), -57344);
}

static uint32_t narrow(const struct format *f, float x)
{
	if (f == &BF16)
		return bf16_from_f32(x);
	if (f == &FP16)
		return fp16_from_f32(x);
	return e4m3_from_f32(x);
}

static void assert_narrows(const struct format *f, float x)
{
	const uint32_t got = narrow(f, x);
	const uint32_t want = ref_encode(f, (double)x);

	if (got != want)
		printf("# %a gives %x, not %x\n", (double)x, got, want);
	assert_int_equal(got, want);
}

/*
 * Rounding is monotonous: right on both sides of, and at, each midpoint
 * between neighbours means right everywhere.
 */
static void narrow_around_midpoints(const struct format *f)
{
	const uint32_t n_codes = 1u << (f->bits - 1);

	for (uint32_t code = 0; code + 1 < n_codes; code++) {
		const double low = ref_decode(f, code);
		double high = ref_decode(f, code + 1);
		float middle;

		if (!isfinite(low))
			break;
		if (!isfinite(high)) /* as if the range went on */
			high = low + (low - ref_decode(f, code - 1));
		middle = (float)(low / 2 + high / 2);
		for (int sign = 1; sign >= -1; sign -= 2) {
			const float s = (float)sign;

			assert_narrows(f, s * (float)low);
			assert_narrows(f, s * nextafterf(middle, 0));
			assert_narrows(f, s * middle);
			assert_narrows(f, s * nextafterf(middle, INFINITY));
		}
	}
}

static void narrow_midpoints(void **unused)
{
	(void)unused;
	narrow_around_midpoints(&BF16);
	narrow_around_midpoints(&FP16);
	narrow_around_midpoints(&E4M3);
}

static void narrow_any_bits(void **unused)
{
	(void)unused;
	for (int i = 0; i < 500000; i++) {
		const float x = f32_from_bits(random_u32());

		assert_narrows(&BF16, x);
		assert_narrows(&FP16, x);
		assert_narrows(&E4M3, x);
	}
}

static void narrow_known(void **unused)
{
	(void)unused;
	assert_int_equal(bf16_from_f32(1e-39f), 0x000b);
	assert_int_equal(bf16_from_f32(0x1.fffffep127f), 0x7f80);
	assert_int_equal(bf16_from_f32(-0.0f), 0x8000);
	assert_int_equal(bf16_from_f32(f32_from_bits(0xff800001)), 0x7fff);
	assert_int_equal(fp16_from_f32(65519.996f), 0x7bff);
	assert_int_equal(fp16_from_f32(65520.0f), 0x7c00);
	assert_int_equal(fp16_from_f32(-1e10f), 0xfc00);
	assert_int_equal(fp16_from_f32(0x1p-25f), 0x0000);
	assert_int_equal(fp16_from_f32(-0x1.8p-24f), 0x8002);
	assert_int_equal(fp16_from_f32(-NAN), 0x7fff);
	assert_int_equal(e4m3_from_f32(464), 0x7e);
	assert_int_equal(e4m3_from_f32(-INFINITY), 0xfe);
	assert_int_equal(e4m3_from_f32(0x1p-10f), 0x00);
	assert_int_equal(e4m3_from_f32(-NAN), 0x7f);
	assert_int_equal(f32_bits(f32_canonical(-NAN)), 0x7fffffff);
	assert_int_equal(f32_bits(f32_canonical(-0.0f)), 0x80000000);
}

static void scales_known(void **unused)
{
	(void)unused;
	assert_true(quant_scale(448) == 1);
	assert_true(quant_scale(0) == 0x1p-126f);
	assert_true(quant_scale(0x1p-127f) == 0x1p-126f);
	assert_true(isinf(quant_scale(INFINITY)));
	assert_int_equal(ue8m0_from_f32(1), 127);
	assert_int_equal(ue8m0_from_f32(nextafterf(1, 2)), 128);
	assert_int_equal(ue8m0_from_f32(nextafterf(1, 0)), 127);
	assert_int_equal(ue8m0_from_f32(0x1p-126f), 1);
	assert_int_equal(ue8m0_from_f32(INFINITY), 255);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(widen_all_16),
		cmocka_unit_test(widen_all_8),
		cmocka_unit_test(narrow_midpoints),
		cmocka_unit_test(narrow_any_bits),
		cmocka_unit_test(narrow_known),
		cmocka_unit_test(scales_known),
	};

	cases_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
