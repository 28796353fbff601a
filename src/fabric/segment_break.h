/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of breaking a segment, for the rest of this room. */
#ifndef FERRY_SEGMENT_BREAK_H
#define FERRY_SEGMENT_BREAK_H

#include "segment.h"

/* Time that ranks give each other to tell what they know. */
uint64_t ferry_segment_grace_ns(const struct ferry_segment *segment);

/* Has a verdict of a failure arrived, or been sent? */
static inline bool ferry_segment_poisoned(const struct ferry_segment *segment)
{
	return load_seq_u64(&segment->counters[FERRY_SIGNAL_ANY_VERDICT]) != 0;
}

/* Is the verdict, or the good-bye, of rank r here? */
static inline bool
ferry_segment_has_verdict(const struct ferry_segment *segment, int32_t r)
{
	return load_seq_u64(&segment->counters[FERRY_SIGNAL_VERDICT + r]) != 0;
}

/*
 * Tells every peer `mine`, unless this rank has told something before. Any
 * thread; does not wait for peers.
 */
void ferry_segment_tell(struct ferry_segment *segment,
                        const struct ferry_verdict *mine, const char *text);

/*
 * Tells for whom this rank has long waited, `mine`, in the other segments of
 * its world in which somebody asks: a rank that does not come there because it
 * waits here is not the one that all wait for.
 */
void ferry_segment_answer_others(const struct ferry_segment *segment,
                                 const struct ferry_verdict *mine);

/* How a peer has gone (segment_gone.c). */
struct ferry_gone {
	uint32_t flags; /* FERRY_VERDICT_CLOSED, _CUT; 0: it died */
	char why[FERRY_REASON_BYTES]; /* of _CUT, and of the own fabric */
};

/* Has the peer gone, so that nothing more will come from it? */
bool ferry_segment_has_gone(struct ferry_segment *segment, int32_t peer,
                            struct ferry_gone *gone);

/* Is everything lost that arrives here? Fills in why. */
bool ferry_segment_is_deaf(struct ferry_segment *segment,
                           struct ferry_gone *gone);

/*
 * ferry_segment_has_gone of a peer that could not be put to (PEER;
 * ferry_last_error says why): waits, a second at most, for the news of what
 * became of it. False: it has told why it goes, and nobody misses what was put.
 */
bool ferry_segment_await_gone(struct ferry_segment *segment, int32_t peer,
                              struct ferry_gone *gone);

/* ferry_segment_tell and ferry_segment_break of such a peer, mine->root. */
void ferry_segment_tell_gone(struct ferry_segment *segment,
                             struct ferry_verdict *mine,
                             const struct ferry_gone *gone);
enum ferry_status ferry_segment_break_gone(struct ferry_segment *segment,
                                           struct ferry_verdict *mine,
                                           const struct ferry_gone *gone);

/* The part of ferry_world_abort for one segment. */
void ferry_segment_abort(struct ferry_segment *segment);

/*
 * Decides, if there is something to decide and all who can have told, or the
 * grace is over. True when the segment is broken. Does not block.
 */
bool ferry_segment_decide(struct ferry_segment *segment);

/* Remembers a segment's failure as that of its world; under world->lock. */
void ferry_segment_blame_world(struct ferry_segment *segment);

/* Returns BROKEN with the text of the first record. */
enum ferry_status ferry_segment_broken(struct ferry_segment *segment);

#endif
