/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes that do not wrap: they stay at SIZE_MAX, so that a chain of products
 * and sums needs one check at its end.
 */
#ifndef FERRY_SIZES_H
#define FERRY_SIZES_H

#include <stddef.h>
#include <stdint.h>

static inline size_t size_add(size_t a, size_t b)
{
	size_t sum;

	return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

static inline size_t size_mul(size_t a, size_t b)
{
	size_t product;

	return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

/* `to` is a power of two. */
static inline size_t size_round_up(size_t n, size_t to)
{
	return n > SIZE_MAX - (to - 1) ? SIZE_MAX : (n + to - 1) & ~(to - 1);
}

#endif
