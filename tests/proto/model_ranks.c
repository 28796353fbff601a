/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of the model. In each slot a rank goes through
 *
 *	SEND       own table and stage are written, table and rows are put
 *	TABLES     wait for all tables, read them
 *	ROWS       wait for all rows that they announce, read those kept
 *	SENT       wait until the own sources have been read (flush)
 *	BACK       stage is written, rows are put back for those kept
 *	BACKS      wait for what must come back, read it
 *	BACK_SENT  flush
 *
 * A wait and the reading after it are one step: a counter only grows, so what
 * could go wrong between them goes wrong before them too. Counters hold what
 * has come and is not yet accounted for, instead of growing totals and
 * targets. A slot has a thread of its own on each rank, which allows more than
 * one thread for all of them does.
 */
#include "model_state.h"

#include <string.h>

static struct thread thread_of(const struct at *at, int slot, int rank)
{
	const int epoch = at->s->epoch[slot][rank];

	return (struct thread){slot, rank, epoch, half_of(at->m, epoch),
	                       epoch % at->m->n_keys};
}

/* What nobody will look at again does not make states differ. */
static void forget(const struct model *m, struct state *n, int slot, int epoch)
{
	for (int r = 0; r < m->n_ranks; r++)
		if (n->epoch[slot][r] <= epoch)
			return;
	n->plan[slot][epoch] = 0;
}

/* What has been read is as good as never written: only old, for all reads. */
static void age(const struct model *m, struct state *n, const struct thread *t,
                int r)
{
	const uint8_t tag = (uint8_t)(t->epoch + 1);
	uint8_t *const row = &n->row[t->slot][t->half][t->rank][r];
	uint8_t *const back = &n->back[t->slot][t->rank][r];

	/* A mate may still read what has landed here. */
	if (*row == tag && !far(m, r, t->rank))
		*row = 0;
	if (*back == tag + STAGED_BACK)
		*back = 0;
}

static void next_epoch(const struct at *at, struct state *n,
                       const struct thread *t)
{
	for (int r = 0; r < at->m->n_ranks; r++)
		age(at->m, n, t, r);
	n->step[t->slot][t->rank] = SEND;
	n->epoch[t->slot][t->rank]++;
	forget(at->m, n, t->slot, t->epoch);
	forget_ringers(at->m, n, t->rank);
}

/* The rank does nothing any more, in any slot. */
static void stop(const struct at *at, struct state *n, int rank)
{
	n->broken[rank] = 1;
	for (int slot = 0; slot < at->m->n_slots; slot++) {
		n->step[slot][rank] = SEND;
		n->sleep[slot][rank] = AWAKE;
		n->epoch[slot][rank] = (uint8_t)at->m->n_epochs;
		for (int e = 0; e < at->m->n_epochs; e++)
			forget(at->m, n, slot, e);
	}
	forget_ringers(at->m, n, rank);
}

static void break_off(struct at *at, int rank)
{
	struct state n = *at->s;

	stop(at, &n, rank);
	emit(at, &n, A_BREAK, rank, 0, 0);
}

void post(const struct at *at, struct state *n, const struct thread *t,
          enum kind kind, int to)
{
	uint8_t *const put = &n->put[t->slot][t->epoch][kind][to][t->rank];

	*put = POSTED;
	if (at->m->at_once)
		*put = (uint8_t)(READ | source_of(n, t->slot, t->half,
		                                  (int)kind, t->rank)
		                                << TAG_SHIFT);
}

static void send_by_plan(struct at *at, const struct thread *t, int plan)
{
	struct state n = *at->s;
	const uint8_t tag = (uint8_t)(t->epoch + 1);

	n.plan[t->slot][t->epoch] = (uint8_t)plan;
	n.table[t->slot][t->half][t->rank][t->rank] = tag;
	n.stage[t->slot][t->rank] = tag;
	for (int to = 0; to < at->m->n_ranks; to++) {
		if (to == t->rank)
			continue;
		post(at, &n, t, TABLE_PUT, to);
		if (fate(at->m, plan, t->rank, to) != NO_ROW &&
		    (!far(at->m, t->rank, to) ||
		     landing(at->m, plan, t->rank, to) == to))
			post(at, &n, t, ROW_PUT, to);
	}
	n.step[t->slot][t->rank] = TABLES;
	emit(at, &n, A_SEND, t->slot, t->rank, t->epoch);
}

/* The first to send chooses for all: it is what their callers would do. */
static void dispatch_send(struct at *at, const struct thread *t)
{
	const int plan = at->s->plan[t->slot][t->epoch];

	if (plan)
		send_by_plan(at, t, plan);
	else
		for (int p = 1; p <= 2 * at->m->n_traffic; p++)
			if (combines(p) || !at->m->always_combine)
				send_by_plan(at, t, p);
}

static void combine_send(struct at *at, const struct thread *t)
{
	struct state n = *at->s;
	const int plan = n.plan[t->slot][t->epoch];
	const uint8_t tag = (uint8_t)(t->epoch + 1);

	n.stage[t->slot][t->rank] = (uint8_t)(tag + STAGED_BACK);
	for (int to = 0; to < at->m->n_ranks; to++) {
		if (far(at->m, to, t->rank) &&
		    fate(at->m, plan, to, t->rank) != NO_ROW)
			add_part(at, &n, t, to);
		if (far(at->m, to, t->rank) ||
		    fate(at->m, plan, to, t->rank) != ROW_KEPT)
			continue;
		post(at, &n, t, BACK_PUT, to);
		if (n.table[t->slot][t->half][t->rank][to] != tag)
			at->wrong = "combine_send reads another table";
	}
	n.step[t->slot][t->rank] = BACKS;
	emit(at, &n, A_STEP, t->slot, t->rank, BACK);
}

/* How many writes of `from` the wait of a thread is about. */
static int expected(const struct at *at, const struct thread *t, int from)
{
	const int plan = at->s->plan[t->slot][t->epoch];

	const int step = at->s->step[t->slot][t->rank];

	if (from == t->rank)
		return step == ROWS ? rows_at_mate(at->m, plan, from) : 0;
	switch (step) {
	case TABLES:
		return 1;
	case ROWS:
		if (far(at->m, from, t->rank))
			return landing(at->m, plan, from, t->rank) == t->rank;
		return fate(at->m, plan, from, t->rank) != NO_ROW;
	case BACKS:
		if (far(at->m, from, t->rank))
			return fate(at->m, plan, t->rank, from) != NO_ROW;
		return fate(at->m, plan, t->rank, from) == ROW_KEPT;
	default:
		return 0;
	}
}

static enum kind awaited(const struct at *at, const struct thread *t)
{
	switch (at->s->step[t->slot][t->rank]) {
	case TABLES:
		return TABLE_PUT;
	case ROWS:
		return ROW_PUT;
	default:
		return BACK_PUT;
	}
}

/* Does the wait of a thread pass over this source? */
static bool unawaited(const struct at *at, const struct thread *t, int from)
{
	static const unsigned flag[] = {
		[TABLE_PUT] = WITHOUT_TABLE_FLAG,
		[ROW_PUT] = WITHOUT_ROW_FLAG,
		[BACK_PUT] = WITHOUT_BACK_FLAG,
	};
	const enum kind kind = awaited(at, t);
	const int plan = at->s->plan[t->slot][t->epoch];

	if (at->m->without & flag[kind])
		return true;
	if (from == t->rank)
		return at->m->without & WITHOUT_FAN;
	return kind == ROW_PUT && (at->m->without & WITHOUT_LATE_WAIT) &&
	       fate(at->m, plan, from, t->rank) == ROW_DROPPED;
}

/* Of the other host, when combine_recv waits. */
static int expected_sums(const struct at *at, const struct thread *t)
{
	if (at->s->step[t->slot][t->rank] != BACKS)
		return 0;
	return host_rows(at->m, at->s->plan[t->slot][t->epoch], t->rank);
}

static bool has_come(const struct at *at, const struct thread *t)
{
	const int8_t *const count =
		at->s->count[t->slot][t->key][awaited(at, t)][t->rank];

	for (int from = 0; from < at->m->n_ranks; from++)
		if (count[from] < expected(at, t, from) &&
		    !unawaited(at, t, from))
			return false;
	return at->s->count[t->slot][t->key][HOST_PUT][t->rank][0] >=
	       expected_sums(at, t);
}

static void account(const struct at *at, struct state *n,
                    const struct thread *t)
{
	int8_t *const count =
		n->count[t->slot][t->key][awaited(at, t)][t->rank];

	for (int from = 0; from < at->m->n_ranks; from++)
		count[from] = (int8_t)(count[from] - expected(at, t, from));
	int8_t *const sums = &n->count[t->slot][t->key][HOST_PUT][t->rank][0];

	*sums = (int8_t)(*sums - expected_sums(at, t));
}

/* Reads the row of rank r's token, and the sum of rank r's host. */
static void read_far_row(struct at *at, const struct thread *t, int r)
{
	const struct state *const s = at->s;
	const int plan = s->plan[t->slot][t->epoch];
	const int at_rank = landing(at->m, plan, r, t->rank);

	if (fate(at->m, plan, r, t->rank) == ROW_KEPT &&
	    s->row[t->slot][t->half][at_rank][r] != t->epoch + 1)
		at->wrong = "dispatch_recv reads another row";
}

static void read_sums(struct at *at, const struct thread *t)
{
	const int other = 1 - first_of(t->rank);

	if (expected_sums(at, t) &&
	    at->s->back[t->slot][t->rank][other] != t->epoch + 1 + STAGED_BACK)
		at->wrong = "combine_recv reads another sum";
}

/* Reads what the wait was for. */
static void read_cells(struct at *at, const struct thread *t)
{
	const struct state *const s = at->s;
	const uint8_t tag = (uint8_t)(t->epoch + 1);

	read_sums(at, t);
	for (int r = 0; r < at->m->n_ranks; r++) {
		if (awaited(at, t) == ROW_PUT && far(at->m, r, t->rank))
			read_far_row(at, t, r);
		if (!expected(at, t, r) || r == t->rank ||
		    (awaited(at, t) != TABLE_PUT && far(at->m, r, t->rank)))
			continue;
		switch (awaited(at, t)) {
		case TABLE_PUT:
			if (s->table[t->slot][t->half][t->rank][r] != tag)
				at->wrong = "dispatch_recv reads another table";
			break;
		case ROW_PUT:
			if (fate(at->m, s->plan[t->slot][t->epoch], r,
			         t->rank) == ROW_KEPT &&
			    s->row[t->slot][t->half][t->rank][r] != tag)
				at->wrong = "dispatch_recv reads another row";
			break;
		default:
			if (s->back[t->slot][t->rank][r] != tag + STAGED_BACK)
				at->wrong = "combine_recv reads another row";
			break;
		}
	}
}

static void pass_wait(struct at *at, const struct thread *t)
{
	struct state n = *at->s;
	uint8_t *const step = &n.step[t->slot][t->rank];
	const int name = *step;

	read_cells(at, t);
	account(at, &n, t);
	n.sleep[t->slot][t->rank] = AWAKE;
	*step = *step == TABLES ? ROWS : *step == ROWS ? SENT : BACK_SENT;
	emit(at, &n, A_STEP, t->slot, t->rank, name);
}

/* The time is over: the rank tells the others, or, wrongly, goes on. */
static void give_up(struct at *at, const struct thread *t)
{
	struct state n = *at->s;

	if (n.n_give_ups == at->m->give_ups)
		return;
	n.n_give_ups++;
	n.sleep[t->slot][t->rank] = AWAKE;
	if (at->m->without & WITHOUT_STOP) {
		account(at, &n, t);
		next_epoch(at, &n, t);
	} else {
		stop(at, &n, t->rank);
		for (int to = 0; to < at->m->n_ranks; to++)
			if (to != t->rank)
				n.verdict[to][t->rank] = READ;
	}
	emit(at, &n, A_GIVE_UP, t->slot, t->rank, t->epoch);
}

static void set_sleep(struct at *at, const struct thread *t, int sleep)
{
	struct state n = *at->s;

	n.sleep[t->slot][t->rank] = (uint8_t)sleep;
	if ((sleep & SLEEP_MASK) == SET)
		n.asleep[t->rank] = 1;
	emit(at, &n, A_SLEEP, t->slot, t->rank, sleep & SLEEP_MASK);
}

/* A look at what is waited for; true: something came of it. */
static bool look(struct at *at, const struct thread *t)
{
	if (has_come(at, t))
		pass_wait(at, t);
	else if (at->s->poison[t->rank])
		break_off(at, t->rank);
	else
		return false;
	return true;
}

static void wait_asleep(struct at *at, const struct thread *t)
{
	const int sleep = at->s->sleep[t->slot][t->rank];
	const int changed = sleep & CHANGED;

	switch (sleep & SLEEP_MASK) {
	case AWAKE:
		look(at, t);
		set_sleep(at, t, SET);
		break;
	case SET:
		if ((at->m->without & WITHOUT_SECOND_LOOK) || !look(at, t))
			set_sleep(at, t, LOOKED | changed);
		break;
	case LOOKED:
		set_sleep(at, t, changed ? AWAKE : ASLEEP);
		break;
	default:
		break;
	}
}

static void wait_for_peers(struct at *at, const struct thread *t)
{
	if (sleeps(at->m, t->rank))
		wait_asleep(at, t);
	else
		look(at, t);
}

/* Have the sources of a thread's puts been read? */
static bool flushed(const struct at *at, const struct thread *t)
{
	if (at->m->without & WITHOUT_FLUSH)
		return true;
	for (int e = 0; e < at->m->n_epochs; e++)
		for (int k = 0; k < N_KINDS; k++)
			for (int to = 0; to < at->m->n_ranks; to++)
				if ((at->s->put[t->slot][e][k][to][t->rank] &
				     STAGE_MASK) == POSTED)
					return false;
	return true;
}

static void flush(struct at *at, const struct thread *t)
{
	struct state n = *at->s;
	const int step = n.step[t->slot][t->rank];

	if (step == SENT && combines(n.plan[t->slot][t->epoch]))
		n.step[t->slot][t->rank] = BACK;
	else
		next_epoch(at, &n, t);
	emit(at, &n, A_STEP, t->slot, t->rank, step);
}

/* Steps that wait for nobody; false: the thread is at a wait. */
static bool run_local(struct at *at, const struct thread *t)
{
	const int step = at->s->step[t->slot][t->rank];
	const bool enters = step == SEND || step == BACK;

	if (enters && at->s->poison[t->rank])
		break_off(at, t->rank);
	else if (step == SEND)
		dispatch_send(at, t);
	else if (step == BACK)
		combine_send(at, t);
	else if ((step == SENT || step == BACK_SENT) && flushed(at, t))
		flush(at, t);
	else
		return false;
	return true;
}

/* A flush waits too, for the rank's own fabric, and may give up. */
static void run_wait(struct at *at, const struct thread *t)
{
	const int step = at->s->step[t->slot][t->rank];

	if (step == TABLES || step == ROWS || step == BACKS)
		wait_for_peers(at, t);
	if (!at->wrong)
		give_up(at, t);
}

/*
 * A step that waits for nobody is taken at once, and alone: it touches only
 * what is the rank's own, and what it puts may come late all the same. So it
 * makes no difference when it is taken, and other orders need no look.
 */
bool run_first_local(struct at *at)
{
	for (int slot = 0; slot < at->m->n_slots; slot++)
		for (int r = 0; r < at->m->n_ranks; r++) {
			const struct thread t = thread_of(at, slot, r);

			if (!finished(at->m, at->s, slot, r) &&
			    run_local(at, &t))
				return true;
		}
	return false;
}

void run_waits(struct at *at)
{
	for (int slot = 0; slot < at->m->n_slots; slot++)
		for (int r = 0; r < at->m->n_ranks && !at->wrong; r++) {
			const struct thread t = thread_of(at, slot, r);

			if (!finished(at->m, at->s, slot, r))
				run_wait(at, &t);
		}
}
