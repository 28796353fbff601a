/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and expert outputs of a measured shape, by plain loops. */
#include "bench_case.h"

#include <math.h>
#include <string.h>

#include "bench_math.h"
#include "core/bits.h"
#include "core/number.h"

int32_t bench_first_expert(const struct bench_case *c, int32_t rank)
{
	const int32_t each = c->experts / c->n_ranks;
	const int32_t extra = c->experts % c->n_ranks;

	return rank * each + (rank < extra ? rank : extra);
}

int32_t bench_owner(const struct bench_case *c, int32_t expert)
{
	const int32_t each = c->experts / c->n_ranks;
	const int32_t extra = c->experts % c->n_ranks;
	const int32_t in_larger = extra * (each + 1);

	if (expert < in_larger)
		return expert / (each + 1);
	return extra + (expert - in_larger) / each;
}

size_t bench_row_bytes(const struct bench_case *c)
{
	return (size_t)c->hidden * (c->fp8 ? 1 : 2);
}

int32_t bench_scales(const struct bench_case *c)
{
	return c->fp8 ? (int32_t)div_up(c->hidden, FERRY_QUANT_BLOCK) : 0;
}

int32_t bench_tokens(const struct bench_case *c, int32_t rank)
{
	if (!c->uneven || rank == 0)
		return c->tokens;
	return (int32_t)(hash_u64(c->seed, (uint64_t)rank) %
	                 (uint64_t)(c->tokens + 1)) *
	       (rank % 3 != 2);
}

static uint64_t stream(const struct bench_case *c, int32_t rank, uint64_t step,
                       uint64_t what)
{
	return hash_u64(hash_u64(hash_u64(c->seed, (uint64_t)rank), step),
	                what);
}

void bench_make_row(const struct bench_case *c, int32_t rank, uint64_t step,
                    int32_t token, uint16_t *row)
{
	uint64_t state = stream(c, rank, step, 2 + (uint64_t)token);

	for (int32_t i = 0; i < c->hidden; i += 4) {
		const uint64_t bits = rng_next(&state);
		uint16_t four[4];

		memcpy(four, &bits, sizeof(four));
		for (int j = 0; !c->wild && j < 4; j++) {
			/* magnitudes from 2^-11 to 2^4 */
			const unsigned exponent = 116 + (four[j] >> 7 & 15);

			four[j] =
				(uint16_t)((four[j] & 0x807f) | exponent << 7);
		}
		memcpy(row + i, four,
		       sizeof(*row) * (size_t)min_i64(4, c->hidden - i));
	}
}

/* Uniform in 0..n-1; the bias of a 32-bit multiplication does not matter. */
static int32_t pick(uint64_t *state, int32_t n)
{
	return (int32_t)((rng_next(state) >> 32) * (uint64_t)n >> 32);
}

/* Inverse of a continuous 1/x law over 1..n+1. */
static int32_t pick_zipf(uint64_t *state, int32_t n)
{
	const double u = (double)(rng_next(state) >> 11) * 0x1p-53;
	const int32_t e = (int32_t)exp(u * log((double)n + 1)) - 1;

	return e < n ? e : n - 1;
}

static bool taken(const int32_t *ids, int32_t n, int32_t expert)
{
	for (int32_t i = 0; i < n; i++)
		if (ids[i] == expert)
			return true;
	return false;
}

static int32_t choose(const struct bench_case *c, int32_t rank, uint64_t *state,
                      const int32_t *ids, int32_t k)
{
	if (c->routing == BENCH_SHIFT)
		return bench_first_expert(c, (rank + c->shift) % c->n_ranks) +
		       k;
	if (c->routing == BENCH_ONE)
		return k % c->experts;
	if (c->routing == BENCH_MESSY)
		return pick(state, c->experts + 1) - 1;
	for (;;) {
		const int32_t expert = c->routing == BENCH_ZIPF
		                               ? pick_zipf(state, c->experts)
		                               : pick(state, c->experts);

		if (k >= c->experts || !taken(ids, k, expert))
			return expert;
	}
}

void bench_make_routing(const struct bench_case *c, int32_t rank, uint64_t step,
                        int32_t *ids, float *weights)
{
	uint64_t state = stream(c, rank, step, 1);
	const int32_t n = bench_tokens(c, rank) * c->topk;

	for (int32_t i = 0; i < n; i++) {
		const int32_t k = i % c->topk;

		ids[i] = choose(c, rank, &state, ids + i - k, k);
		weights[i] = (float)(rng_next(&state) >> 40) * 0x1p-24f;
	}
}

void bench_make_inputs(const struct bench_case *c, int32_t rank, uint64_t step,
                       uint16_t *x, int32_t *ids, float *weights)
{
	bench_make_routing(c, rank, step, ids, weights);
	for (int32_t t = 0; t < bench_tokens(c, rank); t++)
		bench_make_row(c, rank, step, t,
		               x + (size_t)t * (size_t)c->hidden);
}

static float block_scale(const uint16_t *row, int32_t n)
{
	float amax = 0;

	for (int32_t i = 0; i < n; i++) {
		const float x = fabsf(f32_from_bf16(row[i]));

		amax = x > amax ? x : amax; /* a NaN does not count */
	}
	return quant_scale(amax);
}

void bench_quantize(const uint16_t *row, int32_t hidden, uint8_t *out,
                    float *scales)
{
	for (int32_t first = 0; first < hidden; first += FERRY_QUANT_BLOCK) {
		const int32_t n =
			(int32_t)min_i64(FERRY_QUANT_BLOCK, hidden - first);
		const float scale = block_scale(row + first, n);
		const float factor = 1.0f / scale;

		*scales++ = scale;
		for (int32_t i = first; i < first + n; i++)
			out[i] = e4m3_from_f32(f32_from_bf16(row[i]) * factor);
	}
}

uint16_t bench_pattern(int32_t expert)
{
	return (uint16_t)(hash_u64(7, (uint64_t)expert) & 0x807f);
}

void bench_decode(const struct bench_case *c, const void *row,
                  const float *scales, uint16_t *y)
{
	if (c->fp8)
		bench_decode_e4m3(row, scales, c->hidden, y);
	else
		memcpy(y, row, sizeof(*y) * (size_t)c->hidden);
}

void bench_expert(const struct bench_case *c, int32_t expert, const void *row,
                  const float *scales, uint16_t *y)
{
	const uint16_t flip = bench_pattern(expert);

	if (!c->fp8) {
		bench_flip(row, flip, c->hidden, y);
		return;
	}
	bench_decode_e4m3(row, scales, c->hidden, y);
	bench_flip(y, flip, c->hidden, y);
}
