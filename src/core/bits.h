/* SPDX-License-Identifier: Apache-2.0 */
/* Small integer helpers, a 64-bit hash, and a seeded generator. */
#ifndef FERRY_BITS_H
#define FERRY_BITS_H

#include <stddef.h>
#include <stdint.h>

/* Rounds n up to a multiple of `to`, a power of two. */
static inline size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) & ~(to - 1);
}

static inline int64_t div_up(int64_t n, int64_t by)
{
	return (n + by - 1) / by;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* SplitMix64: the next number of the sequence that *state is in. */
static inline uint64_t rng_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Folds v into the hash h; order matters. Equal on every machine. */
static inline uint64_t hash_u64(uint64_t h, uint64_t v)
{
	uint64_t state = h ^ (v * 0xff51afd7ed558ccdu);

	return rng_next(&state);
}

/* Folds a text and its end into the hash. */
static inline uint64_t hash_text(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = hash_u64(h, (unsigned char)*text);
	return hash_u64(h, 256);
}

#endif
