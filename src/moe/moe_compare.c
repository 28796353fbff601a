/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be equal on all ranks, as one row of numbers: the shape with its
 * defaults filled in, so that 0 and the default that it stands for are equal.
 */
#include "moe_compare.h"

#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/number.h"

/* X(name of the field, its value in shape s) */
#define COMPARED_FIELDS(X)                                                     \
	X(max_tokens, s->max_tokens)                                           \
	X(hidden, s->hidden)                                                   \
	X(topk, s->topk)                                                       \
	X(n_experts, s->n_experts)                                             \
	X(n_slots, s->n_slots)                                                 \
	X(group_size, s->group_size)                                           \
	X(dtype, s->dtype)                                                     \
	X(in_dtype, s->in_dtype)                                               \
	X(scale_type, s->scale_type)                                           \
	X(scale_block, s->scale_block)                                         \
	X(scale_bytes, (int64_t)s->scale_row_bytes)                            \
	X(layout, s->layout)                                                   \
	X(alignment, s->alignment)                                             \
	X(overflow, s->overflow)                                               \
	X(bad_id, s->bad_id)                                                   \
	X(combine, s->combine)                                                 \
	X(combine_dtype, s->combine_dtype)                                     \
	X(out_dtype, s->out_dtype)                                             \
	X(weight_use, s->weight_use)                                           \
	X(send_weights, s->send_weights)                                       \
	X(path, s->path)                                                       \
	X(routed_scale, f32_bits(s->routed_scale))                             \
	X(expert_slots, (int64_t)slots_hash(s))                                \
	X(max_recv_rows,                                                       \
	  s->layout == FERRY_EXPERT_PADDED ? s->padded_rows : s->recv_rows)

enum compared_field {
#define X(name, value) FIELD_##name,
	COMPARED_FIELDS(X)
#undef X
		N_FIELDS,
};

static const char *const field_names[N_FIELDS] = {
#define X(name, value) #name,
	COMPARED_FIELDS(X)
#undef X
};

/* What a rank tells the others. */
struct card {
	uint64_t first_epoch;
	int64_t fields[N_FIELDS];
};

static uint64_t slots_hash(const struct ferry_shape *s)
{
	uint64_t h = 0;

	for (int32_t r = 0; r <= s->n_ranks; r++)
		h = hash_u64(h, (uint64_t)s->first_slot[r]);
	return h;
}

static void fill_card(struct card *card, const struct ferry_moe *m)
{
	const struct ferry_shape *s = &m->shape;

	card->first_epoch = m->first_epoch;
#define X(name, value) card->fields[FIELD_##name] = (int64_t)(value);
	COMPARED_FIELDS(X)
#undef X
}

static int32_t slots_of(const int32_t *first_slot, int32_t rank)
{
	return first_slot[rank + 1] - first_slot[rank];
}

/* Arrays of expert_slots are compared by hash; this finds the entry. */
static enum ferry_status find_slots(struct ferry_moe *m, int32_t rank,
                                    uint64_t deadline_ns)
{
	const int32_t n = m->shape.n_ranks;
	const size_t row = (size_t)n + 1;
	int32_t *all = calloc((size_t)n * row, sizeof(*all));
	enum ferry_status status = FERRY_OK;

	if (!all)
		status = ferry_fail(&m->world->ctx, FERRY_NOMEM,
		                    "moe_open: expert_slots of %d ranks", n);
	status = ferry_agree(m->world->boot, status, m->shape.first_slot, all,
	                     row * sizeof(*all), deadline_ns);
	for (int32_t r = 0; status == FERRY_OK && r < n; r++) {
		const int32_t theirs = slots_of(all + (size_t)rank * row, r);
		const int32_t expected = slots_of(all, r);

		if (theirs != expected)
			status = ferry_fail(&m->world->ctx, FERRY_MISMATCH,
			                    "moe_open: expert_slots[%d] is %d "
			                    "on rank %d, %d on rank 0",
			                    r, theirs, rank, expected);
	}
	free(all);
	return status;
}

static enum ferry_status refuse(struct ferry_moe *m, const struct card *all,
                                int32_t rank, int field, uint64_t deadline_ns)
{
	const int64_t theirs = all[rank].fields[field];
	const int64_t expected = all[0].fields[field];

	if (field == FIELD_expert_slots)
		return find_slots(m, rank, deadline_ns);
	if (field == FIELD_routed_scale)
		return ferry_fail(&m->world->ctx, FERRY_MISMATCH,
		                  "moe_open: routed_scale is %.9g on rank %d, "
		                  "%.9g on rank 0",
		                  (double)f32_from_bits((uint32_t)theirs), rank,
		                  (double)f32_from_bits((uint32_t)expected));
	return ferry_fail(&m->world->ctx, FERRY_MISMATCH,
	                  "moe_open: %s is %lld on rank %d, %lld on rank 0",
	                  field_names[field], (long long)theirs, rank,
	                  (long long)expected);
}

static enum ferry_status compare(struct ferry_moe *m, const struct card *all,
                                 uint64_t deadline_ns)
{
	for (int32_t r = 1; r < m->shape.n_ranks; r++)
		for (int field = 0; field < N_FIELDS; field++)
			if (all[r].fields[field] != all[0].fields[field])
				return refuse(m, all, r, field, deadline_ns);
	m->first_epoch = all[0].first_epoch;
	return FERRY_OK;
}

enum ferry_status ferry_moe_compare(struct ferry_moe *m, enum ferry_status mine,
                                    uint64_t deadline_ns)
{
	const int32_t n_ranks = m->world->n_ranks;
	struct card *all = calloc((size_t)n_ranks, sizeof(*all));
	struct card own = {.first_epoch = 0};

	if (!all && mine == FERRY_OK)
		mine = ferry_fail(&m->world->ctx, FERRY_NOMEM,
		                  "moe_open: configurations of %d ranks",
		                  n_ranks);
	if (mine == FERRY_OK)
		fill_card(&own, m);
	enum ferry_status status = ferry_agree(m->world->boot, mine, &own, all,
	                                       sizeof(own), deadline_ns);

	if (status == FERRY_OK)
		status = compare(m, all, deadline_ns);
	free(all);
	return status;
}
