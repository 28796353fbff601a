/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search for at most max_swaps swaps after which no rank is above a target.
 *
 * The fullest rank must give something away, in whatever order moves are made:
 * they are disjoint. So each level of the search takes the fullest rank, and
 * tries, of the differences to each of the emptiest ranks,
 *   - the tightest: the largest one that the receiver can take, where that
 *     brings the giver under the target; little room is lost;
 *   - the leanest: the smallest one that does so; room is left for others;
 *   - the largest one that the receiver can take, where that is not enough and
 *     the giver must give once more;
 *   - the smallest one that is enough for the giver, and too much for the
 *     receiver, which then gives to a third rank.
 * The latter two only where there are more swaps left than full ranks. A rank
 * that is full itself may receive, too, and must give more then. A thorough
 * search also lets a receiver make room first. Of each kind the best, or a few,
 * are tried, depth first, until nodes run out. With more than a few swaps there
 * is only time to look at what the giver needs for the first one.
 *
 * Measured against wider searches and proven optima: dev/planner.md.
 */
#include "plan_search.h"

#include <string.h>

#include "../core/bits.h"
#include "plan_inner.h"

enum {
	RECEIVERS = 7, /* emptiest places that are looked at */
	NODES = 12,    /* of one target, and one more for each swap */
	MANY = 32,     /* but no more than for that many swaps */
	TARGETS = 3,   /* as many nodes in all as this many targets may take */
	STEP = 200,    /* a target is this part of the best below it */
	FEW = 2,       /* with so few swaps there is time for */
	WIDE = 4,      /* this many choices of a kind; else for one */
	THOROUGH = 2000, /* nodes of one target where time does not count */
};

enum kind { TIGHT, LEAN, PARTIAL, PASS, CHAIN, ROOM, KINDS };

/* The best choices of each kind, by rising key. */
struct finds {
	int32_t width;
	int32_t n[KINDS];
	struct search_choice choice[KINDS][WIDE];
};

static void note(struct finds *finds, enum kind kind,
                 struct search_choice choice)
{
	struct search_choice *const at = finds->choice[kind];
	int32_t i = finds->n[kind];

	if (i == finds->width && choice.key >= at[i - 1].key)
		return;
	if (i == finds->width)
		i--;
	else
		finds->n[kind]++;
	for (; i > 0 && at[i - 1].key > choice.key; i--)
		at[i] = at[i - 1];
	at[i] = choice;
}

static struct search_stand stand_of(const struct plan_board *board,
                                    int32_t left)
{
	const lanes zero = lanes_all(0);
	lanes most = lanes_load(board->excess), full = zero;
	struct search_stand s = {0, 0, 0};

	for (int32_t i = 0; i < board->n; i += LANES) {
		const lanes excess = lanes_load(board->excess + i);

		most = lanes_max(most, excess);
		full = lanes_count(full, excess, zero);
	}
	const int32_t top = lanes_most(most);

	while (board->excess[s.fullest] != top)
		s.fullest++;
	s.n_full = lanes_sum(full);
	s.spare = left - s.n_full;
	return s;
}

/* What the receiver has room for: enough, not enough, or just too much. */
static void look_by_room(const struct plan_board *board,
                         struct search_stand stand, int32_t place,
                         struct finds *finds)
{
	const int32_t from = stand.fullest;
	const int32_t need = board->excess[from];
	const int32_t room = -board->excess[place];
	const struct board_near near =
		plan_board_near(&board->list[from], &board->list[place], room);
	const int32_t most = near.below, over = near.above;
	const struct search_choice tight = {from, place, most, room - most};
	const struct search_choice part = {from, place, most, -most};
	const struct search_choice chain = {from, place, over, over - room};

	if (most >= need)
		note(finds, TIGHT, tight);
	else if (most > 0 && stand.spare > 0)
		note(finds, PARTIAL, part);
	/* What makes the receiver as full as the giver is only a detour. */
	if (need <= room && stand.spare > 0 && chain.key < need)
		note(finds, CHAIN, chain);
}

/* What the giver needs: little, or more than the receiver has room for. */
static void look_by_need(const struct plan_board *board,
                         struct search_stand stand, int32_t place,
                         struct finds *finds)
{
	const int32_t from = stand.fullest;
	const int32_t need = board->excess[from];
	const int32_t room = -board->excess[place];
	const int32_t least = plan_board_near(&board->list[from],
	                                      &board->list[place], need - 1)
	                              .above;
	const struct search_choice lean = {from, place, least, least - need};
	const struct search_choice chain = {from, place, least, least - room};

	if (room < 0)
		note(finds, PASS, chain);
	else if (least <= room)
		note(finds, LEAN, lean);
	else if (need > room && stand.spare > 0 && chain.key < need)
		note(finds, CHAIN, chain);
}

/* A receiver without room enough gives to the emptiest rank first. */
static void look_for_room(const struct plan_board *board,
                          struct search_stand stand, struct finds *finds)
{
	const int32_t need = board->excess[stand.fullest];
	int32_t to = 0;

	for (int32_t i = 0; i < board->n; i++)
		if (board->excess[i] <= board->excess[to])
			to = i;
	for (int32_t i = board->n - 1; i >= 0; i--) {
		const int32_t room = -board->excess[i];

		if (room < 0 || room >= need || i == to || !board->list[i].n ||
		    !board->list[to].n)
			continue;
		const int32_t most =
			plan_board_near(&board->list[i], &board->list[to],
		                        -board->excess[to])
				.below;
		const struct search_choice c = {i, to, most, -room - most};

		if (most > 0 && room + most >= need)
			note(finds, ROOM, c);
	}
}

/*
 * Whether a place is worth a look. Not counted among those seen where it can
 * be told at once: a full one in the first round, and one that cannot take or
 * be given enough where no swap is left for another try.
 */
static bool may_receive(const struct plan_board *board,
                        const struct search_level *level, int32_t place)
{
	const struct search_stand *const stand = &level->stand;
	const struct board_list *const from = &board->list[stand->fullest];
	const struct board_list *const to = &board->list[place];
	const int32_t need = board->excess[stand->fullest];
	const int32_t room = -board->excess[place];

	if (!to->n || place == stand->fullest)
		return false;
	const int32_t most = from->load[0] - to->load[to->n - 1];

	if (level->round == 1)
		return room > 0 && most > 0 &&
		       (stand->spare > 0 || (room >= need && most >= need));
	return most >= need && (room < 0 || room >= need || stand->spare > 0);
}

/* Choices of the first two rounds; with the last swap, one is enough. */
static void look_around(const struct ferry_planner *pl,
                        const struct search_level *level, bool last,
                        struct finds *finds)
{
	const struct plan_search *const s = &pl->search;
	const struct plan_board *const board = &s->board;
	const int32_t giver = board->rank[level->stand.fullest];
	int32_t seen = 0;

	for (int32_t i = board->n - 1; i >= 0 && seen < s->receivers; i--) {
		if (!may_receive(board, level, i) ||
		    !ferry_plan_may_pair(pl, giver, board->rank[i]))
			continue;
		seen += board->excess[i] < 0;
		if (level->round == 2)
			look_by_need(board, level->stand, i, finds);
		else
			look_by_room(board, level->stand, i, finds);
		if (last && finds->n[TIGHT])
			return;
	}
}

/* The next choices of a level, round by round; false: there are no more. */
static bool look(const struct ferry_planner *pl, struct search_level *level)
{
	const struct plan_search *const s = &pl->search;
	const struct search_stand stand = level->stand;
	const bool last = stand.spare == 0 && stand.n_full == 1;
	const int32_t rounds = s->depth ? s->rounds_below : s->rounds;
	struct finds finds;

	level->n_choices = 0;
	level->next = 0;
	if (++level->round > rounds || (level->round == 2 && last) ||
	    (level->round == 3 && stand.spare <= 0))
		return false;
	finds.width = s->width;
	memset(finds.n, 0, sizeof(finds.n));
	if (level->round < 3)
		look_around(pl, level, last, &finds);
	else
		look_for_room(&s->board, stand, &finds);
	for (int k = 0; k < KINDS; k++)
		for (int32_t i = 0; i < finds.n[k]; i++)
			level->choice[level->n_choices++] = finds.choice[k][i];
	return true;
}

/* Sees where the search stands; false: the target is reached. */
static bool open_level(struct ferry_planner *pl, int32_t *nodes)
{
	struct plan_search *const s = &pl->search;
	struct plan_board *const board = &s->board;
	struct search_level *const level = &s->level[s->depth];

	level->stand = stand_of(board, pl->problem.max_swaps - s->depth);
	level->n_choices = 0;
	level->next = 0;
	level->round = s->rounds;
	if (level->stand.n_full == 0)
		return false;
	if (level->stand.spare < 0 || *nodes <= 0 ||
	    !board->list[level->stand.fullest].n)
		return true;
	--*nodes;
	level->round = 0;
	return true;
}

bool ferry_search_make(struct ferry_planner *pl, int32_t from, int32_t to,
                       int32_t difference)
{
	struct plan_search *const s = &pl->search;
	const struct board_swap swap =
		ferry_board_find(&s->board, from, to, difference);
	const struct plan_move move = {swap.from.slot, swap.to.slot};

	if (!ferry_plan_may_move(pl, move))
		return false;
	ferry_plan_add_swap(pl, move);
	ferry_board_take(&s->board, swap);
	plan_board_shift(&s->board, from, to, difference);
	s->level[s->depth++].swap = swap;
	return true;
}

static void take_back(struct ferry_planner *pl)
{
	struct plan_search *const s = &pl->search;
	const struct board_swap *const swap = &s->level[--s->depth].swap;
	const int32_t difference = swap->from.load - swap->to.load;

	ferry_plan_undo_swap(pl);
	ferry_board_put(&s->board, *swap);
	plan_board_shift(&s->board, swap->to.place, swap->from.place,
	                 difference);
}

void ferry_search_undo(struct ferry_planner *pl)
{
	while (pl->search.depth > 0)
		take_back(pl);
}

/* Makes the next move that may be made; false: there is none. */
static bool advance(struct ferry_planner *pl)
{
	struct plan_search *const s = &pl->search;
	struct search_level *const level = &s->level[s->depth];

	for (;;) {
		if (level->next == level->n_choices) {
			if (!look(pl, level))
				return false;
			continue;
		}
		const struct search_choice c = level->choice[level->next++];

		if (ferry_search_make(pl, c.from, c.place, c.difference))
			return true;
	}
}

/* Leaves the moves made where all ranks come below the target. */
static bool reach(struct ferry_planner *pl, int64_t target, int32_t *nodes)
{
	ferry_board_aim(&pl->search.board, pl, target);
	while (open_level(pl, nodes)) {
		while (!advance(pl)) {
			if (pl->search.depth == 0)
				return false;
			take_back(pl);
		}
	}
	return true;
}

/* No swaps get below the bound, nor below the rank that is one too many. */
static int64_t least_time(const struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;
	const struct plan_board *const board = &pl->search.board;

	if (board->n <= p->max_swaps)
		return pl->least_time;
	const int32_t r = board->rank[p->max_swaps];

	return max_i64(pl->least_time, pl->load[r] * p->weight[r]);
}

/* Until a target is missed. */
static void descend(struct ferry_planner *pl, int32_t nodes_each)
{
	const int64_t least = least_time(pl);
	int32_t nodes_left = TARGETS * nodes_each;
	int64_t best = INT64_MAX;

	while (pl->best_value.max_time < best && nodes_left > 0) {
		best = pl->best_value.max_time;
		if (best <= least)
			return;
		const int64_t target = max_i64(least, best - 1 - best / STEP);
		int32_t nodes = (int32_t)min_i64(nodes_each, nodes_left);

		nodes_left -= nodes;
		if (reach(pl, target, &nodes))
			ferry_plan_keep_better(pl);
		ferry_search_undo(pl);
		nodes_left += nodes;
	}
}

void ferry_search_targets(struct ferry_planner *pl)
{
	const int64_t swaps = pl->problem.max_swaps;

	pl->search.receivers = RECEIVERS;
	pl->search.rounds = 2;
	pl->search.rounds_below = swaps <= FEW ? 2 : 1;
	pl->search.width = swaps <= FEW ? WIDE : 1;
	descend(pl, NODES + (int32_t)min_i64(swaps, MANY));
	if (!pl->problem.thorough)
		return;
	pl->search.receivers = INT32_MAX;
	pl->search.rounds = pl->search.rounds_below = 3;
	pl->search.width = WIDE;
	descend(pl, THOROUGH);
}
