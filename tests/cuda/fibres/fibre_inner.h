/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler and the copies under way have of each other. */
#ifndef FIBRE_INNER_H
#define FIBRE_INNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* fibres.c */

_Noreturn void fibres_give_up(const char *why);
uint64_t fibres_draw(void);
/* Exactly so many bytes of `value`, for AddressSanitizer. */
void *fibres_taken(size_t bytes, int value);
/* The thread that runs waits until the word is another. */
void fibres_await(const uint32_t *word);
struct fibre_traffic *fibres_traffic(void); /* of the thread that runs */

/* fibre_flight.c */

enum { COPIES = 32 /* loads of a thread under way */ };

struct copy {
	void *to;
	const void *from;
	uint32_t bytes;
};

struct copies {
	struct copy of[COPIES]; /* the oldest first */
	uint32_t n;
};

/* Dynamic shared memory of a block. */
struct fibre_space {
	unsigned char *shared;
	unsigned char *seen; /* as the copy engine sees it */
	size_t bytes;
	bool fenced;      /* what is there is to be seen */
	bool new_barrier; /* one that the engine may not know yet */
	uint32_t n_flights;
};

/* A thread's. */
struct fibre_traffic {
	struct fibre_space *space;
	uint32_t group;       /* of bulk stores */
	uint64_t fenced;      /* when it last saw what the engine had stored */
	struct copies *loads; /* not by the engine; NULL: none */
};

void flights_space_open(struct fibre_space *s, size_t bytes);
void flights_space_close(struct fibre_space *s);
/* What has been fenced is seen. */
void flights_see(struct fibre_space *s);
/* A fence of this thread, or what is as good as one. */
void flights_fence(struct fibre_traffic *t);
/* Some copy may go one step further; warps have a turn in so many draws. */
void flights_step(size_t n_warps);

/* The thread ends; what it stored is there when its grid ends. */
void flights_leave(const struct fibre_traffic *t, const void *grid);
void flights_end(const void *grid);

#endif
