/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dispatch_recv tells about its rows: counts, offsets, and for each row
 * where it came from. Only what the caller asked for is computed.
 */
#include "../core/bits.h"
#include "cpu_engine.h"

/* First row of a slot, or of what follows the last one. */
static int64_t offset_of(const struct ferry_shape *shape,
                         const struct ferry_route *route, int32_t slot)
{
	return shape->layout == FERRY_EXPERT_PADDED ? slot * shape->padded_rows
	                                            : route->offsets[slot];
}

static void fill_counts(const struct ferry_shape *shape,
                        const struct ferry_route *route,
                        const struct ferry_dispatch_out *out)
{
	const int32_t n_slots = shape->own_expert_slots;

	for (int32_t s = 0; out->counts && s < n_slots; s++)
		out->counts[s] = (int32_t)route->counts[s];
	for (int32_t s = 0; out->offsets && s <= n_slots; s++)
		out->offsets[s] = offset_of(shape, route, s);
	if (out->n_rows)
		*out->n_rows = route->n_copies;
	if (out->n_dropped)
		*out->n_dropped = route->n_dropped;
}

static void fill_i32(int32_t *to, int64_t n, int32_t value)
{
	for (int64_t i = 0; to && i < n; i++)
		to[i] = value;
}

static void fill_f32(float *to, int64_t n)
{
	for (int64_t i = 0; to && i < n; i++)
		to[i] = 0;
}

static void fill_i64(int64_t *to, int64_t n, int64_t value)
{
	for (int64_t i = 0; to && i < n; i++)
		to[i] = value;
}

/* Everything that has an entry for each row of the buffer. */
static void fill_padding(const struct ferry_shape *shape,
                         const struct ferry_dispatch_out *out)
{
	const int64_t n = shape->recv_rows;

	fill_i32(out->row_expert_slot, n, -1);
	fill_i32(out->row_source, n, -1);
	fill_i32(out->row_token, n, -1);
	fill_f32(out->row_weight, n);
	fill_i64(out->index, n, -1);
}

/* What an arriving token and its choices are known by. */
struct entry {
	const struct ferry_shape *shape;
	const struct cpu_op *op;
	const struct ferry_arrival *arrival;
	const float *weights; /* of the token, NULL: all 1 */
	int64_t view_row;
};

static void fill_row(const struct entry *e, const struct ferry_copy *copy,
                     const struct ferry_dispatch_out *out)
{
	const struct ferry_shape *shape = e->shape;
	const int64_t row =
		ferry_route_row(&e->op->route, shape, shape->layout, copy);

	if (out->row_expert_slot)
		out->row_expert_slot[row] = copy->slot;
	if (out->row_source)
		out->row_source[row] = ferry_shape_carrier(
			shape, e->arrival->group, e->arrival->token);
	if (out->row_token)
		out->row_token[row] = e->arrival->token;
	if (out->row_weight)
		out->row_weight[row] =
			e->weights ? e->weights[copy->choice] : 1;
	if (out->index)
		out->index[row] = e->view_row;
}

/* Its line of the tables that go with the view. */
static void fill_token(const struct entry *e, const struct ferry_copy *copy,
                       const struct ferry_dispatch_out *out)
{
	const int64_t at = e->view_row * e->shape->topk + copy->choice;

	if (out->token_slots)
		out->token_slots[at] = copy->slot;
	if (out->token_weights)
		out->token_weights[at] =
			e->weights ? e->weights[copy->choice] : 1;
}

static void fill_entries(const struct ferry_shape *shape,
                         const struct cpu_op *op,
                         const struct ferry_dispatch_out *out)
{
	const struct ferry_route *route = &op->route;

	for (int64_t i = 0; i < route->n_arrivals; i++) {
		const struct ferry_arrival *a = &route->arrivals[i];
		const struct entry e = {
			.shape = shape,
			.op = op,
			.arrival = a,
			.weights = ferry_table_token_weights(
				op->tables[a->group], a->token),
			.view_row = ferry_view_row(shape, op->half, a->group,
		                                   a->token),
		};

		for (int64_t c = a->first_copy; c < a->first_copy + a->n_copies;
		     c++) {
			fill_row(&e, &route->copies[c], out);
			if (out->token_slots || out->token_weights)
				fill_token(&e, &route->copies[c], out);
		}
	}
}

void ferry_cpu_outputs_fill(const struct ferry_moe *moe,
                            const struct cpu_op *op,
                            const struct ferry_dispatch_out *out)
{
	const struct ferry_shape *shape = &moe->shape;
	const int64_t n_view =
		2 * (int64_t)shape->n_ranks * shape->cap * shape->topk;

	fill_counts(shape, &op->route, out);
	fill_padding(shape, out);
	fill_i32(out->token_slots, n_view, -1);
	fill_f32(out->token_weights, n_view);
	if (out->row_expert_slot || out->row_source || out->row_token ||
	    out->row_weight || out->index || out->token_slots ||
	    out->token_weights)
		fill_entries(shape, op, out);
}
