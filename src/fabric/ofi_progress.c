/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose turn it is to hand over puts, what the provider has completed, what has
 * arrived, and what failed. Whoever holds the lock does it: the caller at kick,
 * flush and in waits, the thread otherwise.
 *
 * The bytes of a put are in place when the target reads its immediate:
 * libfabric promises that for completions of remote writes into host memory,
 * for every provider (ofi_hmem.c for others). The counter is then raised by a
 * seq_cst addition, and whoever sees that sees the bytes.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ofi_inner.h"

enum {
	BATCH = 32,          /* completions read at once */
	BATCHES = 8,         /* before others get a turn */
	IN_A_ROW = 16,       /* puts to one peer, then the next has a turn */
	IN_A_ROW_STREAM = 2, /* the same over TCP: see most_in_a_row */
	PATIENCE_NS = 100000000, /* with who told that he goes */
	CONNECT_NS = 1000000000, /* with one who was never reached */
	SAY_MS = 100,            /* less is nothing to speak of */
	/* Looks that find nothing: as 128 connections leave behind. */
	DRAIN_LOOKS = 16384,
};

bool ferry_ofi_peer_has_told(const struct ofi_mem *m, int32_t peer)
{
	const struct ferry_mem *mem = &m->net.wrap.mem;
	const unsigned char *control = mem->control;
	const uint64_t *counters =
		(const void *)(control + mem->counters_offset);

	return load_seq_u64(&counters[FERRY_SIGNAL_VERDICT + peer]) > 0;
}

void ferry_ofi_peer_failed(struct ofi_mem *m, int32_t peer, const char *why)
{
	struct ofi_peer *p = &m->peers[peer];

	ferry_ofi_queue_drop(m, peer);
	pthread_cond_broadcast(&m->room);
	if (ofi_has_failed(p))
		return;
	snprintf(p->text, sizeof(p->text), "%s: %s",
	         ofi_fabric(m)->choice.provider, why);
	store_release_u64(&p->failed_ns, ferry_now_ns());
	ferry_log(&ofi_world(m)->ctx, FERRY_LOG_INFO,
	          "ofi: rank %d is not reached any more: %s", peer, p->text);
}

const char *ferry_ofi_why_lost(struct ofi_mem *m, int32_t peer)
{
	const struct ofi_peer *p = &m->peers[peer];

	ferry_ofi_drain(m);
	return ofi_lost_ns(p) && !ferry_ofi_peer_has_told(m, peer) ? p->text
	                                                           : NULL;
}

void ferry_ofi_ring(struct ofi_mem *m)
{
	const uint64_t one = 1;

	if (!m->asleep)
		return;
	m->asleep = false;
	/* Never full: the thread empties it. */
	if (write(m->bell_fd, &one, sizeof(one)) < 0)
		m->asleep = true;
}

bool ferry_ofi_may_sleep(struct ofi_mem *m)
{
	struct fid *cq = &m->cq->fid;

	return m->cq_fd >= 0 && !fi_trywait(ofi_fabric(m)->fid, &cq, 1);
}

void ferry_ofi_leave(struct ofi_mem *m)
{
	if (m->asleep && (ofi_is_busy(m) || !ferry_ofi_may_sleep(m)))
		ferry_ofi_ring(m);
}

/* A peer that takes nothing: for how long, and is that to be expected? */
static void stuck(struct ofi_mem *m, int32_t peer)
{
	struct ofi_peer *p = &m->peers[peer];
	struct ferry_fabric *fabric = m->net.wrap.mem.fabric;
	const uint64_t now = ferry_now_ns();

	if (!p->stuck_ns)
		store_release_u64(&p->stuck_ns, now);
	if (now - p->stuck_ns < PATIENCE_NS)
		return;
	if (ferry_ofi_peer_has_told(m, peer) || fabric->ops->dead(fabric, peer))
		ferry_ofi_peer_failed(m, peer, "it has gone");
}

void ferry_ofi_say_stuck(const struct ofi_mem *m, int32_t peer,
                         char why[FERRY_REASON_BYTES])
{
	const struct ofi_peer *p = &m->peers[peer];
	const uint64_t since_ns = load_acquire_u64(&p->stuck_ns);
	const uint64_t ms = (ferry_now_ns() - since_ns) / 1000000;
	uint8_t name[OFI_NAME_BYTES];
	char text[OFI_TEXT_BYTES] = "";
	size_t n_name = sizeof(name);
	size_t n_text = sizeof(text);

	if (!since_ns || ms < SAY_MS)
		return;
	if (!fi_av_lookup(m->av, p->address, name, &n_name))
		fi_av_straddr(m->av, name, text, &n_text);
	snprintf(why, FERRY_REASON_BYTES,
	         "nothing has left for it for %llu ms, to %.60s",
	         (unsigned long long)ms, text);
}

/*
 * Is an error none yet? Nothing has been lost where nothing was ever taken: the
 * peer may have no room for a connection at this moment.
 */
static bool may_try_again(const struct ofi_peer *p, ssize_t err)
{
	return err == -FI_EAGAIN ||
	       (!p->written &&
	        (!p->stuck_ns || ferry_now_ns() - p->stuck_ns < CONNECT_NS));
}

/*
 * Over TCP what arrives is taken between two writes, as long as it is in the
 * cache. Who gives the kernel 4 MB first takes 1.4 to 1.6 times as long, as do
 * two plain sockets programs: 7.5 MB each way by bare writes took 3.1 ms with 4
 * or 16 in a row, 2.0 with 1 or 2; 1.8 MB 0.45, and 0.54 with 1 (dev/ofi.md).
 */
static uint32_t most_in_a_row(const struct ofi_mem *m)
{
	return ofi_fabric(m)->choice.is_stream ? IN_A_ROW_STREAM : IN_A_ROW;
}

/* Hands over what one peer takes; true when it took something. */
static bool post_to(struct ofi_mem *m, int32_t peer)
{
	struct ofi_peer *p = &m->peers[peer];
	const uint32_t most = most_in_a_row(m);
	const uint32_t begin = p->head;
	bool moved = false;

	while (p->head - begin < most && ofi_queue_length(p)) {
		const struct ofi_entry *e = &p->ring[p->head & m->queue_mask];
		const ssize_t err = ferry_ofi_hand_over(m, peer, e);

		if (err && may_try_again(p, err)) {
			stuck(m, peer);
			break;
		}
		if (err) {
			ferry_ofi_peer_failed(
				m, peer,
				ofi_fabric(m)->api.strerror((int)-err));
			return true;
		}
		p->head++;
		m->n_queued--;
		store_release_u64(&p->stuck_ns, 0);
		moved = true;
	}
	return moved;
}

static bool post(struct ofi_mem *m)
{
	const int32_t n_ranks = ofi_world(m)->n_ranks;
	bool moved = false;

	for (int32_t i = 0; m->n_queued && i < n_ranks; i++) {
		const int32_t peer = (m->turn + i) % n_ranks;

		if (ofi_queue_length(&m->peers[peer]))
			moved = post_to(m, peer) || moved;
	}
	m->turn = (m->turn + 1) % n_ranks;
	if (moved)
		pthread_cond_broadcast(&m->room);
	return moved;
}

/*
 * Nothing that arrives counts any more: what was lost may have been anything.
 * What is sent still leaves, as far as it can, so that peers learn it.
 */
static void break_down(struct ofi_mem *m, const char *why)
{
	if (m->broken[0])
		return;
	snprintf(m->broken, sizeof(m->broken), "%s: %s",
	         ofi_fabric(m)->choice.provider, why);
	for (int32_t r = 0; r < ofi_world(m)->n_ranks; r++) {
		struct ofi_peer *p = &m->peers[r];

		if (ferry_net_stores(&m->net.wrap.mem, r) || ofi_lost_ns(p))
			continue;
		snprintf(p->text, sizeof(p->text), "%s", m->broken);
		store_release_u64(&p->gap_ns, ferry_now_ns());
	}
	pthread_cond_broadcast(&m->room);
	ferry_log(&ofi_world(m)->ctx, FERRY_LOG_WARN, "ofi: %s", m->broken);
}

static bool is_op(const struct ofi_mem *m, const void *context)
{
	const uintptr_t first = (uintptr_t)m->ops;
	const uintptr_t at = (uintptr_t)context;

	return at >= first && at - first < m->n_ops * sizeof(*m->ops);
}

/*
 * An operation that failed ends what is put to its peer. A greeting is none:
 * the connection that it began may be there by now, and if not, the first put
 * begins another.
 */
static bool read_error(struct ofi_mem *m)
{
	struct fi_cq_err_entry e = {0};
	const struct ferry_ofi_api *api = &ofi_fabric(m)->api;
	const ssize_t n = fi_cq_readerr(m->cq, &e, 0);

	if (n == -FI_EAGAIN)
		return false;
	if (n != 1) {
		break_down(m, api->strerror((int)-n));
		return false;
	}
	if (e.err == FI_EOVERRUN) {
		const bool news = !m->broken[0];

		break_down(m, "arrivals were lost: the queue overran");
		return news;
	}
	struct ofi_op *op = e.op_context;

	/* Of a connection that came from a peer: nothing of ours. */
	if (!is_op(m, op))
		return true;
	if (op->kind != OFI_OP_GREETING)
		ferry_ofi_peer_failed(m, op->peer, api->strerror(e.err));
	ferry_ofi_op_give(m, op);
	return true;
}

static void completed(struct ofi_mem *m, struct ofi_op *op)
{
	struct ofi_peer *p = &m->peers[op->peer];

	if (op->kind == OFI_OP_AGAIN && p->first == OFI_ASKED)
		p->first = OFI_SURE;
	ferry_ofi_op_give(m, op);
}

/* True when there was anything. */
static bool read_some(struct ofi_mem *m)
{
	struct fi_cq_data_entry entries[BATCH];
	const ssize_t n = fi_cq_read(m->cq, entries, BATCH);

	if (n == -FI_EAVAIL)
		return read_error(m);
	if (n < 0 && n != -FI_EAGAIN)
		break_down(m, ofi_fabric(m)->api.strerror((int)-n));
	for (ssize_t i = 0; i < n; i++) {
		/* Some give a completed write the flags of an arrival. */
		if (is_op(m, entries[i].op_context))
			completed(m, entries[i].op_context);
		else if (entries[i].flags & FI_REMOTE_CQ_DATA && !m->broken[0])
			ferry_ofi_arrived(m, entries[i].data);
	}
	return n > 0;
}

static bool read_all(struct ofi_mem *m)
{
	bool moved = false;

	for (int i = 0; i < BATCHES && read_some(m); i++)
		moved = true;
	return moved;
}

bool ferry_ofi_drive(struct ofi_mem *m)
{
	bool moved = false;

	if (m->n_queued)
		moved = post(m);
	return read_all(m) || moved;
}

/*
 * One look may find nothing and there is something. Where receives are not
 * shared (FI_OFI_RXM_USE_SRX=0), tcp;ofi_rxm (1.17) gets those of a connection
 * back when it ends, 128, and drops one in each look, before what arrived over
 * other connections.
 */
void ferry_ofi_drain(struct ofi_mem *m)
{
	for (int i = 0; i < DRAIN_LOOKS; i++) {
		while (ferry_ofi_drive(m))
			;
		if (m->broken[0] || m->cq_fd < 0 || ferry_ofi_may_sleep(m))
			return;
	}
}
