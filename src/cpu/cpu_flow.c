/* SPDX-License-Identifier: Apache-2.0 */
/* Rows between ranks: staging, signals, waits. See cpu_flow.h. */
#include "cpu_flow.h"

#include <string.h>

#include "../core/bits.h"
#include "../core/clock.h"

static bool is_dispatch(enum ferry_phase phase)
{
	return phase == FERRY_PHASE_DISPATCH_SEND ||
	       phase == FERRY_PHASE_DISPATCH_RECV;
}

/* Bytes of a row in the window, up to the end of what is used. */
static size_t wire_bytes_of(const struct ferry_shape *shape,
                            const struct cpu_op *op)
{
	return op->scale_bytes ? shape->scale_offset + op->scale_bytes
	                       : op->row_bytes;
}

static void set_sizes(struct cpu_flow *flow)
{
	const struct ferry_shape *shape = &flow->moe->shape;
	const struct cpu_op *op = flow->op;
	const bool rows = flow->kind == FERRY_COUNT_ROW;
	const size_t stride = rows ? shape->row_stride : shape->back_stride;
	const size_t max_put = ferry_segment_max_put(flow->moe->segment);

	flow->payload_bytes = rows ? op->row_bytes : op->back_bytes;
	flow->scale_bytes = rows ? op->scale_bytes : 0;
	flow->wire_bytes = rows ? wire_bytes_of(shape, op) : op->back_bytes;
	flow->rows_per_signal = stride < CPU_CHUNK_BYTES
	                                ? (int64_t)(CPU_CHUNK_BYTES / stride)
	                                : 1;
	flow->rows_per_kick =
		(int32_t)(stride < CPU_KICK_BYTES ? CPU_KICK_BYTES / stride
	                                          : 1);
	flow->signals_per_row = (int64_t)((flow->wire_bytes - 1) / max_put + 1);
}

void ferry_cpu_flow_begin(struct cpu_flow *flow, struct ferry_moe *moe,
                          const struct cpu_op *op, enum ferry_phase phase)
{
	const size_t n_ranks = (size_t)moe->shape.n_ranks;
	struct ferry_engine *e = moe->engine;
	const size_t n_sources =
		n_ranks * (size_t)e->n_places + cpu_n_sums(&moe->shape);

	*flow = (struct cpu_flow){
		.moe = moe,
		.op = op,
		.phase = phase,
		.kind = is_dispatch(phase) ? FERRY_COUNT_ROW : FERRY_COUNT_BACK,
	};
	set_sizes(flow);
	flow->out_signal = ferry_window_signal(&moe->shape, op->slot, op->epoch,
	                                       flow->kind, moe->shape.rank);
	flow->n_places = flow->kind == FERRY_COUNT_ROW ? e->n_places : 1;
	flow->n_sources = moe->shape.n_ranks * flow->n_places;
	if (flow->kind == FERRY_COUNT_BACK && ferry_shape_adds(&moe->shape))
		flow->n_sources += (int32_t)cpu_n_sums(&moe->shape);
	memset(e->sources, 0, n_sources * sizeof(*e->sources));
	memset(e->sent, 0, n_ranks * sizeof(*e->sent));
}

void ferry_cpu_flow_expect(struct cpu_flow *flow, int64_t n_rows)
{
	const size_t own = (size_t)n_rows * flow->wire_bytes;

	flow->far = own * (size_t)flow->moe->world->n_machine_ranks >
	            CPU_SHARED_CACHE_BYTES;
}

/*
 * A free row of the stage; the fabric is waited for when all are in use. What
 * is staged leaves while it is in the cache, and so do the rows that follow it
 * in the same place, if the fabric has read it by then.
 */
static enum ferry_status stage_row(struct cpu_flow *flow, char **row)
{
	struct ferry_moe *moe = flow->moe;

	if (flow->n_staged == moe->window.stage_rows) {
		FERRY_TRY(ferry_segment_flush(moe->segment));
		flow->n_staged = 0;
	} else if (flow->n_staged &&
	           flow->n_staged % flow->rows_per_kick == 0) {
		FERRY_TRY(ferry_segment_kick(moe->segment));
		if (ferry_segment_all_read(moe->segment))
			flow->n_staged = 0;
	}
	*row = moe->engine->window + ferry_window_stage(&moe->window,
	                                                flow->op->slot,
	                                                flow->n_staged++);
	return FERRY_OK;
}

/* To destination i of engine->dest. */
static enum ferry_status put_row(const struct cpu_flow *flow, int32_t i,
                                 const char *row)
{
	struct ferry_segment *segment = flow->moe->segment;
	const struct cpu_dest *dest = &flow->moe->engine->dest;
	const size_t max_put = ferry_segment_max_put(segment);
	size_t done = 0;

	while (done < flow->wire_bytes) {
		const size_t left = flow->wire_bytes - done;
		const size_t piece = left < max_put ? left : max_put;

		FERRY_TRY(ferry_segment_put(segment, dest->rank[i],
		                            dest->offset[i] + done, row + done,
		                            piece, dest->signal[i]));
		done += piece;
	}
	return FERRY_OK;
}

/* To all destinations that only a put reaches. */
static enum ferry_status put_staged(struct cpu_flow *flow,
                                    const struct cpu_row *row)
{
	const struct ferry_engine *e = flow->moe->engine;
	char *staged;

	FERRY_TRY(stage_row(flow, &staged));
	memcpy(staged, row->payload, flow->payload_bytes);
	if (flow->scale_bytes)
		memcpy(staged + flow->moe->shape.scale_offset, row->scales,
		       flow->scale_bytes);
	for (int32_t i = 0; i < e->dest.n; i++)
		if (!e->peers[e->dest.rank[i]].base)
			FERRY_TRY(put_row(flow, i, staged));
	return FERRY_OK;
}

/* To all destinations that stores reach; returns how many these are. */
static int32_t store_direct(const struct cpu_flow *flow,
                            const struct cpu_row *row)
{
	const struct ferry_engine *e = flow->moe->engine;
	int32_t n = 0;

	for (int32_t i = 0; i < e->dest.n; i++) {
		char *base = e->peers[e->dest.rank[i]].base;

		if (base)
			e->to[n++] = base + e->dest.offset[i];
	}
	if (n == 0)
		return 0;
	e->kernels->copy(e->to, n, row->payload, flow->payload_bytes,
	                 flow->far);
	for (int32_t i = 0; i < n && flow->scale_bytes; i++)
		memcpy((char *)e->to[i] + flow->moe->shape.scale_offset,
		       row->scales, flow->scale_bytes);
	return n;
}

/* Counts the row, and raises the counter where it fills a chunk. */
static enum ferry_status count_direct(struct cpu_flow *flow)
{
	struct ferry_engine *e = flow->moe->engine;

	for (int32_t i = 0; i < e->dest.n; i++) {
		const int32_t rank = e->dest.rank[i];

		if (!e->peers[rank].base ||
		    ++e->sent[rank] < flow->rows_per_signal)
			continue;
		e->sent[rank] = 0;
		FERRY_TRY(ferry_segment_signal(flow->moe->segment, rank,
		                               flow->out_signal));
	}
	return FERRY_OK;
}

static void count_bytes(struct cpu_flow *flow)
{
	struct ferry_moe_stats *stats = &flow->moe->stats;
	const struct ferry_engine *e = flow->moe->engine;
	const uint64_t bytes = flow->payload_bytes + flow->scale_bytes;
	const uint64_t all = bytes * (uint64_t)e->dest.n;
	uint64_t abroad = 0;

	for (int32_t i = 0; i < e->dest.n; i++)
		abroad += e->peers[e->dest.rank[i]].abroad ? bytes : 0;
	if (flow->kind == FERRY_COUNT_ROW) {
		stats->wire_bytes_dispatch += all;
		stats->host_bytes_dispatch += abroad;
	} else {
		stats->wire_bytes_combine += all;
		stats->host_bytes_combine += abroad;
	}
}

enum ferry_status ferry_cpu_flow_send(struct cpu_flow *flow,
                                      const struct cpu_row *row)
{
	const int32_t n_direct = store_direct(flow, row);

	count_bytes(flow);
	if (n_direct < flow->moe->engine->dest.n)
		FERRY_TRY(put_staged(flow, row));
	return count_direct(flow);
}

enum ferry_status ferry_cpu_flow_finish_send(struct cpu_flow *flow)
{
	struct ferry_moe *moe = flow->moe;

	for (int32_t rank = 0; rank < moe->shape.n_ranks; rank++)
		if (moe->engine->sent[rank])
			FERRY_TRY(ferry_segment_signal(moe->segment, rank,
			                               flow->out_signal));
	return ferry_segment_kick(moe->segment);
}

static int32_t rank_of(const struct cpu_flow *flow, int32_t source)
{
	return source / flow->n_places;
}

/* Sums of a host, sent by whoever of it came last? Then no rank is its own. */
static bool is_sums(const struct cpu_flow *flow, int32_t source)
{
	return source >= flow->moe->shape.n_ranks * flow->n_places;
}

/* Whose sums they are, and with whom of the own group they land. */
static int32_t sums_host(const struct cpu_flow *flow, int32_t source)
{
	const struct ferry_shape *shape = &flow->moe->shape;

	return (source - shape->n_ranks) / shape->group_size;
}

static int32_t sums_carrier(const struct cpu_flow *flow, int32_t source)
{
	const struct ferry_shape *shape = &flow->moe->shape;
	const int32_t group = ferry_shape_group(shape, shape->rank);

	return group * shape->group_size +
	       (source - shape->n_ranks) % shape->group_size;
}

static bool is_far(const struct cpu_flow *flow, int32_t source)
{
	return !is_sums(flow, source) &&
	       ferry_hosts_far(&flow->moe->shape.hosts, rank_of(flow, source));
}

/* Does it lie with a rank of this host, who tells the others? */
static bool is_fanned(const struct cpu_flow *flow, int32_t source)
{
	return flow->kind == FERRY_COUNT_ROW && is_far(flow, source);
}

/* Word of a rank of another host that its parts are there, and no row? */
static bool is_word(const struct cpu_flow *flow, int32_t source)
{
	return flow->kind == FERRY_COUNT_BACK && is_far(flow, source) &&
	       ferry_shape_adds(&flow->moe->shape);
}

static bool is_stored(const struct cpu_flow *flow, int32_t source)
{
	return !is_sums(flow, source) &&
	       flow->moe->engine->peers[rank_of(flow, source)].base;
}

static bool is_ordered(const struct cpu_flow *flow, int32_t source)
{
	return !is_sums(flow, source) &&
	       flow->moe->engine->peers[rank_of(flow, source)].ordered;
}

/* Signals that stand for the first n rows of a source. */
static uint64_t signals_of(const struct cpu_flow *flow, int32_t source,
                           int64_t n_rows)
{
	if (is_word(flow, source))
		return (uint64_t)n_rows;
	if (is_stored(flow, source))
		return (uint64_t)div_up(n_rows, flow->rows_per_signal);
	return (uint64_t)(n_rows * flow->signals_per_row);
}

/* Rows that n signals of a source stand for. */
static int64_t rows_of(const struct cpu_flow *flow, int32_t source, uint64_t n)
{
	if (is_stored(flow, source))
		return (int64_t)n * flow->rows_per_signal;
	return (int64_t)n / flow->signals_per_row;
}

static uint32_t in_signal(const struct cpu_flow *flow, int32_t source)
{
	const struct ferry_shape *shape = &flow->moe->shape;
	const struct cpu_op *op = flow->op;

	if (is_sums(flow, source))
		return ferry_window_sum(
			shape, op->slot, op->epoch, sums_host(flow, source),
			shape->hosts.place[sums_carrier(flow, source)]);
	if (is_fanned(flow, source))
		return ferry_window_fan(shape, op->slot, op->epoch,
		                        rank_of(flow, source),
		                        source % flow->n_places);
	return ferry_window_signal(shape, op->slot, op->epoch, flow->kind,
	                           rank_of(flow, source));
}

/*
 * Any rank of a host may send its sums, and has done its part when it closes.
 * Who has not stored his part is known by his own word. What lands with a mate
 * needs him, too.
 */
static void add_sums_items(const struct cpu_flow *flow, int32_t source,
                           uint64_t value, int32_t *n)
{
	const struct ferry_engine *e = flow->moe->engine;
	const struct ferry_hosts *hosts = &flow->moe->shape.hosts;
	const int32_t host = sums_host(flow, source);
	struct ferry_wait_item item = {
		.signal = in_signal(flow, source),
		.value = value,
		.relayed = true,
	};

	for (int32_t p = 0; p < ferry_hosts_size(hosts, host); p++) {
		item.peer = ferry_hosts_rank(hosts, host, p);
		if (e->sources[item.peer].total)
			e->items[(*n)++] = item;
	}
	item.peer = sums_carrier(flow, source);
	item.relayed = false;
	if (item.peer != flow->moe->shape.rank)
		e->items[(*n)++] = item;
}

/*
 * Adds what a source raises to engine->items. What lands elsewhere on this
 * host needs both, who sends it and who lets it arrive there; the sender has
 * done its part when it closes.
 */
static void add_items(const struct cpu_flow *flow, int32_t source,
                      uint64_t value, int32_t *n)
{
	const struct ferry_shape *shape = &flow->moe->shape;
	struct ferry_wait_item item = {
		.signal = in_signal(flow, source),
		.peer = rank_of(flow, source),
		.value = value,
		.relayed = is_fanned(flow, source),
	};

	if (is_sums(flow, source)) {
		add_sums_items(flow, source, value, n);
		return;
	}
	flow->moe->engine->items[(*n)++] = item;
	if (!item.relayed)
		return;
	item.peer = ferry_hosts_rank(&shape->hosts, shape->hosts.own,
	                             source % flow->n_places);
	item.relayed = false;
	if (item.peer != shape->rank)
		flow->moe->engine->items[(*n)++] = item;
}

/* The words of a host's ranks that their parts are there. */
static void add_words(const struct cpu_flow *flow, int32_t host, int32_t *n)
{
	const struct ferry_engine *e = flow->moe->engine;
	const struct ferry_hosts *hosts = &flow->moe->shape.hosts;

	for (int32_t p = 0; p < ferry_hosts_size(hosts, host); p++) {
		const int32_t rank = ferry_hosts_rank(hosts, host, p);
		const uint32_t signal = in_signal(flow, rank);

		if (e->sources[rank].total)
			add_items(flow, rank, e->targets[signal] + 1, n);
	}
}

enum ferry_status ferry_cpu_flow_await(struct cpu_flow *flow, int32_t source,
                                       int64_t n_rows)
{
	struct ferry_engine *e = flow->moe->engine;
	struct cpu_source *s = &e->sources[source];
	const bool ordered = is_ordered(flow, source);
	const uint32_t signal = in_signal(flow, source);
	const uint64_t base = e->targets[signal];
	int32_t n = 0;

	if (!ordered) /* a counter tells how many have come, not which */
		n_rows = s->total;
	if (is_sums(flow, source))
		add_words(flow, sums_host(flow, source), &n);
	add_items(flow, source, base + signals_of(flow, source, n_rows), &n);
	FERRY_TRY(ferry_cpu_wait(flow->moe, flow->op, flow->phase, n));
	const uint64_t seen = ferry_segment_read(flow->moe->segment, signal);

	s->ready =
		min_i64(ordered ? rows_of(flow, source, seen - base) : s->total,
	                s->total);
	return FERRY_OK;
}

enum ferry_status ferry_cpu_flow_finish_recv(struct cpu_flow *flow)
{
	struct ferry_engine *e = flow->moe->engine;
	int32_t n = 0;

	for (int32_t source = 0; source < flow->n_sources; source++) {
		const int64_t total = e->sources[source].total;

		if (total)
			add_items(flow, source,
			          e->targets[in_signal(flow, source)] +
			                  signals_of(flow, source, total),
			          &n);
	}
	FERRY_TRY(ferry_cpu_wait(flow->moe, flow->op, flow->phase, n));
	for (int32_t source = 0; source < flow->n_sources; source++) {
		const int64_t total = e->sources[source].total;

		if (total)
			e->targets[in_signal(flow, source)] +=
				signals_of(flow, source, total);
	}
	return FERRY_OK;
}

/* Leaves only those items that have not come. */
static int32_t still_missing(const struct ferry_moe *moe, int32_t n_items)
{
	struct ferry_wait_item *items = moe->engine->items;
	int32_t n = 0;

	for (int32_t i = 0; i < n_items; i++)
		if (ferry_segment_read(moe->segment, items[i].signal) <
		    items[i].value)
			items[n++] = items[i];
	return n;
}

enum ferry_status ferry_cpu_wait(struct ferry_moe *moe, const struct cpu_op *op,
                                 enum ferry_phase phase, int32_t n_items)
{
	struct ferry_engine *e = moe->engine;
	const int32_t n = still_missing(moe, n_items);

	if (n == 0)
		return FERRY_OK;
	const struct ferry_wait_at where = {
		.phase = phase, .slot = op->slot, .epoch = op->number};
	const uint64_t begin = ferry_now_ns();
	const enum ferry_status status =
		ferry_segment_wait_all(moe->segment, e->items, n, &where);
	const uint64_t ns = ferry_now_ns() - begin;

	/* A relayed item is followed by its relay's, of the same counter. */
	for (int32_t i = 0; i < n; i++)
		if (i == 0 || e->items[i].signal != e->items[i - 1].signal)
			moe->wait_ns[e->items[i].peer] += ns;
	if (is_dispatch(phase))
		moe->stats.wait_ns_dispatch += ns;
	else
		moe->stats.wait_ns_combine += ns;
	return status;
}
