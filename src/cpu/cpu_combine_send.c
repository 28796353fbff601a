/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_send on the CPU.
 *
 * Does
 *	Sends the expert outputs back to every rank that dispatched the token:
 *	EXACT, one row per (token, choice); REDUCED, one row per (token, rank),
 *	the weighted sum of this rank's experts, rounded once.
 * Buffers
 *	y: the caller's, until combine_recv. What this rank's own tokens need
 *	never passes the window: combine_recv reads it from y.
 *	table[half][...], own window: ids and weights of the tokens.
 *	back[token][j], windows of the token's group: written here, read by the
 *	owner. EXACT: j is the choice, or rows lie in a row (cpu_combine.h).
 *	REDUCED: the ordinal of this rank among the token's ranks other than
 *	the receiver, ascending.
 *	stage, own window: rows on their way to peers that only a put reaches.
 *	PER_HOST, groups of other hosts: cpu_combine_host.c.
 * Steps
 *	1. each arriving token, in the order of dispatch: row stored or put to
 *	   the g ranks of its group but this one; adds to counter BACK[self]
 *	   there, release; acquired by combine_recv
 *	2. kick
 * Flags
 *	BACK counters, one set for each epoch mod 4; back needs no halves.
 * Threads
 *	The caller's.
 * Waits
 *	For no peer; for room in the fabric's queue, bounded by the fabric.
 * Cost
 *	y is read once.
 */
#include "../core/bits.h"
#include "cpu_combine.h"
#include "cpu_flow.h"

struct send {
	struct ferry_moe *moe;
	const struct cpu_op *op;
	struct cpu_flow flow;
};

/* The group of an arrival without this rank; row j of each. */
static void aim_choice(const struct send *s, const struct ferry_arrival *a,
                       int32_t choice)
{
	const struct ferry_shape *shape = &s->moe->shape;
	struct cpu_dest *dest = &s->moe->engine->dest;
	const int32_t first = a->group * shape->group_size;

	dest->n = 0;
	for (int32_t r = first; r < first + shape->group_size; r++) {
		if (r == shape->rank)
			continue;
		dest->rank[dest->n] = r;
		dest->signal[dest->n] = s->flow.out_signal;
		dest->offset[dest->n++] = cpu_back_place(s->moe, s->op->slot, r,
		                                         a->token, choice);
	}
}

/* Where rows to the ranks of a group begin. */
static void begin_rows(const struct send *s, int32_t group)
{
	const struct ferry_shape *shape = &s->moe->shape;
	const int32_t first = group * shape->group_size;

	for (int32_t r = first; r < first + shape->group_size; r++)
		s->moe->engine->back[r] = ferry_cpu_back_first(
			shape, s->op->tables[group], shape->rank, r);
}

static enum ferry_status send_choices(struct send *s,
                                      const struct ferry_arrival *a)
{
	const struct ferry_copy *copies = s->op->route.copies + a->first_copy;

	for (int32_t i = 0; i < a->n_copies; i++) {
		const struct cpu_row row = {
			cpu_expert_row(s->moe, s->op, &copies[i]), NULL};

		aim_choice(s, a, copies[i].choice);
		FERRY_TRY(ferry_cpu_flow_send(&s->flow, &row));
	}
	return FERRY_OK;
}

/* The group of an arrival without this rank; each has an ordinal of its own. */
static void aim_part(const struct send *s, const struct ferry_arrival *a)
{
	const struct ferry_shape *shape = &s->moe->shape;
	const struct ferry_table *table = s->op->tables[a->group];
	struct cpu_dest *dest = &s->moe->engine->dest;
	const int32_t first = a->group * shape->group_size;
	const int32_t *slots = ferry_table_token_slots(table, a->token);
	struct cpu_terms terms;

	dest->n = 0;
	for (int32_t r = first; r < first + shape->group_size; r++) {
		if (r == shape->rank)
			continue;
		ferry_cpu_terms_of(shape, slots, table->topk, r, &terms);
		const int32_t j = cpu_term_place(
			&terms, cpu_term_of(&terms, shape->rank, -1), r);

		dest->rank[dest->n] = r;
		dest->signal[dest->n] = s->flow.out_signal;
		dest->offset[dest->n++] = ferry_window_back(
			&s->moe->window, shape, s->op->slot, a->token, j);
	}
}

static enum ferry_status send_part(struct send *s,
                                   const struct ferry_arrival *a)
{
	const struct cpu_row row = {
		ferry_cpu_part_row(s->moe, s->op, a, s->moe->engine->part),
		NULL};

	aim_part(s, a);
	return ferry_cpu_flow_send(&s->flow, &row);
}

static enum ferry_status send_group(struct send *s, int32_t group)
{
	const struct ferry_route *route = &s->op->route;
	const bool exact = s->moe->shape.combine == FERRY_EXACT;
	const int64_t end = route->group_first[group + 1];
	const struct ferry_shape *shape = &s->moe->shape;

	if (ferry_shape_adds(shape) &&
	    ferry_hosts_far(&shape->hosts, group * shape->group_size))
		return ferry_cpu_send_sums(&s->flow, group);
	if (cpu_back_in_a_row(s->moe))
		begin_rows(s, group);
	for (int64_t i = route->group_first[group]; i < end; i++) {
		const struct ferry_arrival *a = &route->arrivals[i];

		FERRY_TRY(exact ? send_choices(s, a) : send_part(s, a));
	}
	return FERRY_OK;
}

/* The own group last, and only if there is somebody else in it. */
static enum ferry_status send_groups(struct send *s)
{
	const struct ferry_shape *shape = &s->moe->shape;
	const int32_t own = ferry_shape_group(shape, shape->rank);

	for (int32_t i = 1; i < shape->n_groups; i++)
		FERRY_TRY(send_group(s, (own + i) % shape->n_groups));
	if (shape->group_size == 1)
		return FERRY_OK;
	return send_group(s, own);
}

/* Rows that will be sent, without those to mates of the own group. */
static int64_t rows_to_others(const struct ferry_moe *moe,
                              const struct ferry_route *route)
{
	const int32_t own = moe->shape.rank / moe->shape.group_size;
	const int64_t first = route->group_first[own];
	const int64_t end = route->group_first[own + 1];
	int64_t n_own = 0;

	if (moe->shape.combine != FERRY_EXACT)
		return route->n_arrivals - (end - first);
	for (int64_t i = first; i < end; i++)
		n_own += route->arrivals[i].n_copies;
	return route->n_copies - n_own;
}

/* What can only be said of what arrived. */
static enum ferry_status check_rows(const struct ferry_moe *moe,
                                    const struct cpu_op *op,
                                    const struct ferry_combine_in *in)
{
	const struct ferry_route *route = &op->route;

	if (!in->y && route->n_copies)
		return ferry_fail(&moe->world->ctx, FERRY_INVAL,
		                  "combine: y is NULL, but %lld rows arrived",
		                  (long long)route->n_copies);
	if (in->layout == FERRY_FROM_PADDED &&
	    route->max_count > moe->shape.padded_rows)
		return ferry_fail(&moe->world->ctx, FERRY_INVAL,
		                  "combine: layout is FROM_PADDED with %lld "
		                  "rows of one expert slot, it holds %lld",
		                  (long long)route->max_count,
		                  (long long)moe->shape.padded_rows);
	return FERRY_OK;
}

enum ferry_status ferry_cpu_combine_send(struct ferry_moe *moe, int32_t slot,
                                         const struct ferry_combine_in *in,
                                         struct CUstream_st *stream)
{
	struct cpu_op *op = &moe->engine->ops[slot];
	struct send s = {.moe = moe, .op = op};

	(void)stream;
	FERRY_TRY(check_rows(moe, op, in));
	op->y = in->y;
	op->y_stride = in->y_stride;
	op->y_layout = in->layout;
	ferry_cpu_flow_begin(&s.flow, moe, op, FERRY_PHASE_COMBINE_SEND);
	ferry_cpu_flow_expect(&s.flow, rows_to_others(moe, &op->route));
	FERRY_TRY(send_groups(&s));
	return ferry_cpu_flow_finish_send(&s.flow);
}
