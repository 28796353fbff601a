/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a failure spreads. Every rank that learns of one tells all others what
 * it knows, waits a short grace for theirs, and takes the one that verdict.c
 * chooses. Whoever has decided says so, and who decides later follows him: so
 * a verdict that comes late changes nothing, and all report the same root.
 * Where all reach each other's control, one word of rank 0 is the election, and
 * no two can differ. Elsewhere they take turns: one rank decides, and another
 * only when it has waited in vain for that one's decision.
 */
#include "segment_break.h"

#include <stdio.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "futex.h"
#include "verdict.h"

enum {
	GRACE_MOST_MS = 200,
	LOOK_NS = 2000000, /* how often deaths are asked for meanwhile */
	MOST_TURNS = 4,
	ROOTS_GRACES = 3, /* until who says nothing is blamed for it */
};

uint64_t ferry_segment_grace_ns(const struct ferry_segment *segment)
{
	const int64_t quarter = segment->world->timeout_ms / 4;

	return (uint64_t)min_i64(quarter, GRACE_MOST_MS) * 1000000u;
}

static bool dead(const struct ferry_segment *segment, int32_t r)
{
	struct ferry_fabric *fabric = segment->mem->fabric;

	return fabric->ops->dead(fabric, r);
}

/* A put to every other rank; one that fails does so towards a dead peer. */
static void put_all(struct ferry_segment *segment, size_t offset,
                    const void *source, size_t bytes, uint32_t counter)
{
	struct ferry_mem *mem = segment->mem;

	for (int32_t r = 0; r < segment->world->n_ranks; r++)
		if (r != segment->world->rank)
			(void)mem->ops->put(mem, r, offset, source, bytes,
			                    counter);
	ferry_mem_raise(mem->control, mem->counters_offset, counter);
}

/* Puts the own verdict into every rank's memory. */
static void publish(struct ferry_segment *segment)
{
	const int32_t rank = segment->world->rank;
	const struct ferry_verdict *own = &segment->verdicts[rank];
	const size_t offset =
		segment->verdicts_offset + (size_t)rank * sizeof(*own);

	put_all(segment, offset, own, sizeof(*own),
	        FERRY_SIGNAL_VERDICT + (uint32_t)rank);
	if (own->status != FERRY_OK)
		put_all(segment, 0, NULL, 0, FERRY_SIGNAL_ANY_VERDICT);
	(void)segment->mem->ops->kick(segment->mem);
}

void ferry_segment_tell(struct ferry_segment *segment,
                        const struct ferry_verdict *mine, const char *text)
{
	const int32_t rank = segment->world->rank;
	const uint32_t what = mine->status == FERRY_OK
	                              ? FERRY_SEGMENT_TOLD_GOODBYE
	                              : FERRY_SEGMENT_TOLD_FAILURE;

	if (!cas_seq_u32(&segment->told, 0, what) || dead(segment, rank))
		return;
	pthread_mutex_lock(&segment->lock);
	segment->verdicts[rank] = *mine;
	segment->verdicts[rank].reporter = rank;
	snprintf(segment->verdicts[rank].text,
	         sizeof(segment->verdicts[rank].text), "%s", text ? text : "");
	pthread_mutex_unlock(&segment->lock);
	publish(segment);
}

void ferry_segment_abort(struct ferry_segment *segment)
{
	const struct ferry_verdict mine =
		ferry_verdict_of(FERRY_ABORTED, segment->world->rank);

	ferry_segment_tell(segment, &mine, NULL);
}

/* What a rank says that knows of nothing itself. */
static const struct ferry_verdict nothing = {
	.status = FERRY_TIMEOUT,
	.root = -1,
	.slot = -1,
	.token = -1,
	.flags = FERRY_VERDICT_ASKED,
};

/*
 * Has a failure been told, here or elsewhere? What is found here is told.
 * Another thread of this rank may be at it: the counters come after.
 */
static bool has_failed(struct ferry_segment *segment)
{
	const uint32_t told = load_seq_u32(&segment->told);
	char text[sizeof(segment->error.text)];
	struct ferry_verdict mine;

	if (told == FERRY_SEGMENT_TOLD_FAILURE)
		return true;
	if (!segment->witness || told ||
	    !segment->witness(segment->witness_arg, &mine, text, sizeof(text)))
		return ferry_segment_poisoned(segment);
	ferry_segment_tell(segment, &mine, text[0] ? text : NULL);
	return true;
}

void ferry_segment_answer_others(const struct ferry_segment *segment,
                                 const struct ferry_verdict *mine)
{
	struct ferry_world *world = segment->world;
	struct ferry_verdict answer = *mine;

	if (mine->status != FERRY_TIMEOUT || mine->root < 0 || mine->flags)
		return;
	answer.flags = FERRY_VERDICT_ASKED;
	pthread_mutex_lock(&world->lock);
	for (struct ferry_segment *s = world->segments; s; s = s->next)
		if (s != segment && !load_seq_u32(&s->told) &&
		    ferry_segment_poisoned(s))
			ferry_segment_tell(s, &answer, NULL);
	pthread_mutex_unlock(&world->lock);
}

/* The entry in which rank r's verdict lies here, -1: in none. */
static int32_t entry_of(const struct ferry_segment *segment, int32_t r)
{
	const int32_t n = segment->world->n_ranks;
	const uint64_t *passed =
		&segment->counters[FERRY_SIGNAL_VERDICT + 2 * n];

	if (segment->here[r])
		return r;
	for (int32_t p = 0; p < n; p++)
		if (p != segment->world->rank && load_seq_u64(&passed[p]) &&
		    segment->verdicts[n + p].reporter == r)
			return n + p;
	return -1;
}

/* The entry that was decided for elsewhere, -1: nobody has decided. */
static int32_t decided_elsewhere(const struct ferry_segment *segment)
{
	const int32_t n = segment->world->n_ranks;
	const uint64_t *decided = &segment->counters[FERRY_SIGNAL_VERDICT + n];

	for (int32_t r = 0; r < n; r++) {
		const int32_t entry =
			load_seq_u64(&decided[r]) ? entry_of(segment, r) : -1;

		if (entry >= 0)
			return entry;
	}
	return -1;
}

/*
 * Will rank r never tell anything? Who is only late may still tell: that it
 * waits itself, and for whom, or that it has found the failure.
 */
static bool gone(const struct ferry_segment *segment, int32_t r)
{
	for (int32_t i = 0; i < segment->world->n_ranks; i++) {
		const struct ferry_verdict *v = &segment->verdicts[i];

		if (segment->here[i] && v->root == r &&
		    v->status == FERRY_PEER && !(v->flags & FERRY_VERDICT_CUT))
			return true;
	}
	return dead(segment, r);
}

/* Has everybody told who can? */
static bool complete(const struct ferry_segment *segment)
{
	for (int32_t r = 0; r < segment->world->n_ranks; r++)
		if (!segment->here[r] && !gone(segment, r))
			return false;
	return true;
}

/*
 * Smaller decides sooner: who found something waits, and will decide. The two
 * ends of a connection that broke do not hear each other: others do.
 */
static int turn_of(const struct ferry_verdict *v)
{
	if (v->flags & FERRY_VERDICT_CUT)
		return 3;
	if (v->status == FERRY_ABORTED) /* told by any thread */
		return 2;
	return v->flags & FERRY_VERDICT_ASKED ? 1 : 0;
}

/* Ranks whose turn to decide comes before that of this one. */
static int32_t turns_before(const struct ferry_segment *segment)
{
	const int32_t rank = segment->world->rank;
	const int own = turn_of(&segment->verdicts[rank]);
	int32_t n = 0;

	for (int32_t r = 0; r < segment->world->n_ranks; r++) {
		const struct ferry_verdict *v = &segment->verdicts[r];

		if (!segment->here[r] || v->status == FERRY_OK ||
		    gone(segment, r))
			continue;
		n += turn_of(v) < own || (turn_of(v) == own && r < rank);
	}
	return n < MOST_TURNS ? n : MOST_TURNS;
}

/* Is it for this rank to decide, which could? A turn lasts a grace. */
static bool is_own_turn(struct ferry_segment *segment, uint64_t now)
{
	if (!segment->ready_ns)
		segment->ready_ns = now;
	return now - segment->ready_ns >=
	       (uint64_t)turns_before(segment) *
	               ferry_segment_grace_ns(segment);
}

/*
 * Would a rank be blamed for a timeout that may only be slow to say for whom it
 * waits itself?
 */
static bool wants_word_of_root(const struct ferry_segment *segment,
                               int32_t chosen)
{
	if (chosen < 0)
		return false;
	const struct ferry_verdict *v = &segment->verdicts[chosen];

	/* Whoever told that something is wrong knows more, and will decide. */
	if (v->flags & FERRY_VERDICT_ASKED && v->root < 0)
		return true;
	return v->status == FERRY_TIMEOUT && v->root >= 0 &&
	       !segment->here[v->root] && !gone(segment, v->root);
}

/* This rank's own choice, -1: wait for more verdicts, or for another's. */
static int32_t choose_here(struct ferry_segment *segment)
{
	const uint64_t now = ferry_now_ns();
	const uint64_t grace = ferry_segment_grace_ns(segment);
	int32_t chosen;

	if (!segment->poisoned_ns)
		segment->poisoned_ns = now;
	const uint64_t waited = now - segment->poisoned_ns;

	if (waited < grace && !complete(segment))
		return -1;
	chosen = ferry_verdict_choose(segment->verdicts, segment->here,
	                              segment->world->n_ranks);
	if (waited < ROOTS_GRACES * grace &&
	    wants_word_of_root(segment, chosen))
		return -1;
	if (!segment->shared && !is_own_turn(segment, now))
		return -1;
	return chosen;
}

/* The first choice of all ranks, `own` when that is this one; -1: none yet. */
static int32_t elect(struct ferry_segment *segment, int32_t own)
{
	struct ferry_segment_ctl *ctl =
		(struct ferry_segment_ctl *)(void *)segment->peers[0].control;

	if (own >= 0)
		cas_seq_u32(&ctl->elected, 0, (uint32_t)own + 1);
	return (int32_t)load_seq_u32(&ctl->elected) - 1;
}

/* The entry of the verdict to take, -1: wait for more. */
static int32_t choose(struct ferry_segment *segment)
{
	for (int32_t r = 0; r < segment->world->n_ranks; r++)
		segment->here[r] = ferry_segment_has_verdict(segment, r);
	const int32_t r = segment->shared ? elect(segment, -1)
	                                  : decided_elsewhere(segment);

	if (r >= 0)
		return r;
	const int32_t own = choose_here(segment);

	return segment->shared ? elect(segment, own) : own;
}

/*
 * The verdict of an entry that somebody has chosen. Where memory is shared it
 * may not have come here yet, but it lies in its reporter's memory since before
 * anybody could choose it.
 */
static const struct ferry_verdict *
chosen_verdict(const struct ferry_segment *segment, int32_t entry)
{
	const unsigned char *control =
		segment->shared ? segment->peers[entry].control
				: (const unsigned char *)segment->ctl;
	const struct ferry_verdict *verdicts =
		(const void *)(control + segment->verdicts_offset);

	return &verdicts[entry];
}

/* Keeps a verdict as the segment's. */
static void keep(struct ferry_segment *segment,
                 const struct ferry_verdict *verdict)
{
	const int32_t rank = segment->world->rank;
	struct ferry_error *error = &segment->error;

	segment->verdict = *verdict;
	ferry_verdict_record(verdict, error);
	error->rank = rank;
	if (verdict->text[0])
		snprintf(error->text, sizeof(error->text), "%.*s",
		         (int)sizeof(verdict->text), verdict->text);
	else
		ferry_verdict_text(verdict, NULL, error->text,
		                   sizeof(error->text));
	store_release_u32(&segment->broken, 1);
}

/* The end of a rank that fault injection has killed: it tells nobody. */
static void keep_own_death(struct ferry_segment *segment)
{
	const int32_t rank = segment->world->rank;
	struct ferry_verdict verdict = ferry_verdict_of(FERRY_PEER, rank);

	verdict.reporter = rank;
	keep(segment, &verdict);
}

/*
 * Says whose verdict was taken, and which that is where its reporter may not
 * reach all.
 */
static void tell_decision(struct ferry_segment *segment, int32_t chosen)
{
	const struct ferry_verdict *verdict = &segment->verdicts[chosen];
	const int32_t reporter = segment->verdict.reporter;
	const int32_t rank = segment->world->rank;
	const int32_t n = segment->world->n_ranks;

	if (!segment->shared && reporter != rank &&
	    segment->verdict.flags & FERRY_VERDICT_CUT)
		put_all(segment,
		        segment->verdicts_offset +
		                (size_t)(n + rank) * sizeof(*verdict),
		        verdict, sizeof(*verdict),
		        (uint32_t)(FERRY_SIGNAL_VERDICT + 2 * n + rank));
	put_all(segment, 0, NULL, 0,
	        (uint32_t)(FERRY_SIGNAL_VERDICT + n + reporter));
	(void)segment->mem->ops->kick(segment->mem);
}

bool ferry_segment_decide(struct ferry_segment *segment)
{
	const bool died = dead(segment, segment->world->rank);
	int32_t chosen = -1;

	if (load_acquire_u32(&segment->broken))
		return true;
	if (!died && !has_failed(segment))
		return false;
	ferry_segment_tell(segment, &nothing, NULL);
	pthread_mutex_lock(&segment->lock);
	if (!segment->broken) {
		if (died)
			keep_own_death(segment);
		else
			chosen = choose(segment);
		if (chosen >= 0)
			keep(segment, chosen_verdict(segment, chosen));
	}
	const bool broken = segment->broken;

	pthread_mutex_unlock(&segment->lock);
	if (chosen >= 0)
		tell_decision(segment, chosen);
	return broken;
}

void ferry_segment_blame_world(struct ferry_segment *segment)
{
	struct ferry_error *error = &segment->world->error;

	if (error->status == FERRY_OK)
		*error = segment->error;
}

enum ferry_status ferry_segment_broken(struct ferry_segment *segment)
{
	ferry_last_error_set(segment->error.text);
	return FERRY_BROKEN;
}

/* Waits a little for somebody's verdict. */
static void sleep_a_little(struct ferry_segment *segment)
{
	struct ferry_segment_ctl *ctl = segment->ctl;
	const uint32_t doorbell = load_seq_u32(&ctl->doorbell);

	store_seq_u32(&ctl->asleep, 1);
	if (segment->mem->ops->progress(segment->mem))
		return;
	futex_wait(&ctl->doorbell, doorbell, LOOK_NS, ctl->shared);
}

enum ferry_status ferry_segment_break(struct ferry_segment *segment,
                                      const struct ferry_verdict *mine,
                                      const char *text)
{
	struct ferry_world *world = segment->world;

	ferry_segment_tell(segment, mine, text);
	while (!ferry_segment_decide(segment)) {
		ferry_segment_answer_others(segment, mine);
		sleep_a_little(segment);
	}
	pthread_mutex_lock(&world->lock);
	ferry_segment_blame_world(segment);
	pthread_mutex_unlock(&world->lock);
	return ferry_fail(&world->ctx, segment->error.status, "%s",
	                  segment->error.text);
}

enum ferry_status ferry_segment_check(struct ferry_segment *segment)
{
	if (load_acquire_u32(&segment->broken))
		return ferry_segment_broken(segment);
	if (!has_failed(segment))
		return FERRY_OK;
	return ferry_segment_break(segment, &nothing, NULL);
}
