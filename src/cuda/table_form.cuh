/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The form of a table's head: what every kernel looks at before it believes a
 * table, in the order of ferry_cpu_tables_check, so that all ranks refuse the
 * same thing.
 */
#ifndef FERRY_TABLE_FORM_CUH
#define FERRY_TABLE_FORM_CUH

#include "../proto/table.h"
#include "cuda_args.h"

/* The first field that is wrong, and its value; -1: none is. */
static __device__ inline int32_t
wrong_field(const struct ferry_cuda_channel *ch, const struct ferry_table *t,
            uint64_t epoch, int64_t *value)
{
	if (t->epoch != epoch) {
		*value = (int64_t)t->epoch;
		return FERRY_TABLE_EPOCH;
	}
	if (t->n_tokens < 0 || t->n_tokens > ch->max_tokens) {
		*value = t->n_tokens;
		return FERRY_TABLE_N_TOKENS;
	}
	if (t->topk < 1 || t->topk > ch->max_topk) {
		*value = t->topk;
		return FERRY_TABLE_TOPK;
	}
	if (t->has_weights && !ch->send_weights) {
		*value = 1;
		return FERRY_TABLE_HAS_WEIGHTS;
	}
	return -1;
}

#endif
