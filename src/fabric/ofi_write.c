/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A put becomes a write of the provider, or two: its bytes, then its
 * immediate. Who has his turn, and what becomes of a write, is in
 * ofi_progress.c.
 */
#include "ofi_memory.h"

static void *descriptor(const struct ofi_mem *m, const void *source)
{
	const uintptr_t data = (uintptr_t)m->net.wrap.mem.data;
	const uintptr_t at = (uintptr_t)source;
	const bool in_data =
		at >= data && at - data < m->net.wrap.mem.data_bytes;

	return fi_mr_desc(m->mr[in_data ? OFI_DATA : OFI_CONTROL]);
}

/* Where the pieces of an entry go; how many. */
static size_t aim(const struct ofi_mem *m, const struct ofi_peer *p,
                  const struct ofi_entry *e, struct fi_rma_iov to[OFI_PIECES])
{
	const size_t control = m->net.wrap.mem.control_bytes;

	for (uint32_t i = 0; i < e->n_pieces; i++) {
		const int part = e->piece[i].offset >= control;

		to[i] = (struct fi_rma_iov){
			.addr = p->base[part] + e->piece[i].offset -
		                (part ? control : 0),
			.len = e->piece[i].bytes,
			.key = p->key[part],
		};
	}
	return e->n_pieces;
}

/* Has it an immediate, and a number? */
static bool is_announced(enum ofi_op_kind kind)
{
	return kind == OFI_OP_BOTH || kind == OFI_OP_IMMEDIATE ||
	       kind == OFI_OP_LAST;
}

/* What is asked of a write of that kind. */
static uint64_t flags_of(const struct ofi_mem *m, enum ofi_op_kind kind)
{
	const bool arrives = kind == OFI_OP_AGAIN || kind == OFI_OP_QUESTION ||
	                     kind == OFI_OP_LAST;

	return ofi_info(m)->tx_attr->op_flags | FI_COMPLETION |
	       (is_announced(kind) ? FI_REMOTE_CQ_DATA : 0) |
	       (arrives ? FI_DELIVERY_COMPLETE : 0);
}

/* Of an entry what that kind says. */
static ssize_t write_entry(struct ofi_mem *m, int32_t peer,
                           const struct ofi_entry *e, enum ofi_op_kind kind)
{
	const struct ofi_peer *p = &m->peers[peer];
	const bool some = kind != OFI_OP_IMMEDIATE && e->bytes;
	/* libfabric reads what it does not call const. */
	const uintptr_t source =
		(uintptr_t)(some ? e->source : m->net.wrap.mem.control);
	const struct iovec from = {(void *)source, some ? e->bytes : 0};
	void *key = descriptor(m, from.iov_base);
	struct fi_rma_iov to[OFI_PIECES];
	struct ofi_op *op = ferry_ofi_op_take(m, peer, kind);

	if (!op)
		return -FI_EAGAIN;
	struct fi_msg_rma message = {
		.msg_iov = &from,
		.desc = &key,
		.iov_count = 1,
		.addr = p->address,
		.rma_iov = to,
		.rma_iov_count = aim(m, p, e, to),
		.context = &op->context,
		.data = ferry_ofi_immediate(m, peer, e->immediate),
	};

	if (!some) {
		to[0].len = 0;
		message.rma_iov_count = 1;
	}
	const ssize_t err = fi_writemsg(m->ep, &message, flags_of(m, kind));

	if (err) {
		ferry_ofi_op_give(m, op);
		return err;
	}
	m->peers[peer].written = true;
	m->peers[peer].n_sent += is_announced(kind);
	return 0;
}

/* Can one immediate stand for both the first entry and the second? */
static bool may_share(const struct ofi_mem *m, const struct ofi_peer *p,
                      const struct ofi_entry *e, const struct ofi_entry *next)
{
	return ofi_queue_length(p) > 1 && ofi_may_merge(m) && next->bytes &&
	       ofi_counter(next->immediate) == ofi_counter(e->immediate) &&
	       ofi_more(next->immediate) + ofi_more(e->immediate) <
	               OFI_MORE_MOST;
}

/*
 * Bytes of the first entry, and of the second where they may share, and at once
 * the immediate. Where that is not taken, the first goes alone and again, then
 * the second as if it had not gone.
 */
static ssize_t hand_over_fresh(struct ofi_mem *m, int32_t peer,
                               const struct ofi_entry *e)
{
	struct ofi_peer *p = &m->peers[peer];
	const struct ofi_entry *next = &p->ring[(p->head + 1) & m->queue_mask];
	const bool share = may_share(m, p, e, next);
	struct ofi_entry last = share ? *next : *e;
	ssize_t err;

	/* Room for all, or bytes go twice only for want of it. */
	if (m->n_ops - m->n_flying < 2u + share)
		return -FI_EAGAIN;
	err = write_entry(m, peer, e, OFI_OP_BYTES);
	if (err)
		return err;
	if (share) {
		ofi_add_more(&last.immediate, ofi_more(e->immediate) + 1);
		err = write_entry(m, peer, next, OFI_OP_BYTES);
	}
	if (!err)
		err = write_entry(m, peer, &last, OFI_OP_IMMEDIATE);
	if (err == -FI_EAGAIN)
		p->first = OFI_UNSURE;
	if (!err && share) {
		p->head++;
		m->n_queued--;
	}
	return err;
}

/*
 * 0, -FI_EAGAIN or another error; of a provider over sockets.
 *
 * The provider of TCP (1.17, and as its source has it those up to today) may
 * not be left with half a write that carries an immediate: when the connection
 * ends, because the peer died or this rank closes, it reports a failure of a
 * context that does not exist, and the layer above it, ofi_rxm, reads that.
 * There the bytes go first, by themselves, and then the immediate with none:
 * it is there or it is not. TCP keeps them in this order.
 *
 * The number of the immediate (ofi_arrival.c) stands for its bytes as long as
 * both go over one connection: what is lost there is an end of the stream, and
 * with the bytes the immediate, which is missed. So it goes right behind them:
 * ofi_rxm connects anew in a call of its own, which it answers FI_EAGAIN. If
 * that is the answer to the immediate, the bytes may have been the last on the
 * old connection, and nothing at the peer would tell. They go once more, which
 * does no harm before they are announced, and the immediate when they are
 * known to have arrived (FI_DELIVERY_COMPLETE). A number that is written with
 * the bytes would not do: the next bytes overwrite it before anybody looks.
 */
static ssize_t hand_over_apart(struct ofi_mem *m, int32_t peer,
                               const struct ofi_entry *e)
{
	struct ofi_peer *p = &m->peers[peer];
	ssize_t err;

	switch (p->first) {
	case OFI_FRESH:
		return hand_over_fresh(m, peer, e);
	case OFI_UNSURE:
		err = write_entry(m, peer, e, OFI_OP_AGAIN);
		if (!err)
			p->first = OFI_ASKED;
		return err ? err : -FI_EAGAIN;
	case OFI_ASKED:
		return -FI_EAGAIN;
	case OFI_SURE:
		break;
	}
	err = write_entry(m, peer, e, OFI_OP_IMMEDIATE);
	if (!err)
		p->first = OFI_FRESH;
	return err;
}

ssize_t ferry_ofi_hand_over(struct ofi_mem *m, int32_t peer,
                            const struct ofi_entry *e)
{
	if (ofi_fabric(m)->choice.is_stream && e->bytes)
		return hand_over_apart(m, peer, e);
	return write_entry(m, peer, e, OFI_OP_BOTH);
}

ssize_t ferry_ofi_write_nothing(struct ofi_mem *m, int32_t peer,
                                enum ofi_op_kind kind)
{
	const struct ofi_entry nothing = {.immediate = OFI_COUNTS_NOTHING,
	                                  .n_pieces = 1};

	return write_entry(m, peer, &nothing, kind);
}

/*
 * Writes nothing to peers above, so that connections are there before they are
 * needed: they take milliseconds, and a failure must spread faster. One end is
 * enough, and both at once would be in each other's way.
 */
void ferry_ofi_greet(struct ofi_mem *m)
{
	const struct ferry_world *world = ofi_world(m);
	const struct ferry_mem *mem = &m->net.wrap.mem;

	for (int32_t r = world->rank + 1; r < world->n_ranks; r++) {
		const struct ofi_peer *p = &m->peers[r];
		struct ofi_op *op = NULL;

		if (!ferry_net_stores(mem, r))
			op = ferry_ofi_op_take(m, r, OFI_OP_GREETING);
		/* Trying is enough: a connection begins with it. */
		if (op && fi_write(m->ep, mem->control, 0,
		                   descriptor(m, mem->control), p->address,
		                   p->base[OFI_CONTROL], p->key[OFI_CONTROL],
		                   &op->context))
			ferry_ofi_op_give(m, op);
	}
}
