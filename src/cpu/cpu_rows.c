/* SPDX-License-Identifier: Apache-2.0 */
/* Small questions about one token, asked by several phases. */
#include <string.h>

#include "cpu_combine.h"

/* The quantiser reads elements; rows of the caller may begin anywhere. */
static const uint16_t *align_row(struct ferry_engine *e, const char *x,
                                 int32_t hidden)
{
	if ((uintptr_t)x % sizeof(uint16_t) == 0)
		return (const uint16_t *)(const void *)x;
	memcpy(e->part, x, (size_t)hidden * sizeof(uint16_t));
	return (const uint16_t *)(const void *)e->part;
}

/* Once for each token: the own experts get what the other ranks got. */
static struct cpu_row quantize_row(const struct ferry_moe *moe,
                                   const struct cpu_op *op, int32_t token)
{
	const struct ferry_shape *shape = &moe->shape;
	struct ferry_engine *e = moe->engine;
	const char *x = op->x + (size_t)token * op->x_stride;
	char *row = op->quantized + (size_t)token * shape->row_stride;
	char *scales = row + shape->scale_offset;

	if (!op->is_quantized[token])
		e->kernels->quantize((uint8_t *)row, scales, shape->scale_type,
		                     align_row(e, x, op->hidden),
		                     (size_t)op->hidden);
	op->is_quantized[token] = true;
	return (struct cpu_row){row, scales};
}

struct cpu_row ferry_cpu_token_row(const struct ferry_moe *moe,
                                   const struct cpu_op *op, int32_t token)
{
	const size_t t = (size_t)token;

	if (moe->shape.quantize)
		return quantize_row(moe, op, token);
	return (struct cpu_row){
		.payload = op->x + t * op->x_stride,
		.scales = op->scale_bytes ? op->scales + t * op->scales_stride
	                                  : NULL,
	};
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

void ferry_cpu_ranks_of(const struct ferry_shape *shape, const int32_t *slots,
                        int32_t topk, struct cpu_ranks *ranks)
{
	ranks->n = 0;
	for (int32_t k = 0; k < topk; k++)
		if (slots[k] >= 0)
			insert_rank(ranks, shape->slot_rank[slots[k]]);
}

static bool has_host(const struct cpu_terms *terms, int32_t host)
{
	for (int32_t i = 0; i < terms->n; i++)
		if (terms->rank[i] < 0 && terms->host[i] == host)
			return true;
	return false;
}

void ferry_cpu_terms_of(const struct ferry_shape *shape, const int32_t *slots,
                        int32_t topk, int32_t receiver, struct cpu_terms *terms)
{
	const int32_t *host = ferry_shape_adds(shape) ? shape->hosts.of : NULL;
	struct cpu_ranks ranks;

	ferry_cpu_ranks_of(shape, slots, topk, &ranks);
	terms->n = 0;
	for (int32_t i = 0; i < ranks.n; i++) {
		const int32_t rank = ranks.rank[i];
		const bool near = !host || host[rank] == host[receiver];

		if (!near && has_host(terms, host[rank]))
			continue;
		terms->host[terms->n] = host ? host[rank] : 0;
		terms->rank[terms->n++] = near ? rank : -1;
	}
}
