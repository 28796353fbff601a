/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Number formats of the oracle: every rounding goes through one function that
 * works with exact scaling in double, whatever the format.
 */
#include "oracle_float.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 128 };

size_t oracle_dtype_bytes(enum ferry_dtype dtype)
{
	switch (dtype) {
	case FERRY_FP32:
		return 4;
	case FERRY_BF16:
	case FERRY_FP16:
		return 2;
	default:
		return 1;
	}
}

static float float_of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t bits_of_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/*
 * The multiple of 2^-man_bits ulp steps nearest to |value|, ties to even, for
 * a format whose smallest normal exponent is min_exp. Overflow is the
 * caller's. A double holds every intermediate exactly.
 */
static double round_magnitude(float value, int man_bits, int min_exp)
{
	const double magnitude = fabs((double)value);
	int exponent;
	double quantum;

	if (magnitude == 0)
		return 0;
	frexp(magnitude, &exponent); /* magnitude = f * 2^exponent, f < 1 */
	exponent--;
	if (exponent < min_exp)
		exponent = min_exp;
	quantum = ldexp(1, exponent - man_bits);
	return nearbyint(magnitude / quantum) * quantum;
}

/* Sign, exponent and mantissa fields of a magnitude that the format holds. */
static uint32_t pack(double magnitude, int man_bits, int min_exp)
{
	int exponent;

	if (magnitude < ldexp(1, min_exp))
		return (uint32_t)ldexp(magnitude, man_bits - min_exp);
	frexp(magnitude, &exponent);
	exponent--;
	return ((uint32_t)(exponent - min_exp + 1) << man_bits) +
	       (uint32_t)ldexp(magnitude - ldexp(1, exponent),
	                       man_bits - exponent);
}

static uint16_t fp16_bits(float value)
{
	const uint32_t sign = signbit(value) ? 0x8000 : 0;
	double magnitude;

	if (isnan(value))
		return 0x7fff;
	magnitude = isinf(value) ? INFINITY : round_magnitude(value, 10, -14);
	if (magnitude > 65504)
		return (uint16_t)(sign | 0x7c00);
	return (uint16_t)(sign | pack(magnitude, 10, -14));
}

static float fp16_value(uint16_t bits)
{
	const int exponent = bits >> 10 & 31;
	const int mantissa = bits & 1023;
	float magnitude;

	if (exponent == 31)
		magnitude = mantissa ? NAN : INFINITY;
	else if (exponent == 0)
		magnitude = ldexpf((float)mantissa, -24);
	else
		magnitude = ldexpf((float)(mantissa + 1024), exponent - 25);
	return bits & 0x8000 ? -magnitude : magnitude;
}

/* bf16 is the upper half of a float: rounding is carrying into it. */
static uint16_t bf16_bits(float value)
{
	const uint32_t bits = bits_of_float(value);
	const uint32_t lower = bits & 0xffff;
	uint32_t upper = bits >> 16;

	if (isnan(value))
		return 0x7fff;
	if (lower > 0x8000 || (lower == 0x8000 && (upper & 1)))
		upper++;
	return (uint16_t)upper;
}

static float e4m3_value(uint8_t bits)
{
	const int exponent = bits >> 3 & 15;
	const int mantissa = bits & 7;
	float magnitude;

	if ((bits & 0x7f) == 0x7f)
		magnitude = NAN;
	else if (exponent == 0)
		magnitude = ldexpf((float)mantissa, -9);
	else
		magnitude = ldexpf((float)(mantissa + 8), exponent - 10);
	return bits & 0x80 ? -magnitude : magnitude;
}

uint8_t oracle_e4m3(float value)
{
	const uint32_t sign = signbit(value) ? 0x80 : 0;
	double magnitude;

	if (isnan(value))
		return 0x7f;
	magnitude = isinf(value) ? 448 : round_magnitude(value, 3, -6);
	if (magnitude > 448)
		magnitude = 448;
	return (uint8_t)(sign | pack(magnitude, 3, -6));
}

float oracle_load(const void *row, size_t i, enum ferry_dtype dtype)
{
	const uint8_t *at =
		(const uint8_t *)row + i * oracle_dtype_bytes(dtype);
	uint32_t wide;
	uint16_t half;

	switch (dtype) {
	case FERRY_FP32:
		memcpy(&wide, at, sizeof(wide));
		return float_of_bits(wide);
	case FERRY_BF16:
		memcpy(&half, at, sizeof(half));
		return float_of_bits((uint32_t)half << 16);
	case FERRY_FP16:
		memcpy(&half, at, sizeof(half));
		return fp16_value(half);
	default:
		return e4m3_value(*at);
	}
}

void oracle_store(void *row, size_t i, enum ferry_dtype dtype, float value)
{
	uint8_t *at = (uint8_t *)row + i * oracle_dtype_bytes(dtype);
	uint32_t wide;
	uint16_t half;

	if (dtype == FERRY_FP32) {
		wide = isnan(value) ? 0x7fffffff : bits_of_float(value);
		memcpy(at, &wide, sizeof(wide));
		return;
	}
	half = dtype == FERRY_BF16 ? bf16_bits(value) : fp16_bits(value);
	memcpy(at, &half, sizeof(half));
}

/* Scale of a block before UE8M0: amax / 448, at least 2^-126. */
static float block_scale(const uint8_t *in, size_t n)
{
	const float least = ldexpf(1, -126);
	float amax = 0;
	float scale;

	for (size_t i = 0; i < n; i++) {
		const float x = fabsf(oracle_load(in, i, FERRY_BF16));

		if (x > amax) /* false for NaN */
			amax = x;
	}
	scale = amax / 448.0f;
	return scale < least ? least : scale;
}

/* Exponent byte of the smallest power of two that is >= scale. */
static uint8_t ue8m0_of(float scale)
{
	int byte = 1;

	while (byte < 255 && ldexp(1, byte - 127) < (double)scale)
		byte++;
	return (uint8_t)byte;
}

void oracle_quantize(uint8_t *out, void *scales,
                     enum ferry_scale_type scale_type, const void *in, size_t n)
{
	for (size_t first = 0, block = 0; first < n; first += BLOCK, block++) {
		const size_t length = n - first < BLOCK ? n - first : BLOCK;
		const uint8_t *x = (const uint8_t *)in + 2 * first;
		float scale = block_scale(x, length);

		if (scale_type == FERRY_SCALE_UE8M0) {
			const uint8_t byte = ue8m0_of(scale);

			((uint8_t *)scales)[block] = byte;
			scale = byte == 255 ? INFINITY : ldexpf(1, byte - 127);
		} else {
			memcpy((uint8_t *)scales + 4 * block, &scale, 4);
		}
		for (size_t i = 0; i < length; i++) {
			const float inverse = 1.0f / scale;

			out[first + i] = oracle_e4m3(
				oracle_load(x, i, FERRY_BF16) * inverse);
		}
	}
}

void oracle_fp_enter(struct oracle_fp *fp)
{
	fenv_t now;

	_Static_assert(sizeof(now) <= sizeof(fp->saved), "fenv_t");
	fegetenv(&now);
	memcpy(fp->saved, &now, sizeof(now));
	fesetenv(FE_DFL_ENV);
}

void oracle_fp_leave(const struct oracle_fp *fp)
{
	fenv_t old;

	memcpy(&old, fp->saved, sizeof(old));
	fesetenv(&old);
}
