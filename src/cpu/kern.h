/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Among the kernel files only: the tables, which exist where the compiler can
 * make them, and what their quantisers share. Each kern_*.c is compiled with
 * its own machine flags, so nothing but the table leaves it.
 */
#ifndef FERRY_KERN_H
#define FERRY_KERN_H

#include <string.h>

#include "../core/number.h"

#include "kernels.h"

extern const struct ferry_kernels ferry_kern_scalar;
#if defined(__x86_64__)
extern const struct ferry_kernels ferry_kern_avx2;
extern const struct ferry_kernels ferry_kern_avx512;
#elif defined(__aarch64__)
extern const struct ferry_kernels ferry_kern_neon;
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { LINE_BYTES = 64 };

/*
 * Bits of a float to those of an e4m3: half of what is shifted out, less one,
 * is added, and the exponent, biased by 127, gets its bias of 7. Nobody needs
 * to saturate: by the choice of the scale no product is above 448 by more than
 * a few roundings.
 */
enum {
	E4M3_SHIFT = 20,
	E4M3_ROUND = (1 << 19) - 1 - (120 << 23),
	E4M3_LEAST_NORMAL = 121 << 23, /* 2^-6 as a float */
};

static inline size_t quant_block_len(size_t n_left)
{
	return n_left < FERRY_QUANT_BLOCK ? n_left : FERRY_QUANT_BLOCK;
}

/* Writes the scale of a block as it travels; returns its reciprocal. */
static inline float quant_store_scale(void *scales,
                                      enum ferry_scale_type scale_type,
                                      size_t block, float amax)
{
	float scale = quant_scale(amax);

	if (scale_type == FERRY_SCALE_UE8M0) {
		const uint8_t e = ue8m0_from_f32(scale);

		((uint8_t *)scales)[block] = e;
		scale = f32_from_ue8m0(e);
	} else {
		memcpy((char *)scales + block * sizeof(scale), &scale,
		       sizeof(scale));
	}
	return 1.0f / scale;
}

#endif
