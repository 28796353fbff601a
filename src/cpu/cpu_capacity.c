/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for what arrives. Every rank computes every rank's need, which the
 * tables tell, so that all fail at the same dispatch and name the same rank.
 */
#include <string.h>

#include "../core/bits.h"
#include "cpu_engine.h"

/* Rows of every expert slot of the world into engine->slot_rows. */
static void count_slots(const struct ferry_moe *moe, const struct cpu_op *op)
{
	const struct ferry_shape *shape = &moe->shape;
	int64_t *rows = moe->engine->slot_rows;

	memset(rows, 0, (size_t)shape->n_expert_slots * sizeof(*rows));
	for (int32_t g = 0; g < shape->n_groups; g++) {
		const struct ferry_table *t = op->tables[g];
		const int32_t *slots = ferry_table_slots_const(t);
		const size_t n = (size_t)t->n_tokens * (size_t)t->topk;

		for (size_t i = 0; i < n; i++)
			if (slots[i] >= 0)
				rows[slots[i]]++;
	}
}

/* What a rank needs, in the unit of its capacity. */
static int64_t need_of(const struct ferry_moe *moe, int32_t rank)
{
	const struct ferry_shape *shape = &moe->shape;
	const int64_t *rows = moe->engine->slot_rows;
	int64_t need = 0;

	for (int32_t s = shape->first_slot[rank];
	     s < shape->first_slot[rank + 1]; s++) {
		if (shape->layout == FERRY_EXPERT_PADDED)
			need = max_i64(need, rows[s]);
		else
			need += (int64_t)round_up((size_t)rows[s],
			                          (size_t)shape->alignment);
	}
	return need;
}

enum ferry_status ferry_cpu_capacity_check(struct ferry_moe *moe,
                                           const struct cpu_op *op)
{
	const struct ferry_shape *shape = &moe->shape;
	const bool padded = shape->layout == FERRY_EXPERT_PADDED;
	const int64_t room = padded ? shape->padded_rows : shape->recv_rows;

	if (!shape->bounded || shape->overflow != FERRY_OVERFLOW_ERROR)
		return FERRY_OK;
	count_slots(moe, op);
	for (int32_t r = 0; r < shape->n_ranks; r++) {
		const int64_t need = need_of(moe, r);

		if (need <= room)
			continue;
		struct ferry_blame blame;

		ferry_blame_room(&blame, shape, r, need);
		return ferry_cpu_break(moe, op, &blame);
	}
	return FERRY_OK;
}
