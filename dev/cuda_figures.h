/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatches that the figures are about: hidden 7168, top-8 of 256. */
#ifndef CUDA_FIGURES_H
#define CUDA_FIGURES_H

#include <ferry/moe_config.h>

struct figure {
	const char *name;
	enum ferry_dtype dtype, in_dtype;
	enum ferry_scale_type scale_type;
	enum ferry_layout layout;
};

enum { N_FIGURES = 6 };

static const struct figure figures[N_FIGURES] = {
	{"fp8 padded", FERRY_FP8_E4M3, 0, FERRY_SCALE_FP32,
         FERRY_EXPERT_PADDED},
	{"fp8 quantised padded", FERRY_FP8_E4M3, FERRY_BF16, FERRY_SCALE_FP32,
         FERRY_EXPERT_PADDED},
	{"fp8 token", FERRY_FP8_E4M3, 0, FERRY_SCALE_FP32, FERRY_TOKEN},
	{"bf16 padded", FERRY_BF16, 0, 0, FERRY_EXPERT_PADDED},
	{"bf16 packed", FERRY_BF16, 0, 0, FERRY_EXPERT_PACKED},
	{"bf16 token", FERRY_BF16, 0, 0, FERRY_TOKEN},
};

static inline struct ferry_moe_config figure_config(const struct figure *f,
                                                    int32_t max_tokens)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.n_ranks = 2;
	c.max_tokens = max_tokens;
	c.hidden = 7168;
	c.topk = 8;
	c.n_experts = 256;
	c.dtype = f->dtype;
	c.in_dtype = f->in_dtype;
	c.scale_type = f->scale_type;
	c.layout = f->layout;
	return c;
}

#endif
