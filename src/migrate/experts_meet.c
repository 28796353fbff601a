/* SPDX-License-Identifier: Apache-2.0 */
/* See experts_meet.h. */
#include "experts_meet.h"

#include <stdio.h>
#include <time.h>

#include "../core/clock.h"
#include "experts_layout.h"

enum { LATE_NS = 200000000 }; /* the longest grace of a failure */

/* Records in a ring place are counted from 1. */
static uint64_t turn_of(const struct experts_flight *f)
{
	return f->seq / EXPERTS_RING + 1;
}

static const struct experts_record *record_of(const struct ferry_experts *x,
                                              const struct experts_flight *f,
                                              enum experts_word word,
                                              int32_t rank)
{
	return (const void *)(experts_records(x) +
	                      experts_record_at(x, f->seq, word, rank));
}

static bool has_told(const struct ferry_experts *x,
                     const struct experts_flight *f, enum experts_word word,
                     int32_t rank)
{
	return ferry_segment_read(x->segment,
	                          experts_record_signal(x, f->seq, word,
	                                                rank)) >= turn_of(f);
}

static bool all_have_told(const struct ferry_experts *x,
                          const struct experts_flight *f,
                          enum experts_word word)
{
	for (int32_t r = 0; r < x->n_ranks; r++)
		if (!has_told(x, f, word, r))
			return false;
	return true;
}

static enum ferry_status wait_records(struct ferry_experts *x,
                                      const struct experts_flight *f,
                                      enum experts_word word)
{
	for (int32_t r = 0; r < x->n_ranks; r++)
		x->items[r] = (struct ferry_wait_item){
			.signal = experts_record_signal(x, f->seq, word, r),
			.peer = r,
			.value = turn_of(f),
		};
	return ferry_segment_wait_all(x->segment, x->items, x->n_ranks, NULL);
}

static enum ferry_status mismatch(struct ferry_experts *x, int32_t rank,
                                  const char *text)
{
	const struct ferry_verdict mine =
		ferry_verdict_of(FERRY_MISMATCH, rank);

	return ferry_segment_break(x->segment, &mine, text);
}

/* All ranks see the same records, and so name the same two ranks. */
static enum ferry_status differ(struct ferry_experts *x,
                                const struct experts_flight *f, int32_t rank)
{
	const struct experts_record *a = record_of(x, f, EXPERTS_STAGED, 0);
	const struct experts_record *b = record_of(x, f, EXPERTS_STAGED, rank);
	char text[208];

	if (a->layer != b->layer)
		snprintf(text, sizeof(text),
		         "rank %d has started a plan of layer %d, rank 0 one "
		         "of layer %d",
		         rank, b->layer, a->layer);
	else if (a->plan_hash != b->plan_hash)
		snprintf(text, sizeof(text),
		         "rank %d has started plan %016llx of layer %d, rank 0 "
		         "plan %016llx",
		         rank, (unsigned long long)b->plan_hash, b->layer,
		         (unsigned long long)a->plan_hash);
	else
		snprintf(text, sizeof(text),
		         "ranks %d and 0 start plan %016llx of layer %d after "
		         "different calls, with other moves, or with different "
		         "loads",
		         rank, (unsigned long long)a->plan_hash, a->layer);
	return mismatch(x, rank, text);
}

static enum ferry_status compare_records(struct ferry_experts *x,
                                         const struct experts_flight *f)
{
	const struct experts_record *a = record_of(x, f, EXPERTS_STAGED, 0);

	for (int32_t r = 1; r < x->n_ranks; r++) {
		const struct experts_record *b =
			record_of(x, f, EXPERTS_STAGED, r);

		if (a->layer != b->layer || a->plan_hash != b->plan_hash ||
		    a->history != b->history)
			return differ(x, f, r);
	}
	return FERRY_OK;
}

/*
 * What comes to this rank is there, by the records; its signals make it
 * visible to this thread.
 */
static enum ferry_status wait_pieces(struct ferry_experts *x,
                                     const struct experts_flight *f)
{
	int32_t n = 0;

	for (int32_t i = 0; i < f->n_transfers; i++) {
		const struct experts_transfer *t = &f->transfers[i];

		if (t->to_rank == x->rank)
			x->items[n++] = (struct ferry_wait_item){
				.signal = experts_buffer_signal(x, t->buffer),
				.peer = t->from_rank,
				.value = x->pieces[t->buffer],
			};
	}
	return ferry_segment_wait_all(x->segment, x->items, n, NULL);
}

bool ferry_experts_is_staged(const struct ferry_experts *x,
                             const struct experts_flight *f)
{
	return all_have_told(x, f, EXPERTS_STAGED);
}

enum ferry_status ferry_experts_wait_staged(struct ferry_experts *x,
                                            struct experts_flight *f)
{
	if (f->staged)
		return FERRY_OK;
	const uint64_t begin = ferry_now_ns();

	FERRY_TRY(wait_records(x, f, EXPERTS_STAGED));
	FERRY_TRY(compare_records(x, f));
	FERRY_TRY(wait_pieces(x, f));
	f->staged = true;
	f->wait_ns = ferry_now_ns() - begin;
	return FERRY_OK;
}

/* Does every rank end the plan in the same way? */
static enum ferry_status compare_ends(struct ferry_experts *x,
                                      const struct experts_flight *f)
{
	static const char *const verbs[] = {"abandons", "commits"};
	const bool first = record_of(x, f, EXPERTS_ENDS, 0)->commits;
	char text[208];

	for (int32_t r = 1; r < x->n_ranks; r++) {
		if (record_of(x, f, EXPERTS_ENDS, r)->commits == first)
			continue;
		snprintf(text, sizeof(text),
		         "rank %d %s the plan of layer %d, rank 0 %s it", r,
		         verbs[!first], f->layer, verbs[first]);
		return mismatch(x, r, text);
	}
	return FERRY_OK;
}

/*
 * The wait for the others has failed, but a faster rank may have had all
 * records, ended the plan, and noticed the failure in a later one. Then all
 * have sent theirs, and what is late comes: this rank must end it, too.
 */
static bool come_after_all(const struct ferry_experts *x,
                           const struct experts_flight *f)
{
	const uint64_t end = ferry_now_ns() + LATE_NS;
	const int32_t root = x->segment->error.root_rank;

	while (root < 0 || has_told(x, f, EXPERTS_ENDS, root)) {
		if (all_have_told(x, f, EXPERTS_ENDS))
			return true;
		if (ferry_now_ns() >= end)
			break;
		nanosleep(&(struct timespec){0, LATE_NS / 200}, NULL);
	}
	return false;
}

enum ferry_status ferry_experts_meet(struct ferry_experts *x,
                                     struct experts_flight *f, bool commits)
{
	const uint64_t begin = ferry_now_ns();
	struct experts_record record = {
		.layer = f->layer,
		.commits = commits,
	};

	ferry_experts_say_done(x, &record);
	FERRY_TRY(ferry_experts_tell(x, f, EXPERTS_ENDS, &record));
	const enum ferry_status status = wait_records(x, f, EXPERTS_ENDS);

	if (status != FERRY_OK && !come_after_all(x, f))
		return status;
	FERRY_TRY(compare_ends(x, f));
	f->meet_ns = ferry_now_ns() - begin;
	return FERRY_OK;
}
