/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last write to a peer. The number of the next write tells that one was
 * lost (ofi_arrival.c), and behind the last one there is none: whoever waits
 * for it would blame a rank that has done its part. So when nothing has been
 * sent to a peer for a while, a number that counts nothing goes there, once.
 * It is complete only when it has arrived, so that it fails with its
 * connection; and the thread sends it before it sleeps, so that no put pays
 * for it.
 */
#include "ofi_inner.h"

enum { QUIET_NS = 250000000 }; /* once or twice that */

static void ask(struct ofi_mem *m, int32_t peer)
{
	struct ofi_peer *p = &m->peers[peer];
	const bool quiet = p->n_sent == p->n_seen && !ofi_queue_length(p);

	p->n_seen = p->n_sent;
	if (!quiet || p->n_sent == p->n_asked || p->asking ||
	    ferry_ofi_peer_is_gone(m, peer))
		return;
	const ssize_t err = ferry_ofi_write_nothing(m, peer, OFI_OP_LAST);

	if (err && err != -FI_EAGAIN)
		ferry_ofi_peer_failed(m, peer,
		                      ofi_fabric(m)->api.strerror((int)-err));
	if (!err)
		p->n_seen = p->n_asked = p->n_sent;
}

void ferry_ofi_ask_last(struct ofi_mem *m)
{
	const uint64_t now = ferry_now_ns();

	if (!ofi_fabric(m)->choice.numbered || now < m->ask_ns)
		return;
	m->ask_ns = now + QUIET_NS;
	for (int32_t r = 0; r < ofi_world(m)->n_ranks; r++)
		ask(m, r);
}
