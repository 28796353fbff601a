/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of all ranks: wait for them, and refuse what they give cause to.
 * Every rank has the same tables and looks at them in the same order, so all
 * refuse the same thing and name the same rank.
 */
#include "cpu_flow.h"

enum ferry_status ferry_cpu_break(struct ferry_moe *moe,
                                  const struct cpu_op *op,
                                  struct ferry_blame *blame)
{
	blame->verdict.reporter = moe->shape.rank;
	blame->verdict.phase = FERRY_PHASE_DISPATCH_RECV;
	blame->verdict.slot = op->slot;
	blame->verdict.epoch = op->number;
	return ferry_segment_break(moe->segment, &blame->verdict, blame->text);
}

static uint32_t table_signal(const struct ferry_moe *moe,
                             const struct cpu_op *op, int32_t source)
{
	return ferry_window_signal(&moe->shape, op->slot, op->epoch,
	                           FERRY_COUNT_TABLE, source);
}

enum ferry_status ferry_cpu_tables_wait(struct ferry_moe *moe,
                                        const struct cpu_op *op)
{
	struct ferry_engine *e = moe->engine;
	int32_t n = 0;

	for (int32_t r = 0; r < moe->shape.n_ranks; r++) {
		const uint32_t signal = table_signal(moe, op, r);

		if (r == moe->shape.rank)
			continue;
		e->items[n++] = (struct ferry_wait_item){
			.signal = signal,
			.peer = r,
			.value = e->targets[signal] + ferry_cpu_table_puts(moe),
		};
	}
	return ferry_cpu_wait(moe, op, FERRY_PHASE_DISPATCH_RECV, n);
}

void ferry_cpu_tables_done(struct ferry_moe *moe, const struct cpu_op *op)
{
	for (int32_t r = 0; r < moe->shape.n_ranks; r++)
		moe->engine->targets[table_signal(moe, op, r)] +=
			ferry_cpu_table_puts(moe);
}

static enum ferry_status refuse_form(struct ferry_moe *moe,
                                     const struct cpu_op *op, int32_t rank,
                                     enum ferry_table_field field,
                                     int64_t value)
{
	struct ferry_blame blame;

	ferry_blame_form(&blame, rank, field, value);
	return ferry_cpu_break(moe, op, &blame);
}

/* Whatever comes from a peer is looked at before it is used as an index. */
static enum ferry_status check_form(struct ferry_moe *moe,
                                    const struct cpu_op *op, int32_t rank)
{
	const struct ferry_shape *shape = &moe->shape;
	const struct ferry_table *t = cpu_table_of(moe, op, rank);

	if (t->epoch != op->epoch)
		return refuse_form(moe, op, rank, FERRY_TABLE_EPOCH,
		                   (int64_t)t->epoch);
	if (t->n_tokens < 0 || t->n_tokens > shape->max_tokens)
		return refuse_form(moe, op, rank, FERRY_TABLE_N_TOKENS,
		                   t->n_tokens);
	if (t->topk < 1 || t->topk > shape->topk)
		return refuse_form(moe, op, rank, FERRY_TABLE_TOPK, t->topk);
	if (t->has_weights && !shape->send_weights)
		return refuse_form(moe, op, rank, FERRY_TABLE_HAS_WEIGHTS, 1);
	const int32_t *slots = ferry_table_slots_const(t);
	const size_t n = (size_t)t->n_tokens * (size_t)t->topk;

	for (size_t i = 0; i < n; i++)
		if (slots[i] < FERRY_NO_SLOT ||
		    slots[i] >= shape->n_expert_slots)
			return refuse_form(moe, op, rank, FERRY_TABLE_SLOT,
			                   slots[i]);
	return FERRY_OK;
}

static enum ferry_status refuse_unequal(struct ferry_moe *moe,
                                        const struct cpu_op *op,
                                        const char *what, const int32_t rank[2],
                                        const int64_t value[2])
{
	struct ferry_blame blame;

	ferry_blame_unequal(&blame, what, rank, value);
	return ferry_cpu_break(moe, op, &blame);
}

static enum ferry_status refuse_placement(struct ferry_moe *moe,
                                          const struct cpu_op *op, int32_t rank,
                                          int32_t other)
{
	struct ferry_blame blame;

	ferry_blame_placement(
		&blame, (int32_t[]){rank, other},
		(uint64_t[]){cpu_table_of(moe, op, rank)->placement_hash,
	                     cpu_table_of(moe, op, other)->placement_hash});
	return ferry_cpu_break(moe, op, &blame);
}

/* All ranks: one hidden size. */
static enum ferry_status check_hidden(struct ferry_moe *moe,
                                      const struct cpu_op *op, int32_t rank)
{
	const int32_t hidden = cpu_table_of(moe, op, rank)->hidden;
	const int32_t expected = cpu_table_of(moe, op, 0)->hidden;

	if (hidden == expected)
		return FERRY_OK;
	return refuse_unequal(moe, op, "hidden", (int32_t[]){rank, 0},
	                      (int64_t[]){hidden, expected});
}

/*
 * All ranks that resolved ids: one placement. `with` is the rank to compare
 * with, -1 while there was none.
 */
static enum ferry_status check_placement(struct ferry_moe *moe,
                                         const struct cpu_op *op, int32_t rank,
                                         int32_t *with)
{
	const uint64_t hash = cpu_table_of(moe, op, rank)->placement_hash;

	if (hash == 0)
		return FERRY_OK;
	if (*with < 0)
		*with = rank;
	if (hash == cpu_table_of(moe, op, *with)->placement_hash)
		return FERRY_OK;
	return refuse_placement(moe, op, rank, *with);
}

/* Ranks of a group: the same batch. */
static enum ferry_status check_mates(struct ferry_moe *moe,
                                     const struct cpu_op *op, int32_t rank)
{
	const int32_t first = rank - rank % moe->shape.group_size;
	const struct ferry_table *t = cpu_table_of(moe, op, rank);
	const struct ferry_table *expected = cpu_table_of(moe, op, first);
	const int32_t ranks[2] = {rank, first};

	if (t->n_tokens != expected->n_tokens)
		return refuse_unequal(
			moe, op, "n_tokens of one group", ranks,
			(int64_t[]){t->n_tokens, expected->n_tokens});
	if (t->topk != expected->topk)
		return refuse_unequal(moe, op, "topk of one group", ranks,
		                      (int64_t[]){t->topk, expected->topk});
	if (t->content_hash == expected->content_hash)
		return FERRY_OK;
	struct ferry_blame blame;

	ferry_blame_mate(&blame, ranks);
	return ferry_cpu_break(moe, op, &blame);
}

/* Marks come first: a marked table has no content to compare. */
static enum ferry_status check_marks(struct ferry_moe *moe,
                                     const struct cpu_op *op)
{
	for (int32_t r = 0; r < moe->shape.n_ranks; r++) {
		const struct ferry_table *t = cpu_table_of(moe, op, r);
		struct ferry_blame blame;

		if (!t->mark_status)
			continue;
		ferry_blame_mark(&blame, &moe->shape, r, t);
		return ferry_cpu_break(moe, op, &blame);
	}
	return FERRY_OK;
}

enum ferry_status ferry_cpu_tables_check(struct ferry_moe *moe,
                                         struct cpu_op *op)
{
	const struct ferry_shape *shape = &moe->shape;
	int32_t with = -1;

	for (int32_t r = 0; r < shape->n_ranks; r++)
		FERRY_TRY(check_form(moe, op, r));
	FERRY_TRY(check_marks(moe, op));
	for (int32_t r = 0; r < shape->n_ranks; r++) {
		FERRY_TRY(check_hidden(moe, op, r));
		FERRY_TRY(check_placement(moe, op, r, &with));
		FERRY_TRY(check_mates(moe, op, r));
	}
	for (int32_t g = 0; g < shape->n_groups; g++)
		op->tables[g] = cpu_table_of(moe, op, g * shape->group_size);
	return FERRY_OK;
}
