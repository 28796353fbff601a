/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks, and the change from one to another: between the scheduler and one
 * fibre at a time. x86-64 only.
 */
#ifndef FIBRE_SWITCH_H
#define FIBRE_SWITCH_H

#include <stdbool.h>

struct fibre {
	void *stack, *sp;
	void *shadow; /* AddressSanitizer's */
	void (*body)(void);
	bool over;
};

/* Runs body when it is first entered. False: no memory. */
bool fibre_open(struct fibre *f, void (*body)(void));
/* Of one whose body has returned. */
void fibre_close(struct fibre *f);

/* Ahead of fibre_enter: thousands of stacks do not fit in a cache. */
static inline void fibre_prefetch(const struct fibre *f)
{
	for (int line = 0; line < 4; line++)
		__builtin_prefetch((const char *)f->sp + 64 * line);
}

/* From the scheduler, until the fibre leaves or its body returns. */
void fibre_enter(struct fibre *f);
void fibre_leave(struct fibre *f);

#endif
