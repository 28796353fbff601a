/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The budgeted bound: a load is refuted when getting all ranks down to it takes
 * more moves than there are, and the least that is not refuted is found by
 * bisection. A swap lowers one of its two ranks at most, so that the moves that
 * different ranks need add up.
 */
#include "bound_inner.h"

enum {
	MOST_SPARE = 3,      /* moves beyond those needed: more prove little */
	MOST_STEPS = 65536,  /* for adding up the largest rooms */
	MOST_LOOKS = 1 << 20 /* at items, for where they can go */
};

/*
 * What 1, 2 .. moves save a rank at most: its heaviest items against the
 * lightest of all others; a copy brings nothing in.
 */
static void list_gains(struct ferry_bound *b, const struct ferry_problem *p,
                       int32_t r)
{
	int64_t *const gain = b->gain + b->first[r] + r;
	const int64_t *const heavy = b->heavy + b->first[r];
	const int64_t most = min_i64(b->most_moves[r], b->n_moves);
	int32_t in = 0;
	int32_t n = 0;

	(void)p;
	gain[0] = 0;
	while (n < most) {
		while (in < b->n_items && b->light_rank[in] == r)
			in++;
		if (b->n_copies == 0 &&
		    (in == b->n_items || b->light[in] >= heavy[n]))
			break;
		gain[n + 1] =
			gain[n] + heavy[n] - (b->n_copies ? 0 : b->light[in++]);
		n++;
	}
	b->n_gain[r] = n;
}

/* Fewest moves that save `excess`; n_gain + 1: none do. */
static int32_t moves_for(const struct ferry_bound *b, int32_t r, int64_t excess)
{
	const int64_t *const gain = b->gain + b->first[r] + r;
	int32_t low = 0;
	int32_t high = b->n_gain[r] + 1;

	while (low < high) {
		const int32_t middle = low + (high - low) / 2;

		if (gain[middle] >= excess)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/*
 * n moves reach n ranks that are not too full: what they can take up together.
 * room[] is used up.
 */
static int64_t largest_rooms(int64_t *room, int32_t n_ranks, int64_t n)
{
	int64_t sum = 0;

	for (; n > 0; n--) {
		int32_t best = 0;

		for (int32_t r = 1; r < n_ranks; r++)
			if (room[r] > room[best])
				best = r;
		sum += room[best];
		room[best] = 0;
	}
	return sum;
}

/* Loads of ranks above z have to find room in as many ranks as moves reach. */
static bool finds_room(struct ferry_bound *b, const struct ferry_problem *p,
                       int64_t z)
{
	int64_t excess = 0;

	if (b->n_copies || b->n_moves >= p->n_ranks ||
	    b->n_moves * p->n_ranks > MOST_STEPS)
		return true;
	for (int32_t r = 0; r < p->n_ranks; r++) {
		const int64_t room = bound_capacity(p, r, z) - b->load[r];

		b->room[r] = max_i64(room, 0);
		excess -= room - b->room[r];
	}
	return excess <= largest_rooms(b->room, p->n_ranks, b->n_moves);
}

/* Moves beyond those that all ranks above z need; negative: too few. */
static int64_t spare_moves(struct ferry_bound *b, const struct ferry_problem *p,
                           int64_t z)
{
	int64_t spare = b->n_moves;

	for (int32_t r = 0; r < p->n_ranks; r++) {
		const int64_t excess = b->load[r] - bound_capacity(p, r, z);

		b->needed[r] = excess > 0 ? moves_for(b, r, excess) : 0;
		if (b->needed[r] > b->n_gain[r])
			return -1;
		spare -= b->needed[r];
	}
	return spare;
}

/* Without spare moves, excesses that go to one rank only go there together. */
static bool demands_fit(const struct ferry_bound *b,
                        const struct ferry_problem *p, int64_t z)
{
	for (int32_t r = 0; r < p->n_ranks; r++)
		if (b->demand[r] > bound_capacity(p, r, z) - b->load[r] +
		                           bound_gain(b, r, b->needed[r]))
			return false;
	return true;
}

static bool refuted(struct ferry_bound *b, const struct ferry_problem *p,
                    int64_t z)
{
	const int64_t spare = spare_moves(b, p, z);

	if (spare < 0 || !finds_room(b, p, z))
		return true;
	if (spare > MOST_SPARE || b->n_copies)
		return false;
	int64_t n_above = 0;

	for (int32_t r = 0; r < p->n_ranks; r++) {
		b->demand[r] = 0;
		n_above += b->needed[r] > 0;
	}
	if (n_above * (spare + 1) * (b->n_items + p->n_ranks) > MOST_LOOKS)
		return false;
	for (int32_t r = 0; r < p->n_ranks; r++)
		if (b->needed[r] &&
		    !ferry_bound_reach(b, p, r, z, (int32_t)spare))
			return true;
	return spare == 0 && !demands_fit(b, p, z);
}

int64_t ferry_bound_budget(struct ferry_bound *b, const struct ferry_problem *p,
                           int64_t least, int64_t most)
{
	if (least >= most)
		return most;
	ferry_bound_spread(b, p->n_ranks);
	ferry_bound_moves(b, p);
	for (int32_t r = 0; r < p->n_ranks; r++)
		list_gains(b, p, r);
	if (refuted(b, p, most - 1))
		return most;
	for (most--; least < most;) {
		const int64_t middle = least + (most - least) / 2;

		if (refuted(b, p, middle))
			least = middle + 1;
		else
			most = middle;
	}
	return least;
}
