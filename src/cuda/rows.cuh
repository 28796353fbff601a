/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of dispatch on their way through shared memory: in from the caller's
 * arrays, whatever their strides and alignments, quantised where the channel
 * does, and out to any alignment, weighted where the channel does.
 *
 * The image of a row is its payload, zeros up to scale_offset, its scales.
 * All functions take part of an image, [begin, end) with `begin` a multiple
 * of 16; `part` is in shared memory, aligned to 16. They are called by n
 * threads with the numbers 0..n-1, whole warps, and do not synchronise.
 */
#ifndef FERRY_ROWS_CUH
#define FERRY_ROWS_CUH

#include "copy.cuh"
#include "cuda_args.h"
#include "number.cuh"

enum { ROW_QUANT_BLOCK = 128, ROW_QUANT_LANES = 16 };

/* The images of this call's rows. */
struct row_image {
	uint32_t row_bytes;    /* payload as it travels */
	uint32_t scale_offset; /* in the image */
	uint32_t scale_bytes;
	uint32_t bytes; /* of the whole image */
};

/* scale_offset: that of the channel, or 0 for right behind the payload. */
static __host__ __device__ inline struct row_image
row_image_of(const struct ferry_cuda_dispatch *d, size_t scale_offset)
{
	struct row_image image;

	image.row_bytes = (uint32_t)d->row_bytes;
	image.scale_offset =
		(uint32_t)(scale_offset ? scale_offset
	                                : (d->row_bytes + 15) & ~(size_t)15);
	image.scale_bytes = (uint32_t)d->scale_row_bytes;
	image.bytes = image.scale_bytes ? image.scale_offset + image.scale_bytes
	                                : image.row_bytes;
	return image;
}

static __device__ __forceinline__ uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static __device__ __forceinline__ uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static __device__ __forceinline__ bool is_aligned(const void *p, uint32_t to)
{
	return ((uintptr_t)p & (to - 1)) == 0;
}

/*
 * Slow ways are functions of their own, so that the usual one stays short:
 * a kernel of a few microseconds waits for its instructions, too.
 */
static __device__ __noinline__ void copy_odd(unsigned char *to,
                                             const unsigned char *from,
                                             uint32_t bytes, uint32_t thread,
                                             uint32_t n)
{
	const uint32_t words =
		is_aligned(from, 4) && is_aligned(to, 4) ? bytes / 4 : 0;

#pragma unroll 1
	for (uint32_t i = thread; i < words; i += n)
		((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
#pragma unroll 1
	for (uint32_t i = words * 4 + thread; i < bytes; i += n)
		to[i] = from[i];
}

/* Global to shared memory, four loads in flight. to: aligned to 16. */
static __device__ __forceinline__ void fetch_bytes(unsigned char *to,
                                                   const unsigned char *from,
                                                   uint32_t bytes,
                                                   uint32_t thread, uint32_t n)
{
	const uint32_t n_16 = is_aligned(from, 16) ? bytes / 16 : 0;

#pragma unroll 1
	for (uint32_t i = thread; i < n_16; i += 4 * n) {
		uint4 v[4];

#pragma unroll
		for (uint32_t j = 0; j < 4; j++)
			if (i + j * n < n_16)
				v[j] = load_once_16(from +
				                    (size_t)(i + j * n) * 16);
#pragma unroll
		for (uint32_t j = 0; j < 4; j++)
			if (i + j * n < n_16)
				*(uint4 *)(to + (i + j * n) * 16) = v[j];
	}
	if (n_16 * 16 != bytes)
		copy_odd(to + n_16 * 16, from + n_16 * 16, bytes - n_16 * 16,
		         thread, n);
}

static __device__ __noinline__ uint4 load_bf16_odd(const unsigned char *from,
                                                   int32_t n)
{
	uint32_t v[4] = {0, 0, 0, 0};

#pragma unroll
	for (int32_t i = 0; i < 8; i++)
		if (i < n)
			v[i / 2] |=
				(uint32_t)(from[2 * i] | from[2 * i + 1] << 8)
				<< (i % 2 * 16);
	return make_uint4(v[0], v[1], v[2], v[3]);
}

/* Eight bf16 from `from` on, of which `n` exist; what does not is 0. */
static __device__ __forceinline__ uint4 load_bf16_8(const unsigned char *from,
                                                    int32_t n)
{
	if (n >= 8 && is_aligned(from, 16))
		return load_once_16(from);
	return n > 0 ? load_bf16_odd(from, n) : make_uint4(0, 0, 0, 0);
}

/* Largest magnitude of two bf16 that is not NaN, as its bits. */
static __device__ __forceinline__ uint32_t amax_of_pair(uint32_t pair)
{
	const uint32_t low = pair & 0x7fff, high = pair >> 16 & 0x7fff;

	return max_u32(low <= 0x7f80 ? low : 0, high <= 0x7f80 ? high : 0);
}

/* The same over 128 elements, eight to each of 16 lanes. */
static __device__ __forceinline__ float amax_of_block(uint4 v)
{
	uint32_t m = max_u32(max_u32(amax_of_pair(v.x), amax_of_pair(v.y)),
	                     max_u32(amax_of_pair(v.z), amax_of_pair(v.w)));

	for (int32_t i = ROW_QUANT_LANES / 2; i > 0; i /= 2)
		m = max_u32(m, __shfl_xor_sync(0xffffffffu, m, i));
	return f32_of_bf16_low(m);
}

static __device__ __forceinline__ uint32_t quantize_4(uint32_t a, uint32_t b,
                                                      float r)
{
	const uint32_t low = e4m3_pair(__fmul_rn(f32_of_bf16_low(a), r),
	                               __fmul_rn(f32_of_bf16_high(a), r));
	const uint32_t high = e4m3_pair(__fmul_rn(f32_of_bf16_low(b), r),
	                                __fmul_rn(f32_of_bf16_high(b), r));

	return low | high << 16;
}

/* Where a quantised row goes: part of its image. */
struct quant_part {
	unsigned char *part;
	uint32_t hidden, scale_offset;
	uint32_t begin, end;
	bool ue8m0;
};

/*
 * Eight elements from element `at` on, of a block whose other elements are in
 * the other lanes of 16; all of a warp, also where there are no elements.
 */
static __device__ __forceinline__ void quantize_8(const struct quant_part *q,
                                                  uint32_t at, uint4 v)
{
	const uint32_t block = at / ROW_QUANT_BLOCK;
	const int32_t left = (int32_t)q->hidden - (int32_t)at;
	float scale = quant_scale_of(amax_of_block(v));
	const uint8_t e = ue8m0_of(scale);

	if (q->ue8m0)
		scale = f32_of_ue8m0(e);
	const float r = __frcp_rn(scale);
	const uint32_t to = q->scale_offset + block * (q->ue8m0 ? 1 : 4);

	if (at % ROW_QUANT_BLOCK == 0 && left > 0 && to >= q->begin &&
	    to < q->end) {
		if (q->ue8m0)
			q->part[to - q->begin] = e;
		else
			*(float *)(q->part + to - q->begin) = scale;
	}
	if (at < q->begin || at >= q->end)
		return;
	const uint2 w =
		make_uint2(quantize_4(v.x, v.y, r), quantize_4(v.z, v.w, r));

	if (left >= 8)
		*(uint2 *)(q->part + at - q->begin) = w;
#pragma unroll 1
	for (int32_t i = 0; left < 8 && i < left; i++)
		q->part[at - q->begin + i] =
			(uint8_t)((i < 4 ? w.x : w.y) >> (i % 4 * 8));
}

/* Part of the image of a row that is quantised on its way. */
static __device__ __noinline__ void
quantize_part(unsigned char *part, uint32_t hidden, uint32_t scale_offset,
              const unsigned char *x, bool ue8m0, uint2 range, uint32_t thread,
              uint32_t n)
{
	const struct quant_part q = {part,    hidden,  scale_offset,
	                             range.x, range.y, ue8m0};
	const uint32_t all = (hidden + ROW_QUANT_BLOCK - 1) & ~127u;

	/* Whole warps stay together: the shuffles need all lanes. */
#pragma unroll 1
	for (uint32_t at = thread * 8; at - thread % 32 * 8 < all;
	     at += 2 * n * 8) {
		const uint32_t next = at + n * 8;
		const uint4 v = load_bf16_8(x + (size_t)at * 2,
		                            (int32_t)hidden - (int32_t)at);
		const uint4 w = load_bf16_8(x + (size_t)next * 2,
		                            (int32_t)hidden - (int32_t)next);

		quantize_8(&q, at, v);
		quantize_8(&q, next, w);
	}
}

/* [begin, end) of the image of a token, from the caller's arrays. */
static __device__ inline void row_load(unsigned char *part,
                                       const struct ferry_cuda_dispatch *d,
                                       const struct row_image *image,
                                       int32_t token, uint2 range,
                                       uint32_t thread, uint32_t n)
{
	const uint32_t begin = range.x, end = range.y;
	const unsigned char *x =
		(const unsigned char *)d->in.x + (size_t)token * d->in.x_stride;
	const uint32_t x_end = min_u32(end, image->row_bytes);
	const uint32_t zero_begin = max_u32(begin, image->row_bytes);
	/* A line or a wide store may end behind the image. */
	const uint32_t zero_end =
		image->scale_bytes ? min_u32(end, image->scale_offset) : end;

	if (d->ch.quantize)
		quantize_part(part, image->row_bytes, image->scale_offset, x,
		              d->ch.scale_type == FERRY_SCALE_UE8M0, range,
		              thread, n);
	else if (x_end > begin)
		fetch_bytes(part, x + begin, x_end - begin, thread, n);
#pragma unroll 1
	for (uint32_t i = zero_begin + thread; i < zero_end; i += n)
		part[i - begin] = 0;
#pragma unroll 1
	for (uint32_t i = max_u32(begin, image->bytes) + thread; i < end;
	     i += n)
		part[i - begin] = 0;
	const uint32_t s = max_u32(begin, image->scale_offset);
	const uint32_t s_end = min_u32(end, image->bytes);

	if (d->ch.quantize || !image->scale_bytes || s >= s_end)
		return;
	fetch_bytes(part + s - begin,
	            (const unsigned char *)d->in.scales +
	                    (size_t)token * d->in.scales_stride +
	                    (s - image->scale_offset),
	            s_end - s, thread, n);
}

/* Shared memory, aligned to 16, to global memory of any alignment. */
static __device__ __forceinline__ void row_store(unsigned char *to,
                                                 const unsigned char *part,
                                                 uint32_t bytes,
                                                 uint32_t thread, uint32_t n)
{
	const uint32_t n_16 = is_aligned(to, 16) ? bytes / 16 : 0;

#pragma unroll 1
	for (uint32_t i = thread; i < n_16; i += n)
		store_16(to + (size_t)i * 16, *(const uint4 *)(part + i * 16));
	if (n_16 * 16 != bytes)
		copy_odd(to + n_16 * 16, part + n_16 * 16, bytes - n_16 * 16,
		         thread, n);
}

/* Two elements times w, each rounded once. */
static __device__ __forceinline__ uint32_t weigh_pair(uint32_t pair, bool bf16,
                                                      float w)
{
	if (bf16)
		return bf16_pair(__fmul_rn(f32_of_bf16_low(pair), w),
		                 __fmul_rn(f32_of_bf16_high(pair), w));
	return fp16_pair(__fmul_rn(f32_of_fp16((uint16_t)pair), w),
	                 __fmul_rn(f32_of_fp16((uint16_t)(pair >> 16)), w));
}

/*
 * WEIGHT_INPUT: `bytes` of whole elements of the channel's dtype, weighted.
 * Shared memory may be read four bytes at a time up to the next multiple.
 */
static __device__ __noinline__ void
row_store_weighted(unsigned char *to, const unsigned char *part, uint32_t bytes,
                   int32_t dtype, float w, uint2 who)
{
#pragma unroll 1
	for (uint32_t i = who.x; i * 4 < bytes; i += who.y) {
		uint32_t v = ((const uint32_t *)part)[i];
		const uint32_t left = min_u32(4, bytes - i * 4);

		if (dtype == FERRY_FP32)
			v = __float_as_uint(f32_canonical_of(
				__fmul_rn(__uint_as_float(v), w)));
		else
			v = weigh_pair(v, dtype == FERRY_BF16, w);
		if (left == 4 && is_aligned(to, 4)) {
			((uint32_t *)to)[i] = v;
			continue;
		}
#pragma unroll 1
		for (uint32_t b = 0; b < left; b++)
			to[i * 4 + b] = (unsigned char)(v >> (8 * b));
	}
}

/*
 * Scales [first, first + bytes) of one row into the output, in its form.
 * `first` is a multiple of 16; `row` is the row of the output.
 */
static __device__ inline void scales_store(const struct ferry_cuda_dispatch *d,
                                           int64_t row,
                                           const unsigned char *part,
                                           uint2 range, uint32_t thread,
                                           uint32_t n)
{
	const struct ferry_dispatch_out *out = &d->out;
	const uint32_t first = range.x, bytes = range.y;
	unsigned char *to = (unsigned char *)out->scales;

	if (out->scale_form == FERRY_SCALES_ROW_MAJOR) {
		row_store(to + (size_t)row * out->scales_stride + first, part,
		          bytes, thread, n);
		return;
	}
	const bool packed = out->scale_form == FERRY_SCALES_PACKED_UE8M0;
	const uint32_t entry =
		packed || d->ch.scale_type == FERRY_SCALE_FP32 ? 4 : 1;
	const uint32_t n_columns =
		((uint32_t)d->scale_row_bytes + entry - 1) / entry;

	if (d->ch.layout == FERRY_EXPERT_PADDED) {
		to += (size_t)(row / d->ch.padded_rows) * n_columns *
		      out->scales_stride;
		row %= d->ch.padded_rows;
	}
	to += (size_t)row * entry +
	      (size_t)(first / entry) * out->scales_stride;
#pragma unroll 1
	for (uint32_t c = thread; c * entry < bytes; c += n) {
		unsigned char *at = to + (size_t)c * out->scales_stride;
		uint32_t v = 0;

		/* The last word of packed scales: missing blocks are 0. */
		for (uint32_t b = 0; b < entry && c * entry + b < bytes; b++)
			v |= (uint32_t)part[c * entry + b] << (8 * b);
		if (entry == 1)
			*at = (unsigned char)v;
		else if (is_aligned(at, 4))
			*(uint32_t *)at = v;
		else
			for (uint32_t b = 0; b < 4; b++)
				at[b] = (unsigned char)(v >> (8 * b));
	}
}

#endif
