/* SPDX-License-Identifier: Apache-2.0 */
/* Small questions about one token, asked by several phases. */
#include "cpu_engine.h"

struct cpu_row cpu_token_row(const struct ferry_moe *moe,
                             const struct cpu_op *op, int32_t token)
{
	const struct ferry_shape *shape = &moe->shape;
	struct ferry_engine *e = moe->engine;
	const char *x = op->x + (size_t)token * op->x_stride;

	if (shape->quantize) {
		char *scales = e->scratch + shape->scale_offset;

		e->kernels->quantize(
			(uint8_t *)e->scratch, scales, shape->scale_type,
			(const uint16_t *)(const void *)x, (size_t)op->hidden);
		return (struct cpu_row){e->scratch, scales};
	}
	return (struct cpu_row){
		x, op->scale_bytes
			   ? op->scales + (size_t)token * op->scales_stride
			   : NULL};
}

/* Puts a rank into its place among those that are there; they are few. */
static void insert_rank(struct cpu_ranks *ranks, int32_t rank)
{
	int32_t i = ranks->n;

	while (i > 0 && ranks->rank[i - 1] > rank)
		i--;
	if (i > 0 && ranks->rank[i - 1] == rank)
		return;
	for (int32_t j = ranks->n++; j > i; j--)
		ranks->rank[j] = ranks->rank[j - 1];
	ranks->rank[i] = rank;
}

void cpu_ranks_of(const struct ferry_shape *shape, const int32_t *slots,
                  int32_t topk, struct cpu_ranks *ranks)
{
	ranks->n = 0;
	for (int32_t k = 0; k < topk; k++)
		if (slots[k] >= 0)
			insert_rank(ranks, shape->slot_rank[slots[k]]);
}
