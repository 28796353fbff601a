/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The float formats and the fused multiply-add once more, written down from
 * their definitions in double arithmetic: slow, plain, and without a line in
 * common with src/. Expects the default rounding mode.
 */
#ifndef FERRY_FLOAT_REF_H
#define FERRY_FLOAT_REF_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct format {
	int bits;
	int min_exponent; /* of the smallest normal number */
	int mantissa_bits;
	double largest;
	bool has_infinity; /* else all but the last mantissa are numbers */
	uint32_t nan;      /* the canonical one */
};

static const struct format BF16 = {16, -126, 7, 0x1.fep127, true, 0x7fff};
static const struct format FP16 = {16, -14, 10, 65504, true, 0x7fff};
static const struct format FP32 = {32,   -126,      23, 0x1.fffffep127,
                                   true, 0x7fffffff};
static const struct format E4M3 = {8, -6, 3, 448, false, 0x7f};
static const struct format E5M2 = {8, -14, 2, 57344, true, 0x7f};

static inline double ref_decode(const struct format *f, uint32_t code)
{
	const uint32_t sign = code >> (f->bits - 1);
	const uint32_t magnitude = code & ((1u << (f->bits - 1)) - 1);
	const uint32_t mantissa = magnitude & ((1u << f->mantissa_bits) - 1);
	const int exponent = (int)(magnitude >> f->mantissa_bits);
	const int top = (1 << (f->bits - 1 - f->mantissa_bits)) - 1;
	double x;

	if (exponent == top && f->has_infinity)
		x = mantissa == 0 ? INFINITY : NAN;
	else if (magnitude == (1u << (f->bits - 1)) - 1)
		x = NAN;
	else if (exponent == 0)
		x = ldexp(mantissa, f->min_exponent - f->mantissa_bits);
	else
		x = ldexp(1 + ldexp(mantissa, -f->mantissa_bits),
		          f->min_exponent + exponent - 1);
	return sign ? -x : x;
}

/* To nearest, ties to even; beyond the range infinity, or the largest. */
static inline uint32_t ref_encode(const struct format *f, double x)
{
	const uint32_t sign = signbit(x) ? 1u << (f->bits - 1) : 0;
	const uint32_t one = 1u << f->mantissa_bits;
	double steps;
	int exponent;

	if (isnan(x))
		return f->nan;
	if (x == 0)
		return sign;
	frexp(isinf(x) ? DBL_MAX : x, &exponent);
	exponent--; /* frexp's mantissa is in [0.5, 1) */
	if (exponent < f->min_exponent)
		exponent = f->min_exponent;
	steps = rint(ldexp(fabs(x), f->mantissa_bits - exponent));
	if (ldexp(steps, exponent - f->mantissa_bits) > f->largest) {
		if (!f->has_infinity)
			return sign | (f->nan - 1);
		return sign | (f->nan + 1 - one);
	}
	if (steps < one)
		return sign | (uint32_t)steps;
	/* A carry out of the mantissa makes the next exponent by itself. */
	return sign | (((uint32_t)(exponent - f->min_exponent + 1)
	                << f->mantissa_bits) +
	               ((uint32_t)steps - one));
}

/*
 * a * b + c rounded once. The product is exact in double; the sum is made
 * odd where it is not exact, so that the second rounding decides right
 * (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
 */
static inline float ref_fma(float a, float b, float c)
{
	const double p = (double)a * (double)b;
	double s = p + (double)c;
	const double part = s - p;
	const double error = (p - (s - part)) + ((double)c - part);
	uint64_t u;

	if (isfinite(s) && error != 0) {
		memcpy(&u, &s, sizeof(u));
		if ((u & 1) == 0)
			s = nextafter(s, error > 0 ? INFINITY : -INFINITY);
	}
	return (float)s;
}

#endif
