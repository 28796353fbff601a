/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the model: one state, and what its parts share. A cell of
 * memory holds the epoch + 1 whose data lie there.
 */
#ifndef MODEL_STATE_H
#define MODEL_STATE_H

#include <stdbool.h>

#include "model.h"

enum { RANKS = 3, SLOTS = 2, EPOCHS = 3, KEYS = 4, HALVES = 2 };

enum step { SEND, TABLES, ROWS, SENT, BACK, BACKS, BACK_SENT, N_STEPS };

/* BACK_PUT from another host is only word that the part is there. */
enum kind { TABLE_PUT, ROW_PUT, BACK_PUT, HOST_PUT, N_KINDS };

/*
 * A put up to R1. R1 to R4 are the steps of whoever raises a counter, W1 to
 * W4 those of a waiter, as struct ferry_segment_ctl has them.
 */
enum put {
	NO_PUT,
	POSTED,          /* the source is not read yet */
	READ,            /* on its way */
	PEEKED,          /* R2 came before R1 and saw nobody */
	FANNED = PEEKED, /* with hosts: the mate knows, the owner does not */
	STAGE_MASK = 3,
	TAG_SHIFT = 2, /* above: what was read from the source */
};

/* What whoever raised a counter does next; who he is does not matter. */
enum ringer {
	RAISED,  /* R1 is done: R2 is next */
	SEEN,    /* R2 saw somebody asleep: R3 is next */
	SWAPPED, /* R3 took the 1: R4 is next */
	N_RINGERS,
};

enum sleep {
	AWAKE,
	SET,    /* W1 and W2 are done: the doorbell is known, asleep is 1 */
	LOOKED, /* W3: nothing there; futex_wait is next */
	ASLEEP,
	SLEEP_MASK = 7,
	CHANGED = 8, /* the doorbell, since W1 */
};

enum { STAGED_BACK = 8 }; /* added to what lies in the stage for combine */

/* The whole state; unused parts stay 0. */
struct state {
	uint8_t step[SLOTS][RANKS], epoch[SLOTS][RANKS];
	uint8_t sleep[SLOTS][RANKS];
	uint8_t asleep[RANKS]; /* ctl->asleep */
	uint8_t broken[RANKS]; /* gave up, or was told to */
	uint8_t poison[RANKS]; /* a verdict is here */
	uint8_t n_give_ups;
	uint8_t ringers[RANKS][N_RINGERS]; /* how many are there */
	uint8_t verdict[RANKS][RANKS];     /* [to][from]: enum put */
	uint8_t plan[SLOTS][EPOCHS];       /* what the callers do, 0: open */
	uint8_t put[SLOTS][EPOCHS][N_KINDS][RANKS][RANKS]; /* [to][from] */
	uint8_t table[SLOTS][HALVES][RANKS][RANKS];        /* [owner][source] */
	uint8_t row[SLOTS][HALVES][RANKS][RANKS];
	uint8_t back[SLOTS][RANKS][RANKS];
	uint8_t stage[SLOTS][RANKS];
	uint8_t part[SLOTS][RANKS][RANKS];    /* [owner][whose token] */
	uint8_t arrived[SLOTS][RANKS][RANKS]; /* [first of host][whose] */
	int8_t count[SLOTS][KEYS][N_KINDS][RANKS][RANKS]; /* [to][from] */
};

/* One expansion: the model, the state before, and what comes of it. */
struct at {
	const struct model *m;
	const struct state *s;
	struct explore *explore;
	int n_steps; /* emitted; giving up is none */
	const char *wrong;
};

/* A thread: a rank in a slot, at its epoch. */
struct thread {
	int slot, rank, epoch, half, key;
};

/* Names of steps; model_step_text tells them. */
enum name {
	A_SEND = 1, /* slot, rank, epoch */
	A_STEP,     /* slot, rank, enum step */
	A_BREAK,    /* rank */
	A_GIVE_UP,  /* slot, rank, epoch */
	A_SLEEP,    /* slot, rank, enum sleep */
	A_PUT,      /* slot and kind, epoch and ranks, enum put */
	A_VERDICT,  /* to, from, enum put */
	A_RING,     /* to, enum ringer */
};

/* A plan is 1 + 2 * number of the traffic, and 1 more without combine. */
static inline bool combines(int plan)
{
	return plan & 1;
}

static inline enum model_fate fate(const struct model *m, int plan, int from,
                                   int to)
{
	return model_fate_of(m->traffic[(plan - 1) / 2], from, to);
}

/* Has a rank nothing more to do in this slot? */
static inline bool finished(const struct model *m, const struct state *s,
                            int slot, int rank)
{
	return s->epoch[slot][rank] == m->n_epochs;
}

static inline int half_of(const struct model *m, int epoch)
{
	return m->without & WITHOUT_SECOND_HALF ? 0 : epoch & 1;
}

/*
 * One rank's sleep is enough to look at: to the others it is a wait that takes
 * its time, which a wait of one step does too.
 */
static inline bool sleeps(const struct model *m, int rank)
{
	return m->futex && rank == 0;
}

static inline uint8_t source_of(const struct state *n, int slot, int half,
                                int kind, int from)
{
	return kind == TABLE_PUT ? n->table[slot][half][from][from]
	                         : n->stage[slot][from];
}

void emit(struct at *at, const struct state *next, enum name what, int a, int b,
          int c);

/* model_hosts.c: what differs where ranks are on two hosts. */

static inline bool far(const struct model *m, int a, int b)
{
	return m->hosts && (a == 0) != (b == 0);
}

/* First rank of the host of r, and the other rank of it; r: there is none. */
static inline int first_of(int r)
{
	return r != 0;
}
static inline int mate_of(int r)
{
	return r == 0 ? 0 : 3 - r;
}

/* Where a row from a far rank lands on the host of `to`; -1: nowhere. */
int landing(const struct model *m, int plan, int from, int to);
/* Rows that have landed with the mate of a rank. */
int rows_at_mate(const struct model *m, int plan, int rank);
/* Sums that another host sends to a rank. */
int host_rows(const struct model *m, int plan, int rank);
/* A far row of dispatch is there: who of the host learns it next? */
void land(const struct model *m, struct state *n, int slot, int epoch, int to,
          int from);
/* The part for a far rank's token, and the sum when it is the last one. */
void add_part(struct at *at, struct state *n, const struct thread *t, int to);
void post(const struct at *at, struct state *n, const struct thread *t,
          enum kind kind, int to);

/* Is a rank through with all its slots? */
bool gone(const struct model *m, const struct state *n, int rank);
void forget_ringers(const struct model *m, struct state *n, int rank);

/* A step of one thread that waits for nobody; false: there is none. */
bool run_first_local(struct at *at);
/* All steps of waits. */
void run_waits(struct at *at);
/* All steps of puts, verdicts, and of whoever raised a counter. */
void run_fabric(struct at *at);

#endif
