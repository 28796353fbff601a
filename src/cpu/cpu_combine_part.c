/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a REDUCED or PER_HOST sum that one rank forms. */
#include "cpu_combine.h"

/* NULL where every weight is 1: none were given, or the input had them. */
static const float *token_weights(const struct ferry_moe *moe,
                                  const struct cpu_op *op,
                                  const struct ferry_arrival *arrival)
{
	if (moe->shape.weight_use == FERRY_WEIGHT_INPUT)
		return NULL;
	return ferry_table_token_weights(op->tables[arrival->group],
	                                 arrival->token);
}

static const char *view_row(const struct ferry_moe *moe,
                            const struct cpu_op *op,
                            const struct ferry_arrival *arrival)
{
	const int64_t row = ferry_view_row(&moe->shape, op->half,
	                                   arrival->group, arrival->token);

	return op->y + (size_t)row * op->y_stride;
}

const char *ferry_cpu_part_row(const struct ferry_moe *moe,
                               const struct cpu_op *op,
                               const struct ferry_arrival *arrival, char *to)
{
	const struct ferry_shape *shape = &moe->shape;
	const struct ferry_copy *copies =
		op->route.copies + arrival->first_copy;
	const float *all = token_weights(moe, op, arrival);
	const void *rows[FERRY_SUM_MAX];
	float weights[FERRY_SUM_MAX];

	if (op->y_layout == FERRY_FROM_PRESUMMED)
		return view_row(moe, op, arrival);
	for (int32_t i = 0; i < arrival->n_copies; i++) {
		rows[i] = cpu_expert_row(moe, op, &copies[i]);
		weights[i] = all ? all[copies[i].choice] : 1;
	}
	moe->engine->kernels->sum(to, shape->combine_dtype, rows,
	                          shape->combine_dtype, weights,
	                          arrival->n_copies, NULL, (size_t)op->hidden);
	return to;
}

int64_t ferry_cpu_back_first(const struct ferry_shape *shape,
                             const struct ferry_table *table, int32_t source,
                             int32_t receiver)
{
	const int32_t *slots = ferry_table_slots_const(table);
	const int64_t n_choices = (int64_t)table->n_tokens * table->topk;
	int64_t n = 0;

	for (int64_t i = 0; i < n_choices; i++) {
		if (slots[i] < 0)
			continue;
		const int32_t rank = shape->slot_rank[slots[i]];

		n += rank < source && rank != receiver;
	}
	return n;
}
