/* SPDX-License-Identifier: Apache-2.0 */
/* The explorer: a stack of states to visit and a table of hashes. */
#include "explore.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"

enum { HASH_BYTES = 2 * sizeof(uint64_t) }; /* taken at a time */

struct node {
	uint64_t name; /* of the step that led here */
	uint64_t depth;
	uint8_t state[];
};

struct explore {
	size_t state_bytes, padded_bytes, node_bytes;
	uint8_t *stack; /* nodes */
	size_t n_nodes, max_nodes;
	uint64_t *seen; /* open addressing, 0: free */
	uint64_t seen_mask, n_seen;
	uint64_t n_steps;
	uint64_t last;  /* name emitted last in this expansion, 0: none */
	uint64_t *path; /* names down to the state that is expanded */
	uint64_t depth; /* of it */
	uint64_t max_path;
};

static void *grow(void *p, size_t bytes)
{
	void *const q = realloc(p, bytes);

	if (!q)
		abort(); /* a test program: nothing to hand on */
	return q;
}

/* Two chains, so that one multiplication need not wait for the other. */
static uint64_t hash_of(const uint8_t *state, size_t bytes)
{
	uint64_t a = 0x243f6a8885a308d3u, b = 0x13198a2e03707344u;

	for (size_t i = 0; i < bytes; i += HASH_BYTES) {
		uint64_t words[2];

		memcpy(words, state + i, sizeof(words));
		a = (a ^ words[0]) * 0x9e3779b97f4a7c15u;
		b = (b ^ words[1]) * 0xff51afd7ed558ccdu;
		a ^= a >> 29;
		b ^= b >> 31;
	}
	const uint64_t h = hash_u64(a, b);

	return h ? h : 1;
}

static bool insert(uint64_t *seen, uint64_t mask, uint64_t h)
{
	uint64_t i = h & mask;

	while (seen[i] && seen[i] != h)
		i = (i + 1) & mask;
	if (seen[i])
		return false;
	seen[i] = h;
	return true;
}

static void double_seen(struct explore *e)
{
	const uint64_t mask = e->seen_mask * 2 + 1;
	uint64_t *const seen = calloc(mask + 1, sizeof(*seen));

	if (!seen)
		abort();
	for (uint64_t i = 0; e->seen && i <= e->seen_mask; i++)
		if (e->seen[i])
			insert(seen, mask, e->seen[i]);
	free(e->seen);
	e->seen = seen;
	e->seen_mask = mask;
}

static bool is_new(struct explore *e, const uint8_t *state)
{
	if (e->n_seen * 2 > e->seen_mask)
		double_seen(e);
	if (!insert(e->seen, e->seen_mask, hash_of(state, e->padded_bytes)))
		return false;
	e->n_seen++;
	return true;
}

static struct node *push(struct explore *e)
{
	if (e->n_nodes == e->max_nodes) {
		e->max_nodes = e->max_nodes ? e->max_nodes * 2 : 256;
		e->stack = grow(e->stack, e->max_nodes * e->node_bytes);
	}
	return (struct node *)(void *)(e->stack + e->n_nodes++ * e->node_bytes);
}

void explore_emit(struct explore *explore, const uint8_t *state, uint64_t name)
{
	struct node *const node = push(explore);

	node->name = name;
	node->depth = explore->depth + 1;
	memset(node->state, 0, explore->padded_bytes);
	memcpy(node->state, state, explore->state_bytes);
	explore->n_steps++;
	explore->last = name;
	if (!is_new(explore, node->state))
		explore->n_nodes--;
}

static void remember(struct explore *e, const struct node *node)
{
	if (node->depth + 1 >= e->max_path) {
		e->max_path = node->depth * 2 + 64;
		e->path = grow(e->path, e->max_path * sizeof(*e->path));
	}
	e->path[node->depth] = node->name;
	e->depth = node->depth;
}

static void search(struct explore *e, const void *model, explore_expand *expand,
                   uint64_t max_states, struct explore_result *result)
{
	uint8_t *const state = grow(NULL, e->state_bytes);

	while (e->n_nodes && !result->wrong) {
		const struct node *const node =
			(struct node *)(void *)(e->stack +
		                                --e->n_nodes * e->node_bytes);

		remember(e, node);
		memcpy(state, node->state, e->state_bytes);
		if (e->depth > result->max_depth)
			result->max_depth = (uint32_t)e->depth;
		e->last = 0;
		result->wrong = expand(model, state, e);
		if (!result->wrong && e->n_seen > max_states)
			result->wrong = "more states than expected";
	}
	free(state);
}

struct explore_result explore(const void *model, explore_expand *expand,
                              const uint8_t *first, size_t bytes,
                              uint64_t max_states)
{
	struct explore e = {.state_bytes = bytes};
	struct explore_result result = {.wrong = NULL};

	e.padded_bytes = round_up(bytes, HASH_BYTES);
	e.node_bytes = sizeof(struct node) + e.padded_bytes;
	e.seen_mask = (1 << 15) - 1;
	double_seen(&e);
	explore_emit(&e, first, 0);
	e.n_steps = 0;
	search(&e, model, expand, max_states, &result);
	result.n_states = e.n_seen;
	result.n_steps = e.n_steps;
	free(e.stack);
	free(e.seen);
	if (!result.wrong) {
		free(e.path);
		return result;
	}
	/* The first state has depth 1, so steps begin at path[2]. */
	e.path[e.depth + 1] = e.last;
	result.n_path = (uint32_t)(e.last ? e.depth : e.depth - 1);
	memmove(e.path, e.path + 2, result.n_path * sizeof(*e.path));
	result.path = e.path;
	return result;
}
