/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of a segment: control words, verdicts, counters, data; bounded waits
 * and the way a failure spreads. See ferry/fabric.h for what it is.
 */
#ifndef FERRY_SEGMENT_H
#define FERRY_SEGMENT_H

#include <string.h>

#include "../core/order.h"
#include "fabric_ops.h"
#include "world.h"

/*
 * First line of every rank's memory. The hand-shake of sleeping and waking,
 * all seq_cst:
 *
 *	waiter                          whoever raises a counter
 *	W1 d = load doorbell            R1 add to the counter
 *	W2 store asleep = 1             R2 load asleep; 0: done
 *	W3 load what is waited for      R3 swap asleep with 0; 0: done
 *	W4 futex_wait(doorbell, d)      R4 add 1 to doorbell, futex_wake(all)
 *
 * If R2 comes before W2 in the total order, then R1 does so before W3, and the
 * waiter sees the counter. If not, R2 sees 1, unless somebody else swapped
 * after W2; his R4 then comes after W1, so that W4 does not sleep or is woken,
 * and the waiter starts again at W1. Hence only the first raise after a waiter
 * went to sleep enters the kernel, and none does while nobody sleeps.
 * ThreadSanitizer needs no fence here, and neither does the proof.
 */
struct ferry_segment_ctl {
	uint32_t doorbell; /* futex word, counts rings */
	uint32_t asleep;   /* 1: a thread is about to sleep, or asleep */
	uint32_t shared;   /* 1: ranks are processes: no private futex */
	uint32_t elected;  /* of rank 0: 1 + whose verdict all take; 0: none */
	uint32_t pad[12];
};

enum {
	/* Not the reporter's own finding, but his view when others gave up. */
	FERRY_VERDICT_ASKED = 1 << 0,
	/* The root closed its segment in good order. */
	FERRY_VERDICT_CLOSED = 1 << 1,
	/* The root may live: its connection with the reporter broke. */
	FERRY_VERDICT_CUT = 1 << 2,
};

/*
 * What a rank knows of a failure, 256 bytes. Entry r of every rank's verdicts
 * is written by rank r, at most once, and published by counter
 * FERRY_SIGNAL_VERDICT + r. All ranks choose the same one (verdict.c), so that
 * all report the same root. Status FERRY_OK is a good-bye: the rank has closed
 * its segment and had seen no failure. Entry n_ranks + r is what rank r passes
 * on of another that may not reach all.
 */
struct ferry_verdict {
	int32_t status;   /* enum ferry_status */
	int32_t root;     /* rank that caused it, -1: nobody is blamed */
	int32_t reporter; /* rank that noticed it */
	int32_t phase;    /* enum ferry_phase */
	int32_t slot;     /* -1: none */
	int32_t token;    /* of a bad id, -1: none */
	int32_t choice;
	uint32_t flags; /* FERRY_VERDICT_... */
	uint64_t epoch; /* dispatches of the slot before this one */
	int64_t value;  /* bad id, number of tokens, rows */
	char text[208]; /* words of the reporter, "": made from the above */
};

_Static_assert(sizeof(struct ferry_verdict) == 256, "whole cache lines");

/* One of no phase, slot or token. */
static inline struct ferry_verdict ferry_verdict_of(enum ferry_status status,
                                                    int32_t root)
{
	return (struct ferry_verdict){
		.status = status,
		.root = root,
		.slot = -1,
		.token = -1,
	};
}

/*
 * Counters below the caller's, n_ranks of each kind but the first:
 * ANY_VERDICT is raised after any verdict, so that a wait looks at one word
 * only; VERDICT + r says that rank r's verdict is there; VERDICT + n_ranks + r
 * that some rank has decided for it; VERDICT + 2 n_ranks + r that rank r has
 * passed on the one that it took. The caller's signal s is counter first_signal
 * + s.
 */
enum { FERRY_SIGNAL_ANY_VERDICT = 0, FERRY_SIGNAL_VERDICT = 1 };

/* What a rank has told its peers, or is about to. */
enum { FERRY_SEGMENT_TOLD_FAILURE = 1, FERRY_SEGMENT_TOLD_GOODBYE = 2 };

struct ferry_segment_peer {
	unsigned char *control; /* here, NULL: put only */
	unsigned char *data;    /* for the host, or for the own GPU; NULL */
	uint32_t caps;
};

struct ferry_segment {
	struct ferry_world *world;
	struct ferry_fabric *fabric; /* the world's, or one behind it */
	struct ferry_mem *mem;
	struct ferry_segment_peer *peers; /* [n_ranks] */
	struct ferry_segment_ctl *ctl;    /* own */
	struct ferry_verdict *verdicts;   /* own, [2 * n_ranks] */
	uint64_t *counters;               /* own; [0] is ANY_VERDICT */
	uint64_t *signals;                /* own; [0] is the caller's first */
	uint32_t n_signals;               /* of the caller */
	uint32_t n_fan;                   /* the last so many of them */
	uint32_t first_signal;
	size_t verdicts_offset;
	size_t counters_offset;
	size_t notes_offset;
	size_t notes_bytes;
	size_t data_offset;
	size_t data_bytes;
	uint64_t spin_ns;  /* before a wait sleeps */
	uint64_t yield_ns; /* before it gives way between two looks */
	bool direct;       /* stores reach all peers and nothing wraps them */
	bool shared;       /* all ranks reach each other's control */
	bool polled;       /* mem->ops->progress does something */
	uint32_t broken;   /* 1: verdict is decided */
	uint32_t told;     /* FERRY_SEGMENT_TOLD_..., 0: nothing yet */
	pthread_mutex_t lock; /* of what follows */
	uint64_t poisoned_ns; /* when a verdict was first seen, 0: never */
	uint64_t ready_ns;    /* when this rank could first choose, 0: never */
	bool *here;           /* [n_ranks] whose verdict is here */
	struct ferry_verdict verdict;
	struct ferry_error error; /* verdict as the public record */
	/*
	 * What the segment's user has found that fails it, for instance on a
	 * GPU: asked for by every check, and before this rank says that it
	 * knows of nothing. True when there is something. Set under
	 * world->lock; NULL: nobody to ask.
	 */
	bool (*witness)(void *arg, struct ferry_verdict *verdict, char *text,
	                size_t bytes);
	void *witness_arg;
	struct ferry_segment *next; /* in world->segments */
};

/*
 * As ferry_segment_open. The last n_fan of the signals are raised at every rank
 * of a host when one of its ranks is put to from another host; for fabrics that
 * have stores within a host and puts between them, otherwise like any signal.
 */
enum ferry_status ferry_segment_open_fan(struct ferry_world *world,
                                         size_t bytes, uint32_t n_signals,
                                         uint32_t n_fan,
                                         struct ferry_segment **segment);

/*
 * ferry_segment_open on another fabric than the world's: the network behind
 * one of GPUs (ferry_fabric_network). Arguments are not NULL.
 */
enum ferry_status ferry_segment_open_on(struct ferry_world *world,
                                        struct ferry_fabric *fabric,
                                        size_t bytes, uint32_t n_signals,
                                        struct ferry_segment **segment);

/*
 * As ferry_segment_open, with notes: memory of the host at each rank in worlds
 * of GPUs, too, where data is none. Notes go to ranks of the own host only.
 */
enum ferry_status ferry_segment_open_notes(struct ferry_world *world,
                                           size_t bytes, uint32_t n_signals,
                                           size_t notes_bytes,
                                           struct ferry_segment **segment);

/* A note to write. */
struct ferry_note {
	int32_t peer;
	size_t offset;
	const void *source;
	size_t bytes;
	uint32_t signal;
	bool behind; /* the signal is raised when all own puts before have
	              * arrived; false: at once */
};

/*
 * Stores into the notes of a peer, at once, and then raises its signal.
 * Arguments are in range. Errors: as ferry_segment_signal.
 */
enum ferry_status ferry_segment_note(struct ferry_segment *segment,
                                     const struct ferry_note *note);

/*
 * Puts bytes from any memory of the own GPU, by fabric p2p; arguments are in
 * range. Errors: as ferry_segment_put.
 */
enum ferry_status ferry_segment_put_from(struct ferry_segment *segment,
                                         int32_t peer, size_t offset,
                                         const void *source, size_t bytes,
                                         uint32_t signal);

/* The own notes. */
static inline unsigned char *
ferry_segment_notes(const struct ferry_segment *segment)
{
	return (unsigned char *)segment->mem->control + segment->notes_offset;
}

/* Has the fabric read all sources? Does not block; a failure is no answer. */
static inline bool ferry_segment_all_read(struct ferry_segment *segment)
{
	return segment->mem->ops->flushed(segment->mem);
}

/* Where a wait stands, for its report. */
struct ferry_wait_at {
	enum ferry_phase phase;
	int32_t slot;
	uint64_t epoch;
};

/* One of the caller's signals to wait for, raised by `peer` (-1: anybody). */
struct ferry_wait_item {
	uint32_t signal;
	int32_t peer;
	uint64_t value;
	bool relayed; /* a good-bye of the peer does not mean that it will not
	               * come: somebody else raises it. A death does */
};

/*
 * Waits until every own counter in items has its value; acquires. Spins for
 * spin_ns, then sleeps on the doorbell; polls verdicts, aborts and, for the
 * peers still missing, deaths and closed segments. On a failure the segment
 * breaks (ferry_segment_break), and the agreed status is returned, within
 * timeout_ms. `where` may be NULL.
 */
enum ferry_status ferry_segment_wait_all(struct ferry_segment *segment,
                                         const struct ferry_wait_item *items,
                                         int32_t n_items,
                                         const struct ferry_wait_at *where);

/*
 * Is it broken, aborted or poisoned by a peer? FERRY_OK, the agreed status
 * when this call is the one that learns it, BROKEN ever after. Two loads of
 * own memory. Called at the entry of every operation.
 */
enum ferry_status ferry_segment_check(struct ferry_segment *segment);

/*
 * Gives up: tells every peer `mine`, waits a short grace for theirs, lets the
 * rule of verdict.c choose one, keeps it in segment->error and sets broken.
 * Returns the chosen status and sets ferry_last_error to its text. `text` is
 * the message to keep when the own verdict is the chosen one, NULL: made from
 * the verdict.
 */
enum ferry_status ferry_segment_break(struct ferry_segment *segment,
                                      const struct ferry_verdict *mine,
                                      const char *text);

/* The slow half of a ring: somebody was asleep. */
void ferry_segment_wake(struct ferry_segment_ctl *ctl);

/*
 * Wakes the waiters of a memory. The counter was raised before, by a seq_cst
 * addition.
 */
static inline void ferry_segment_ring(struct ferry_segment_ctl *ctl)
{
	if (load_seq_u32(&ctl->asleep))
		ferry_segment_wake(ctl);
}

/* Stores into a memory that is reached by stores; base is its start. */
static inline void ferry_mem_store(unsigned char *base, size_t offset,
                                   const void *source, size_t bytes)
{
	if (bytes)
		memcpy(base + offset, source, bytes);
}

/* Adds 1 to a counter of such a memory, after what was stored, and rings. */
static inline void ferry_mem_raise(unsigned char *base, size_t counters_offset,
                                   uint32_t counter)
{
	uint64_t *counters = (uint64_t *)(void *)(base + counters_offset);

	add_seq_u64(&counters[counter], 1);
	ferry_segment_ring((struct ferry_segment_ctl *)(void *)base);
}

#endif
