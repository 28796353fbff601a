/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle: routing and dispatch. Every (token, choice) of every rank
 * becomes an entry; sorting the entries of a rank by (slot, group, token,
 * choice) gives its receive order, and everything follows from that. The
 * sums are in oracle_combine.c.
 */
#include "oracle_inner.h"

#include <stdlib.h>
#include <string.h>

#include "oracle_float.h"

static void *allocate(size_t n, size_t bytes)
{
	void *p = calloc(n ? n : 1, bytes);

	if (p == NULL)
		abort();
	return p;
}

const struct ferry_dispatch_in *oracle_batch(const struct oracle *o,
                                             int32_t group)
{
	return &o->in[group * o->group_size];
}

static int32_t slots_of_rank(const struct oracle *o, const int32_t *given,
                             int32_t rank)
{
	if (given != NULL)
		return given[rank];
	return o->config.n_experts / o->n_ranks +
	       (rank < o->config.n_experts % o->n_ranks);
}

static int32_t rank_of_slot(const struct oracle *o, int32_t slot)
{
	int32_t low = 0;
	int32_t high = o->n_ranks - 1;

	/* The last rank whose first slot is not beyond. */
	while (low < high) {
		const int32_t middle = (low + high + 1) / 2;

		if (o->first_slot[middle] <= slot)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

static int64_t id_at(const struct ferry_dispatch_in *in, int32_t topk,
                     int32_t token, int32_t choice)
{
	const size_t bytes = in->id_type == FERRY_ID_INT64 ? 8 : 4;
	const size_t stride =
		in->ids_stride ? in->ids_stride : bytes * (size_t)topk;
	const uint8_t *at = (const uint8_t *)in->topk_ids +
	                    stride * (size_t)token + bytes * (size_t)choice;
	int64_t wide;
	int32_t narrow;

	if (bytes == 8) {
		memcpy(&wide, at, 8);
		return wide;
	}
	memcpy(&narrow, at, 4);
	return narrow;
}

static float weight_at(const struct oracle *o,
                       const struct ferry_dispatch_in *in, int32_t topk,
                       int32_t token, int32_t choice)
{
	const float factor =
		o->config.routed_scale != 0 ? o->config.routed_scale : 1;
	const size_t stride =
		in->weights_stride ? in->weights_stride : 4 * (size_t)topk;
	float weight;

	if (in->topk_weights == NULL)
		return factor;
	memcpy(&weight,
	       (const uint8_t *)in->topk_weights + stride * (size_t)token +
	               4 * (size_t)choice,
	       4);
	return weight * factor;
}

/*
 * Under QUOTA: the interval 0..2^31 is laid out with the replicas' shares, one
 * behind the other, and a multiple of the golden ratio falls into one.
 */
static int32_t resolve_by_quota(const struct oracle *o, const int32_t *slots,
                                int32_t n, int64_t turn)
{
	const uint64_t point = (uint64_t)turn * 0x9e3779b9u % (1ull << 32) / 2;
	__uint128_t sum = 0, before = 0;
	int32_t at = 0;

	for (int32_t i = 0; i < n; i++)
		sum = sum + (uint64_t)o->quota[slots[i]];
	for (int32_t i = 0; i < n; i++) {
		const uint64_t share = sum ? (uint64_t)o->quota[slots[i]] : 1;

		if (before * (1u << 31) / (sum ? sum : (__uint128_t)n) <= point)
			at = i;
		before = before + share;
	}
	return slots[at];
}

/* Replicas of an expert in ascending slot order, by looking at all slots. */
static int32_t resolve(const struct oracle *o, int32_t expert, int32_t source,
                       int32_t token, int32_t choice)
{
	const int32_t *slots = o->replicas + o->first_replica[expert];
	const int32_t n =
		o->first_replica[expert + 1] - o->first_replica[expert];

	const int64_t turn = (int64_t)source + token + choice;

	return o->quota ? resolve_by_quota(o, slots, n, turn) : slots[turn % n];
}

static void list_replicas(struct oracle *o, const int32_t *slot_expert)
{
	const int32_t n_places = slot_expert ? o->n_slots : o->config.n_experts;
	int32_t n = 0;

	o->first_replica =
		allocate((size_t)o->config.n_experts + 1, sizeof(int32_t));
	o->replicas = allocate((size_t)n_places, sizeof(int32_t));
	if (slot_expert == NULL) {
		for (int32_t e = 0; e < o->config.n_experts; e++) {
			o->first_replica[e + 1] = e + 1;
			o->replicas[e] = e;
		}
		return;
	}
	for (int32_t slot = 0; slot < o->n_slots; slot++)
		if (slot_expert[slot] >= 0)
			o->first_replica[slot_expert[slot] + 1]++;
	for (int32_t e = 0; e < o->config.n_experts; e++) {
		n += o->first_replica[e + 1];
		o->first_replica[e + 1] = n;
	}
	/* Filled from the back, each list in ascending order. */
	for (int32_t slot = o->n_slots - 1; slot >= 0; slot--)
		if (slot_expert[slot] >= 0)
			o->replicas[--o->first_replica[slot_expert[slot] + 1]] =
				slot;
	/* Each end has become its own begin: shift them back. */
	memmove(o->first_replica, o->first_replica + 1,
	        (size_t)o->config.n_experts * sizeof(int32_t));
	o->first_replica[o->config.n_experts] = n;
}

/* The expert slot of a choice, -1 masked; notes a bad id. */
static int32_t slot_of_choice(struct oracle *o, int32_t group, int32_t token,
                              int32_t choice)
{
	const struct ferry_dispatch_in *in = oracle_batch(o, group);
	const bool direct = in->id_kind == FERRY_ID_SLOT;
	const int64_t limit = direct ? o->n_slots : o->config.n_experts;
	const int64_t id = id_at(in, o->topk[group], token, choice);
	const int32_t source = oracle_carrier(o, group, token);

	if (id == -1)
		return -1;
	if (id < -1 || id >= limit) {
		if (o->config.bad_id == FERRY_BAD_ID_ERROR &&
		    o->status == FERRY_OK) {
			o->status = FERRY_RANGE;
			o->root = group * o->group_size;
		}
		return -1;
	}
	return direct ? (int32_t)id
	              : resolve(o, (int32_t)id, source, token, choice);
}

static void route_group(struct oracle *o, int32_t group)
{
	const struct ferry_dispatch_in *in = oracle_batch(o, group);
	const int32_t topk = in->topk ? in->topk : o->config.topk;
	const int32_t n_tokens =
		in->n_tokens_ptr ? *in->n_tokens_ptr : in->n_tokens;
	const size_t n = (size_t)n_tokens * (size_t)topk;

	o->topk[group] = topk;
	o->n_tokens[group] = n_tokens;
	o->choices[group] = allocate(n, sizeof(*o->choices[group]));
	for (int32_t token = 0; token < n_tokens; token++)
		for (int32_t k = 0; k < topk; k++) {
			struct oracle_choice *c =
				&o->choices[group][token * topk + k];

			c->slot = slot_of_choice(o, group, token, k);
			c->rank = c->slot < 0 ? -1 : rank_of_slot(o, c->slot);
			c->weight = weight_at(o, in, topk, token, k);
			c->expert = -1;
			if (c->slot >= 0)
				c->expert = (int32_t)id_at(in, topk, token, k);
		}
}

static int by_receive_order(const void *left, const void *right)
{
	const struct oracle_row *a = left;
	const struct oracle_row *b = right;

	if (a->slot != b->slot)
		return a->slot < b->slot ? -1 : 1;
	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	if (a->token != b->token)
		return a->token < b->token ? -1 : 1;
	return (a->choice > b->choice) - (a->choice < b->choice);
}

static int64_t list_rows(struct oracle *o, int32_t rank)
{
	struct oracle_row *rows = o->ranks[rank].rows;
	int64_t n = 0;

	for (int32_t group = 0; group < o->n_groups; group++)
		for (int32_t token = 0; token < o->n_tokens[group]; token++)
			for (int32_t k = 0; k < o->topk[group]; k++) {
				const struct oracle_choice *c =
					oracle_choice(o, group, token, k);

				if (c->rank != rank)
					continue;
				rows[n++] = (struct oracle_row){
					.slot = c->slot - o->first_slot[rank],
					.group = group,
					.source =
						oracle_carrier(o, group, token),
					.token = token,
					.choice = k,
					.expert = c->expert,
					.weight = c->weight,
				};
			}
	qsort(rows, (size_t)n, sizeof(*rows), by_receive_order);
	return n;
}

static int64_t align(const struct oracle *o, int64_t row)
{
	const int64_t to = o->config.alignment ? o->config.alignment : 1;

	return (row + to - 1) / to * to;
}

/* Rows of a slot in EXPERT_PADDED, of any channel. */
static int64_t padded_rows(const struct oracle *o)
{
	if (o->config.layout == FERRY_EXPERT_PADDED)
		return o->need.recv_rows_slot;
	return (int64_t)o->n_groups * o->config.max_tokens;
}

/* Does the next row of a slot find room? */
static bool fits(const struct oracle *o, const struct oracle_rank *r,
                 int32_t slot)
{
	if (o->config.layout == FERRY_EXPERT_PADDED)
		return r->counts[slot] < o->need.recv_rows_slot;
	return align(o, r->offsets[slot] + r->counts[slot] + 1) <=
	       o->need.recv_rows;
}

/* Gives every row its place; rows without one are dropped. */
static void place_rows(struct oracle *o, int32_t rank, int64_t n)
{
	struct oracle_rank *r = &o->ranks[rank];
	const int64_t padded = padded_rows(o);
	int64_t kept = 0;
	int32_t open = 0; /* slots up to this one have their offset */

	for (int64_t i = 0; i < n; i++) {
		struct oracle_row *row = &r->rows[i];

		for (; open < row->slot; open++)
			r->offsets[open + 1] =
				align(o, r->offsets[open] + r->counts[open]);
		if (!fits(o, r, row->slot)) {
			oracle_choice(o, row->group, row->token, row->choice)
				->dropped = true;
			r->n_dropped++;
			continue;
		}
		row->padded = row->slot * padded + r->counts[row->slot];
		row->packed = r->offsets[row->slot] + r->counts[row->slot];
		row->view =
			((int64_t)o->half * o->n_ranks + row->source) * o->cap +
			row->token / o->group_size;
		r->counts[row->slot]++;
		r->rows[kept++] = *row;
	}
	for (; open < r->n_slots; open++)
		r->offsets[open + 1] =
			align(o, r->offsets[open] + r->counts[open]);
	r->n_rows = kept;
}

static void route_rank(struct oracle *o, int32_t rank)
{
	struct oracle_rank *r = &o->ranks[rank];
	size_t n = 0;

	for (int32_t group = 0; group < o->n_groups; group++)
		n += (size_t)o->n_tokens[group] * (size_t)o->topk[group];
	r->n_slots = o->first_slot[rank + 1] - o->first_slot[rank];
	r->rows = allocate(n, sizeof(*r->rows));
	r->counts = allocate((size_t)r->n_slots, sizeof(*r->counts));
	r->offsets = allocate((size_t)r->n_slots + 1, sizeof(*r->offsets));
	place_rows(o, rank, list_rows(o, rank));
	if (r->n_dropped && o->config.overflow == FERRY_OVERFLOW_ERROR &&
	    o->status == FERRY_OK) {
		o->status = FERRY_OVERFLOW;
		o->root = rank;
	}
}

static void quantize_group(struct oracle *o, int32_t group)
{
	const struct ferry_dispatch_in *in = oracle_batch(o, group);
	const size_t stride =
		in->x_stride ? in->x_stride : 2 * (size_t)o->hidden;
	const size_t bytes = o->row_bytes + o->scale_bytes;
	uint8_t *to = allocate((size_t)o->n_tokens[group], bytes);

	o->quantized[group] = to;
	for (int32_t token = 0; token < o->n_tokens[group]; token++)
		oracle_quantize(to + (size_t)token * bytes,
		                to + (size_t)token * bytes + o->row_bytes,
		                o->config.scale_type,
		                (const uint8_t *)in->x + stride * (size_t)token,
		                (size_t)o->hidden);
}

static void take_shape(struct oracle *o, const struct oracle_case *c)
{
	const struct ferry_placement_config *p = c->placement;
	const int32_t *slots = p ? p->expert_slots : o->config.expert_slots;
	const int32_t n_scales =
		(o->hidden + o->config.scale_block - 1) / o->config.scale_block;

	o->first_slot = allocate((size_t)o->n_ranks + 1, sizeof(int32_t));
	for (int32_t rank = 0; rank < o->n_ranks; rank++)
		o->first_slot[rank + 1] =
			o->first_slot[rank] + slots_of_rank(o, slots, rank);
	o->n_slots = o->first_slot[o->n_ranks];
	o->row_bytes = (size_t)o->hidden * oracle_dtype_bytes(o->config.dtype);
	switch (o->config.scale_type) {
	case FERRY_SCALE_FP32:
		o->n_scales = n_scales;
		o->scale_bytes = 4 * (size_t)n_scales;
		break;
	case FERRY_SCALE_UE8M0:
		o->n_scales = n_scales;
		o->scale_bytes = (size_t)n_scales;
		break;
	case FERRY_SCALE_BYTES:
		o->n_scales = 1;
		o->scale_bytes = (size_t)o->config.scale_bytes;
		break;
	default:
		break;
	}
}

static void take_defaults(struct oracle *o, const struct oracle_case *c)
{
	struct ferry_moe_config *config = &o->config;

	*config = *c->config;
	if (config->dtype == FERRY_DTYPE_NONE)
		config->dtype = FERRY_BF16;
	if (config->in_dtype == FERRY_DTYPE_NONE)
		config->in_dtype = config->dtype;
	if (config->combine_dtype == FERRY_DTYPE_NONE)
		config->combine_dtype = FERRY_BF16;
	if (config->out_dtype == FERRY_DTYPE_NONE)
		config->out_dtype = config->combine_dtype;
	if (config->scale_block == 0)
		config->scale_block = 128;
	o->need = *c->need;
	o->in = c->in;
	o->half = c->half;
	o->host = c->host;
	o->quota = c->placement ? c->placement->quota : NULL;
	o->n_ranks = config->n_ranks;
	o->group_size = config->group_size ? config->group_size : 1;
	o->n_groups = o->n_ranks / o->group_size;
	o->cap = (config->max_tokens + o->group_size - 1) / o->group_size;
	o->hidden = c->in[0].hidden ? c->in[0].hidden : config->hidden;
	o->status = FERRY_OK;
	o->root = -1;
}

struct oracle *oracle_create(const struct oracle_case *c)
{
	struct oracle *o = allocate(1, sizeof(*o));
	struct oracle_fp fp;
	size_t groups;

	oracle_fp_enter(&fp);
	take_defaults(o, c);
	take_shape(o, c);
	list_replicas(o, c->placement ? c->placement->slot_expert : NULL);
	groups = (size_t)o->n_groups;
	o->topk = allocate(groups, sizeof(*o->topk));
	o->n_tokens = allocate(groups, sizeof(*o->n_tokens));
	o->choices = allocate(groups, sizeof(*o->choices));
	o->quantized = allocate(groups, sizeof(*o->quantized));
	o->ranks = allocate((size_t)o->n_ranks, sizeof(*o->ranks));
	for (int32_t group = 0; group < o->n_groups; group++)
		route_group(o, group);
	for (int32_t rank = 0; rank < o->n_ranks; rank++)
		route_rank(o, rank);
	if (o->config.in_dtype != o->config.dtype)
		for (int32_t group = 0; group < o->n_groups; group++)
			quantize_group(o, group);
	oracle_fp_leave(&fp);
	return o;
}

void oracle_destroy(struct oracle *o)
{
	if (o == NULL)
		return;
	for (int32_t group = 0; group < o->n_groups; group++) {
		free(o->choices[group]);
		free(o->quantized[group]);
	}
	for (int32_t rank = 0; rank < o->n_ranks; rank++) {
		free(o->ranks[rank].rows);
		free(o->ranks[rank].counts);
		free(o->ranks[rank].offsets);
	}
	free(o->ranks);
	free(o->quantized);
	free(o->choices);
	free(o->n_tokens);
	free(o->topk);
	free(o->replicas);
	free(o->first_replica);
	free(o->first_slot);
	free(o);
}

enum ferry_status oracle_status(const struct oracle *o, int32_t *root)
{
	*root = o->root;
	return o->status;
}

int64_t oracle_rows(const struct oracle *o, int32_t rank,
                    const struct oracle_row **rows)
{
	*rows = o->ranks[rank].rows;
	return o->ranks[rank].n_rows;
}

void oracle_payload(const struct oracle *o, int32_t group, int32_t token,
                    const uint8_t **row, const uint8_t **scales)
{
	const struct ferry_dispatch_in *in = oracle_batch(o, group);
	const size_t t = (size_t)token;

	if (o->quantized[group] != NULL) {
		*row = o->quantized[group] +
		       t * (o->row_bytes + o->scale_bytes);
		*scales = *row + o->row_bytes;
		return;
	}
	*row = (const uint8_t *)in->x +
	       t * (in->x_stride ? in->x_stride : o->row_bytes);
	*scales = NULL;
	if (o->scale_bytes)
		*scales = (const uint8_t *)in->scales +
		          t * (in->scales_stride ? in->scales_stride
		                                 : o->scale_bytes);
}
