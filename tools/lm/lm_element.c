/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of weights: their sizes, and single ones as float. */
#include "core/number.h"
#include "lm_model.h"

int32_t lm_type_bytes(enum lm_type type)
{
	return type == LM_F32 ? 4 : 2;
}

float lm_element(const struct lm_matrix *matrix, int64_t i)
{
	if (matrix->type == LM_BF16)
		return f32_from_bf16(((const uint16_t *)matrix->data)[i]);
	if (matrix->type == LM_F16)
		return f32_from_fp16(((const uint16_t *)matrix->data)[i]);
	return ((const float *)matrix->data)[i];
}

int64_t lm_expert_bytes(const struct lm_model *model, enum lm_expert_tensor t)
{
	(void)t; /* the three have the same size */
	return (int64_t)model->config.hidden * model->config.expert_hidden *
	       lm_type_bytes(model->expert_type);
}
