/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of combine (docs/arithmetic.md) on blocks of 16 bytes: 8
 * elements of bf16 or fp16, 4 of fp32. Sums are fp32, each term one fma;
 * rounding makes NaN canonical. Blocks that do not lie on multiples of 16 are
 * read and written element by element; WIDE: there are none.
 */
#ifndef FERRY_SUM_CUH
#define FERRY_SUM_CUH

#include "copy.cuh"
#include "cuda_args.h"
#include "number.cuh"

enum { BLOCK_BYTES = 16, BLOCK_MOST = 8 /* elements */ };

static __host__ __device__ __forceinline__ int32_t dtype_bytes(int32_t dtype)
{
	return dtype == FERRY_FP32 ? 4 : 2;
}

template <int DTYPE>
static __device__ __forceinline__ void widen_block(float x[BLOCK_MOST], uint4 v)
{
	const uint32_t word[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (DTYPE == FERRY_BF16) {
			x[2 * i] = f32_of_bf16_low(word[i]);
			x[2 * i + 1] = f32_of_bf16_high(word[i]);
		} else if (DTYPE == FERRY_FP16) {
			x[2 * i] = f32_of_fp16((uint16_t)word[i]);
			x[2 * i + 1] = f32_of_fp16((uint16_t)(word[i] >> 16));
		} else {
			x[i] = __uint_as_float(word[i]);
		}
	}
}

template <int DTYPE>
static __device__ __forceinline__ uint4 round_block(const float x[BLOCK_MOST])
{
	uint32_t word[4];

#pragma unroll
	for (int i = 0; i < 4; i++)
		word[i] = DTYPE == FERRY_BF16
		                  ? bf16_pair(x[2 * i], x[2 * i + 1])
		          : DTYPE == FERRY_FP16
		                  ? fp16_pair(x[2 * i], x[2 * i + 1])
		                  : __float_as_uint(f32_canonical_of(x[i]));
	return make_uint4(word[0], word[1], word[2], word[3]);
}

/* One term of a sum. */
template <int DTYPE>
static __device__ __forceinline__ void add_block(float acc[BLOCK_MOST], uint4 v,
                                                 float weight)
{
	float x[BLOCK_MOST];

	widen_block<DTYPE>(x, v);
#pragma unroll
	for (int i = 0; i < (DTYPE == FERRY_FP32 ? 4 : BLOCK_MOST); i++)
		acc[i] = __fmaf_rn(weight, x[i], acc[i]);
}

/* An element at any address. */
static __device__ inline uint32_t load_element(const unsigned char *p,
                                               int32_t bytes)
{
	uint32_t v = 0;

	if (bytes == 2 && (uintptr_t)p % 2 == 0)
		return *(const uint16_t *)p;
	if (bytes == 4 && (uintptr_t)p % 4 == 0)
		return *(const uint32_t *)p;
	for (int32_t i = 0; i < bytes; i++)
		v |= (uint32_t)p[i] << 8 * i;
	return v;
}

static __device__ inline void store_element(unsigned char *p, int32_t bytes,
                                            uint32_t v)
{
	if (bytes == 2 && (uintptr_t)p % 2 == 0)
		*(uint16_t *)p = (uint16_t)v;
	else if (bytes == 4 && (uintptr_t)p % 4 == 0)
		*(uint32_t *)p = v;
	else
		for (int32_t i = 0; i < bytes; i++)
			p[i] = (unsigned char)(v >> 8 * i);
}

static __device__ __forceinline__ bool is_wide_block(const unsigned char *p,
                                                     int32_t bytes)
{
	return bytes == BLOCK_BYTES && (uintptr_t)p % BLOCK_BYTES == 0;
}

/* The first `bytes` (0..16) of a block of a row, 0 behind them. */
template <int DTYPE, bool WIDE>
static __device__ __forceinline__ uint4 load_block(const unsigned char *p,
                                                   int32_t bytes)
{
	if (WIDE)
		return bytes > 0 ? load_once_16(p) : make_uint4(0, 0, 0, 0);
	if (is_wide_block(p, bytes))
		return load_once_16(p);
	uint32_t word[4] = {0, 0, 0, 0};
	const int size = DTYPE == FERRY_FP32 ? 4 : 2;

#pragma unroll
	for (int i = 0; i < BLOCK_BYTES / size; i++)
		if (i * size < bytes)
			word[i * size / 4] |= load_element(p + i * size, size)
			                      << i * size % 4 * 8;
	return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Adds n elements at p, which lie as the output does. */
template <int N>
static __device__ inline void add_elements(float acc[BLOCK_MOST],
                                           const unsigned char *p,
                                           int32_t dtype, int32_t n)
{
	const int32_t size = dtype_bytes(dtype);

#pragma unroll
	for (int i = 0; i < N; i++) {
		if (i >= n)
			break;
		const uint32_t v = load_element(p + i * size, size);

		acc[i] = __fadd_rn(
			acc[i], dtype == FERRY_BF16   ? f32_of_bf16_low(v)
				: dtype == FERRY_FP16 ? f32_of_fp16((uint16_t)v)
						      : __uint_as_float(v));
	}
}

template <int N>
static __device__ inline void store_elements(unsigned char *p, int32_t dtype,
                                             const float acc[BLOCK_MOST],
                                             int32_t n)
{
	const int32_t size = dtype_bytes(dtype);

#pragma unroll
	for (int i = 0; i < N; i++) {
		if (i >= n)
			break;
		const uint32_t v =
			dtype == FERRY_BF16 ? bf16_pair(acc[i], 0)
			: dtype == FERRY_FP16
				? fp16_pair(acc[i], 0)
				: __float_as_uint(f32_canonical_of(acc[i]));

		store_element(p + i * size, size, v);
	}
}

/* N (4 or 8) elements of the output's type in one or two accesses. */
template <int N>
static __device__ __forceinline__ void
add_wide(float acc[BLOCK_MOST], const unsigned char *p, int32_t dtype)
{
	float x[BLOCK_MOST];

	if (dtype == FERRY_FP32) {
		widen_block<FERRY_FP32>(x, load_once_16(p));
		if (N == 8)
			widen_block<FERRY_FP32>(x + 4, load_once_16(p + 16));
	} else {
		const uint2 two = *(const uint2 *)p;
		uint4 v = make_uint4(two.x, two.y, 0, 0);

		if (N == 8) {
			const uint2 more = *(const uint2 *)(p + 8);

			v.z = more.x;
			v.w = more.y;
		}
		if (dtype == FERRY_BF16)
			widen_block<FERRY_BF16>(x, v);
		else
			widen_block<FERRY_FP16>(x, v);
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		acc[i] = __fadd_rn(acc[i], x[i]);
}

template <int N>
static __device__ __forceinline__ void
store_wide(unsigned char *p, int32_t dtype, const float acc[BLOCK_MOST])
{
	if (dtype == FERRY_FP32) {
		store_16(p, round_block<FERRY_FP32>(acc));
		if (N == 8)
			store_16(p + 16, round_block<FERRY_FP32>(acc + 4));
		return;
	}
	const uint4 v = dtype == FERRY_BF16 ? round_block<FERRY_BF16>(acc)
	                                    : round_block<FERRY_FP16>(acc);

	if (N == 8)
		store_16(p, v);
	else
		*(uint2 *)p = make_uint2(v.x, v.y);
}

/*
 * Ends the sum of a block of a token: the residual, then one rounding, to
 * `dtype`. `at` and `bytes` are the block's in a row of combine_dtype.
 */
template <int DTYPE, bool WIDE>
static __device__ __forceinline__ void
finish_block_to(const struct ferry_combine_out *to, int32_t dtype,
                int32_t token, int32_t at, int32_t bytes, float acc[BLOCK_MOST])
{
	constexpr int size = DTYPE == FERRY_FP32 ? 4 : 2;
	constexpr int n = BLOCK_BYTES / size;
	const size_t offset = (size_t)(at / size * dtype_bytes(dtype));
	const unsigned char *residual = (const unsigned char *)to->residual;
	unsigned char *out = (unsigned char *)to->out +
	                     (size_t)token * to->out_stride + offset;

	if (bytes <= 0)
		return;
	if (residual) {
		residual += (size_t)token * to->residual_stride + offset;
		if (WIDE || is_wide_block(residual, bytes))
			add_wide<n>(acc, residual, dtype);
		else
			add_elements<n>(acc, residual, dtype, bytes / size);
	}
	if (WIDE || is_wide_block(out, bytes))
		store_wide<n>(out, dtype, acc);
	else
		store_elements<n>(out, dtype, acc, bytes / size);
}

template <int DTYPE, bool WIDE>
static __device__ __forceinline__ void
finish_block(const struct ferry_cuda_combine *a, int32_t token, int32_t at,
             int32_t bytes, float acc[BLOCK_MOST])
{
	finish_block_to<DTYPE, WIDE>(&a->out, a->ch.out_dtype, token, at, bytes,
	                             acc);
}

/* Host: do all rows lie on multiples of 16? */
static inline bool rows_are_wide(const struct ferry_cuda_combine *a)
{
	const size_t all = (size_t)a->in.y | a->in.y_stride | a->row_bytes |
	                   (size_t)a->out.out | a->out.out_stride |
	                   (size_t)a->out.residual | a->out.residual_stride;

	return all % BLOCK_BYTES == 0;
}

#endif
