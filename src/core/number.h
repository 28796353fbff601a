/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small float formats, in integer arithmetic: the same bits on every
 * machine, in every rounding mode, with or without flush to zero. Widening is
 * exact. Narrowing rounds to nearest, ties to even; NaN becomes the one
 * positive NaN with all mantissa bits set. docs/arithmetic.md has the rules.
 */
#ifndef FERRY_NUMBER_H
#define FERRY_NUMBER_H

#include <stdint.h>
#include <string.h>

/* float[blocks] scales and one UE8M0 byte per block: elements of a block. */
enum { FERRY_QUANT_BLOCK = 128 };

static inline uint32_t f32_bits(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof(u));
	return u;
}

static inline float f32_from_bits(uint32_t u)
{
	float x;

	memcpy(&x, &u, sizeof(x));
	return x;
}

/* m / 2^shift, rounded to nearest, ties to even; 1 <= shift <= 31. */
static inline uint32_t shift_round(uint32_t m, uint32_t shift)
{
	const uint32_t below_half = (1u << (shift - 1)) - 1;

	return (m + below_half + ((m >> shift) & 1)) >> shift;
}

/*
 * Bits of |x| (finite) as a float whose exponent field has the bias
 * 127 - rebias and whose mantissa is `drop` bits shorter. Too large a value
 * runs into the exponents above, which the callers know.
 */
static inline uint32_t f32_shorten(uint32_t magnitude, uint32_t rebias,
                                   uint32_t drop)
{
	const uint32_t exponent = magnitude >> 23;
	const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;

	if (exponent > rebias)
		return shift_round(magnitude - (rebias << 23), drop);
	/* A denormal: count in units of the last place. */
	if (rebias + 1 - exponent + drop > 24)
		return 0; /* below half a unit */
	return shift_round(mantissa, rebias + 1 - exponent + drop);
}

static inline float f32_from_bf16(uint16_t h)
{
	return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_f32(float x)
{
	const uint32_t u = f32_bits(x);

	if ((u & 0x7fffffff) > 0x7f800000)
		return 0x7fff;
	return (uint16_t)shift_round(u, 16);
}

static inline float f32_from_fp16(uint16_t h)
{
	const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	const uint32_t exponent = (h >> 10) & 0x1f;
	const uint32_t mantissa = h & 0x3ff;

	if (exponent == 0x1f)
		return f32_from_bits(sign | 0x7f800000 | mantissa << 13);
	if (exponent == 0) /* exact, and never denormal as fp32 */
		return f32_from_bits(sign |
		                     f32_bits((float)mantissa * 0x1p-24f));
	return f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t fp16_from_f32(float x)
{
	const uint32_t u = f32_bits(x);
	const uint32_t sign = (u >> 16) & 0x8000;
	const uint32_t magnitude = u & 0x7fffffff;

	if (magnitude > 0x7f800000)
		return 0x7fff;
	if (magnitude >= 0x47800000) /* 65536; 65520 and up round there too */
		return (uint16_t)(sign | 0x7c00);
	return (uint16_t)(sign | f32_shorten(magnitude, 112, 13));
}

/* NaN becomes 0x7fffffff; all else stays. */
static inline float f32_canonical(float x)
{
	return x != x ? f32_from_bits(0x7fffffff) : x;
}

/* OCP e4m3: no infinity, 0x7f and 0xff are NaN. */
static inline float f32_from_e4m3(uint8_t q)
{
	const uint32_t sign = (uint32_t)(q & 0x80) << 24;
	const uint32_t exponent = (q >> 3) & 0xf;
	const uint32_t mantissa = q & 7;

	if ((q & 0x7f) == 0x7f)
		return f32_from_bits(0x7fffffff);
	if (exponent == 0)
		return f32_from_bits(sign |
		                     f32_bits((float)mantissa * 0x1p-9f));
	return f32_from_bits(sign | (exponent + 120) << 23 | mantissa << 20);
}

/* Saturates at 448, infinities too; NaN becomes 0x7f. */
static inline uint8_t e4m3_from_f32(float x)
{
	const uint32_t u = f32_bits(x);
	const uint32_t sign = (u >> 24) & 0x80;
	const uint32_t magnitude = u & 0x7fffffff;

	if (magnitude > 0x7f800000)
		return 0x7f;
	if (magnitude >= 0x43e00000)
		return (uint8_t)(sign | 0x7e);
	return (uint8_t)(sign | f32_shorten(magnitude, 120, 20));
}

/* e5m2 is the upper byte of an fp16. */
static inline float f32_from_e5m2(uint8_t q)
{
	return f32_from_fp16((uint16_t)(q << 8));
}

/* 2^(e-127); 255 stands for infinity, which quantising an infinity gives. */
static inline float f32_from_ue8m0(uint8_t e)
{
	return f32_from_bits(e != 0 ? (uint32_t)e << 23 : 0x00400000);
}

/* The smallest power of two >= scale; scale >= 2^-126, not NaN. */
static inline uint8_t ue8m0_from_f32(float scale)
{
	return (uint8_t)((f32_bits(scale) + 0x7fffff) >> 23);
}

/*
 * The scale of a block whose largest finite or infinite magnitude is amax:
 * 448 is the largest e4m3; the floor keeps the reciprocal finite.
 */
static inline float quant_scale(float amax)
{
	const float scale = amax / 448.0f;

	return scale < 0x1p-126f ? 0x1p-126f : scale;
}

#endif
