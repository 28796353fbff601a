/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts that have not been handed to the provider: a ring for each peer, so
 * that one who takes nothing holds up no other; and records of what the
 * provider has, as many as it takes.
 */
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "ofi_memory.h"

enum {
	QUEUE_ALL = 65536, /* entries of all peers, 88 bytes each */
	QUEUE_MOST = 1024, /* of a peer */
	QUEUE_LEAST = 64,
	OPS_MOST = 4096,
};

/* A power of two. */
static uint32_t ring_size(int32_t n_ranks)
{
	uint32_t size = QUEUE_MOST;

	while (size > QUEUE_LEAST && size * (uint64_t)n_ranks > QUEUE_ALL)
		size /= 2;
	return size;
}

enum ferry_status ferry_ofi_queue_open(struct ofi_mem *m)
{
	struct ferry_world *world = ofi_world(m);
	const size_t n_ranks = (size_t)world->n_ranks;
	const size_t size = ring_size(world->n_ranks);
	const size_t n_ops =
		(size_t)min_i64((int64_t)ofi_info(m)->tx_attr->size, OPS_MOST);

	m->peers = calloc(n_ranks, sizeof(*m->peers));
	m->rings = calloc(n_ranks * size, sizeof(*m->rings));
	m->ops = calloc(n_ops, sizeof(*m->ops));
	if (!m->peers || !m->rings || !m->ops)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "ofi: queues of %zu puts to %zu peers", size,
		                  n_ranks);
	m->n_ops = n_ops;
	m->number_bits = ferry_ofi_number_bits(world->n_ranks);
	m->merged_bytes = (size_t)min_i64((int64_t)ofi_fabric(m)->max_put,
	                                  OFI_MERGED_BYTES);
	m->max_pieces = (uint32_t)min_i64(
		(int64_t)ofi_info(m)->tx_attr->rma_iov_limit, OFI_PIECES);
	m->queue_mask = (uint32_t)size - 1;
	for (size_t r = 0; r < n_ranks; r++)
		m->peers[r].ring = m->rings + r * size;
	for (size_t i = 0; i < n_ops; i++) {
		m->ops[i].next = m->free_ops;
		m->free_ops = &m->ops[i];
	}
	return FERRY_OK;
}

void ferry_ofi_queue_close(struct ofi_mem *m)
{
	free(m->peers);
	free(m->rings);
	free(m->ops);
}

/* Lets the last put that is still here grow by one that continues it. */
static bool merge(const struct ofi_mem *m, struct ofi_entry *last,
                  const struct ofi_entry *entry)
{
	const size_t at = entry->piece[0].offset;
	const uint32_t n = last->n_pieces;
	const size_t end = last->piece[n - 1].offset + last->piece[n - 1].bytes;

	if (!ofi_may_merge(m) ||
	    ofi_counter(last->immediate) != entry->immediate ||
	    ofi_more(last->immediate) == OFI_MORE_MOST ||
	    last->bytes + entry->bytes > m->merged_bytes || !last->bytes ||
	    !entry->bytes ||
	    (const char *)last->source + last->bytes != entry->source ||
	    at <= m->net.wrap.mem.control_bytes)
		return false;
	if (at == end) {
		last->piece[n - 1].bytes += entry->bytes;
	} else if (n < m->max_pieces) {
		last->piece[last->n_pieces++] = entry->piece[0];
	} else {
		return false;
	}
	last->bytes += entry->bytes;
	ofi_add_more(&last->immediate, 1);
	return true;
}

bool ferry_ofi_queue_add(struct ofi_mem *m, int32_t peer,
                         const struct ofi_entry *entry)
{
	struct ofi_peer *p = &m->peers[peer];

	/* Not to one whose bytes have gone without their immediate. */
	if (ofi_queue_length(p) > (p->first != OFI_FRESH) &&
	    merge(m, &p->ring[(p->tail - 1) & m->queue_mask], entry))
		return true;
	if (ofi_queue_length(p) > m->queue_mask)
		return false;
	p->ring[p->tail++ & m->queue_mask] = *entry;
	m->n_queued++;
	return true;
}

void ferry_ofi_queue_drop(struct ofi_mem *m, int32_t peer)
{
	struct ofi_peer *p = &m->peers[peer];

	m->n_queued -= ofi_queue_length(p);
	p->head = p->tail;
	store_release_u64(&p->stuck_ns, 0);
	p->first = OFI_FRESH;
}

struct ofi_op *ferry_ofi_op_take(struct ofi_mem *m, int32_t peer,
                                 enum ofi_op_kind kind)
{
	struct ofi_op *op = m->free_ops;

	if (!op)
		return NULL;
	m->free_ops = op->next;
	m->n_flying++;
	op->peer = peer;
	op->kind = kind;
	if (kind == OFI_OP_LAST) {
		m->peers[peer].asking = true;
		m->n_asking++;
	}
	return op;
}

void ferry_ofi_op_give(struct ofi_mem *m, struct ofi_op *op)
{
	if (op->kind == OFI_OP_LAST) {
		m->peers[op->peer].asking = false;
		m->n_asking--;
	}
	op->kind = OFI_OP_FREE;
	op->next = m->free_ops;
	m->free_ops = op;
	m->n_flying--;
}
