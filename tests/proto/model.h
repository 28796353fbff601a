/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of the protocol of docs/protocol.md, for explore.h: every order in
 * which ranks, the fabric and the callers' choices can step. Parts of the
 * protocol can be left out, and then something must go wrong.
 */
#ifndef MODEL_H
#define MODEL_H

#include "explore.h"

/* What is left out of the protocol. */
enum model_without {
	WITHOUT_NOTHING = 0,
	WITHOUT_SECOND_HALF = 1 << 0, /* tables and rows have one half */
	WITHOUT_TABLE_FLAG = 1 << 1,  /* tables are read without a wait */
	WITHOUT_ROW_FLAG = 1 << 2,    /* rows are */
	WITHOUT_BACK_FLAG = 1 << 3,   /* rows that come back are */
	WITHOUT_LATE_WAIT = 1 << 4,   /* dropped rows are not waited for */
	WITHOUT_FLUSH = 1 << 5,       /* nor own sources being read */
	WITHOUT_STOP = 1 << 6,        /* who gave up goes on, untold */
	WITHOUT_SECOND_LOOK = 1 << 7, /* sleep right after asleep = 1 */
	WITHOUT_LATE_ASLEEP = 1 << 8, /* the raiser looks at asleep first */
	WITHOUT_FAN = 1 << 9, /* what lands with a mate is not waited for */
	WITHOUT_ARRIVAL = 1 << 10, /* who adds a host's parts waits for none */
};

/* What becomes of the token that one rank may have for another. */
enum model_fate { NO_ROW, ROW_KEPT, ROW_DROPPED };

/* Traffic of one dispatch: the fates of all pairs, by model_fate_of. */
static inline int model_fate_shift(int from, int to)
{
	return 2 * (from * 3 + to);
}

static inline enum model_fate model_fate_of(uint32_t traffic, int from, int to)
{
	return (enum model_fate)(traffic >> model_fate_shift(from, to) & 3);
}

struct model {
	int n_ranks, n_slots, n_epochs; /* at most 3, 2, 3 */
	int n_keys;   /* counters are kept by epoch mod this; at most 4 */
	int give_ups; /* ranks that may give up a wait of their own accord */
	int futex;    /* 1: waits sleep; 0: a wait is one step */
	int at_once;  /* 1: sources are read when they are put */
	int always_combine; /* 1: no dispatch without combine */
	/*
	 * 1: of 3 ranks, 0 is on one host, 1 and 2 are on another; rows of
	 * dispatch and sums of combine travel once per host. No sleep.
	 */
	int hosts;
	unsigned without;
	/* Each dispatch chooses one of these, and whether it combines. */
	const uint32_t *traffic;
	int n_traffic;
};

/* Explores the model; more than max_states states are a fault of its own. */
struct explore_result model_check(const struct model *model,
                                  uint64_t max_states);

/* A step in words; text has room for `bytes`. */
void model_step_text(uint64_t name, char *text, size_t bytes);

#endif
