/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies into slots that a plan leaves empty. A plan stops copying where the
 * predicted loads are even; but the exact split repairs a wrong prediction only
 * between ranks that hold the same expert, so what is left goes to the experts
 * with the most tokens for each copy. tests/balance/test_repair.c measures it.
 */
#include "replay_parts.h"

static bool rank_has(const struct ferry_placement *p,
                     const int32_t *slot_expert, int32_t rank, int32_t expert)
{
	const int32_t end = ferry_placement_first_slot(p, rank + 1);

	for (int32_t s = ferry_placement_first_slot(p, rank); s < end; s++)
		if (slot_expert[s] == expert)
			return true;
	return false;
}

/* Empty slots of a rank; *slot is the first. */
static int32_t count_empty(const struct ferry_placement *p,
                           const int32_t *slot_expert, int32_t rank,
                           int32_t *slot)
{
	int32_t n = 0;

	for (int32_t s = ferry_placement_first_slot(p, rank + 1) - 1;
	     s >= ferry_placement_first_slot(p, rank); s--)
		if (slot_expert[s] < 0) {
			*slot = s;
			n++;
		}
	return n;
}

/* The slot of the emptiest rank without the expert; -1: none. */
static int32_t find_slot(const struct replay_layer *l,
                         const struct ferry_placement *p, int32_t expert)
{
	int32_t best = -1, most = 0;

	for (int32_t r = 0; r < l->config->n_ranks; r++) {
		int32_t slot;
		const int32_t n = count_empty(p, l->target, r, &slot);

		if (n > most && !rank_has(p, l->target, r, expert)) {
			most = n;
			best = slot;
		}
	}
	return best;
}

/* Slots that hold an expert. */
static int32_t count_copies(const struct replay_layer *l, int32_t expert)
{
	int32_t n = 0;

	for (int32_t s = 0; s < l->n_slots; s++)
		n += l->target[s] == expert;
	return n;
}

/* One more copy of the expert that has the most tokens for each. */
static bool fill_one(struct replay_layer *l, const struct ferry_placement *p)
{
	int32_t best = -1, best_copies = 0, best_slot = -1;

	for (int32_t e = 0; e < l->n_experts; e++) {
		const int32_t n = count_copies(l, e);

		if (best >= 0 &&
		    l->predicted[e] * best_copies <= l->predicted[best] * n)
			continue;
		const int32_t slot = find_slot(l, p, e);

		if (slot < 0)
			continue;
		best = e;
		best_copies = n;
		best_slot = slot;
	}
	if (best >= 0)
		l->target[best_slot] = best;
	return best >= 0;
}

int32_t replay_fill(struct replay_layer *l, const struct ferry_placement *p)
{
	int32_t n = 0;

	for (int32_t s = 0; s < l->n_slots; s++)
		l->target[s] = ferry_placement_expert(p, s);
	while (fill_one(l, p))
		n++;
	return n;
}
