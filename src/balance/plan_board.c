/* SPDX-License-Identifier: Apache-2.0 */
/* Lays experts out for searching, and looks through pairs of lists. */
#include "plan_board.h"

#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/ctx.h"
#include "plan_inner.h"

enum ferry_status plan_board_init(struct plan_board *board, int32_t max_slots,
                                  int32_t max_ranks)
{
	const size_t n_keys =
		(size_t)(max_slots > max_ranks ? max_slots : max_ranks);
	const size_t n = (size_t)min_i64(max_ranks, BOARD_PLACES);

	board->max_places = (int32_t)n;
	board->rank = malloc(n * sizeof(*board->rank));
	board->excess = malloc(n * sizeof(*board->excess));
	board->list = malloc(n * sizeof(*board->list));
	board->key = malloc(n_keys * sizeof(*board->key));
	board->item = malloc(n_keys * sizeof(*board->item));
	if (board->rank && board->excess && board->list && board->key &&
	    board->item)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_NOMEM, "planner: %d slots, %d ranks",
	                  max_slots, max_ranks);
}

void plan_board_destroy(struct plan_board *board)
{
	free(board->rank);
	free(board->excess);
	free(board->list);
	free(board->key);
	free(board->item);
}

/* Falling keys; equal ones by rising items. Shell's sort: short lists. */
static void sort_falling(int64_t *key, int32_t *item, int32_t n)
{
	static const int32_t gaps[] = {1, 4, 13, 40, 121, 364, 1093, 9841};
	int g = 0;

	while (g < 7 && gaps[g + 1] * 3 < n)
		g++;
	for (; g >= 0; g--) {
		const int32_t gap = gaps[g];

		for (int32_t i = gap; i < n; i++) {
			const int64_t k = key[i];
			const int32_t it = item[i];
			int32_t j = i;

			for (; j >= gap &&
			       (key[j - gap] < k ||
			        (key[j - gap] == k && item[j - gap] > it));
			     j -= gap) {
				key[j] = key[j - gap];
				item[j] = item[j - gap];
			}
			key[j] = k;
			item[j] = it;
		}
	}
}

/* Repeats the last load until the lanes are full. */
static void pad(struct board_list *list)
{
	for (int32_t i = list->n; i > 0 && i % BOARD_LANES; i++)
		list->load[i] = list->load[list->n - 1];
}

static void fill_list(struct plan_board *board, const struct ferry_problem *p,
                      struct board_list *list, int32_t rank)
{
	int32_t n = 0;

	/* By expert where loads are equal, whatever slot it is in. */
	for (int32_t s = p->first_slot[rank]; s < p->first_slot[rank + 1]; s++)
		if (p->slot_expert[s] >= 0) {
			board->key[n] = p->slot_load[s];
			board->item[n++] = s;
		}
	sort_falling(board->key, board->item, n);
	const int32_t skip = n > BOARD_LIST ? n - BOARD_LIST : 0;

	list->n = n - skip;
	for (int32_t i = 0; i < list->n; i++) {
		const int32_t at = i < BOARD_LIST / 2 ? i : i + skip;

		list->load[i] = (int16_t)(board->key[at] >> board->shift);
		list->slot[i] = board->item[at];
	}
	pad(list);
}

void plan_board_fill(struct plan_board *board, const struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t full = p->max_swaps + 1;
	const int32_t empty = p->max_swaps + BOARD_SPARE;
	int64_t most = 0;

	for (int32_t r = 0; r < p->n_ranks; r++) {
		board->key[r] = p->rank_load[r] * p->weight[r];
		board->item[r] = r;
		most |= p->rank_load[r];
	}
	sort_falling(board->key, board->item, p->n_ranks);
	for (board->shift = 0; most >> board->shift >> BOARD_BITS;)
		board->shift++;
	board->n = 0;
	for (int32_t i = 0; i < p->n_ranks; i++)
		if (i < full || i >= p->n_ranks - empty)
			board->rank[board->n++] = board->item[i];
	for (int32_t i = 0; i < board->n; i++)
		fill_list(board, p, &board->list[i], board->rank[i]);
}

void plan_board_aim(struct plan_board *board, const struct ferry_planner *pl,
                    int64_t max_time)
{
	const int64_t most = (int64_t)1 << BOARD_BITS;

	for (int32_t i = 0; i < board->n; i++) {
		const int32_t r = board->rank[i];
		const int64_t cap =
			(max_time / pl->problem.weight[r]) >> board->shift;

		board->excess[i] = (int32_t)max_i64(
			-most, (pl->load[r] >> board->shift) - cap);
	}
}

struct board_near plan_board_near(const struct board_list *from,
                                  const struct board_list *to, int32_t limit)
{
	int16_t low[BOARD_LANES], high[BOARD_LANES];

	for (int l = 0; l < BOARD_LANES; l++) {
		low[l] = INT16_MAX;
		high[l] = INT16_MIN;
	}
	/* limit - difference, as an unsigned number: the least one is nearest
	 * below the limit, the greatest one, beyond the wrap, nearest above.
	 * The sign bit turned over makes that a signed comparison. */
	for (int32_t i = 0; i < from->n; i++) {
		const int16_t add =
			(int16_t)((limit - from->load[i]) ^ INT16_MIN);

		for (int32_t j = 0; j < to->n; j += BOARD_LANES)
			for (int l = 0; l < BOARD_LANES; l++) {
				const int16_t v =
					(int16_t)(to->load[j + l] + add);

				low[l] = v < low[l] ? v : low[l];
				high[l] = v > high[l] ? v : high[l];
			}
	}
	int32_t least = low[0], most = high[0];

	for (int l = 1; l < BOARD_LANES; l++) {
		least = low[l] < least ? low[l] : least;
		most = high[l] > most ? high[l] : most;
	}
	least -= INT16_MIN;
	most -= INT16_MIN;
	const struct board_near near = {
		least <= INT16_MAX ? limit - least : -BOARD_NONE,
		most > INT16_MAX ? limit + 65536 - most : BOARD_NONE,
	};

	return near;
}

static struct board_end end_at(const struct plan_board *board, int32_t place,
                               int32_t index)
{
	const struct board_list *const list = &board->list[place];
	const struct board_end end = {place, index, list->slot[index],
	                              list->load[index]};

	return end;
}

struct board_swap plan_board_find(const struct plan_board *board, int32_t from,
                                  int32_t to, int32_t difference)
{
	const struct board_list *const a = &board->list[from];
	const struct board_list *const b = &board->list[to];
	int32_t i = 0, j = 0;

	/* Both lists fall: raising i lowers the difference, j raises it. */
	for (;;) {
		const int32_t d = a->load[i] - b->load[j];

		if (d == difference)
			break;
		i += d > difference;
		j += d < difference;
	}
	const struct board_swap swap = {end_at(board, from, i),
	                                end_at(board, to, j)};

	return swap;
}

static void take(struct board_list *list, int32_t index)
{
	const size_t behind = (size_t)(--list->n - index);

	memmove(&list->load[index], &list->load[index + 1],
	        behind * sizeof(*list->load));
	memmove(&list->slot[index], &list->slot[index + 1],
	        behind * sizeof(*list->slot));
	pad(list);
}

static void put(struct board_list *list, const struct board_end *end)
{
	const size_t behind = (size_t)(list->n++ - end->index);
	int16_t *const load = &list->load[end->index];
	int32_t *const slot = &list->slot[end->index];

	memmove(load + 1, load, behind * sizeof(*load));
	memmove(slot + 1, slot, behind * sizeof(*slot));
	*load = end->load;
	*slot = end->slot;
	pad(list);
}

void plan_board_take(struct plan_board *board, struct board_swap swap)
{
	take(&board->list[swap.from.place], swap.from.index);
	take(&board->list[swap.to.place], swap.to.index);
}

void plan_board_put(struct plan_board *board, struct board_swap swap)
{
	put(&board->list[swap.to.place], &swap.to);
	put(&board->list[swap.from.place], &swap.from);
}
