/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread behind net_proxy.h. A GPU wakes no thread, so it looks: again and
 * again while records come, then after naps that grow with the silence. Who
 * launches a kernel wakes it; what graphs launch is found by the naps.
 */
#include "net_proxy.h"

#include <sched.h>
#include <sys/prctl.h>

#include "../core/clock.h"
#include "../core/thread.h"
#include "../fabric/futex.h"
#include "../fabric/segment_break.h"
#include "../proto/sizes.h"

/*
 * Silence, and how long a nap is then: the longest that a first record waits.
 * A nap costs some 5 us of a core.
 */
static const struct pace {
	uint64_t silence_ns, nap_ns;
} paces[] = {
	{200000, 0}, /* only gives way */
	{20000000, 20000},
	{1000000000, 100000},
	{UINT64_MAX, 1000000},
};

static bool has_ended(const struct ferry_net_proxy *p)
{
	return load_relaxed_u32(&p->segment->broken) ||
	       ferry_segment_poisoned(p->segment);
}

/* A put that failed ends the channel, on all ranks. */
static void give_up(struct ferry_net_proxy *p, enum ferry_status status,
                    int32_t peer)
{
	struct ferry_verdict mine = ferry_verdict_of(status, peer);
	struct ferry_gone gone;

	if (status == FERRY_PEER && peer >= 0) {
		if (ferry_segment_await_gone(p->mirror, peer, &gone))
			(void)ferry_segment_break_gone(p->segment, &mine,
			                               &gone);
		return;
	}
	(void)ferry_segment_break(p->segment, &mine, ferry_last_error());
}

static bool is_sound(const struct ferry_net_proxy *p,
                     const struct ferry_net_record *r)
{
	const size_t max_put = ferry_segment_max_put(p->mirror);

	return r->peer < (uint32_t)p->segment->world->n_ranks &&
	       r->bytes <= p->in_bytes && r->to <= p->in_bytes - r->bytes &&
	       r->bytes <= p->out_bytes && r->from <= p->out_bytes - r->bytes &&
	       r->counter < p->mirror->n_signals &&
	       r->bytes <= size_mul(r->n_signals, max_put);
}

/* One record in pieces, and empty ones for the rest of its signals. */
static enum ferry_status post(struct ferry_net_proxy *p,
                              const struct ferry_net_record *r)
{
	struct ferry_segment *s = p->mirror;
	struct ferry_mem *mem = s->mem;
	const size_t max_put = ferry_segment_max_put(s);
	const unsigned char *from =
		(unsigned char *)mem->data + p->out_offset + r->from;
	size_t at = 0;

	for (uint32_t i = 0; i < r->n_signals; i++) {
		const size_t left = r->bytes - at;
		const size_t n = left < max_put ? left : max_put;

		FERRY_TRY(mem->ops->put(mem, (int32_t)r->peer,
		                        s->data_offset + r->to + at, from + at,
		                        n, s->first_signal + r->counter));
		at += n;
	}
	return FERRY_OK;
}

/* The next record, if it is there; after the channel's end it is dropped. */
static bool take(struct ferry_net_proxy *p)
{
	struct ferry_net_record *at =
		&p->ring->records[p->done % FERRY_NET_RECORDS];
	enum ferry_status status = FERRY_OK;

	if (load_acquire_u64(&at->seal) != p->done + 1)
		return false;
	const struct ferry_net_record r = *at;

	store_release_u64(&p->ring->done, ++p->done);
	if (has_ended(p))
		return true;
	if (is_sound(p, &r))
		status = post(p, &r);
	else
		status = ferry_fail(
			&p->segment->world->ctx, FERRY_INTERNAL,
			"proxy: a record of %u bytes at %llu, from %llu, for "
			"rank %u, counter %u + %u",
			r.bytes, (unsigned long long)r.to,
			(unsigned long long)r.from, r.peer, r.counter,
			r.n_signals);
	if (status != FERRY_OK)
		give_up(p, status, (int32_t)r.peer);
	return true;
}

/* All that is there. False: nothing was. */
static bool take_all(struct ferry_net_proxy *p)
{
	struct ferry_mem *mem = p->mirror->mem;
	bool any = false;
	enum ferry_status status;

	while (take(p))
		any = true;
	if (p->mirror->polled)
		(void)mem->ops->progress(mem);
	if (!any || has_ended(p))
		return any;
	status = mem->ops->kick(mem);
	if (status != FERRY_OK)
		give_up(p, status, -1);
	return true;
}

static bool is_there(const struct ferry_net_proxy *p)
{
	return load_acquire_u64(
		       &p->ring->records[p->done % FERRY_NET_RECORDS].seal) ==
	       p->done + 1;
}

/* Until it is time to look again. True: somebody rang. */
static bool nap(struct ferry_net_proxy *p, uint64_t silence_ns)
{
	const uint32_t doorbell = load_seq_u32(&p->bell.doorbell);
	int i = 0;

	while (silence_ns >= paces[i].silence_ns)
		i++;
	if (!paces[i].nap_ns) {
		sched_yield();
		return false;
	}
	store_seq_u32(&p->bell.asleep, 1);
	if (!is_there(p) && !load_seq_u32(&p->closing))
		futex_wait(&p->bell.doorbell, doorbell, paces[i].nap_ns, false);
	return load_seq_u32(&p->bell.doorbell) != doorbell;
}

static void work(void *arg)
{
	struct ferry_net_proxy *p = arg;
	uint64_t since = ferry_now_ns();

	prctl(PR_SET_TIMERSLACK, 1000);
	while (!load_seq_u32(&p->closing))
		if (take_all(p) || nap(p, ferry_now_ns() - since))
			since = ferry_now_ns();
	(void)take_all(p);
}

/* What posts may call CUDA, too: not on a GPU of others. */
static void *run(void *arg)
{
	const struct ferry_net_proxy *p = arg;

	ferry_gpu_within(p->segment->world->gpu, work, arg);
	return NULL;
}

enum ferry_status ferry_net_proxy_start(struct ferry_net_proxy *proxy)
{
	const int err = ferry_thread_start(&proxy->thread, run, proxy);

	proxy->started = !err;
	if (!err)
		return FERRY_OK;
	return ferry_fail_errno(&proxy->segment->world->ctx, FERRY_SYS, err,
	                        "moe_open: a thread that posts puts");
}

void ferry_net_proxy_stop(struct ferry_net_proxy *proxy)
{
	if (!proxy->started)
		return;
	store_seq_u32(&proxy->closing, 1);
	ferry_net_proxy_wake(proxy);
	pthread_join(proxy->thread, NULL);
	proxy->started = false;
}
