/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a memory. A provider over sockets completes a write when a socket
 * has taken it, and a socket that is closed may drop what it still holds, the
 * good-bye above all. So each peer that was written to is asked, by a write of
 * no bytes that completes only when it has arrived: what was posted to it
 * before has arrived, then, too.
 */
#include "ofi_memory.h"

enum {
	SETTLE_MS = 1000,
	LOOK_NS = 1000000,
};

bool ferry_ofi_peer_is_gone(struct ofi_mem *m, int32_t peer)
{
	struct ferry_fabric *fabric = m->net.wrap.mem.fabric;

	return ofi_has_failed(&m->peers[peer]) ||
	       ferry_ofi_peer_has_told(m, peer) ||
	       fabric->ops->dead(fabric, peer);
}

/* True when there is nothing, or nothing more, to ask this peer. */
static bool ask(struct ofi_mem *m, int32_t peer)
{
	struct ofi_peer *p = &m->peers[peer];

	if (ferry_ofi_peer_is_gone(m, peer))
		return true;
	/* What has not left yet is asked for when it has. */
	if (ofi_queue_length(p))
		return false;
	if (!p->written)
		return true;
	const ssize_t err = ferry_ofi_write_nothing(m, peer, OFI_OP_QUESTION);

	p->written = err == -FI_EAGAIN;
	return err != -FI_EAGAIN;
}

static bool ask_all(struct ofi_mem *m)
{
	bool asked = true;

	for (int32_t r = 0; r < ofi_world(m)->n_ranks; r++)
		asked = ask(m, r) && asked;
	return asked;
}

/* Is an answer missing that may still come? */
static bool is_waiting(struct ofi_mem *m)
{
	for (size_t i = 0; m->n_flying && i < m->n_ops; i++)
		if (m->ops[i].kind == OFI_OP_QUESTION &&
		    !ferry_ofi_peer_is_gone(m, m->ops[i].peer))
			return true;
	return false;
}

void ferry_ofi_settle(struct ofi_mem *m)
{
	const uint64_t deadline = ferry_deadline_ns(SETTLE_MS);
	struct ferry_fabric *fabric = m->net.wrap.mem.fabric;
	const bool killed = fabric->ops->dead(fabric, ofi_world(m)->rank);

	if (!ofi_fabric(m)->choice.is_stream || killed || !m->has_thread)
		return;
	pthread_mutex_lock(&m->lock);
	ferry_ofi_drain(m);
	while (ferry_now_ns() < deadline) {
		const bool asked = ask_all(m);

		ferry_ofi_drain(m);
		if (asked && !is_waiting(m))
			break;
		ferry_cond_wait(&m->room, &m->lock, ferry_now_ns() + LOOK_NS);
	}
	pthread_mutex_unlock(&m->lock);
}
