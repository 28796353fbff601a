/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded waits: spin, then sleep on the doorbell, and meanwhile watch for
 * verdicts, for deaths among the peers that are missing, and for the end of
 * the time. Everything that waits for peers goes through here.
 */
#include <sched.h>
#include <stdio.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "futex.h"
#include "segment_break.h"

enum {
	SPINS_PER_LOOK = 32, /* at the clock */
	SLICE_LEAST_NS = 1000000,
	SLICE_MOST_NS = 50000000,
	NAP_US = 20, /* of a flush, which no doorbell wakes */
};

struct waiting {
	struct ferry_segment *segment;
	const struct ferry_wait_item *items;
	int32_t n_items;
	int32_t first; /* missing item; those before it are there */
	uint64_t begin_ns;
	uint64_t end_ns; /* when this rank gives up */
	const struct ferry_wait_at *where;
};

static bool is_there(const struct waiting *w,
                     const struct ferry_wait_item *item)
{
	return load_seq_u64(&w->segment->signals[item->signal]) >= item->value;
}

static bool all_there(struct waiting *w)
{
	while (w->first < w->n_items && is_there(w, &w->items[w->first]))
		w->first++;
	return w->first == w->n_items;
}

/* What this rank can say: it misses `root`. */
static struct ferry_verdict verdict_of(const struct waiting *w,
                                       enum ferry_status status, int32_t root)
{
	struct ferry_verdict v = ferry_verdict_of(status, root);

	if (w->where) {
		v.phase = (int32_t)w->where->phase;
		v.slot = w->where->slot;
		v.epoch = w->where->epoch;
	}
	return v;
}

/*
 * A rank that died or is not reached any more; one that closed in good order
 * may have nothing to do.
 */
static int32_t any_lost(struct waiting *w, struct ferry_gone *gone)
{
	for (int32_t r = 0; r < w->segment->world->n_ranks; r++)
		if (r != w->segment->world->rank &&
		    ferry_segment_has_gone(w->segment, r, gone) &&
		    gone->flags != FERRY_VERDICT_CLOSED)
			return r;
	return -1;
}

/* The rank for which this item is awaited in vain, -1: there is hope. */
static int32_t gone_of(struct waiting *w, const struct ferry_wait_item *item,
                       struct ferry_gone *gone)
{
	if (item->peer < 0)
		return any_lost(w, gone);
	if (!ferry_segment_has_gone(w->segment, item->peer, gone))
		return -1;
	/* Somebody else raises it, with whom he may still be connected. */
	return item->relayed && gone->flags ? -1 : item->peer;
}

/* Has fault injection killed this rank, a thread? Then it waits no more. */
static bool killed(const struct waiting *w)
{
	struct ferry_fabric *fabric = w->segment->mem->fabric;

	return fabric->ops->dead(fabric, w->segment->world->rank);
}

/* Is this rank itself why it waits in vain? */
static bool find_own(const struct waiting *w, struct ferry_verdict *verdict,
                     struct ferry_gone *gone)
{
	const bool died = killed(w);

	gone->flags = 0;
	if (!died && !ferry_segment_is_deaf(w->segment, gone))
		return false;
	*verdict = verdict_of(w, died ? FERRY_PEER : FERRY_FABRIC,
	                      w->segment->world->rank);
	return true;
}

/*
 * Looks whether a rank that is missing will never come; fills in the verdict
 * and how it has gone. The counters are read once more after a death was seen:
 * what the dead had sent is there by then.
 */
static bool find_gone(struct waiting *w, struct ferry_verdict *verdict,
                      struct ferry_gone *gone)
{
	if (find_own(w, verdict, gone))
		return true;
	for (int32_t i = w->first; i < w->n_items; i++) {
		const struct ferry_wait_item *item = &w->items[i];
		int32_t peer = -1;

		if (!is_there(w, item))
			peer = gone_of(w, item, gone);
		if (peer < 0 || is_there(w, item))
			continue;
		*verdict = verdict_of(w, FERRY_PEER, peer);
		return true;
	}
	return false;
}

static int32_t missing(const struct waiting *w, bool relayed)
{
	int32_t rank = -1;

	for (int32_t i = w->first; i < w->n_items; i++) {
		const int32_t peer = w->items[i].peer;

		if (peer >= 0 && (rank < 0 || peer < rank) &&
		    w->items[i].relayed == relayed &&
		    !is_there(w, &w->items[i]))
			rank = peer;
	}
	return rank;
}

/*
 * The smallest rank that is missing, -1: not known. Who raises a counter
 * himself is missing more surely than who lets others do it.
 */
static int32_t missing_rank(const struct waiting *w)
{
	const int32_t rank = missing(w, false);

	return rank >= 0 ? rank : missing(w, true);
}

/* Others gave up: tell them what is seen from here, and follow. */
static enum ferry_status give_up_asked(struct waiting *w)
{
	struct ferry_verdict mine;
	struct ferry_gone gone;

	if (find_gone(w, &mine, &gone))
		return ferry_segment_break_gone(w->segment, &mine, &gone);
	mine = verdict_of(w, FERRY_TIMEOUT, missing_rank(w));
	mine.flags = FERRY_VERDICT_ASKED;
	return ferry_segment_break(w->segment, &mine, NULL);
}

/* Who has waited for half of the time may tell others for whom. */
static void answer_others(const struct waiting *w, uint64_t now)
{
	if (now < w->end_ns - (w->end_ns - w->begin_ns) / 2)
		return;
	const struct ferry_verdict mine =
		verdict_of(w, FERRY_TIMEOUT, missing_rank(w));

	ferry_segment_answer_others(w->segment, &mine);
}

static enum ferry_status give_up(struct waiting *w, uint64_t now)
{
	const struct ferry_verdict mine =
		verdict_of(w, FERRY_TIMEOUT, missing_rank(w));
	const struct ferry_wait_item *item = &w->items[w->first];
	struct ferry_mem *mem = w->segment->mem;
	char who[32] = "somebody";
	char where[64] = "segment_wait";
	char why[FERRY_REASON_BYTES] = "";
	char text[256];

	if (mine.root >= 0) {
		snprintf(who, sizeof(who), "rank %d", mine.root);
		(void)mem->ops->cut(mem, mine.root, why);
	}
	if (w->where)
		snprintf(where, sizeof(where), "%s: slot %d, dispatch %llu",
		         ferry_phase_name(w->where->phase), w->where->slot,
		         (unsigned long long)w->where->epoch);
	snprintf(text, sizeof(text),
	         "%s: %s did not come within %llu ms: signal %u is %llu of "
	         "%llu%s%s",
	         where, who, (unsigned long long)(now - w->begin_ns) / 1000000,
	         item->signal,
	         (unsigned long long)ferry_segment_read(w->segment,
	                                                item->signal),
	         (unsigned long long)item->value, why[0] ? "; " : "", why);
	return ferry_segment_break(w->segment, &mine, text);
}

/*
 * Spins; true when there is something else to do than waiting on. Giving way
 * is what keeps a machine with more threads than cores fast: 8 ranks on 2
 * cores signal all to all in 20 us with it, in 70 us without (a 2-core EPYC VM
 * under load, 2026-11).
 */
static bool spin(struct waiting *w)
{
	struct ferry_segment *segment = w->segment;
	const uint64_t begin = ferry_now_ns();
	const uint64_t yield_at = begin + segment->yield_ns;
	const uint64_t end = begin + segment->spin_ns;

	for (;;) {
		for (int i = 0; i < SPINS_PER_LOOK; i++) {
			if (all_there(w) || ferry_segment_poisoned(segment))
				return true;
			if (segment->polled)
				segment->mem->ops->progress(segment->mem);
			cpu_relax();
		}
		const uint64_t now = ferry_now_ns();

		if (now >= end)
			return false;
		if (now >= yield_at)
			sched_yield();
	}
}

/* Sleeps until a ring, at most ns. See struct ferry_segment_ctl. */
static void sleep_until_ring(struct waiting *w, uint64_t ns)
{
	struct ferry_segment *segment = w->segment;
	struct ferry_segment_ctl *ctl = segment->ctl;
	const uint32_t doorbell = load_seq_u32(&ctl->doorbell);

	store_seq_u32(&ctl->asleep, 1);
	if (all_there(w) || ferry_segment_poisoned(segment))
		return;
	if (segment->polled && segment->mem->ops->progress(segment->mem))
		return;
	futex_wait(&ctl->doorbell, doorbell, ns, ctl->shared);
}

/* Its own, so that a wait that need not sleep stays small. */
static __attribute__((noinline)) enum ferry_status wait_long(struct waiting *w)
{
	struct ferry_segment *segment = w->segment;
	uint64_t slice = SLICE_LEAST_NS;
	struct ferry_verdict mine;
	struct ferry_gone gone;

	w->begin_ns = ferry_now_ns();
	w->end_ns = w->begin_ns +
	            (uint64_t)segment->world->timeout_ms * 1000000u -
	            ferry_segment_grace_ns(segment);
	uint64_t look_ns = w->begin_ns + slice;

	for (;;) {
		spin(w);
		if (all_there(w))
			return FERRY_OK;
		if (ferry_segment_poisoned(segment))
			return give_up_asked(w);
		const uint64_t now = ferry_now_ns();

		if (now >= look_ns) {
			if (find_gone(w, &mine, &gone))
				return ferry_segment_break_gone(segment, &mine,
				                                &gone);
			answer_others(w, now);
			slice = (uint64_t)min_i64((int64_t)slice * 2,
			                          SLICE_MOST_NS);
			look_ns = now + slice;
		}
		if (now >= w->end_ns)
			return give_up(w, now);
		sleep_until_ring(w,
		                 (uint64_t)min_i64((int64_t)(look_ns - now),
		                                   (int64_t)(w->end_ns - now)));
	}
}

enum ferry_status ferry_segment_wait_all(struct ferry_segment *segment,
                                         const struct ferry_wait_item *items,
                                         int32_t n_items,
                                         const struct ferry_wait_at *where)
{
	struct waiting w = {
		.segment = segment,
		.items = items,
		.n_items = n_items,
		.where = where,
	};

	if (load_acquire_u32(&segment->broken))
		return ferry_segment_broken(segment);
	if (all_there(&w))
		return FERRY_OK;
	return wait_long(&w);
}

enum ferry_status ferry_segment_wait(struct ferry_segment *segment,
                                     uint32_t signal, uint64_t value)
{
	const struct ferry_wait_item item = {
		.signal = signal, .peer = -1, .value = value};

	if (!segment)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "segment_wait: segment is NULL");
	if (signal >= segment->n_signals)
		return ferry_fail(&segment->world->ctx, FERRY_RANGE,
		                  "segment_wait: signal is %u, allowed are "
		                  "0..%u",
		                  signal, segment->n_signals - 1);
	return ferry_segment_wait_all(segment, &item, 1, NULL);
}

/* True when the fabric is done with all sources, or polling must stop. */
static bool flush_over(struct ferry_segment *segment)
{
	return segment->mem->ops->flushed(segment->mem) ||
	       ferry_segment_poisoned(segment);
}

static enum ferry_status flush_late(struct waiting *w)
{
	const struct ferry_verdict mine = verdict_of(w, FERRY_TIMEOUT, -1);

	return ferry_segment_break(w->segment, &mine,
	                           "segment_flush: the fabric has not read all "
	                           "sources within the timeout");
}

static __attribute__((noinline)) enum ferry_status flush_long(struct waiting *w)
{
	struct ferry_segment *segment = w->segment;
	const uint64_t begin = ferry_now_ns();
	const uint64_t end = begin +
	                     (uint64_t)segment->world->timeout_ms * 1000000u -
	                     ferry_segment_grace_ns(segment);
	struct ferry_verdict mine;
	struct ferry_gone gone;

	while (!flush_over(segment)) {
		const uint64_t now = ferry_now_ns();

		if (now >= end)
			return flush_late(w);
		if (find_own(w, &mine, &gone))
			return ferry_segment_break_gone(segment, &mine, &gone);
		if (now < begin + segment->spin_ns)
			sched_yield();
		else
			usleep(NAP_US);
	}
	return ferry_segment_poisoned(segment) ? give_up_asked(w) : FERRY_OK;
}

enum ferry_status ferry_segment_flush(struct ferry_segment *segment)
{
	if (!segment)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "segment_flush: segment is NULL");
	FERRY_TRY(ferry_segment_kick(segment));
	if (segment->direct || segment->mem->ops->flushed(segment->mem))
		return FERRY_OK;
	struct waiting w = {.segment = segment};

	return flush_long(&w);
}
