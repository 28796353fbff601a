/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of the checks, with what the processor has: a shape of GPU
 * size is recomputed in a fraction of a second.
 */
#ifndef FERRY_BENCH_MATH_H
#define FERRY_BENCH_MATH_H

#include <stdint.h>

/* out[i] = bf16 of e4m3 times the scale of its block of 128. */
void bench_decode_e4m3(const uint8_t *q, const float *scales, int32_t n,
                       uint16_t *out);

/* out[i] = in[i] ^ flip; may be in place. */
void bench_flip(const uint16_t *in, uint16_t flip, int32_t n, uint16_t *out);

/* sum[i] = fma(weight, row[i] ^ flip as float, sum[i]) */
void bench_add_weighted(float *sum, const uint16_t *row, uint16_t flip,
                        float weight, int32_t n);

#endif
