/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of fabric ofi share. A memory has all of libfabric for
 * itself: domain, endpoint, queue of completions, addresses. So closing one
 * disturbs no other, and one lock is enough for whatever it calls.
 *
 *	fab_ofi.c       the table
 *	ofi_api.c       the library, opened
 *	ofi_signals.c   handlers that it installs, put back
 *	ofi_choice.c    provider, domain, address
 *	ofi_endpoint.c  objects of libfabric, registration, handles
 *	ofi_hmem.c      data in memory of a GPU
 *	ofi_memory.c    a memory from its opening to its end
 *	ofi_queue.c     puts that have not been handed over yet
 *	ofi_write.c     a put handed over: one write, or bytes and immediate
 *	ofi_progress.c  whose turn it is; completions, failures
 *	ofi_arrival.c   arrivals: counted, numbered, missed
 *	ofi_last.c      a word behind the last write, which may be lost
 *	ofi_thread.c    the thread that does so when nobody else does
 *	ofi_close.c     the end: has what was put arrived?
 */
#ifndef FERRY_OFI_INNER_H
#define FERRY_OFI_INNER_H

#include <pthread.h>

#include "../core/thread.h"
#include "net.h"
#include "ofi_choice.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

enum {
	OFI_CONTROL,
	OFI_DATA,
	OFI_PARTS, /* of a memory, registered one by one */
	OFI_TEXT_BYTES = 200,
	OFI_NAME_BYTES = 64, /* address of an endpoint */
};

struct ofi_fabric {
	struct ferry_net net;
	struct ferry_ofi_api api;
	struct ferry_ofi_choice choice;
	struct fid_fabric *fid;
	size_t max_put;
};

enum { OFI_PIECES = 4 };

/* A put that waits for its turn, or several. */
struct ofi_entry {
	const void *source;
	size_t bytes;       /* in one piece at the source */
	uint32_t immediate; /* counter, and how many more puts than one */
	uint32_t n_pieces;  /* at the destination */
	struct {
		size_t offset, bytes;
	} piece[OFI_PIECES];
};

/*
 * Puts that continue each other at the source, for the same counter, travel as
 * one write: to one piece where they do so at the destination too, and to
 * several where the provider takes that. An immediate is a counter and, above
 * it, how many more puts than one the write stands for. Over TCP a write of
 * 14 KB takes more than twice the time of its bytes, one of 56 KB little more
 * than that.
 */
enum {
	OFI_MORE_SHIFT = 24, /* counters beyond are never merged */
	OFI_MORE_MOST = 255,
	OFI_MERGED_BYTES = 262144,
};

/* An immediate that is no put: no segment has so many counters. */
#define OFI_COUNTS_NOTHING UINT32_MAX

enum ofi_op_kind {
	OFI_OP_FREE,
	OFI_OP_BOTH,      /* bytes and immediate of a put */
	OFI_OP_BYTES,     /* its bytes */
	OFI_OP_IMMEDIATE, /* its immediate */
	OFI_OP_AGAIN,     /* its bytes, until they have arrived */
	OFI_OP_GREETING,  /* nobody misses it */
	OFI_OP_QUESTION,  /* has all arrived? (ofi_close.c) */
	OFI_OP_LAST,      /* a number behind the last one (ofi_last.c) */
};

/* What the provider has got and not completed. */
struct ofi_op {
	struct fi_context2
		context; /* first: of the provider, it is told by it */
	int32_t peer;
	enum ofi_op_kind kind;
	struct ofi_op *next; /* free ones */
};

/* The first entry of a peer, where bytes go before their immediate. */
enum ofi_first {
	OFI_FRESH,
	OFI_UNSURE, /* the bytes were handed over, and may be lost */
	OFI_ASKED,  /* they were once more, and the answer is awaited */
	OFI_SURE,   /* they have arrived */
};

struct ofi_peer {
	fi_addr_t address;
	uint64_t key[OFI_PARTS];
	uint64_t base[OFI_PARTS];  /* 0 where offsets are what it wants */
	struct ofi_entry *ring;    /* [queue_mask + 1] */
	uint32_t head, tail;       /* count on */
	uint64_t stuck_ns;         /* since when it takes nothing, 0: it does */
	uint64_t failed_ns;        /* since when puts to it are lost, 0: no */
	uint64_t gap_ns;           /* since when it is not counted, 0: it is */
	uint64_t n_sent;           /* immediates that the provider has taken */
	uint64_t n_seen;           /* n_sent at the last look (ofi_last.c) */
	uint64_t n_asked;          /* so many are known to be missed, if lost */
	bool asking;               /* an OFI_OP_LAST is under way */
	uint64_t n_arrived;        /* of its immediates */
	bool written;              /* since its endpoint was there */
	enum ofi_first first;      /* see ofi_write.c */
	char text[OFI_TEXT_BYTES]; /* why it failed */
};

struct ofi_mem {
	struct ferry_net_mem net;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_mr *mr[OFI_PARTS];
	struct ferry_gpu_memory *gpu_memory; /* data; NULL: it is the host's */
	int cq_fd;                           /* -1: the provider has none */
	int bell_fd;                         /* eventfd: the thread has work */
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock; /* of what follows, and of calls to libfabric */
	pthread_cond_t room;  /* for puts */
	bool stop;
	bool asleep; /* the thread, or about to be */
	struct ofi_peer *peers;
	struct ofi_entry *rings;
	uint32_t queue_mask;
	size_t merged_bytes; /* most of a write of several puts */
	uint32_t max_pieces;
	uint32_t number_bits; /* of an immediate (ofi_arrival.c) */
	int32_t turn;         /* peer that may post first */
	uint32_t n_queued;    /* of all peers */
	uint32_t n_flying;    /* ops that the provider has */
	uint32_t n_asking;    /* OFI_OP_LAST among them, which nobody awaits */
	uint64_t ask_ns;      /* when ofi_last.c looks again */
	struct ofi_op *ops;   /* [n_ops] all */
	size_t n_ops;
	struct ofi_op *free_ops;
	char broken[OFI_TEXT_BYTES]; /* why it hears nothing; "": it does */
};

static inline struct ofi_mem *ofi_mem(struct ferry_mem *mem)
{
	return (struct ofi_mem *)mem;
}

static inline struct ofi_fabric *ofi_fabric(const struct ofi_mem *m)
{
	return (struct ofi_fabric *)m->net.wrap.mem.fabric;
}

static inline struct ferry_world *ofi_world(const struct ofi_mem *m)
{
	return m->net.wrap.mem.fabric->world;
}

/* What its objects are opened with. */
static inline struct fi_info *ofi_info(const struct ofi_mem *m)
{
	const struct ferry_ofi_choice *choice = &ofi_fabric(m)->choice;

	return m->gpu_memory ? choice->hmem : choice->info;
}

static inline uint32_t ofi_counter(uint32_t immediate)
{
	return immediate & ((1u << OFI_MORE_SHIFT) - 1);
}

static inline uint32_t ofi_more(uint32_t immediate)
{
	return immediate >> OFI_MORE_SHIFT;
}

/* Has it work that somebody may wait for? */
static inline bool ofi_is_busy(const struct ofi_mem *m)
{
	return m->n_queued || m->n_flying > m->n_asking;
}

/* Makes a write stand for so many puts more; they have room. */
static inline void ofi_add_more(uint32_t *immediate, uint32_t n)
{
	*immediate += n << OFI_MORE_SHIFT;
}

/* Is there room for numbers of puts above the counters? */
static inline bool ofi_may_merge(const struct ofi_mem *m)
{
	return m->net.wrap.mem.n_signals < 1u << OFI_MORE_SHIFT;
}

/* ofi_queue.c; the lock is held in all of it. */
static inline uint32_t ofi_queue_length(const struct ofi_peer *p)
{
	return p->tail - p->head;
}
/* False: no room. */
bool ferry_ofi_queue_add(struct ofi_mem *m, int32_t peer,
                         const struct ofi_entry *entry);
void ferry_ofi_queue_drop(struct ofi_mem *m, int32_t peer);
/* NULL: the provider has as many as it takes. */
struct ofi_op *ferry_ofi_op_take(struct ofi_mem *m, int32_t peer,
                                 enum ofi_op_kind kind);
void ferry_ofi_op_give(struct ofi_mem *m, struct ofi_op *op);

/* ofi_arrival.c; the lock is held. */

/* Bits of the number that an immediate has, in a world of so many ranks. */
uint32_t ferry_ofi_number_bits(int32_t n_ranks);
/* What the next immediate to a peer is to carry. */
uint64_t ferry_ofi_immediate(const struct ofi_mem *m, int32_t peer,
                             uint32_t immediate);
/* An immediate has come. */
void ferry_ofi_arrived(struct ofi_mem *m, uint64_t data);

/* ofi_write.c; the lock is held. */

/* The first put of a peer: 0 when all of it was taken, -FI_EAGAIN, an error. */
ssize_t ferry_ofi_hand_over(struct ofi_mem *m, int32_t peer,
                            const struct ofi_entry *e);
/* A write of no bytes that counts nothing: 0, -FI_EAGAIN, an error. */
ssize_t ferry_ofi_write_nothing(struct ofi_mem *m, int32_t peer,
                                enum ofi_op_kind kind);

/* ofi_progress.c; the lock is held. */

/* Hands over what can be, reads completions; true when anything moved. */
bool ferry_ofi_drive(struct ofi_mem *m);
/* Drives until the provider holds nothing back. */
void ferry_ofi_drain(struct ofi_mem *m);
/*
 * May the thread sleep on the provider's descriptor? Not while the next look
 * may bring something out, nor where there is none.
 */
bool ferry_ofi_may_sleep(struct ofi_mem *m);
/* The peer is not reached any more; what is put to it is lost. */
void ferry_ofi_peer_failed(struct ofi_mem *m, int32_t peer, const char *why);
static inline bool ofi_has_failed(const struct ofi_peer *p)
{
	return load_relaxed_u64(&p->failed_ns) != 0;
}
/* Since when it is not reached, or not heard, any more; 0: it is. */
static inline uint64_t ofi_lost_ns(const struct ofi_peer *p)
{
	const uint64_t failed_ns = load_acquire_u64(&p->failed_ns);

	return failed_ns ? failed_ns : load_acquire_u64(&p->gap_ns);
}
/* Has the peer closed, or told why it goes? */
bool ferry_ofi_peer_has_told(const struct ofi_mem *m, int32_t peer);
/*
 * Why the peer is lost (ofi_lost_ns) and has not told; NULL: it is not, or has.
 * Reads first what has come: a connection may be seen to end before the
 * last word that came over it.
 */
const char *ferry_ofi_why_lost(struct ofi_mem *m, int32_t peer);
/*
 * After a caller's drive: what is left to do is left to the thread. It sleeps
 * on a descriptor, and may do so only while fi_trywait says so: a provider
 * keeps bytes that it has read from a socket, which no descriptor tells of.
 */
void ferry_ofi_leave(struct ofi_mem *m);
/* Words on a peer that takes nothing; without the lock. */
void ferry_ofi_say_stuck(const struct ofi_mem *m, int32_t peer,
                         char why[FERRY_REASON_BYTES]);
/* Wakes the thread, if it sleeps. */
void ferry_ofi_ring(struct ofi_mem *m);

/* ofi_last.c; the lock is held. */

/* Asks peers that nothing has been sent to for a while, now and then. */
void ferry_ofi_ask_last(struct ofi_mem *m);

/* ofi_close.c; the lock is held: has the peer gone, whoever says so? */
bool ferry_ofi_peer_is_gone(struct ofi_mem *m, int32_t peer);

#endif
