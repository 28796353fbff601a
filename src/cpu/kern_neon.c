/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels with the vector unit that every AArch64 core has. */
#include "kern.h"

#if defined(__aarch64__)

#include <arm_neon.h>

typedef float32x4_t vec;

enum { LANES = 4 };

static inline vec vec_set1(float x)
{
	return vdupq_n_f32(x);
}

static inline vec vec_add(vec a, vec b)
{
	return vaddq_f32(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
	return vmulq_f32(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
	return vfmaq_f32(c, a, b);
}

/* u, with `nan` in the lanes where x is NaN. */
static inline uint32x4_t mend_nan(uint32x4_t u, vec x, uint32_t nan)
{
	return vbslq_u32(vceqq_f32(x, x), u, vdupq_n_u32(nan));
}

static inline uint16x4_t load_u16x4(const void *from)
{
	return vreinterpret_u16_u8(vld1_u8(from));
}

static inline void store_u16x4(void *to, uint16x4_t u)
{
	vst1_u8(to, vreinterpret_u8_u16(u));
}

static inline vec vec_load(const void *from, enum ferry_dtype dtype)
{
	if (dtype == FERRY_BF16)
		return vreinterpretq_f32_u32(vshll_n_u16(load_u16x4(from), 16));
	if (dtype == FERRY_FP16)
		return vcvt_f32_f16(vreinterpret_f16_u16(load_u16x4(from)));
	return vreinterpretq_f32_u8(vld1q_u8(from));
}

static inline uint16x4_t bf16_from_vec(vec x)
{
	const uint32x4_t u = vreinterpretq_u32_f32(x);
	const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
	const uint32x4_t rounded = vshrq_n_u32(
		vaddq_u32(vaddq_u32(u, odd), vdupq_n_u32(0x7fff)), 16);

	return vmovn_u32(mend_nan(rounded, x, 0x7fff));
}

static inline uint16x4_t fp16_from_vec(vec x)
{
	const uint32x4_t rounded =
		vmovl_u16(vreinterpret_u16_f16(vcvt_f16_f32(x)));

	return vmovn_u32(mend_nan(rounded, x, 0x7fff));
}

static inline void vec_store(void *to, enum ferry_dtype dtype, vec x)
{
	if (dtype == FERRY_BF16)
		store_u16x4(to, bf16_from_vec(x));
	else if (dtype == FERRY_FP16)
		store_u16x4(to, fp16_from_vec(x));
	else
		vst1q_u8(to, vreinterpretq_u8_u32(mend_nan(
				     vreinterpretq_u32_f32(x), x, 0x7fffffff)));
}

static inline void vec_mend_16(char *to, const char *from, uint16_t infinity)
{
	const uint16x8_t u = vreinterpretq_u16_u8(vld1q_u8((const void *)from));
	const uint16x8_t magnitude = vandq_u16(u, vdupq_n_u16(0x7fff));
	const uint16x8_t minus_0 = vceqq_u16(u, vdupq_n_u16(0x8000));
	const uint16x8_t nan = vcgtq_u16(magnitude, vdupq_n_u16(infinity));

	vst1q_u8((void *)to,
	         vreinterpretq_u8_u16(vbslq_u16(nan, vdupq_n_u16(0x7fff),
	                                        vbicq_u16(u, minus_0))));
}

/* e4m3 of magnitudes up to 448 that are normal there. */
static inline uint32x4_t e4m3_normal(uint32x4_t magnitude)
{
	const uint32x4_t odd =
		vandq_u32(vshrq_n_u32(magnitude, E4M3_SHIFT), vdupq_n_u32(1));
	const uint32x4_t rounded = vaddq_u32(vaddq_u32(magnitude, odd),
	                                     vdupq_n_u32((uint32_t)E4M3_ROUND));

	return vshrq_n_u32(rounded, E4M3_SHIFT);
}

/* The last place of 2^14 is 2^-9, the step of denormal e4m3: adding rounds. */
static inline uint32x4_t e4m3_denormal(uint32x4_t magnitude)
{
	const vec base = vdupq_n_f32(0x1p14f);

	return vsubq_u32(vreinterpretq_u32_f32(vaddq_f32(
				 vreinterpretq_f32_u32(magnitude), base)),
	                 vreinterpretq_u32_f32(base));
}

static inline void vec_store_e4m3(uint8_t *to, vec x)
{
	const uint32x4_t u = vreinterpretq_u32_f32(x);
	const uint32x4_t magnitude = vandq_u32(u, vdupq_n_u32(0x7fffffff));
	const uint32x4_t sign =
		vandq_u32(vshrq_n_u32(u, 24), vdupq_n_u32(0x80));
	const uint32x4_t small =
		vcltq_u32(magnitude, vdupq_n_u32(E4M3_LEAST_NORMAL));
	const uint32x4_t rounded = vbslq_u32(small, e4m3_denormal(magnitude),
	                                     e4m3_normal(magnitude));
	const uint16x4_t q =
		vmovn_u32(mend_nan(vorrq_u32(rounded, sign), x, 0x7f));
	const uint8x8_t bytes = vmovn_u16(vcombine_u16(q, q));

	memcpy(to, &bytes, LANES);
}

/* bf16 magnitudes are ordered as integers; NaN lies above infinity. */
static inline float block_amax(const uint16_t *in)
{
	uint16x8_t amax = vdupq_n_u16(0);

	for (int i = 0; i < FERRY_QUANT_BLOCK; i += 8) {
		const uint16x8_t magnitude = vandq_u16(
			vreinterpretq_u16_u8(vld1q_u8((const void *)(in + i))),
			vdupq_n_u16(0x7fff));
		const uint16x8_t number =
			vcleq_u16(magnitude, vdupq_n_u16(0x7f80));

		amax = vmaxq_u16(amax, vandq_u16(number, magnitude));
	}
	return f32_from_bf16(vmaxvq_u16(amax));
}

/* AArch64 has no store that is worth going past the cache for. */
static inline void stream_lines(char *to, const char *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

static inline void stream_fence(void)
{
}

#include "kern_copy.inc"
#include "kern_sum.inc"
#include "kern_quantize.inc"

const struct ferry_kernels ferry_kern_neon = {
	.name = "neon",
	.sum = sum,
	.copy = copy,
	.scale = scale,
	.quantize = quantize,
};

#endif
