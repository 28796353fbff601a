/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic and the copies of the CPU engine, one table per instruction
 * set. All tables give the same bits: kern_scalar.c is the specification, the
 * others are compared with it. docs/arithmetic.md says it in words.
 *
 * Called with MXCSR (FPCR) at its default; ferry_fp_enter does that.
 */
#ifndef FERRY_KERNELS_H
#define FERRY_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/moe.h>

enum { FERRY_SUM_MAX = 64 };

struct ferry_kernels {
	const char *name; /* "scalar", "avx2", "avx512", "neon" */

	/*
	 * out[i] = round(fma chain): acc = +0; for j < n: acc = fma(weight[j],
	 * float(row[j][i]), acc); then acc += float(residual[i]) if residual;
	 * one rounding to nearest even. NaN becomes 0x7fff / 0x7fffffff.
	 * weight NULL: all 1. n 0..64. residual and out are of out_dtype and
	 * may be the same memory; rows are of in_dtype. Types: bf16, fp16,
	 * fp32. No alignment is required.
	 */
	void (*sum)(void *out, enum ferry_dtype out_dtype,
	            const void *const *rows, enum ferry_dtype in_dtype,
	            const float *weights, int n, const void *residual,
	            size_t n_elements);

	/*
	 * One row to n destinations, source read once. `far`: the
	 * destinations will not be read soon by this core; use stores that
	 * bypass the cache where that pays, fenced before return.
	 */
	void (*copy)(void *const *to, int n, const void *from, size_t bytes,
	             bool far);

	/*
	 * out[i] = round(in[i] * weight), one type, NaN canonical; the product
	 * in fp32. out and in may be the same memory.
	 */
	void (*scale)(void *out, const void *in, enum ferry_dtype dtype,
	              float weight, size_t n_elements);

	/*
	 * bf16 to e4m3 with one scale per 128 elements (docs/arithmetic.md).
	 * scales: float[blocks] or uint8_t[blocks] (UE8M0).
	 */
	void (*quantize)(uint8_t *out, void *scales,
	                 enum ferry_scale_type scale_type, const uint16_t *in,
	                 size_t n_elements);
};

/* The table for an option value ("auto", "avx2", ...); NULL: not here. */
const struct ferry_kernels *ferry_kernels_get(const char *isa);

/* i-th table that this CPU can run, best first; NULL past the last. */
const struct ferry_kernels *ferry_kernels_at(int i);

/* Default rounding, no flush to zero, exceptions masked; returns the old. */
uint32_t ferry_fp_enter(void);
void ferry_fp_leave(uint32_t old);

#endif
