/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of a segment: control words, verdicts, counters, data; bounded waits
 * and the way a failure spreads. See ferry/fabric.h for what it is.
 */
#ifndef FERRY_SEGMENT_H
#define FERRY_SEGMENT_H

#include "fabric_ops.h"
#include "world.h"

/*
 * First line of every rank's memory. A waiter sets `waiters`, looks again at
 * what it waits for, and sleeps on `doorbell`; whoever raises a counter then
 * looks at `waiters` and rings (all seq_cst, or one could miss the other).
 */
struct ferry_segment_ctl {
	uint32_t doorbell; /* futex word, counts rings */
	uint32_t waiters;  /* threads that are about to sleep or asleep */
	uint32_t closed;   /* 1: the owner has closed the segment */
	uint32_t pad[13];
};

/*
 * What a rank knows of a failure, 64 bytes. Entry r of every rank's verdicts
 * is written by rank r, at most once, and published by counter
 * FERRY_SIGNAL_VERDICT + r. All ranks choose the same one (verdict.c), so that
 * all report the same root.
 */
struct ferry_verdict {
	int32_t status;   /* enum ferry_status, not FERRY_OK */
	int32_t root;     /* rank that caused it */
	int32_t reporter; /* rank that noticed it */
	int32_t phase;    /* enum ferry_phase */
	int32_t slot;     /* -1: none */
	int32_t token;    /* of a bad id, -1: none */
	int32_t choice;
	int32_t pad;
	uint64_t epoch; /* dispatches of the slot before this one */
	int64_t value;  /* bad id, number of tokens, rows */
	uint64_t reserved[2];
};

/*
 * Counters below the caller's: one that is raised after any verdict, so that
 * a wait looks at one word only, then one for each rank's verdict. The
 * caller's signal s is counter FERRY_SIGNAL_VERDICT + n_ranks + s.
 */
enum { FERRY_SIGNAL_ANY_VERDICT = 0, FERRY_SIGNAL_VERDICT = 1 };

struct ferry_segment {
	struct ferry_world *world;
	struct ferry_mem *mem;
	struct ferry_segment_ctl *ctl;  /* own */
	struct ferry_verdict *verdicts; /* own, [n_ranks] */
	uint64_t *counters;             /* own, [n_signals] */
	uint32_t n_signals;
	size_t verdicts_offset;
	size_t counters_offset;
	size_t data_offset;
	size_t data_bytes;
	uint64_t spin_ns;
	uint32_t broken; /* 1: verdict is decided */
	struct ferry_verdict verdict;
	struct ferry_error error;   /* verdict as the public record */
	struct ferry_segment *next; /* in world->segments */
};

/* Where a wait stands, for its report. */
struct ferry_wait_at {
	enum ferry_phase phase;
	int32_t slot;
	uint64_t epoch;
};

/* One counter to wait for, raised by `peer` (-1: by anybody). */
struct ferry_wait_item {
	uint32_t signal;
	int32_t peer;
	uint64_t value;
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
 * Is it broken, aborted or poisoned by a peer? FERRY_OK, or the agreed
 * status. Cheap: two loads of own memory. Called at the entry of every
 * operation.
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

/* Wakes the waiters of a memory after one of its counters was raised. */
void ferry_segment_ring(struct ferry_segment_ctl *ctl);

#endif
