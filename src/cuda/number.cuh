/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small float formats in device code: the bits of core/number.h, by the
 * conversions of the hardware (tests/cuda compares them exhaustively). No
 * fast-math and no flush to zero anywhere: the build forbids both.
 */
#ifndef FERRY_NUMBER_CUH
#define FERRY_NUMBER_CUH

#include <stdint.h>

static __device__ __forceinline__ float f32_of_bf16_low(uint32_t pair)
{
	return __uint_as_float(pair << 16);
}

static __device__ __forceinline__ float f32_of_bf16_high(uint32_t pair)
{
	return __uint_as_float(pair & 0xffff0000u);
}

/* Two bf16 in a word, `low` in the low half. NaN is 0x7fff. */
static __device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
	uint32_t v;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
	return v;
}

static __device__ __forceinline__ float f32_of_fp16(uint16_t h)
{
	float f;

	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
	return f;
}

static __device__ __forceinline__ uint32_t fp16_pair(float low, float high)
{
	uint32_t v;

	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
	return v;
}

/* Of each half: 1.0 as fp16 where the two are equal and no NaN, else 0. */
static __device__ __forceinline__ uint32_t fp16_equal(uint32_t a, uint32_t b)
{
	uint32_t v;

	asm("set.eq.f16x2.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
	return v;
}

static __device__ __forceinline__ uint32_t fp16_add(uint32_t a, uint32_t b)
{
	uint32_t v;

	asm("add.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
	return v;
}

/* NaN becomes 0x7fffffff; all else stays. */
static __device__ __forceinline__ float f32_canonical_of(float x)
{
	return x != x ? __uint_as_float(0x7fffffffu) : x;
}

/* Two e4m3 in 16 bits; saturates at 448, NaN is 0x7f. */
static __device__ __forceinline__ uint16_t e4m3_pair(float low, float high)
{
	uint16_t v;

	asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
	    : "=h"(v)
	    : "f"(high), "f"(low));
	return v;
}

/* Scale of a block, as quant_scale of core/number.h. */
static __device__ __forceinline__ float quant_scale_of(float amax)
{
	const float scale = __fdiv_rn(amax, 448.0f);

	return scale < 0x1p-126f ? 0x1p-126f : scale;
}

static __device__ __forceinline__ uint8_t ue8m0_of(float scale)
{
	return (uint8_t)((__float_as_uint(scale) + 0x7fffffu) >> 23);
}

static __device__ __forceinline__ float f32_of_ue8m0(uint8_t e)
{
	return __uint_as_float(e ? (uint32_t)e << 23 : 0x00400000u);
}

#endif
