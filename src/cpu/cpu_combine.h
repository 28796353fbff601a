/* SPDX-License-Identifier: Apache-2.0 */
/* What combine_send and combine_recv do alike with the own expert outputs. */
#ifndef FERRY_CPU_COMBINE_H
#define FERRY_CPU_COMBINE_H

#include "cpu_engine.h"

/* The expert output of one (token, choice), in the caller's y. */
static inline const char *cpu_expert_row(const struct ferry_moe *moe,
                                         const struct cpu_op *op,
                                         const struct ferry_copy *copy)
{
	const enum ferry_layout layout = op->y_layout == FERRY_FROM_PADDED
	                                         ? FERRY_EXPERT_PADDED
	                                         : FERRY_EXPERT_PACKED;
	const int64_t row =
		ferry_route_row(&op->route, &moe->shape, layout, copy);

	return op->y + (size_t)row * op->y_stride;
}

/*
 * This rank's part of a token's sum: computed into engine->part and rounded
 * to combine_dtype, or the caller's own row when it has summed already.
 */
const char *ferry_cpu_part_row(const struct ferry_moe *moe,
                               const struct cpu_op *op,
                               const struct ferry_arrival *arrival);

/* Place of a rank among a token's ranks other than the receiver. */
static inline int32_t cpu_ordinal(const struct cpu_ranks *ranks, int32_t rank,
                                  int32_t receiver)
{
	int32_t j = 0;

	for (int32_t i = 0; i < ranks->n && ranks->rank[i] < rank; i++)
		if (ranks->rank[i] != receiver)
			j++;
	return j;
}

#endif
