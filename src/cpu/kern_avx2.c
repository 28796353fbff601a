/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels with AVX2, FMA and F16C: every x86-64 core since about 2014. */
#include "kern.h"

#if defined(__x86_64__)

#include <immintrin.h>

typedef __m256 vec;

enum { LANES = 8 };

static inline vec vec_set1(float x)
{
	return _mm256_set1_ps(x);
}

static inline vec vec_add(vec a, vec b)
{
	return _mm256_add_ps(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
	return _mm256_mul_ps(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
	return _mm256_fmadd_ps(a, b, c);
}

/* u, with `nan` in the lanes where x is NaN. */
static inline __m256i mend_nan(__m256i u, vec x, int nan)
{
	return _mm256_blendv_epi8(
		u, _mm256_set1_epi32(nan),
		_mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}

/* The low halves of 8 lanes, which fit 16 bits unsigned. */
static inline __m128i narrow(__m256i u)
{
	return _mm_packus_epi32(_mm256_castsi256_si128(u),
	                        _mm256_extracti128_si256(u, 1));
}

static inline vec vec_load(const void *from, enum ferry_dtype dtype)
{
	if (dtype == FERRY_BF16)
		return _mm256_castsi256_ps(_mm256_slli_epi32(
			_mm256_cvtepu16_epi32(_mm_loadu_si128(from)), 16));
	if (dtype == FERRY_FP16)
		return _mm256_cvtph_ps(_mm_loadu_si128(from));
	return _mm256_loadu_ps(from);
}

/* Integers: FTZ has no say, and denormals stay. */
static inline __m128i bf16_from_vec(vec x)
{
	const __m256i u = _mm256_castps_si256(x);
	const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16),
	                                     _mm256_set1_epi32(1));
	const __m256i rounded =
		_mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, odd),
	                                           _mm256_set1_epi32(0x7fff)),
	                          16);

	return narrow(mend_nan(rounded, x, 0x7fff));
}

static inline __m128i fp16_from_vec(vec x)
{
	const __m256i rounded = _mm256_cvtepu16_epi32(_mm256_cvtps_ph(
		x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));

	return narrow(mend_nan(rounded, x, 0x7fff));
}

static inline void vec_store(void *to, enum ferry_dtype dtype, vec x)
{
	if (dtype == FERRY_BF16)
		_mm_storeu_si128(to, bf16_from_vec(x));
	else if (dtype == FERRY_FP16)
		_mm_storeu_si128(to, fp16_from_vec(x));
	else
		_mm256_storeu_si256(
			to, mend_nan(_mm256_castps_si256(x), x, 0x7fffffff));
}

static inline void vec_mend_16(char *to, const char *from, uint16_t infinity)
{
	const __m256i u = _mm256_loadu_si256((const void *)from);
	const __m256i magnitude =
		_mm256_and_si256(u, _mm256_set1_epi16(0x7fff));
	const __m256i minus_0 =
		_mm256_cmpeq_epi16(u, _mm256_set1_epi16(-0x8000));
	const __m256i nan = _mm256_cmpgt_epi16(
		magnitude, _mm256_set1_epi16((short)infinity));

	_mm256_storeu_si256((void *)to,
	                    _mm256_blendv_epi8(_mm256_andnot_si256(minus_0, u),
	                                       _mm256_set1_epi16(0x7fff), nan));
}

/* e4m3 of magnitudes up to 448 that are normal there. */
static inline __m256i e4m3_normal(__m256i magnitude)
{
	const __m256i odd = _mm256_and_si256(
		_mm256_srli_epi32(magnitude, E4M3_SHIFT), _mm256_set1_epi32(1));
	const __m256i rounded =
		_mm256_add_epi32(_mm256_add_epi32(magnitude, odd),
	                         _mm256_set1_epi32(E4M3_ROUND));

	return _mm256_srli_epi32(rounded, E4M3_SHIFT);
}

/* The last place of 2^14 is 2^-9, the step of denormal e4m3: adding rounds. */
static inline __m256i e4m3_denormal(__m256i magnitude)
{
	const vec base = _mm256_set1_ps(0x1p14f);

	return _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(
					_mm256_castsi256_ps(magnitude), base)),
	                        _mm256_castps_si256(base));
}

static inline void vec_store_e4m3(uint8_t *to, vec x)
{
	const __m256i u = _mm256_castps_si256(x);
	const __m256i magnitude =
		_mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
	const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(u, 24),
	                                      _mm256_set1_epi32(0x80));
	const __m256i small = _mm256_cmpgt_epi32(
		_mm256_set1_epi32(E4M3_LEAST_NORMAL), magnitude);
	const __m256i rounded = _mm256_blendv_epi8(
		e4m3_normal(magnitude), e4m3_denormal(magnitude), small);
	const __m128i q =
		narrow(mend_nan(_mm256_or_si256(rounded, sign), x, 0x7f));

	_mm_storel_epi64((void *)to, _mm_packus_epi16(q, q));
}

/* bf16 magnitudes are ordered as integers; NaN lies above infinity. */
static inline float block_amax(const uint16_t *in)
{
	__m256i amax = _mm256_setzero_si256();
	__m128i half;

	for (int i = 0; i < FERRY_QUANT_BLOCK; i += 16) {
		const __m256i magnitude = _mm256_and_si256(
			_mm256_loadu_si256((const void *)(in + i)),
			_mm256_set1_epi16(0x7fff));
		const __m256i nan = _mm256_cmpgt_epi16(
			magnitude, _mm256_set1_epi16(0x7f80));

		amax = _mm256_max_epi16(amax,
		                        _mm256_andnot_si256(nan, magnitude));
	}
	half = _mm_max_epi16(_mm256_castsi256_si128(amax),
	                     _mm256_extracti128_si256(amax, 1));
	/* The largest is what is left when the smallest complement is out. */
	half = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
	return f32_from_bf16((uint16_t)~_mm_extract_epi16(half, 0));
}

static inline void stream_lines(char *to, const char *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 32)
		_mm256_stream_si256(
			(void *)(to + i),
			_mm256_loadu_si256((const void *)(from + i)));
}

static inline void stream_fence(void)
{
	_mm_sfence();
}

#include "kern_copy.inc"
#include "kern_sum.inc"
#include "kern_quantize.inc"

const struct ferry_kernels ferry_kern_avx2 = {
	.name = "avx2",
	.sum = sum,
	.copy = copy,
	.scale = scale,
	.quantize = quantize,
};

#endif
