/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_send with PER_HOST, for tokens of a group of another host.
 *
 * Does
 *	The ranks of this host add their parts of a token before they travel:
 *	each stores its own, and whoever is the last to do so adds them all, in
 *	ascending order of ranks, and sends one row. Nobody waits.
 * Buffers
 *	part[group][token], own window: written here, read by the last one.
 *	part_here[...], own window: 1 where there is a part, 0 where all rows
 *	of the token were dropped here.
 *	arrived[group][block], window of the first rank of this host: counted
 *	by all of its ranks that serve a token of the block, reset by the last.
 *	back[token][j], window of the token's carrier: written by the last
 *	one, read by all of the group.
 * Steps
 *	1. each block of the group's tokens: parts and part_here, plain
 *	2. add 1 to arrived, seq_cst: release of 1, and, who finds that he is
 *	   the last one, acquire of everybody's 1
 *	3. the last: arrived = 0; each token: sum, put to its carrier; adds to
 *	   counter SUM[this host] there, in a group of several ranks at all
 *	   ranks of that host, release; acquired by combine_recv
 *	4. word to the group that this rank has done its part: adds 1 to
 *	   BACK[self] there
 *	What is stored in the next epoch, and arrived as it begins then, comes
 *	after that epoch's tables, which every rank sends after this.
 * Flags
 *	Which ranks serve a token, and so who is awaited, is a pure function of
 *	its group's table.
 * Threads
 *	The caller's.
 * Waits
 *	For no peer; for room in the fabric's queue, bounded by the fabric.
 * Cost
 *	A part is written and read once more than with REDUCED.
 */
#include <string.h>

#include "../core/bits.h"
#include "cpu_combine.h"

/* A group's tokens, in step with this rank's arrivals among them. */
struct sums {
	struct cpu_flow *flow;
	struct ferry_moe *moe;
	const struct cpu_op *op;
	int32_t group;
	const uint64_t *wanted; /* [n_tokens] ranks of this host, as bits */
	uint64_t self;          /* this rank's bit */
	const struct ferry_arrival *next, *end;
};

static char *window_of(const struct sums *s, int32_t place)
{
	const struct ferry_hosts *hosts = &s->moe->shape.hosts;

	return s->moe->engine->peers[ferry_hosts_rank(hosts, hosts->own, place)]
	        .base;
}

static size_t part_at(const struct sums *s, int32_t token)
{
	return ferry_window_part(&s->moe->window, &s->moe->shape, s->op->slot,
	                         s->group, token);
}

static size_t here_at(const struct sums *s, int32_t token)
{
	return ferry_window_part_here(&s->moe->window, &s->moe->shape,
	                              s->op->slot, s->group, token);
}

static void store_part(struct sums *s, int32_t token)
{
	char *const window = s->moe->engine->window;
	char *const to = window + part_at(s, token);
	const bool here = s->next != s->end && s->next->token == token;

	window[here_at(s, token)] = here;
	if (!here)
		return;
	const char *row = ferry_cpu_part_row(s->moe, s->op, s->next++, to);

	if (row != to)
		memcpy(to, row, s->op->back_bytes);
}

/* Where the sum goes: to the token's carrier, where all of its group read. */
static void aim_sum(const struct sums *s, int32_t token)
{
	const struct ferry_shape *shape = &s->moe->shape;
	const struct ferry_table *table = s->op->tables[s->group];
	const int32_t *slots = ferry_table_token_slots(table, token);
	const int32_t own = shape->hosts.own;
	const int32_t to = ferry_shape_carrier(shape, s->group, token);
	struct cpu_dest *dest = &s->moe->engine->dest;
	struct cpu_terms terms;

	ferry_cpu_terms_of(shape, slots, table->topk, to, &terms);
	const int32_t j =
		cpu_term_place(&terms, cpu_term_of(&terms, -2, own), to);

	dest->n = 1;
	dest->rank[0] = to;
	dest->signal[0] = ferry_window_sum(shape, s->op->slot, s->op->epoch,
	                                   own, shape->hosts.place[to]);
	dest->offset[0] = ferry_window_back(&s->moe->window, shape, s->op->slot,
	                                    token, j);
}

static enum ferry_status send_sum(const struct sums *s, int32_t token)
{
	const enum ferry_dtype dtype = s->moe->shape.combine_dtype;
	struct ferry_engine *e = s->moe->engine;
	const void *rows[FERRY_SUM_MAX];
	int n = 0;

	for (uint64_t left = s->wanted[token]; left; left &= left - 1) {
		const char *window = window_of(s, __builtin_ctzll(left));

		if (window[here_at(s, token)])
			rows[n++] = window + part_at(s, token);
	}
	if (!n)
		return FERRY_OK;
	e->kernels->sum(e->part, dtype, rows, dtype, NULL, n, NULL,
	                (size_t)s->op->hidden);
	aim_sum(s, token);
	return ferry_cpu_flow_send(s->flow, &(struct cpu_row){e->part, NULL});
}

/* This rank's parts are there; is it the last of the block? */
static bool arrive(const struct sums *s, int32_t block, uint64_t all)
{
	const size_t at = ferry_window_arrived(&s->moe->window, &s->moe->shape,
	                                       s->op->slot, s->group, block);
	uint32_t *const count = (uint32_t *)(void *)(window_of(s, 0) + at);

	if (add_seq_u32(count, 1) + 1 < (uint32_t)__builtin_popcountll(all))
		return false;
	store_release_u32(count, 0);
	return true;
}

static enum ferry_status send_block(struct sums *s, int32_t first, int32_t end)
{
	uint64_t all = 0;

	for (int32_t t = first; t < end; t++)
		all |= s->wanted[t];
	if (!(all & s->self))
		return FERRY_OK;
	for (int32_t t = first; t < end; t++)
		if (s->wanted[t] & s->self)
			store_part(s, t);
	if (!arrive(s, first / FERRY_PART_BLOCK, all))
		return FERRY_OK;
	for (int32_t t = first; t < end; t++)
		if (s->wanted[t])
			FERRY_TRY(send_sum(s, t));
	return FERRY_OK;
}

/* Only where the group awaits it. */
static enum ferry_status send_word(const struct sums *s, int32_t n_tokens)
{
	const struct ferry_shape *shape = &s->moe->shape;
	const int32_t first = s->group * shape->group_size;
	uint64_t all = 0;

	for (int32_t t = 0; t < n_tokens; t++)
		all |= s->wanted[t];
	for (int32_t i = 0; all & s->self && i < shape->group_size; i++)
		FERRY_TRY(ferry_segment_signal(s->moe->segment, first + i,
		                               s->flow->out_signal));
	return FERRY_OK;
}

enum ferry_status ferry_cpu_send_sums(struct cpu_flow *flow, int32_t group)
{
	const struct ferry_shape *shape = &flow->moe->shape;
	const struct cpu_op *op = flow->op;
	const struct ferry_route *route = &op->route;
	const int32_t n_tokens = op->tables[group]->n_tokens;
	struct sums s = {
		.flow = flow,
		.moe = flow->moe,
		.op = op,
		.group = group,
		.wanted = op->landings.wanted +
	                  (size_t)group * (size_t)shape->max_tokens,
		.self = ferry_hosts_bit(&shape->hosts, shape->rank),
		.next = route->arrivals + route->group_first[group],
		.end = route->arrivals + route->group_first[group + 1],
	};

	for (int32_t t = 0; t < n_tokens; t += FERRY_PART_BLOCK)
		FERRY_TRY(send_block(
			&s, t,
			(int32_t)min_i64(t + FERRY_PART_BLOCK, n_tokens)));
	return send_word(&s, n_tokens);
}
