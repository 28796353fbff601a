/* SPDX-License-Identifier: Apache-2.0 */
/* Passes the output of a rank on, whole lines only, each with a prefix. */
#ifndef FERRY_RELAY_H
#define FERRY_RELAY_H

#include <stdbool.h>
#include <stddef.h>

/* A line longer than this is broken: a rank must not eat our memory. */
enum { RELAY_LINE_MAX = 1 << 20 };

/*
 * So much is moved at a turn: a rank that writes faster than we can pass on
 * must not keep us from the others and from signals.
 */
enum { RELAY_TURN_BYTES = 1 << 16 };

struct relay {
	int from; /* pipe, read without blocking; -1 after its end */
	int to;
	char prefix[16];
	char *line; /* what has come of a line that is not whole yet */
	size_t used, size;
};

/* Takes over `from`. Nothing is allocated before the first bytes come. */
void relay_init(struct relay *relay, int from, int to, int rank);

/*
 * Moves what is there, at most about RELAY_TURN_BYTES. At the end of the pipe
 * the rest is passed on with a newline and `from` is closed. False when memory
 * or `to` fails.
 */
bool relay_move(struct relay *relay);

/* Moves what is in the pipe now, then finishes, whoever still writes. */
void relay_drain(struct relay *relay);

/* As at the end of the pipe, whoever may still hold it open. */
void relay_finish(struct relay *relay);

#endif
