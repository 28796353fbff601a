/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Number formats of the oracle, written from their definitions and from
 * docs/arithmetic.md; nothing is shared with src/. Slow and plain.
 */
#ifndef ORACLE_FLOAT_H
#define ORACLE_FLOAT_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/moe_config.h>

/* Bytes of an element; 1 for FERRY_BYTES. */
size_t oracle_dtype_bytes(enum ferry_dtype dtype);

/* Value of element i of a row; bf16, fp16, fp32, e4m3. */
float oracle_load(const void *row, size_t i, enum ferry_dtype dtype);

/*
 * Stores a value as element i: one rounding to nearest even, overflow to
 * infinity, NaN to 0x7fff or 0x7fffffff. bf16, fp16, fp32.
 */
void oracle_store(void *row, size_t i, enum ferry_dtype dtype, float value);

/* OCP e4m3: nearest even, saturating at 448, NaN to 0x7f. */
uint8_t oracle_e4m3(float value);

/*
 * One row of n bf16 to e4m3 with a scale per 128 elements, float or UE8M0
 * byte. The last block may be short.
 */
void oracle_quantize(uint8_t *out, void *scales,
                     enum ferry_scale_type scale_type, const void *in,
                     size_t n);

/*
 * Puts the floating point environment at its default, as arithmetic of the
 * oracle needs it, and back.
 */
struct oracle_fp {
	uint64_t saved[8];
};
void oracle_fp_enter(struct oracle_fp *fp);
void oracle_fp_leave(const struct oracle_fp *fp);

#endif
