/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels with AVX-512 F, BW, DQ, VL. Not VCVTNE2PS2BF16 or VDPBF16PS:
 * they flush denormals, so rounding to bf16 is done in integers.
 */
#include "kern.h"

#if defined(__x86_64__)

#include <immintrin.h>

typedef __m512 vec;

enum { LANES = 16 };

static inline vec vec_set1(float x)
{
	return _mm512_set1_ps(x);
}

static inline vec vec_add(vec a, vec b)
{
	return _mm512_add_ps(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
	return _mm512_mul_ps(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
	return _mm512_fmadd_ps(a, b, c);
}

static inline __mmask16 is_nan(vec x)
{
	return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
}

static inline vec vec_load(const void *from, enum ferry_dtype dtype)
{
	if (dtype == FERRY_BF16)
		return _mm512_castsi512_ps(_mm512_slli_epi32(
			_mm512_cvtepu16_epi32(_mm256_loadu_si256(from)), 16));
	if (dtype == FERRY_FP16)
		return _mm512_cvtph_ps(_mm256_loadu_si256(from));
	return _mm512_loadu_ps(from);
}

static inline __m256i bf16_from_vec(vec x)
{
	const __m512i u = _mm512_castps_si512(x);
	const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16),
	                                     _mm512_set1_epi32(1));
	const __m512i rounded =
		_mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, odd),
	                                           _mm512_set1_epi32(0x7fff)),
	                          16);

	return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(
		rounded, is_nan(x), _mm512_set1_epi32(0x7fff)));
}

static inline __m256i fp16_from_vec(vec x)
{
	const __m256i rounded = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT |
	                                                   _MM_FROUND_NO_EXC);

	return _mm256_mask_mov_epi16(rounded, is_nan(x),
	                             _mm256_set1_epi16(0x7fff));
}

static inline void vec_store(void *to, enum ferry_dtype dtype, vec x)
{
	if (dtype == FERRY_BF16)
		_mm256_storeu_si256(to, bf16_from_vec(x));
	else if (dtype == FERRY_FP16)
		_mm256_storeu_si256(to, fp16_from_vec(x));
	else
		_mm512_storeu_si512(
			to,
			_mm512_mask_mov_epi32(_mm512_castps_si512(x), is_nan(x),
		                              _mm512_set1_epi32(0x7fffffff)));
}

static inline void vec_mend_16(char *to, const char *from, uint16_t infinity)
{
	const __m512i u = _mm512_loadu_si512(from);
	const __m512i magnitude =
		_mm512_and_si512(u, _mm512_set1_epi16(0x7fff));
	const __mmask32 not_minus_0 =
		_mm512_cmpneq_epi16_mask(u, _mm512_set1_epi16(-0x8000));
	const __mmask32 nan = _mm512_cmpgt_epi16_mask(
		magnitude, _mm512_set1_epi16((short)infinity));

	_mm512_storeu_si512(to, _mm512_mask_mov_epi16(
					_mm512_maskz_mov_epi16(not_minus_0, u),
					nan, _mm512_set1_epi16(0x7fff)));
}

/* e4m3 of magnitudes up to 448 that are normal there. */
static inline __m512i e4m3_normal(__m512i magnitude)
{
	const __m512i odd = _mm512_and_si512(
		_mm512_srli_epi32(magnitude, E4M3_SHIFT), _mm512_set1_epi32(1));
	const __m512i rounded =
		_mm512_add_epi32(_mm512_add_epi32(magnitude, odd),
	                         _mm512_set1_epi32(E4M3_ROUND));

	return _mm512_srli_epi32(rounded, E4M3_SHIFT);
}

/* The last place of 2^14 is 2^-9, the step of denormal e4m3: adding rounds. */
static inline __m512i e4m3_denormal(__m512i magnitude)
{
	const vec base = _mm512_set1_ps(0x1p14f);

	return _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(
					_mm512_castsi512_ps(magnitude), base)),
	                        _mm512_castps_si512(base));
}

static inline void vec_store_e4m3(uint8_t *to, vec x)
{
	const __m512i u = _mm512_castps_si512(x);
	const __m512i magnitude =
		_mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
	const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(u, 24),
	                                      _mm512_set1_epi32(0x80));
	const __mmask16 small = _mm512_cmplt_epi32_mask(
		magnitude, _mm512_set1_epi32(E4M3_LEAST_NORMAL));
	const __m512i rounded = _mm512_mask_mov_epi32(
		e4m3_normal(magnitude), small, e4m3_denormal(magnitude));
	const __m512i q =
		_mm512_mask_mov_epi32(_mm512_or_si512(rounded, sign), is_nan(x),
	                              _mm512_set1_epi32(0x7f));

	_mm_storeu_si128((void *)to, _mm512_cvtepi32_epi8(q));
}

/* bf16 magnitudes are ordered as integers; NaN lies above infinity. */
static inline float block_amax(const uint16_t *in)
{
	__m512i amax = _mm512_setzero_si512();

	for (int i = 0; i < FERRY_QUANT_BLOCK; i += 32) {
		const __m512i magnitude = _mm512_and_si512(
			_mm512_loadu_si512(in + i), _mm512_set1_epi16(0x7fff));
		const __mmask32 number = _mm512_cmple_epi16_mask(
			magnitude, _mm512_set1_epi16(0x7f80));

		amax = _mm512_mask_max_epi16(amax, number, amax, magnitude);
	}
	amax = _mm512_max_epi32(
		_mm512_slli_epi32(amax, 16),
		_mm512_and_si512(amax, _mm512_set1_epi32(-0x10000)));
	return f32_from_bits((uint32_t)_mm512_reduce_max_epi32(amax));
}

static inline void stream_lines(char *to, const char *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 64)
		_mm512_stream_si512((void *)(to + i),
		                    _mm512_loadu_si512(from + i));
}

static inline void stream_fence(void)
{
	_mm_sfence();
}

#include "kern_copy.inc"
#include "kern_sum.inc"
#include "kern_quantize.inc"

const struct ferry_kernels ferry_kern_avx512 = {
	.name = "avx512",
	.sum = sum,
	.copy = copy,
	.scale = scale,
	.quantize = quantize,
};

#endif
