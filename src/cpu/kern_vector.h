/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of the vector kernels, once. kern_avx2.c, kern_avx512.c and
 * kern_neon.c define the operations on one vector first and then include this
 * file, which makes the static functions sum, copy, scale and quantize.
 * Expected of them:
 *
 *   vec                          a vector of LANES floats (LANES divides 128)
 *   vec_set1, vec_add, vec_mul   as named; vec_fma(a, b, c) is a * b + c
 *   vec_load, vec_store          LANES elements of a dtype at any address;
 *                                storing rounds, and makes NaN canonical
 *   vec_store_e4m3               LANES elements, rounded and saturated
 *   block_amax                   largest magnitude of 128 bf16, not NaN
 *   stream_lines                 whole lines past the cache, 64-byte aligned
 *   stream_fence                 orders them before later stores
 */
#ifndef FERRY_KERN_VECTOR_H
#define FERRY_KERN_VECTOR_H

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
	/* Accumulators in flight: hides the latency of fma and loads. */
	UNROLL = 4,
	LINE_BYTES = 64,
	/* Of a row at a time, so that n destinations find it in L1. */
	COPY_BLOCK_BYTES = 16384,
};

struct sum_args {
	char *out;
	const void *const *rows;
	const float *weights;
	const char *residual;
	int n;
};

/* bf16, fp16 or fp32. Constant wherever it is asked. */
ALWAYS_INLINE size_t dtype_bytes(enum ferry_dtype dtype)
{
	return dtype == FERRY_FP32 ? 4 : 2;
}

ALWAYS_INLINE vec vec_load_n(const void *from, enum ferry_dtype dtype, size_t n)
{
	float pad[LANES] = {0};

	memcpy(pad, from, n * dtype_bytes(dtype));
	return vec_load(pad, dtype);
}

ALWAYS_INLINE void vec_store_n(void *to, enum ferry_dtype dtype, vec x,
                               size_t n)
{
	float pad[LANES];

	vec_store(pad, dtype, x);
	memcpy(to, pad, n * dtype_bytes(dtype));
}

/* Elements i.. of the sum, n_vectors of them: accumulators stay in registers */
ALWAYS_INLINE void sum_vectors(const struct sum_args *s,
                               enum ferry_dtype out_dtype,
                               enum ferry_dtype in_dtype, size_t i,
                               int n_vectors)
{
	const size_t in_step = LANES * dtype_bytes(in_dtype);
	const size_t out_step = LANES * dtype_bytes(out_dtype);
	const size_t out_at = i * dtype_bytes(out_dtype);
	vec acc[UNROLL];

	for (int v = 0; v < n_vectors; v++)
		acc[v] = vec_set1(0);
	for (int j = 0; j < s->n; j++) {
		const char *row =
			(const char *)s->rows[j] + i * dtype_bytes(in_dtype);
		const vec weight =
			vec_set1(s->weights != NULL ? s->weights[j] : 1.0f);

		for (int v = 0; v < n_vectors; v++)
			acc[v] = vec_fma(
				weight,
				vec_load(row + (size_t)v * in_step, in_dtype),
				acc[v]);
	}
	for (int v = 0; v < n_vectors; v++) {
		const size_t at = out_at + (size_t)v * out_step;

		if (s->residual != NULL)
			acc[v] = vec_add(acc[v],
			                 vec_load(s->residual + at, out_dtype));
		vec_store(s->out + at, out_dtype, acc[v]);
	}
}

/* The last n < LANES elements. */
ALWAYS_INLINE void sum_tail(const struct sum_args *s,
                            enum ferry_dtype out_dtype,
                            enum ferry_dtype in_dtype, size_t i, size_t n)
{
	const size_t out_at = i * dtype_bytes(out_dtype);
	vec acc = vec_set1(0);

	for (int j = 0; j < s->n; j++) {
		const char *row =
			(const char *)s->rows[j] + i * dtype_bytes(in_dtype);

		acc = vec_fma(
			vec_set1(s->weights != NULL ? s->weights[j] : 1.0f),
			vec_load_n(row, in_dtype, n), acc);
	}
	if (s->residual != NULL)
		acc = vec_add(acc,
		              vec_load_n(s->residual + out_at, out_dtype, n));
	vec_store_n(s->out + out_at, out_dtype, acc, n);
}

ALWAYS_INLINE void sum_typed(const struct sum_args *s,
                             enum ferry_dtype out_dtype,
                             enum ferry_dtype in_dtype, size_t n_elements)
{
	size_t i = 0;

	for (; n_elements - i >= UNROLL * LANES; i += UNROLL * LANES)
		sum_vectors(s, out_dtype, in_dtype, i, UNROLL);
	for (; n_elements - i >= LANES; i += LANES)
		sum_vectors(s, out_dtype, in_dtype, i, 1);
	if (i < n_elements)
		sum_tail(s, out_dtype, in_dtype, i, n_elements - i);
}

/* One copy of the loops per pair of types. */
ALWAYS_INLINE void sum_from(const struct sum_args *s,
                            enum ferry_dtype out_dtype,
                            enum ferry_dtype in_dtype, size_t n_elements)
{
	if (in_dtype == FERRY_BF16)
		sum_typed(s, out_dtype, FERRY_BF16, n_elements);
	else if (in_dtype == FERRY_FP16)
		sum_typed(s, out_dtype, FERRY_FP16, n_elements);
	else
		sum_typed(s, out_dtype, FERRY_FP32, n_elements);
}

static void sum(void *out, enum ferry_dtype out_dtype, const void *const *rows,
                enum ferry_dtype in_dtype, const float *weights, int n,
                const void *residual, size_t n_elements)
{
	const struct sum_args s = {
		.out = out,
		.rows = rows,
		.weights = weights,
		.residual = residual,
		.n = n,
	};

	if (out_dtype == FERRY_BF16)
		sum_from(&s, FERRY_BF16, in_dtype, n_elements);
	else if (out_dtype == FERRY_FP16)
		sum_from(&s, FERRY_FP16, in_dtype, n_elements);
	else
		sum_from(&s, FERRY_FP32, in_dtype, n_elements);
}

ALWAYS_INLINE void scale_typed(char *out, const char *in,
                               enum ferry_dtype dtype, float weight,
                               size_t n_elements)
{
	const size_t bytes = dtype_bytes(dtype);
	const vec w = vec_set1(weight);
	size_t i = 0;

	for (; n_elements - i >= LANES; i += LANES)
		vec_store(out + i * bytes, dtype,
		          vec_mul(vec_load(in + i * bytes, dtype), w));
	if (i < n_elements)
		vec_store_n(out + i * bytes, dtype,
		            vec_mul(vec_load_n(in + i * bytes, dtype,
		                               n_elements - i),
		                    w),
		            n_elements - i);
}

static void scale(void *out, const void *in, enum ferry_dtype dtype,
                  float weight, size_t n_elements)
{
	if (dtype == FERRY_BF16)
		scale_typed(out, in, FERRY_BF16, weight, n_elements);
	else if (dtype == FERRY_FP16)
		scale_typed(out, in, FERRY_FP16, weight, n_elements);
	else
		scale_typed(out, in, FERRY_FP32, weight, n_elements);
}

ALWAYS_INLINE void quantize_block(uint8_t *out, const uint16_t *in,
                                  float reciprocal)
{
	const vec r = vec_set1(reciprocal);

	for (int i = 0; i < FERRY_QUANT_BLOCK; i += LANES)
		vec_store_e4m3(out + i,
		               vec_mul(vec_load(in + i, FERRY_BF16), r));
}

static void quantize(uint8_t *out, void *scales,
                     enum ferry_scale_type scale_type, const uint16_t *in,
                     size_t n_elements)
{
	const size_t n_whole = n_elements / FERRY_QUANT_BLOCK;
	const size_t n_rest = n_elements % FERRY_QUANT_BLOCK;

	for (size_t b = 0; b < n_whole; b++) {
		const uint16_t *block = in + b * FERRY_QUANT_BLOCK;

		quantize_block(out + b * FERRY_QUANT_BLOCK, block,
		               quant_store_scale(scales, scale_type, b,
		                                 block_amax(block)));
	}
	if (n_rest != 0) { /* padded with zeros, which leave amax alone */
		uint16_t block[FERRY_QUANT_BLOCK] = {0};
		uint8_t q[FERRY_QUANT_BLOCK];

		memcpy(block, in + n_whole * FERRY_QUANT_BLOCK,
		       n_rest * sizeof(*in));
		quantize_block(q, block,
		               quant_store_scale(scales, scale_type, n_whole,
		                                 block_amax(block)));
		memcpy(out + n_whole * FERRY_QUANT_BLOCK, q, n_rest);
	}
}

/* Whole lines go past the cache, the ends the usual way. */
static void copy_far(char *to, const char *from, size_t bytes)
{
	const size_t head = (size_t)(-(uintptr_t)to % LINE_BYTES);
	const size_t lines = (bytes - head) / LINE_BYTES * LINE_BYTES;

	memcpy(to, from, head);
	stream_lines(to + head, from + head, lines);
	memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

static void copy(void *const *to, int n, const void *from, size_t bytes,
                 bool far)
{
	const bool stream = far && bytes >= 4 * LINE_BYTES;

	for (size_t at = 0; at < bytes; at += COPY_BLOCK_BYTES) {
		const size_t left = bytes - at;
		const size_t len =
			left < COPY_BLOCK_BYTES ? left : COPY_BLOCK_BYTES;

		for (int j = 0; j < n; j++)
			if (stream && len >= LINE_BYTES)
				copy_far((char *)to[j] + at,
				         (const char *)from + at, len);
			else
				memcpy((char *)to[j] + at,
				       (const char *)from + at, len);
	}
	if (stream)
		stream_fence();
}

#endif
