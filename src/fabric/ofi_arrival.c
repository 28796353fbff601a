/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrivals. An immediate is a counter and the number of puts (ofi_inner.h).
 * Where the provider is one over sockets, the upper half of its 64 bits says
 * whose it is and which: tcp;ofi_rxm (1.17) connects again in silence when a
 * connection was reset, and what had been completed into a socket is lost then.
 * Counters count, so that later puts would stand for those. A peer's immediates
 * come in their order or they do not come: a number that does not follow the
 * last one is a loss, and nothing of that peer counts any more.
 *
 * The rank has the bits that n_ranks needs, the number all others, 16 at least:
 * 65536 immediates take 3 MB of a stream, and only a loss of exactly a multiple
 * of that many would be taken for none. With 256 ranks it is 2^24, and 805 MB,
 * more than any socket holds.
 *
 * A stranger who reaches the port may guess: a wrong rank or counter is
 * ignored, a right one with a wrong number is a loss, which is told, and no
 * count that others take for a put.
 */
#include <inttypes.h>
#include <stdio.h>

#include "ofi_inner.h"

enum { HALF = 32 };

uint32_t ferry_ofi_number_bits(int32_t n_ranks)
{
	uint32_t bits = HALF;

	while ((uint64_t)(n_ranks - 1) >> (HALF - bits))
		bits--;
	return bits;
}

uint64_t ferry_ofi_immediate(const struct ofi_mem *m, int32_t peer,
                             uint32_t immediate)
{
	const uint32_t bits = m->number_bits;
	const uint64_t mask = ((uint64_t)1 << bits) - 1;
	const uint64_t number = (m->peers[peer].n_sent + 1) & mask;
	const uint64_t rank = (uint64_t)ofi_world(m)->rank;

	if (!ofi_fabric(m)->choice.numbered)
		return immediate;
	return (rank << bits | number) << HALF | immediate;
}

/* The number that is so far ahead of the last one, or behind it. */
static uint64_t number_of(const struct ofi_peer *p, uint64_t ahead,
                          uint64_t mask)
{
	const uint64_t behind = mask + 1 - ahead;

	return behind < ahead && behind <= p->n_arrived ? p->n_arrived - behind
	                                                : p->n_arrived + ahead;
}

/* What it sends does not count any more; what it is sent may yet reach it. */
static void missed(struct ofi_mem *m, int32_t source, uint64_t number)
{
	struct ofi_peer *p = &m->peers[source];

	if (!ofi_has_failed(p))
		snprintf(p->text, sizeof(p->text),
		         "%s: a write of rank %d to rank %d %s: arrival "
		         "%" PRIu64 " came after %" PRIu64,
		         ofi_fabric(m)->choice.provider, source,
		         ofi_world(m)->rank,
		         number > p->n_arrived ? "was lost" : "came again",
		         number, p->n_arrived);
	store_release_u64(&p->gap_ns, ferry_now_ns());
	ferry_log(&ofi_world(m)->ctx, FERRY_LOG_INFO, "ofi: %s", p->text);
}

/* Is it the next of a peer that is put to? */
static bool is_next(struct ofi_mem *m, uint32_t upper)
{
	const uint32_t bits = m->number_bits;
	const uint64_t mask = ((uint64_t)1 << bits) - 1;
	const uint64_t source = (uint64_t)upper >> bits;

	if (source >= (uint64_t)ofi_world(m)->n_ranks ||
	    ferry_net_stores(&m->net.wrap.mem, (int32_t)source))
		return false;
	struct ofi_peer *p = &m->peers[source];
	const uint64_t ahead = (upper - p->n_arrived) & mask;

	if (p->gap_ns)
		return false;
	if (ahead == 1) {
		p->n_arrived++;
		return true;
	}
	missed(m, (int32_t)source, number_of(p, ahead, mask));
	return false;
}

void ferry_ofi_arrived(struct ofi_mem *m, uint64_t data)
{
	const struct ferry_mem *mem = &m->net.wrap.mem;
	const uint32_t immediate = (uint32_t)data;
	const uint32_t upper = (uint32_t)(data >> HALF);
	const bool numbered = ofi_fabric(m)->choice.numbered;
	const bool merges = ofi_may_merge(m);
	const uint32_t counter = merges ? ofi_counter(immediate) : immediate;
	const uint32_t more = merges ? ofi_more(immediate) : 0;

	/* A stranger's, or of another program: the provider asks nobody. */
	if (counter >= mem->n_signals && immediate != OFI_COUNTS_NOTHING)
		return;
	if (numbered ? !is_next(m, upper) : upper != 0)
		return;
	/* Its number was all that it had to say (ofi_last.c). */
	if (immediate == OFI_COUNTS_NOTHING)
		return;
	for (uint32_t i = 0; i <= more; i++)
		ferry_net_arrived(mem, counter);
}
