/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the bounds, and the items that they argue with. */
#include <stdlib.h>
#include <string.h>

#include "../core/ctx.h"
#include "../core/placement_inner.h"
#include "bound_inner.h"

/* All arrays of int64_t lie in one block, which begins with light. */
static void share_wide(struct ferry_bound *b, int64_t *at, size_t n_keys)
{
	const size_t slots = (size_t)b->max_slots;
	const size_t ranks = (size_t)b->max_ranks;

	b->light = at;
	b->light_sum = at += slots;
	b->heavy = at += slots + 1;
	b->away = at += slots;
	b->gain = at += slots;
	b->load = at += slots + ranks;
	b->room = at += ranks;
	b->heaviest = at += ranks;
	b->into = at += ranks;
	b->demand = at += ranks;
	b->key = at += ranks;
	b->sorted = at + n_keys;
}

/* And all of int32_t in one that begins with light_rank. */
static void share_narrow(struct ferry_bound *b, int32_t *at)
{
	const size_t ranks = (size_t)b->max_ranks;

	b->light_rank = at;
	b->first = at += b->max_slots;
	b->copies = at += ranks + 1;
	b->most_moves = at += ranks;
	b->n_gain = at += ranks;
	b->needed = at + ranks;
}

enum ferry_status ferry_bound_init(struct ferry_bound *b, int32_t max_slots,
                                   int32_t max_ranks)
{
	const size_t slots = (size_t)max_slots;
	const size_t ranks = (size_t)max_ranks;
	const size_t n_keys = slots > ranks ? slots : ranks;

	memset(b, 0, sizeof(*b));
	b->max_slots = max_slots;
	b->max_ranks = max_ranks;
	int64_t *const wide = malloc((5 * slots + 6 * ranks + 1 + 2 * n_keys) *
	                             sizeof(*wide));
	int32_t *const narrow =
		malloc((slots + 5 * ranks + 1) * sizeof(*narrow));

	if (!wide || !narrow) {
		free(wide);
		free(narrow);
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "planner: bounds of %d slots, %d ranks",
		                  max_slots, max_ranks);
	}
	share_wide(b, wide, n_keys);
	share_narrow(b, narrow);
	return FERRY_OK;
}

void ferry_bound_destroy(struct ferry_bound *b)
{
	free(b->light);
	free(b->light_rank);
	memset(b, 0, sizeof(*b));
}

/* The least that one replica of an expert can weigh. */
static int64_t least_share(const struct ferry_problem *p, int32_t expert)
{
	const int32_t n =
		p->first_replica[expert + 1] - p->first_replica[expert];

	if (n == 1)
		return p->loads[expert];
	return p->placement->split == FERRY_SPLIT_EVEN ? p->loads[expert] / n
	                                               : 0;
}

static void list_items(struct ferry_bound *b, const struct ferry_problem *p)
{
	int32_t n = 0;

	for (int32_t r = 0; r < p->n_ranks; r++) {
		int64_t sum = 0;

		b->first[r] = n;
		for (int32_t s = p->first_slot[r]; s < p->first_slot[r + 1];
		     s++) {
			const int32_t e = p->slot_expert[s];

			if (e < 0)
				continue;
			const int64_t load = least_share(p, e);

			b->key[n++] = bound_key(load, r);
			sum += load;
		}
		b->load[r] = sum;
	}
	b->first[p->n_ranks] = n;
	b->n_items = n;
}

static void sort_items(struct ferry_bound *b)
{
	int64_t sum = 0;

	ferry_bound_sort(b->key, b->n_items, b->sorted);
	for (int32_t i = 0; i < b->n_items; i++) {
		b->light_sum[i] = sum;
		sum += b->sorted[i] >> BOUND_RANK_BITS;
	}
	b->light_sum[b->n_items] = sum;
}

void ferry_bound_spread(struct ferry_bound *b, int32_t n_ranks)
{
	int32_t *const at = b->needed;

	for (int32_t r = 0; r < n_ranks; r++)
		at[r] = b->first[r + 1];
	for (int32_t i = 0; i < b->n_items; i++) {
		const int32_t r = bound_key_rank(b->sorted[i]);

		b->light[i] = b->sorted[i] >> BOUND_RANK_BITS;
		b->light_rank[i] = r;
		b->heavy[--at[r]] = b->light[i];
	}
}

/* How many copies there may be, and how many items get lighter by them. */
static void count_copies(struct ferry_bound *b, const struct ferry_problem *p)
{
	int64_t sum = 0;
	int32_t most = 1;

	for (int32_t r = 0; r < p->n_ranks; r++) {
		const int32_t empty = p->first_slot[r + 1] - p->first_slot[r] -
		                      bound_n_items(b, r);

		b->copies[r] = p->max_copies < empty ? p->max_copies : empty;
		sum += b->copies[r];
	}
	sum = min_i64(sum, FERRY_PLAN_MOVES);
	b->n_copies = p->n_ranks > 1 ? (int32_t)sum : 0;
	for (int32_t e = 0; p->has_replicas && b->n_copies && e < p->n_experts;
	     e++) {
		const int32_t n = p->first_replica[e + 1] - p->first_replica[e];

		most = n > most ? n : most;
	}
	b->n_lightened =
		(int32_t)min_i64(b->n_items, (int64_t)b->n_copies * most);
}

static void count_holders(struct ferry_bound *b, const struct ferry_problem *p)
{
	b->n_holders = 0;
	b->fewest = b->fewest_two = 0;
	b->fastest = b->fastest_any = 1;
	b->uniform = true;
	for (int32_t r = 0; r < p->n_ranks; r++) {
		const int32_t n = bound_n_items(b, r);

		b->uniform &=
			n == bound_n_items(b, 0) && p->speed[r] == p->speed[0];
		if ((n || b->copies[r]) && p->speed[r] > b->fastest_any)
			b->fastest_any = p->speed[r];
		if (n == 0)
			continue;
		b->n_holders++;
		if (b->fewest == 0 || n < b->fewest)
			b->fewest = n;
		if (n > 1 && (b->fewest_two == 0 || n < b->fewest_two))
			b->fewest_two = n;
		if (p->speed[r] > b->fastest)
			b->fastest = p->speed[r];
	}
}

void ferry_bound_items(struct ferry_bound *b, const struct ferry_problem *p)
{
	list_items(b, p);
	sort_items(b);
	count_copies(b, p);
	count_holders(b, p);
}
