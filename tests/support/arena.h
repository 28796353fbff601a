/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of memory that is dear to get and never given back: cudaFree waits
 * for every kernel of the GPU, and kernels wait for ranks. Thread-safe.
 */
#ifndef ARENA_H
#define ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <threads.h>

enum { ARENA_CLASSES = 48 };

struct arena {
	/* Gets a chunk for good; NULL: there is none. */
	void *(*grow)(size_t bytes);
	bool exact; /* each block is a chunk of its own: checkers see its end */
	mtx_t lock;
	char *next, *end; /* rest of the last chunk */
	struct {
		void **blocks;
		size_t n, room;
	} free[ARENA_CLASSES]; /* of 2^i bytes */
};

void arena_init(struct arena *arena, void *(*grow)(size_t bytes), bool exact);
/* NULL: no memory. Aligned to 256. */
void *arena_take(struct arena *arena, size_t bytes);
/* bytes as at arena_take. */
void arena_give(struct arena *arena, void *block, size_t bytes);

#endif
