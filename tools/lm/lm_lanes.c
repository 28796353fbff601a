/* SPDX-License-Identifier: Apache-2.0 */
/* See lm_lanes.h. Loops are written for the vectors of the compiler. */
#include "lm_lanes.h"

#include <math.h>
#include <string.h>

#include "core/number.h"

enum { T = LM_TILE_ROWS };

void lm_widen(const struct lm_matrix *matrix, int64_t first, int64_t n,
              float *out)
{
	const uint16_t *const halves = (const uint16_t *)matrix->data + first;

	switch (matrix->type) {
	case LM_BF16:
		for (int64_t i = 0; i < n; i++)
			out[i] = f32_from_bf16(halves[i]);
		return;
	case LM_F16:
		for (int64_t i = 0; i < n; i++)
			out[i] = f32_from_fp16(halves[i]);
		return;
	default:
		memcpy(out, (const float *)matrix->data + first,
		       (size_t)n * sizeof(*out));
	}
}

void lm_rows_from_lanes(const float *lanes, int32_t n, float *rows,
                        size_t stride, int32_t n_rows)
{
	for (int32_t r = 0; r < n_rows; r++)
		for (int32_t c = 0; c < n; c++)
			rows[(size_t)r * stride + (size_t)c] = lanes[c * T + r];
}

/* Sum of squares in T strands, then of the strands: one order for every n. */
static float sum_of_squares(const float *x, int32_t n)
{
	float strands[T] = {0};
	int32_t i = 0;

	for (; i + T <= n; i += T)
		for (int32_t j = 0; j < T; j++)
			strands[j] += x[i + j] * x[i + j];
	for (int32_t j = 0; i + j < n; j++)
		strands[j] += x[i + j] * x[i + j];
	for (int32_t width = T / 2; width > 0; width /= 2)
		for (int32_t j = 0; j < width; j++)
			strands[j] += strands[j + width];
	return strands[0];
}

void lm_norm_row(const float *x, const float *weight, float eps, int32_t n,
                 float *out)
{
	const float factor = 1 / sqrtf(sum_of_squares(x, n) / (float)n + eps);

	for (int32_t i = 0; i < n; i++)
		out[i] = x[i] * factor * weight[i];
}

void lm_norm_lanes(float *x, const float *weight, float eps, int32_t n)
{
	float factors[T] = {0};

	for (int32_t i = 0; i < n; i++)
		for (int32_t j = 0; j < T; j++)
			factors[j] += x[i * T + j] * x[i * T + j];
	for (int32_t j = 0; j < T; j++)
		factors[j] = 1 / sqrtf(factors[j] / (float)n + eps);
	for (int32_t i = 0; i < n; i++)
		for (int32_t j = 0; j < T; j++)
			x[i * T + j] = x[i * T + j] * factors[j] * weight[i];
}

void lm_rotate_lanes(float *x, const float *cosines, const float *sines,
                     int32_t n)
{
	float *const low = x;
	float *const high = x + (size_t)n / 2 * T;

	for (int32_t i = 0; i < n / 2 * T; i++) {
		const float a = low[i], b = high[i];

		low[i] = a * cosines[i] - b * sines[i];
		high[i] = b * cosines[i] + a * sines[i];
	}
}

/*
 * exp(x) = 2^k * exp(r), |r| <= ln(2) / 2. k comes of adding and subtracting
 * 1.5 * 2^23, and is in the last bits of the sum; ln(2) has two parts, the
 * first of 15 bits, so that k times it is exact. The polynomial is within
 * 0.08 * 2^-24 of exp(r), relatively (Remez). 2^k is added to the exponent.
 */
static inline float exp_plain(float x)
{
	const float shifted = x * 0x1.715476p0f + 0x1.8p23f;
	const float k = shifted - 0x1.8p23f;
	const float r = x - k * 0x1.62e4p-1f - k * 0x1.7f7d1cp-20f;
	const float p =
		(((0x1.6ffa36p-10f * r + 0x1.12583ep-7f) * r + 0x1.5552fep-5f) *
	                 r +
	         0x1.555466p-3f) *
			r +
		0.5f;
	const float y = 1 + (r + r * r * p);
	const float scaled =
		f32_from_bits(f32_bits(y) + (f32_bits(shifted) << 23));
	const float high = x > 0x1.62e42ep6f ? INFINITY : scaled;
	const float low = x < -0x1.5d589ep6f ? 0 : high;

	return x == x ? low : x;
}

void lm_exp(const float *x, float *out, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = exp_plain(x[i]);
}

void lm_swiglu(float *gate, const float *up, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		gate[i] = gate[i] / (1 + exp_plain(-gate[i])) * up[i];
}

/* Largest of each lane, of scores[n] but what the lane does not see. */
static void largest_of_lanes(const float *scores, int32_t n, float *largest)
{
	for (int32_t j = 0; j < T; j++)
		largest[j] = -INFINITY;
	for (int32_t i = 0; i < n - T; i++)
		for (int32_t j = 0; j < T; j++)
			largest[j] = scores[i * T + j] > largest[j]
			                     ? scores[i * T + j]
			                     : largest[j];
	for (int32_t i = 0; i < T; i++)
		for (int32_t j = i; j < T; j++) {
			const float score = scores[(n - T + i) * T + j];

			largest[j] = score > largest[j] ? score : largest[j];
		}
}

void lm_softmax_lanes(float *scores, float scale, int32_t n, float *sums)
{
	float largest[T];

	largest_of_lanes(scores, n, largest);
	memset(sums, 0, T * sizeof(*sums));
	for (int32_t i = 0; i < n; i++)
		for (int32_t j = 0; j < T; j++) {
			float *const x = &scores[i * T + j];

			*x = exp_plain((*x - largest[j]) * scale);
			*x = i - (n - T) > j ? 0 : *x;
			sums[j] += *x;
		}
}

void lm_divide_lanes(float *x, const float *sums, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		for (int32_t j = 0; j < T; j++)
			x[i * T + j] /= sums[j];
}

double lm_sum_exp(const float *x, int32_t n, float *largest)
{
	float top = x[0];
	double sum = 0;

	for (int32_t i = 1; i < n; i++)
		top = x[i] > top ? x[i] : top;
	for (int32_t i = 0; i < n; i++)
		sum += (double)exp_plain(x[i] - top);
	*largest = top;
	return sum;
}
