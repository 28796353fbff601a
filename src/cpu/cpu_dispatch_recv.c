/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch_recv on the CPU.
 *
 * Does
 *	Waits for the tables of all ranks, computes from them alone where every
 *	row goes, and moves each row to its one or more expert positions.
 * Buffers
 *	table[half][...], row[half][...], own window: written by their source,
 *	read here until the slot's next dispatch_send of this rank.
 *	x of the own batch: the own group's tokens never pass the window.
 * Steps
 *	1. wait: counter TABLE[r] of every r, acquire; partner dispatch_send 2
 *	2. check all tables; every rank refuses alike
 *	3. route: counts, offsets, and the positions of every arriving row
 *	4. own group: each row from x to its positions
 *	5. other groups: counter ROW[carrier], acquire, partner dispatch_send 3;
 *	   then each row from the window to its positions. TOKEN: they stay.
 *	   From other hosts of a hierarchy: counter FAN[carrier, landing], and
 *	   the window of the rank of this host where the row has landed; TOKEN:
 *	   from there to the own window
 *	6. the same for rows that were dropped or stay in the window: nobody
 *	   may write into this half later on
 *	7. flush: the sources of the own puts have been read
 * Flags
 *	Own targets are moved on only after all has come.
 * Threads
 *	The caller's.
 * Waits
 *	Bounded by timeout_ms; a failure breaks the channel on all ranks.
 * Cost
 *	Each row is read once and written once for each of its positions.
 */
#include "../core/bits.h"
#include "cpu_flow.h"

/*
 * Outputs are stored around the cache when all ranks of a host together write
 * more than half of what it holds: they would only push each other out of it.
 * Through the cache, 2 ranks of 16 tokens, hidden 7168, top-8, took 27 us
 * instead of 95, of 64 tokens 420 instead of 470; of 128 tokens 1350 instead
 * of 1060 (AMD EPYC of 2 cores with 32 MiB of L3, November 2026).
 */
enum { FAR_BYTES = CPU_SHARED_CACHE_BYTES / 2 };

struct recv {
	struct ferry_moe *moe;
	struct cpu_op *op;
	const struct ferry_dispatch_out *out;
	struct cpu_flow flow;
	bool far;
};

static struct cpu_source *source_of(const struct recv *r, int32_t rank,
                                    int32_t place)
{
	const int32_t source = cpu_flow_source(&r->flow, rank, place);

	return &r->moe->engine->sources[source];
}

/* Rows of a rank of another host, for whoever of this host they are. */
static void count_landings(const struct recv *r, int32_t rank)
{
	const struct ferry_hosts *hosts = &r->moe->shape.hosts;
	const int32_t n = ferry_hosts_size(hosts, hosts->own);

	for (int32_t place = 0; place < n; place++)
		source_of(r, rank, place)->total =
			r->op->landings.rows[rank * hosts->most_ranks + place];
}

/* Rows of the own group never travel. */
static void count_sources(const struct recv *r)
{
	const struct ferry_shape *shape = &r->moe->shape;
	const int32_t own_group = ferry_shape_group(shape, shape->rank);

	for (int32_t rank = 0; rank < shape->n_ranks; rank++)
		if (ferry_hosts_far(&shape->hosts, rank))
			count_landings(r, rank);
		else if (ferry_shape_group(shape, rank) != own_group)
			source_of(r, rank, 0)->total =
				r->op->route.rows_from[rank];
}

static float weight_of(const struct recv *r, const struct ferry_arrival *a,
                       int32_t choice)
{
	const float *weights =
		ferry_table_token_weights(r->op->tables[a->group], a->token);

	return weights ? weights[choice] : 1;
}

static void scale_row(const struct recv *r, const struct ferry_arrival *a,
                      void *const *to, const char *payload)
{
	const struct ferry_copy *copies = r->op->route.copies + a->first_copy;

	for (int32_t i = 0; i < a->n_copies; i++)
		r->moe->engine->kernels->scale(
			to[i], payload, r->moe->shape.dtype,
			weight_of(r, a, copies[i].choice),
			(size_t)r->op->hidden);
}

/* One row to all its positions. */
static void deliver(const struct recv *r, const struct ferry_arrival *a,
                    const struct cpu_row *row)
{
	const struct ferry_shape *shape = &r->moe->shape;
	const struct ferry_route *route = &r->op->route;
	const struct ferry_copy *copies = route->copies + a->first_copy;
	void *to[FERRY_SUM_MAX];
	int64_t rows[FERRY_SUM_MAX];

	for (int32_t i = 0; i < a->n_copies; i++) {
		rows[i] = ferry_route_row(route, shape, shape->layout,
		                          &copies[i]);
		to[i] = (char *)r->out->rows +
		        (size_t)rows[i] * r->out->row_stride;
	}
	if (shape->weight_use == FERRY_WEIGHT_INPUT)
		scale_row(r, a, to, row->payload);
	else
		r->moe->engine->kernels->copy(to, a->n_copies, row->payload,
		                              r->op->row_bytes, r->far);
	if (r->out->scales)
		ferry_cpu_scales_spread(shape, r->op, r->out, rows, a->n_copies,
		                        row->scales);
}

static void deliver_own(const struct recv *r)
{
	const struct ferry_shape *shape = &r->moe->shape;
	const struct ferry_route *route = &r->op->route;
	const int32_t group = ferry_shape_group(shape, shape->rank);
	const int64_t end = route->group_first[group + 1];

	for (int64_t i = route->group_first[group]; i < end; i++) {
		const struct ferry_arrival *a = &route->arrivals[i];
		const struct cpu_row row =
			ferry_cpu_token_row(r->moe, r->op, a->token);

		deliver(r, a, &row);
	}
}

/* The window where an arrival lies: the own one, or a mate's of this host. */
static int32_t owner_of(const struct recv *r, const struct ferry_arrival *a,
                        int32_t carrier)
{
	const struct ferry_hosts *hosts = &r->moe->shape.hosts;

	if (!ferry_hosts_far(hosts, carrier))
		return r->moe->shape.rank;
	return ferry_hosts_rank(hosts, hosts->own, a->landing);
}

static char *row_at(const struct recv *r, const struct ferry_arrival *a,
                    int32_t carrier, int32_t owner)
{
	const struct ferry_shape *shape = &r->moe->shape;

	return r->moe->engine->peers[owner].base +
	       ferry_window_row(&r->moe->window, shape, r->op->slot,
	                        r->op->half, owner, carrier,
	                        a->token / shape->group_size);
}

/* Waits for the row of an arrival. */
static enum ferry_status take_row(struct recv *r, const struct ferry_arrival *a,
                                  int32_t carrier, const char **row)
{
	const bool far = ferry_hosts_far(&r->moe->shape.hosts, carrier);
	const int32_t source =
		cpu_flow_source(&r->flow, carrier, far ? a->landing : 0);

	FERRY_TRY(cpu_flow_take(&r->flow, source, a->ordinal));
	*row = row_at(r, a, carrier, owner_of(r, a, carrier));
	return FERRY_OK;
}

static enum ferry_status deliver_group(struct recv *r, int32_t group)
{
	const struct ferry_route *route = &r->op->route;
	const struct ferry_shape *shape = &r->moe->shape;
	const int64_t end = route->group_first[group + 1];

	for (int64_t i = route->group_first[group]; i < end; i++) {
		const struct ferry_arrival *a = &route->arrivals[i];
		const char *at;

		FERRY_TRY(take_row(r, a,
		                   ferry_shape_carrier(shape, group, a->token),
		                   &at));
		deliver(r, a, &(struct cpu_row){at, at + shape->scale_offset});
	}
	return FERRY_OK;
}

/* TOKEN: what has landed with a mate comes into the own view. */
static enum ferry_status view_group(struct recv *r, int32_t group)
{
	const struct ferry_route *route = &r->op->route;
	const struct ferry_shape *shape = &r->moe->shape;
	const int64_t end = route->group_first[group + 1];

	for (int64_t i = route->group_first[group]; i < end; i++) {
		const struct ferry_arrival *a = &route->arrivals[i];
		const int32_t carrier =
			ferry_shape_carrier(shape, group, a->token);
		const char *from;

		if (owner_of(r, a, carrier) == shape->rank)
			continue;
		FERRY_TRY(take_row(r, a, carrier, &from));
		r->moe->engine->kernels->copy(
			(void *[]){row_at(r, a, carrier, shape->rank)}, 1, from,
			r->flow.wire_bytes, r->far);
	}
	return FERRY_OK;
}

/* Own rows first: they are here while the others are still on their way. */
static enum ferry_status take_rows(struct recv *r)
{
	const struct ferry_shape *shape = &r->moe->shape;
	const bool token = shape->layout == FERRY_TOKEN;
	const int32_t own = ferry_shape_group(shape, shape->rank);

	if (token && !shape->hosts.n)
		return FERRY_OK;
	if (!token)
		deliver_own(r);
	for (int32_t i = 1; i < shape->n_groups; i++) {
		const int32_t group = (own + i) % shape->n_groups;

		FERRY_TRY(token ? view_group(r, group)
		                : deliver_group(r, group));
	}
	return FERRY_OK;
}

static enum ferry_status build_route(struct ferry_moe *moe, struct cpu_op *op)
{
	const struct ferry_shape *shape = &moe->shape;

	FERRY_TRY(ferry_cpu_capacity_check(moe, op));
	if (op->dropped) /* first: it uses the route's arrays */
		FERRY_TRY(ferry_route_drops(
			&op->route, shape, op->tables,
			ferry_shape_group(shape, shape->rank), op->dropped));
	FERRY_TRY(
		ferry_route_build(&op->route, shape, op->tables, shape->rank));
	if (shape->hosts.n)
		ferry_route_land(&op->route, shape, op->tables, &op->landings);
	return FERRY_OK;
}

/* Here, because nobody knew earlier whether rows would be needed. */
static enum ferry_status check_rows(const struct recv *r)
{
	const struct ferry_moe *moe = r->moe;

	if (moe->shape.layout == FERRY_TOKEN || r->out->rows ||
	    r->op->route.n_copies == 0)
		return FERRY_OK;
	return ferry_fail(&moe->world->ctx, FERRY_INVAL,
	                  "dispatch: rows is NULL, but %lld rows arrive",
	                  (long long)r->op->route.n_copies);
}

static void count(struct ferry_moe *moe, const struct cpu_op *op)
{
	struct ferry_moe_stats *stats = &moe->stats;
	const struct ferry_route *route = &op->route;
	const uint64_t n = (uint64_t)route->n_copies;

	stats->n_dispatches++;
	stats->rows_received += n;
	stats->rows_dropped += (uint64_t)route->n_dropped;
	stats->logical_bytes_dispatch += n * (op->row_bytes + op->scale_bytes);
	for (int32_t s = 0; s < moe->shape.own_expert_slots; s++)
		moe->slot_rows[s] += (uint64_t)route->counts[s];
}

enum ferry_status ferry_cpu_dispatch_recv(struct ferry_moe *moe, int32_t slot,
                                          const struct ferry_dispatch_out *out,
                                          struct CUstream_st *stream)
{
	struct cpu_op *op = &moe->engine->ops[slot];
	struct recv r = {.moe = moe, .op = op, .out = out};

	(void)stream;
	FERRY_TRY(ferry_cpu_tables_wait(moe, op));
	FERRY_TRY(ferry_cpu_tables_check(moe, op));
	FERRY_TRY(build_route(moe, op));
	FERRY_TRY(check_rows(&r));
	ferry_cpu_flow_begin(&r.flow, moe, op, FERRY_PHASE_DISPATCH_RECV);
	count_sources(&r);
	r.far = (size_t)op->route.n_copies * op->row_bytes *
	                (size_t)moe->world->n_machine_ranks >
	        FAR_BYTES;
	FERRY_TRY(take_rows(&r));
	FERRY_TRY(ferry_cpu_flow_finish_recv(&r.flow));
	FERRY_TRY(ferry_segment_flush(moe->segment));
	ferry_cpu_outputs_fill(moe, op, out);
	ferry_cpu_tables_done(moe, op);
	count(moe, op);
	return FERRY_OK;
}
