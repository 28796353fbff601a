/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of the checks: written once, compiled for the plain
 * processor and, on x86, for AVX2 with FMA, where fmaf is one instruction.
 */
#include "bench_math.h"

#include <math.h>
#include <stdbool.h>

#include "core/number.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2,fma")))

static bool is_wide(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#define WIDE

static bool is_wide(void)
{
	return false;
}
#endif

ALWAYS_INLINE void decode(const uint8_t *q, const float *scales, int32_t n,
                          uint16_t *out)
{
	for (int32_t first = 0; first < n; first += FERRY_QUANT_BLOCK) {
		const float scale = scales[first / FERRY_QUANT_BLOCK];
		const int32_t end = n - first < FERRY_QUANT_BLOCK
		                            ? n
		                            : first + FERRY_QUANT_BLOCK;

		for (int32_t i = first; i < end; i++)
			out[i] = bf16_from_f32(f32_from_e4m3(q[i]) * scale);
	}
}

ALWAYS_INLINE void add(float *sum, const uint16_t *row, uint16_t flip,
                       float weight, int32_t n)
{
	for (int32_t i = 0; i < n; i++) {
		const uint16_t y = row[i] ^ flip;

		sum[i] = fmaf(weight, f32_from_bf16(y), sum[i]);
	}
}

WIDE static void decode_wide(const uint8_t *q, const float *scales, int32_t n,
                             uint16_t *out)
{
	decode(q, scales, n, out);
}

WIDE static void add_wide(float *sum, const uint16_t *row, uint16_t flip,
                          float weight, int32_t n)
{
	add(sum, row, flip, weight, n);
}

void bench_decode_e4m3(const uint8_t *q, const float *scales, int32_t n,
                       uint16_t *out)
{
	if (is_wide())
		decode_wide(q, scales, n, out);
	else
		decode(q, scales, n, out);
}

void bench_flip(const uint16_t *in, uint16_t flip, int32_t n, uint16_t *out)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = in[i] ^ flip;
}

void bench_add_weighted(float *sum, const uint16_t *row, uint16_t flip,
                        float weight, int32_t n)
{
	if (is_wide())
		add_wide(sum, row, flip, weight, n);
	else
		add(sum, row, flip, weight, n);
}
