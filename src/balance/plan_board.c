/* SPDX-License-Identifier: Apache-2.0 */
/* Lays experts out for searching, and looks through pairs of lists. */
#include "plan_board.h"

#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/ctx.h"
#include "plan_inner.h"
#include "plan_lanes.h"

enum ferry_status ferry_board_init(struct plan_board *board, int32_t max_slots,
                                   int32_t max_ranks)
{
	const size_t n_keys =
		(size_t)(max_slots > max_ranks ? max_slots : max_ranks);
	const size_t n = (size_t)min_i64(max_ranks, BOARD_PLACES);

	board->rank = malloc(n * sizeof(*board->rank));
	board->excess = malloc(round_up(n, LANES) * sizeof(*board->excess));
	board->list = malloc(n * sizeof(*board->list));
	board->key = malloc(n_keys * sizeof(*board->key));
	board->item = malloc(n_keys * sizeof(*board->item));
	if (board->rank && board->excess && board->list && board->key &&
	    board->item)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_NOMEM, "planner: %d slots, %d ranks",
	                  max_slots, max_ranks);
}

void ferry_board_destroy(struct plan_board *board)
{
	free(board->rank);
	free(board->excess);
	free(board->list);
	free(board->key);
	free(board->item);
}

/*
 * Sorts up to BOARD_LIST keys, >= 0, nearly: how many others come before each,
 * by their upper bits, gives its index. Sixteen keys take some 20 ns so, and
 * 200 ns by insertion, most of them for branches that no one can foresee.
 */
static void sort_coarsely(int64_t *key, int32_t *item, int32_t n)
{
	int16_t upper[BOARD_LIST], before[BOARD_LIST];
	/* later[BOARD_LIST - j + i] is -1 where i > j. */
	static const int16_t later[2 * BOARD_LIST] = {
#define MINUS_8 -1, -1, -1, -1, -1, -1, -1, -1
		[BOARD_LIST + 1] = -1,
		-1,
		-1,
		-1,
		-1,
		-1,
		-1,
		MINUS_8,
		MINUS_8,
		MINUS_8,
		MINUS_8,
		MINUS_8,
		MINUS_8,
		MINUS_8
#undef MINUS_8
	};
	int64_t copy[BOARD_LIST], all = 0;
	int32_t copied[BOARD_LIST], shift = 0;

	for (int32_t i = 0; i < n; i++) {
		copy[i] = key[i];
		copied[i] = item[i];
		all |= key[i];
	}
	while (all >> shift >> BOARD_BITS)
		shift++;
	for (int32_t i = 0; i < n; i++)
		upper[i] = (int16_t)(key[i] >> shift);
	for (int32_t i = n; i % LANES; i++)
		upper[i] = 0;
	for (int32_t i = 0; i < n; i += LANES) {
		const lanes own = lanes_load(upper + i);
		lanes count = lanes_all(0);

		for (int32_t j = 0; j < n; j++)
			count = lanes_count(
				count, lanes_all(upper[j]),
				lanes_add(own, lanes_load(later + BOARD_LIST -
			                                  j + i)));
		lanes_store(before + i, count);
	}
	for (int32_t i = 0; i < n; i++) {
		key[before[i]] = copy[i];
		item[before[i]] = copied[i];
	}
}

/*
 * Falling keys, >= 0; equal ones by rising items, as which they come. Shell's
 * sort, which is insertion for short lists.
 */
static void sort_falling(int64_t *key, int32_t *item, int32_t n)
{
	static const int32_t gaps[] = {1, 4, 13, 40, 121, 364, 1093, 9841};
	int g = 0;

	if (n <= BOARD_LIST)
		sort_coarsely(key, item, n);
	while (n > BOARD_LIST && g < 7 && gaps[g + 1] * 3 < n)
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
	for (int32_t i = list->n; i > 0 && i % LANES; i++)
		list->load[i] = list->load[list->n - 1];
}

static void fill_list(struct plan_board *board, const struct ferry_planner *pl,
                      struct board_list *list, int32_t rank)
{
	const struct ferry_problem *const p = &pl->problem;
	int32_t n = 0;

	/* By expert where loads are equal, whatever slot it is in. */
	for (int32_t s = p->first_slot[rank]; s < p->first_slot[rank + 1]; s++)
		if (p->slot_expert[s] >= 0 && !pl->taken[p->slot_expert[s]]) {
			board->key[n] = pl->slot_load[s];
			board->item[n++] = s;
		}
	sort_falling(board->key, board->item, n);
	const int32_t skip = n > BOARD_LIST ? n - BOARD_LIST : 0;

	list->n = n - skip;
	for (int32_t i = 0; i < list->n; i++) {
		const int32_t at = i < BOARD_LIST / 2 ? i : i + skip;

		list->load[i] = (int16_t)(board->key[at] >> board->shift);
		list->slot[i] = board->item[at];
		list->name[i] = (uint8_t)i;
	}
	pad(list);
}

void ferry_board_fill(struct plan_board *board, const struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t full = p->max_swaps + 1;
	const int32_t empty = p->max_swaps + BOARD_SPARE;
	int64_t most = 0;

	for (int32_t r = 0; r < p->n_ranks; r++) {
		board->key[r] = plan_time(pl, r);
		board->item[r] = r;
		most |= pl->load[r];
	}
	sort_falling(board->key, board->item, p->n_ranks);
	for (board->shift = 0; most >> board->shift >> BOARD_BITS;)
		board->shift++;
	board->n = 0;
	for (int32_t i = 0; i < p->n_ranks; i++)
		if (i < full || i >= p->n_ranks - empty)
			board->rank[board->n++] = board->item[i];
	for (int32_t i = 0; i < board->n; i++)
		fill_list(board, pl, &board->list[i], board->rank[i]);
}

void ferry_board_aim(struct plan_board *board, const struct ferry_planner *pl,
                     int64_t max_time)
{
	const int64_t most = (int64_t)1 << BOARD_BITS;

	for (int32_t i = 0; i < board->n; i++) {
		const int32_t r = board->rank[i];
		const int64_t tokens =
			pl->problem.has_speed ? max_time / pl->problem.weight[r]
					      : max_time;
		const int64_t cap = tokens >> board->shift;

		board->excess[i] = (int16_t)max_i64(
			-most, (pl->load[r] >> board->shift) - cap);
	}
	for (int32_t i = board->n; i % LANES; i++)
		board->excess[i] = INT16_MIN;
}

static struct board_end end_at(const struct plan_board *board, int32_t place,
                               int32_t index)
{
	const struct board_list *const list = &board->list[place];
	const uint8_t name = list->name[index];
	const struct board_end end = {place, index, list->slot[name],
	                              list->load[index], name};

	return end;
}

struct board_swap ferry_board_find(const struct plan_board *board, int32_t from,
                                   int32_t to, int32_t difference)
{
	const struct board_list *const a = &board->list[from];
	const struct board_list *const b = &board->list[to];
	int32_t i = 0, j = 0;

	/* Both lists fall: raising i lowers the difference, j raises it. */
	for (;;) {
		while (a->load[i] - b->load[j] > difference)
			i++;
		if (a->load[i] - b->load[j] == difference)
			break;
		while (a->load[i] - b->load[j] < difference)
			j++;
	}
	const struct board_swap swap = {end_at(board, from, i),
	                                end_at(board, to, j)};

	return swap;
}

static void take(struct board_list *list, int32_t index)
{
	list->n--;
	for (int32_t i = index; i < list->n; i += LANES) {
		int16_t load[LANES];
		uint8_t name[LANES];

		memcpy(load, &list->load[i + 1], sizeof(load));
		memcpy(&list->load[i], load, sizeof(load));
		memcpy(name, &list->name[i + 1], sizeof(name));
		memcpy(&list->name[i], name, sizeof(name));
	}
	pad(list);
}

static void put(struct board_list *list, const struct board_end *end)
{
	int16_t load[LANES], next_load[LANES];
	uint8_t name[LANES], next_name[LANES];

	memcpy(load, &list->load[end->index], sizeof(load));
	memcpy(name, &list->name[end->index], sizeof(name));
	for (int32_t i = end->index; i < list->n; i += LANES) {
		memcpy(next_load, &list->load[i + LANES], sizeof(load));
		memcpy(next_name, &list->name[i + LANES], sizeof(name));
		memcpy(&list->load[i + 1], load, sizeof(load));
		memcpy(&list->name[i + 1], name, sizeof(name));
		memcpy(load, next_load, sizeof(load));
		memcpy(name, next_name, sizeof(name));
	}
	list->n++;
	list->load[end->index] = end->load;
	list->name[end->index] = end->name;
	pad(list);
}

void ferry_board_take(struct plan_board *board, struct board_swap swap)
{
	take(&board->list[swap.from.place], swap.from.index);
	take(&board->list[swap.to.place], swap.to.index);
}

void ferry_board_put(struct plan_board *board, struct board_swap swap)
{
	put(&board->list[swap.to.place], &swap.to);
	put(&board->list[swap.from.place], &swap.from);
}
