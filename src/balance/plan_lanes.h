/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight 16-bit numbers at a time, in one register where there are such. What
 * compilers make of plain loops differs threefold in time between levels of
 * optimisation. Results are the same everywhere; sums wrap around.
 */
#ifndef FERRY_PLAN_LANES_H
#define FERRY_PLAN_LANES_H

#include <stdint.h>
#include <string.h>

enum { LANES = 8 };

#if defined(__SSE2__)
#include <emmintrin.h>

typedef __m128i lanes;

static inline lanes lanes_all(int16_t v)
{
	return _mm_set1_epi16(v);
}

static inline lanes lanes_load(const int16_t *from)
{
	return _mm_loadu_si128((const void *)from);
}

static inline void lanes_store(int16_t *to, lanes v)
{
	_mm_storeu_si128((void *)to, v);
}

static inline lanes lanes_add(lanes a, lanes b)
{
	return _mm_add_epi16(a, b);
}

static inline lanes lanes_min(lanes a, lanes b)
{
	return _mm_min_epi16(a, b);
}

static inline lanes lanes_max(lanes a, lanes b)
{
	return _mm_max_epi16(a, b);
}

/* sum + 1 in each lane where a > b. */
static inline lanes lanes_count(lanes sum, lanes a, lanes b)
{
	return _mm_sub_epi16(sum, _mm_cmpgt_epi16(a, b));
}

/* Upper lanes onto lower ones, and once more. */
static inline int32_t lanes_least(lanes v)
{
	v = _mm_min_epi16(v, _mm_srli_si128(v, 8));
	v = _mm_min_epi16(v, _mm_srli_si128(v, 4));
	v = _mm_min_epi16(v, _mm_srli_si128(v, 2));
	return (int16_t)_mm_extract_epi16(v, 0);
}

static inline int32_t lanes_most(lanes v)
{
	v = _mm_max_epi16(v, _mm_srli_si128(v, 8));
	v = _mm_max_epi16(v, _mm_srli_si128(v, 4));
	v = _mm_max_epi16(v, _mm_srli_si128(v, 2));
	return (int16_t)_mm_extract_epi16(v, 0);
}

static inline int32_t lanes_sum(lanes v)
{
	v = _mm_add_epi16(v, _mm_srli_si128(v, 8));
	v = _mm_add_epi16(v, _mm_srli_si128(v, 4));
	v = _mm_add_epi16(v, _mm_srli_si128(v, 2));
	return (int16_t)_mm_extract_epi16(v, 0);
}

#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>

typedef int16x8_t lanes;

static inline lanes lanes_all(int16_t v)
{
	return vdupq_n_s16(v);
}

static inline lanes lanes_load(const int16_t *from)
{
	return vld1q_s16(from);
}

static inline void lanes_store(int16_t *to, lanes v)
{
	vst1q_s16(to, v);
}

static inline lanes lanes_add(lanes a, lanes b)
{
	return vaddq_s16(a, b);
}

static inline lanes lanes_min(lanes a, lanes b)
{
	return vminq_s16(a, b);
}

static inline lanes lanes_max(lanes a, lanes b)
{
	return vmaxq_s16(a, b);
}

static inline lanes lanes_count(lanes sum, lanes a, lanes b)
{
	return vsubq_s16(sum, vreinterpretq_s16_u16(vcgtq_s16(a, b)));
}

static inline int32_t lanes_least(lanes v)
{
	return vminvq_s16(v);
}

static inline int32_t lanes_most(lanes v)
{
	return vmaxvq_s16(v);
}

static inline int32_t lanes_sum(lanes v)
{
	return vaddvq_s16(v);
}

#else

typedef int16_t lanes __attribute__((vector_size(16)));

static inline lanes lanes_all(int16_t v)
{
	return (lanes){v, v, v, v, v, v, v, v};
}

static inline lanes lanes_load(const int16_t *from)
{
	lanes a;

	memcpy(&a, from, sizeof(a));
	return a;
}

static inline void lanes_store(int16_t *to, lanes v)
{
	memcpy(to, &v, sizeof(v));
}

static inline lanes lanes_add(lanes a, lanes b)
{
	for (int l = 0; l < LANES; l++)
		a[l] = (int16_t)(a[l] + b[l]);
	return a;
}

static inline lanes lanes_min(lanes a, lanes b)
{
	for (int l = 0; l < LANES; l++)
		a[l] = b[l] < a[l] ? b[l] : a[l];
	return a;
}

static inline lanes lanes_max(lanes a, lanes b)
{
	for (int l = 0; l < LANES; l++)
		a[l] = b[l] > a[l] ? b[l] : a[l];
	return a;
}

static inline lanes lanes_count(lanes sum, lanes a, lanes b)
{
	for (int l = 0; l < LANES; l++)
		sum[l] = (int16_t)(sum[l] + (a[l] > b[l]));
	return sum;
}

static inline int32_t lanes_least(lanes v)
{
	int32_t least = v[0];

	for (int l = 1; l < LANES; l++)
		least = v[l] < least ? v[l] : least;
	return least;
}

static inline int32_t lanes_most(lanes v)
{
	int32_t most = v[0];

	for (int l = 1; l < LANES; l++)
		most = v[l] > most ? v[l] : most;
	return most;
}

static inline int32_t lanes_sum(lanes v)
{
	int32_t sum = 0;

	for (int l = 0; l < LANES; l++)
		sum += v[l];
	return sum;
}

#endif

#endif
