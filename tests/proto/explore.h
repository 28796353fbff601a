/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small explicit-state explorer: depth first, every state once. States are
 * plain bytes; what was seen is kept as 64-bit hashes, so among n states one
 * is taken for another with a chance of about n^2 / 2^65. Deterministic.
 */
#ifndef EXPLORE_H
#define EXPLORE_H

#include <stddef.h>
#include <stdint.h>

struct explore;

/*
 * Emits every successor of a state. Returns NULL, or what is wrong with the
 * state or with one of its steps; the step is then the one emitted last.
 */
typedef const char *explore_expand(const void *model, const uint8_t *state,
                                   struct explore *explore);

struct explore_result {
	uint64_t n_states;
	uint64_t n_steps;
	uint32_t max_depth;
	const char *wrong; /* NULL: nothing was found */
	uint64_t *path;    /* names of the steps to it; free() it */
	uint32_t n_path;
};

/*
 * Explores all that is reachable from `first`, up to the first wrong state.
 * More than max_states states are wrong too.
 */
struct explore_result explore(const void *model, explore_expand *expand,
                              const uint8_t *first, size_t bytes,
                              uint64_t max_states);

/* A successor, copied, and the name, not 0, of the step to it. */
void explore_emit(struct explore *explore, const uint8_t *state, uint64_t name);

#endif
