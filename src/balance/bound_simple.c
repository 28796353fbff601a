/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds that look at no budget. n_lightened items, whichever they are, count
 * nothing, because copies may lighten them: low() drops the heaviest of those
 * that it would add up, top() begins after the heaviest of all.
 */
#include "../core/placement_inner.h"
#include "bound_inner.h"

/* No m items weigh less. */
static int64_t low(const struct ferry_bound *b, int64_t m)
{
	const int64_t n = min_i64(m - b->n_lightened, b->n_items);

	return n > 0 ? b->light_sum[n] : 0;
}

/* Sum of n items: the heaviest but `from`. */
static int64_t top(const struct ferry_bound *b, int64_t from, int64_t n)
{
	const int64_t end = b->n_items - b->n_lightened - from;

	return end > 0 ? b->light_sum[end] - b->light_sum[max_i64(end - n, 0)]
	               : 0;
}

/* Ordinary rank's tokens: `tokens` shared by ranks whose speeds add to it. */
static int64_t shared(int64_t tokens, int64_t speed)
{
	return div_up(tokens * FERRY_SPEED_NORMAL, speed);
}

/*
 * Ranks in order of items for their speed: those at the front have to hold so
 * many that even the lightest weigh something. All together: the mean, over the
 * ranks that can hold anything.
 */
static int64_t front_bound(struct ferry_bound *b, const struct ferry_problem *p)
{
	int64_t best = 0;
	int64_t n_items = 0;
	int64_t speed = 0;

	if (b->uniform)
		return shared(p->total, p->sum_speed);
	for (int32_t r = 0; r < p->n_ranks; r++) {
		b->key[r] = bound_key(
			((int64_t)bound_n_items(b, r) << 20) / p->speed[r], r);
		speed += bound_n_items(b, r) || b->copies[r] ? p->speed[r] : 0;
	}
	if (speed)
		best = shared(p->total, speed);
	ferry_bound_sort(b->key, p->n_ranks, b->room);
	speed = 0;
	for (int32_t i = p->n_ranks - 1; i >= 0; i--) {
		const int32_t r = bound_key_rank(b->room[i]);

		n_items += bound_n_items(b, r);
		speed += p->speed[r];
		best = max_i64(best, shared(low(b, n_items), speed));
		best = max_i64(best,
		               ferry_normal_load(low(b, bound_n_items(b, r)),
		                                 p->speed[r]));
	}
	return best;
}

/* The heaviest item is on some rank, with the lightest companions. */
static int64_t heaviest_bound(const struct ferry_bound *b,
                              const struct ferry_problem *p)
{
	const int64_t heavy = top(b, 0, 1);
	int64_t best = INT64_MAX;

	if (b->uniform)
		return ferry_normal_load(heavy + low(b, b->fewest - 1),
		                         p->speed[0]);
	for (int32_t r = 0; r < p->n_ranks; r++) {
		const int32_t n = bound_n_items(b, r);

		if (n)
			best = min_i64(best,
			               ferry_normal_load(heavy + low(b, n - 1),
			                                 p->speed[r]));
	}
	return best;
}

/* Two of the j heaviest are together on a rank: at best the last two. */
static int64_t pair_bound(const struct ferry_bound *b, int64_t j)
{
	if (!b->fewest_two)
		return INT64_MAX;
	return ferry_normal_load(top(b, j - 2, 2) + low(b, b->fewest_two - 2),
	                         b->fastest);
}

/*
 * They are on j ranks, which share it all with the lightest companions. One of
 * these ranks has the heaviest of so many different companions.
 */
static int64_t apart_bound(const struct ferry_bound *b, int64_t j)
{
	const int64_t n = j * (b->fewest - 1);

	if (j > b->n_holders)
		return INT64_MAX;
	const int64_t all = shared(top(b, 0, j) + low(b, n), j * b->fastest);
	const int64_t one = top(b, j - 1, 1) + low(b, n) - low(b, n - 1) +
	                    low(b, b->fewest - 2);

	return n ? max_i64(all, ferry_normal_load(one, b->fastest)) : all;
}

/*
 * Of the j heaviest items two share a rank or none do. With one more than ranks
 * two must; with m * ranks + 1 some m + 1 must.
 */
static int64_t crowd_bound(const struct ferry_bound *b)
{
	const int64_t holders = b->n_holders;
	const int64_t n = b->n_items - b->n_lightened;
	int64_t best = 0;

	for (int64_t j = 2; j <= holders + 1 && j <= n; j++)
		best = max_i64(best,
		               min_i64(pair_bound(b, j), apart_bound(b, j)));
	for (int64_t m = 2; m * holders < n; m++) {
		const int64_t heavy = top(b, m * holders - m, m + 1) +
		                      low(b, b->fewest - m - 1);

		best = max_i64(best, ferry_normal_load(heavy, b->fastest));
	}
	return best;
}

/*
 * An expert is on at most so many ranks, its replicas and one more for each
 * copy that is allowed; the old ones have companions.
 */
static int64_t hosts_bound(const struct ferry_bound *b,
                           const struct ferry_problem *p)
{
	int64_t best = 0;

	if (!p->has_replicas && !b->n_copies)
		return 0;
	for (int32_t e = 0; e < p->n_experts; e++) {
		const int64_t n = p->first_replica[e + 1] - p->first_replica[e];
		const int64_t hosts = min_i64(n + b->n_copies, p->n_ranks);
		const int64_t sum = p->loads[e] + low(b, n * (b->fewest - 1));

		best = max_i64(best,
		               shared(sum, hosts * (int64_t)b->fastest_any));
	}
	return best;
}

/* Whether all loads stay as they are. */
static bool nothing_moves(const struct ferry_bound *b,
                          const struct ferry_problem *p)
{
	return (p->max_swaps == 0 || p->n_ranks == 1) && b->n_copies == 0 &&
	       (!p->has_replicas || p->placement->split != FERRY_SPLIT_EXACT);
}

int64_t ferry_bound_simple(struct ferry_bound *b, const struct ferry_problem *p)
{
	ferry_bound_items(b, p);
	if (nothing_moves(b, p))
		return ferry_problem_max_load(p, p->rank_load);
	int64_t best = front_bound(b, p);

	best = max_i64(best, heaviest_bound(b, p));
	best = max_i64(best, crowd_bound(b));
	return max_i64(best, hosts_bound(b, p));
}
