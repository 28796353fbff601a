/* SPDX-License-Identifier: Apache-2.0 */
/* Free lists by powers of two over chunks that are never given back. */
#include "arena.h"

#include <stdint.h>
#include <stdlib.h>

enum { LEAST = 8, CHUNK = 64 << 20 };

void arena_init(struct arena *arena, void *(*grow)(size_t bytes), bool exact)
{
	*arena = (struct arena){.grow = grow, .exact = exact};
	if (mtx_init(&arena->lock, mtx_plain) != thrd_success)
		abort();
}

static int class_of(size_t bytes)
{
	int i = LEAST;

	while ((size_t)1 << i < bytes)
		i++;
	return i;
}

/* A new block of its class, from the last chunk or from a new one. */
static void *carve(struct arena *arena, size_t bytes)
{
	char *block = arena->next;

	if (bytes >= CHUNK / 4)
		return arena->grow(bytes);
	if ((size_t)(arena->end - arena->next) < bytes) {
		block = arena->grow(CHUNK);
		if (block == NULL)
			return NULL;
		arena->end = block + CHUNK;
	}
	arena->next = block + bytes;
	return block;
}

void *arena_take(struct arena *arena, size_t bytes)
{
	const int i = class_of(bytes);
	void *block;

	if (arena->exact)
		return arena->grow(bytes > 0 ? bytes : 1);
	mtx_lock(&arena->lock);
	if (arena->free[i].n > 0)
		block = arena->free[i].blocks[--arena->free[i].n];
	else
		block = carve(arena, (size_t)1 << i);
	mtx_unlock(&arena->lock);
	return block;
}

void arena_give(struct arena *arena, void *block, size_t bytes)
{
	const int i = class_of(bytes);

	if (block == NULL || arena->exact)
		return;
	mtx_lock(&arena->lock);
	if (arena->free[i].n == arena->free[i].room) {
		const size_t room = 2 * arena->free[i].room + 16;
		void **more =
			realloc(arena->free[i].blocks, room * sizeof(*more));

		if (more == NULL)
			abort();
		arena->free[i].blocks = more;
		arena->free[i].room = room;
	}
	arena->free[i].blocks[arena->free[i].n++] = block;
	mtx_unlock(&arena->lock);
}
