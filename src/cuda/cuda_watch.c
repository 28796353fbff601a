/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watcher: one thread for each channel, between what hosts know and what
 * kernels know.
 *
 * From the device to the hosts: a record in pinned memory. Every call on the
 * channel looks at it, and so does this thread, at least every LOOK_NS.
 * From the hosts to the device: a verdict, an abort, a rank that has gone and
 * for which a kernel waits. Then `stop` is set, which kernels that wait look
 * at. Kernels of different ranks tell each other without any of this.
 */
#include "cuda_engine.h"

#include <stdio.h>

#include "../core/clock.h"
#include "../core/order.h"
#include "../core/thread.h"
#include "../fabric/futex.h"
#include "../fabric/segment_break.h"

enum {
	LOOK_NS = 10000000,
	/* While ranks agree on a failure, or somebody seems to have gone. */
	LOOK_SOON_NS = 2000000,
	/* A kernel that waits is heard of within a few ms. */
	SILENT_LOOKS = 50,
	HEARD_NS = 50000000, /* or, over a network, does not wait */
};

/* What this rank's device has found; called under no lock, by any thread. */
static bool witness(void *arg, struct ferry_verdict *verdict, char *text,
                    size_t bytes)
{
	const struct ferry_engine *e = arg;
	struct ferry_blame blame;

	if (!load_acquire_u64(&e->host->record.seal))
		return false;
	ferry_cuda_report(e->moe, &e->host->record, &blame);
	*verdict = blame.verdict;
	snprintf(text, bytes, "%s", blame.text);
	return true;
}

/* Between hosts rows travel through a memory with connections of its own. */
static bool has_gone(const struct ferry_engine *e, int32_t rank,
                     struct ferry_gone *gone)
{
	struct ferry_segment *segment = e->moe->segment;
	struct ferry_segment *mirror = e->moe->mirror;

	if (ferry_segment_has_gone(segment, rank, gone))
		return true;
	if (!mirror || ferry_segment_has_verdict(segment, rank) ||
	    !mirror->mem->ops->cut(mirror->mem, rank, gone->why))
		return false;
	gone->flags = FERRY_VERDICT_CUT;
	return true;
}

/*
 * The rank that will never come, -1: none is known. A kernel waits for
 * `awaited`; another may wait for one that died, and be heard later.
 */
static int32_t find_gone(const struct ferry_engine *e, int32_t awaited,
                         struct ferry_gone *gone)
{
	if (has_gone(e, awaited, gone))
		return awaited;
	for (int32_t r = 0; r < e->moe->shape.n_ranks; r++)
		if (r != e->moe->shape.rank && has_gone(e, r, gone) &&
		    gone->flags != FERRY_VERDICT_CLOSED)
			return r;
	return -1;
}

/* What a kernel says of its wait. */
struct awaited {
	int32_t rank; /* -1: nothing was said */
	int32_t phase, slot;
};

static struct awaited listen(const struct ferry_engine *e)
{
	const struct ferry_shape *shape = &e->moe->shape;
	const uint32_t said = swap_seq_u32(&e->host->waiting, 0);
	const struct awaited a = {
		.rank = (int32_t)(said & 0xff) - 1,
		.phase = (int32_t)(said >> 8 & 0xff),
		.slot = (int32_t)(said >> 16),
	};

	if (a.rank < shape->n_ranks && a.slot < shape->n_slots)
		return a;
	return (struct awaited){.rank = -1};
}

static struct ferry_verdict verdict_at(const struct ferry_engine *e,
                                       const struct awaited *at,
                                       enum ferry_status status, int32_t root)
{
	const struct ferry_slot *slot = &e->moe->slots[at->slot];

	return (struct ferry_verdict){
		.status = status,
		.root = root,
		.phase = at->phase,
		.slot = at->slot,
		.epoch = load_relaxed_u64(&slot->n_dispatches) - 1,
		.token = -1,
	};
}

static void tell_gone(const struct ferry_engine *e, const struct awaited *at,
                      int32_t rank, const struct ferry_gone *gone)
{
	struct ferry_verdict mine = verdict_at(e, at, FERRY_PEER, rank);

	ferry_segment_tell_gone(e->moe->segment, &mine, gone);
}

/* A rank that seems to have gone. */
struct suspect {
	int32_t rank;   /* -1: none */
	int32_t silent; /* looks since a kernel was heard of */
};

/*
 * Is somebody waited for who has gone? What he sent before is good: a kernel
 * has to say once more that it waits, after he was found to have gone.
 */
static bool look_for_gone(const struct ferry_engine *e,
                          const struct awaited *at, struct suspect *suspect)
{
	struct ferry_gone how;

	if (at->rank < 0 && ++suspect->silent > SILENT_LOOKS)
		suspect->rank = -1;
	if (at->rank < 0)
		return suspect->rank >= 0;
	const int32_t gone = find_gone(e, at->rank, &how);

	if (gone >= 0 && gone == suspect->rank)
		tell_gone(e, at, gone, &how);
	suspect->rank = gone;
	suspect->silent = 0;
	return gone >= 0;
}

/*
 * A rank of another host has failed, which kernels here do not learn by
 * themselves: for whom one waits is told before the channel ends, or the rank
 * that all wait for would not be found. False: none was heard of yet.
 */
static bool has_told(const struct ferry_engine *e, const struct awaited *at,
                     uint64_t *asked_ns)
{
	struct ferry_segment *segment = e->moe->segment;
	const uint64_t now = ferry_now_ns();

	if (!e->moe->mirror || !ferry_segment_poisoned(segment) ||
	    load_seq_u32(&segment->told) ||
	    load_acquire_u64(&e->host->record.seal))
		return true;
	if (!*asked_ns) { /* what was said before may be over */
		*asked_ns = now;
		return false;
	}
	if (at->rank < 0)
		return now - *asked_ns >= HEARD_NS;
	struct ferry_verdict mine = verdict_at(e, at, FERRY_TIMEOUT, at->rank);

	mine.flags = FERRY_VERDICT_ASKED;
	ferry_segment_tell(segment, &mine, NULL);
	return true;
}

/* True when the channel has ended on this rank. */
static bool decide(const struct ferry_engine *e)
{
	struct ferry_segment *segment = e->moe->segment;
	struct ferry_world *world = e->moe->world;
	bool broken;

	pthread_mutex_lock(&world->lock);
	broken = ferry_segment_decide(segment);
	if (broken)
		ferry_segment_blame_world(segment);
	pthread_mutex_unlock(&world->lock);
	if (broken || ferry_segment_poisoned(segment))
		store_release_u32(&e->host->stop, 1);
	return broken;
}

/* Until a verdict rings, or it is time to look again. */
static void sleep_for(const struct ferry_engine *e, uint64_t ns)
{
	struct ferry_segment_ctl *ctl = e->moe->segment->ctl;
	const uint32_t doorbell = load_seq_u32(&ctl->doorbell);

	store_seq_u32(&ctl->asleep, 1);
	if (!load_seq_u32(&e->closing))
		futex_wait(&ctl->doorbell, doorbell, ns, ctl->shared);
}

static void *watch(void *arg)
{
	const struct ferry_engine *e = arg;
	const struct ferry_segment *segment = e->moe->segment;
	struct suspect suspect = {.rank = -1};
	uint64_t asked_ns = 0;

	while (!load_seq_u32(&e->closing)) {
		const struct awaited at = listen(e);

		if (has_told(e, &at, &asked_ns) && decide(e))
			break;
		const bool soon = look_for_gone(e, &at, &suspect) ||
		                  ferry_segment_poisoned(segment);

		sleep_for(e, soon ? LOOK_SOON_NS : LOOK_NS);
	}
	return NULL;
}

static void set_witness(struct ferry_engine *e, bool on)
{
	struct ferry_world *world = e->moe->world;

	pthread_mutex_lock(&world->lock);
	e->moe->segment->witness = on ? witness : NULL;
	e->moe->segment->witness_arg = e;
	pthread_mutex_unlock(&world->lock);
}

enum ferry_status ferry_cuda_watch_start(struct ferry_engine *e)
{
	set_witness(e, true);
	const int err = ferry_thread_start(&e->watcher, watch, e);

	if (err)
		return ferry_fail_errno(&e->moe->world->ctx, FERRY_SYS, err,
		                        "moe_open: a thread that watches");
	e->watched = true;
	return FERRY_OK;
}

void ferry_cuda_watch_stop(struct ferry_engine *e)
{
	struct ferry_segment_ctl *ctl = e->moe->segment->ctl;

	if (e->watched) {
		store_seq_u32(&e->closing, 1);
		add_seq_u32(&ctl->doorbell, 1);
		futex_wake_all(&ctl->doorbell, ctl->shared);
		pthread_join(e->watcher, NULL);
		e->watched = false;
	}
	set_witness(e, false);
}
