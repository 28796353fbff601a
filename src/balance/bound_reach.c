/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where what a rank gives away can go. Every rank above load z needs its
 * needed[] moves, and `spare` ones are left. If q of them go into making room
 * elsewhere, then the rank itself has its needed[] + spare - q, and rank k can
 * take up what it is below z, and what needed[] + q moves of its own save it.
 * An item for which there is no exchange with such a room stays where it is.
 *
 * What rank k gives back cannot be among the items that it gets rid of by its
 * own moves. Let these be m. If it is one of the m heaviest, the next one takes
 * its place, or nothing does; what leaves and comes is then the same whichever
 * of the m it is: heaviest[k] is the heaviest item that this makes up for.
 */
#include "bound_inner.h"

/*
 * The most that each item of rank r can save by an exchange with rank `other`:
 * for the lightest item of that rank that leaves it within its room. Both lists
 * fall, so one pass finds all. Returns the best; away[] keeps the best of each.
 */
static int64_t exchange(struct ferry_bound *b, int32_t r, int32_t other)
{
	const int64_t *const mine = b->heavy + b->first[r];
	const int64_t *const theirs = b->heavy + b->first[other];
	const int32_t n_theirs = bound_n_items(b, other);
	const int64_t room = b->room[other];
	int64_t best = 0;
	int32_t n = 0; /* of theirs are heavy enough */

	for (int32_t i = 0; i < bound_n_items(b, r); i++) {
		while (n < n_theirs && theirs[n] >= mine[i] - room)
			n++;
		const int64_t saves = n && mine[i] <= b->heaviest[other]
		                              ? mine[i] - theirs[n - 1]
		                              : 0;

		best = max_i64(best, saves);
		b->away[i] = max_i64(b->away[i], saves);
	}
	return best;
}

/* Where rank k makes up to m moves, and is `below` what it may carry. */
static void set_heaviest(struct ferry_bound *b, int32_t k, int32_t m,
                         int64_t below)
{
	const int64_t *const heavy = b->heavy + b->first[k];

	m = m < b->n_gain[k] ? m : b->n_gain[k];
	const int64_t gain = bound_gain(b, k, m);
	int64_t next = m < bound_n_items(b, k) ? heavy[m] : 0;

	/* Or one move less, and its item stays away. */
	if (m > 0)
		next = max_i64(next,
		               bound_gain(b, k, m - 1) + heavy[m - 1] - gain);
	b->heaviest[k] = below + gain + next;
}

/* What every rank can take up while the others than r make q more moves. */
static void list_rooms(struct ferry_bound *b, const struct ferry_problem *p,
                       int64_t z, int32_t q)
{
	for (int32_t k = 0; k < p->n_ranks; k++) {
		const int64_t below = bound_capacity(p, k, z) - b->load[k];
		const int32_t m = b->needed[k] + q;

		b->room[k] = below + bound_gain(b, k, m);
		set_heaviest(b, k, m, below);
	}
}

/* Sum of the n largest of v[count], none negative, n <= count. v is lost. */
static int64_t sum_of_largest(int64_t *v, int32_t count, int32_t n)
{
	int64_t sum = 0;

	for (int32_t k = 0; k < n; k++) {
		int32_t best = k;

		for (int32_t i = k + 1; i < count; i++)
			if (v[i] > v[best])
				best = i;
		sum += v[best];
		v[best] = v[k];
	}
	return sum;
}

/* What n moves bring to the other ranks at most, each into[] a time, and not
 * above its room. */
static int64_t sum_into(struct ferry_bound *b, int32_t n_ranks, int32_t r,
                        int32_t n)
{
	int64_t sum = 0;

	for (; n > 0; n--) {
		int64_t best = 0;
		int32_t at = r;

		for (int32_t other = 0; other < n_ranks; other++) {
			const int64_t more =
				min_i64(b->into[other], b->room[other]);

			if (other != r && more > best) {
				best = more;
				at = other;
			}
		}
		sum += best;
		b->room[at] -= best;
	}
	return sum;
}

/* Books an excess that only one rank can take up at once. */
static void book_demand(struct ferry_bound *b, int32_t n_ranks, int64_t excess)
{
	int32_t n = 0;
	int32_t at = 0;

	for (int32_t k = 0; k < n_ranks; k++)
		if (b->into[k] >= excess) {
			at = k;
			n++;
		}
	if (n == 1)
		b->demand[at] += excess;
}

static bool reach_with(struct ferry_bound *b, const struct ferry_problem *p,
                       int32_t r, int64_t z, int32_t q, int32_t n)
{
	const int64_t excess = b->load[r] - bound_capacity(p, r, z);
	const int32_t n_items = bound_n_items(b, r);

	if (bound_gain(b, r, n) < excess)
		return false;
	list_rooms(b, p, z, q);
	for (int32_t i = 0; i < n_items; i++)
		b->away[i] = 0;
	for (int32_t other = 0; other < p->n_ranks; other++)
		b->into[other] =
			other == r || !ferry_bound_may_swap(b, p, r, other)
				? 0
				: exchange(b, r, other);
	if (n == 1)
		book_demand(b, p->n_ranks, excess);
	return sum_into(b, p->n_ranks, r, n) >= excess &&
	       sum_of_largest(b->away, n_items, n) >= excess;
}

bool ferry_bound_reach(struct ferry_bound *b, const struct ferry_problem *p,
                       int32_t r, int64_t z, int32_t spare)
{
	for (int32_t q = 0; q <= spare; q++) {
		const int32_t n = (int32_t)min_i64(b->needed[r] + spare - q,
		                                   b->most_moves[r]);

		if (reach_with(b, p, r, z, q, n))
			return true;
	}
	return false;
}
