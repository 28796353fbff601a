/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e^y and the sigmoid in double, by operations that IEEE 754 fixes to the bit:
 * no libm, whose results differ from machine to machine, and with them the
 * order of near ties. Built without contraction into fma, as all of Ferry is,
 * and meant for the default rounding mode.
 *
 * y = n ln 2 + r with |r| <= ln 2 / 2 (and a rounding); e^r by its Taylor
 * series up to r^13 / 13!, whose remainder is below 2^-57. ln 2 is taken in
 * two parts, so that n times the first is exact. Against the true value the
 * result is off by less than 2^-51 of it (2^-52.5 at most in a million points,
 * test_fixed_exp).
 */
#ifndef FERRY_FIXED_EXP_H
#define FERRY_FIXED_EXP_H

#include <float.h>
#include <stdint.h>
#include <string.h>

/* Wider intermediate results would not be fixed to the bit. */
_Static_assert(FLT_EVAL_METHOD == 0, "double arithmetic is double");

/*
 * e^y for y <= 0; 0 below -650, so that neither the result nor its share of
 * 2^24 others is denormal, and flushing to zero changes nothing. 0 for NaN.
 */
static inline double fixed_exp(double y)
{
	const double least = -650.0;
	const double ln2_hi = 0x1.62e42feep-1; /* 32 bits of ln 2 */
	const double ln2_lo = 0x1.a39ef35793c76p-33;
	const double log2_e = 0x1.71547652b82fep+0;
	const double t = y > least ? y : least;
	/* Truncation is the same in every rounding mode. */
	const int32_t n = (int32_t)(t * log2_e - 0.5);
	const double r = (t - n * ln2_hi) - n * ln2_lo;
	/* 2^n, or 0: a choice between integers needs no branch. */
	const uint64_t power =
		y > least ? (uint64_t)(uint32_t)(1023 + n) << 52 : 0;
	const double r2 = r * r;
	const double r4 = r2 * r2;
	double scale;

	/* In pairs, which do not wait for each other. */
	const double a =
		(1.0 / 2 + r * (1.0 / 6)) + (1.0 / 24 + r * (1.0 / 120)) * r2;
	const double b = (1.0 / 720 + r * (1.0 / 5040)) +
	                 (1.0 / 40320 + r * (1.0 / 362880)) * r2;
	const double c = (1.0 / 3628800 + r * (1.0 / 39916800)) +
	                 (1.0 / 479001600 + r * (1.0 / 6227020800.0)) * r2;
	const double p = 1.0 + (r + r2 * (a + (b + c * r4) * r4));

	memcpy(&scale, &power, sizeof(scale));
	return p * scale;
}

/* 1 / (1 + e^-x); 0 for NaN. Off by less than 2^-50 of it. */
static inline double fixed_sigmoid(double x)
{
	const double e = fixed_exp(x > 0 ? -x : x);

	return (x > 0 ? 1.0 : e) / (1.0 + e);
}

#endif
