/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels in plain C, one element at a time: the specification that the
 * vector kernels are compared with, and the fallback. Nothing here is tuned.
 */
#include <math.h>
#include <string.h>

#include "../core/number.h"

#include "kern.h"

static uint16_t load_u16(const void *from, size_t i)
{
	uint16_t u;

	memcpy(&u, (const char *)from + i * sizeof(u), sizeof(u));
	return u;
}

static void store_u16(void *to, size_t i, uint16_t u)
{
	memcpy((char *)to + i * sizeof(u), &u, sizeof(u));
}

static float load(const void *from, enum ferry_dtype dtype, size_t i)
{
	float x;

	if (dtype == FERRY_BF16)
		return f32_from_bf16(load_u16(from, i));
	if (dtype == FERRY_FP16)
		return f32_from_fp16(load_u16(from, i));
	memcpy(&x, (const char *)from + i * sizeof(x), sizeof(x));
	return x;
}

static void store(void *to, enum ferry_dtype dtype, size_t i, float x)
{
	if (dtype == FERRY_BF16) {
		store_u16(to, i, bf16_from_f32(x));
	} else if (dtype == FERRY_FP16) {
		store_u16(to, i, fp16_from_f32(x));
	} else {
		x = f32_canonical(x);
		memcpy((char *)to + i * sizeof(x), &x, sizeof(x));
	}
}

/* fmaf is fused and rounded once by the C standard, with or without a unit. */
static void sum(void *out, enum ferry_dtype out_dtype, const void *const *rows,
                enum ferry_dtype in_dtype, const float *weights, int n,
                const void *residual, size_t n_elements)
{
	for (size_t i = 0; i < n_elements; i++) {
		float acc = 0;

		for (int j = 0; j < n; j++)
			acc = fmaf(weights != NULL ? weights[j] : 1.0f,
			           load(rows[j], in_dtype, i), acc);
		if (residual != NULL)
			acc += load(residual, out_dtype, i);
		store(out, out_dtype, i, acc);
	}
}

static void copy(void *const *to, int n, const void *from, size_t bytes,
                 bool far)
{
	(void)far;
	for (int j = 0; j < n; j++)
		memcpy(to[j], from, bytes);
}

static void scale(void *out, const void *in, enum ferry_dtype dtype,
                  float weight, size_t n_elements)
{
	for (size_t i = 0; i < n_elements; i++)
		store(out, dtype, i, load(in, dtype, i) * weight);
}

static float block_amax(const uint16_t *in, size_t n)
{
	uint16_t amax = 0;

	/* bf16 magnitudes are ordered as integers; NaN lies above. */
	for (size_t i = 0; i < n; i++) {
		const uint16_t magnitude = load_u16(in, i) & 0x7fff;

		if (magnitude > amax && magnitude <= 0x7f80)
			amax = magnitude;
	}
	return f32_from_bf16(amax);
}

static void quantize(uint8_t *out, void *scales,
                     enum ferry_scale_type scale_type, const uint16_t *in,
                     size_t n_elements)
{
	for (size_t i = 0; i < n_elements; i += FERRY_QUANT_BLOCK) {
		const size_t n = quant_block_len(n_elements - i);
		const float reciprocal = quant_store_scale(
			scales, scale_type, i / FERRY_QUANT_BLOCK,
			block_amax(in + i, n));

		for (size_t k = i; k < i + n; k++)
			out[k] = e4m3_from_f32(f32_from_bf16(load_u16(in, k)) *
			                       reciprocal);
	}
}

const struct ferry_kernels ferry_kern_scalar = {
	.name = "scalar",
	.sum = sum,
	.copy = copy,
	.scale = scale,
	.quantize = quantize,
};
