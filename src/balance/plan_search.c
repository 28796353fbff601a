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
 * The latter two only where there are more swaps left than full ranks. Of each
 * kind a few of the best are tried, depth first, until nodes run out.
 *
 * Measured against wider searches and proven optima: dev/planner.md.
 */
#include "plan_search.h"

#include "../core/bits.h"
#include "plan_inner.h"

enum {
	RECEIVERS = 8, /* emptiest places that are looked at */
	NODES = 16,    /* of one target, and one more for each swap */
	TARGETS = 3,   /* as many nodes in all as this many targets may take */
	FAILURES = 2,  /* targets missed before the search ends */
	STEP = 64,     /* the first target is this part of the best below it */
	FINER = 5,     /* the step after a failure is this part of it */
};

enum kind { TIGHT, LEAN, PARTIAL, CHAIN, KINDS };

static const int32_t widths[KINDS] = {2, 1, 2, 2};

/* The best choices of each kind, by rising key. */
struct finds {
	int32_t n[KINDS];
	struct search_choice choice[KINDS][SEARCH_WIDTH];
};

/* Where a level of the search stands. */
struct stand {
	int32_t fullest; /* place */
	int32_t n_full;  /* places above the target */
	int32_t spare;   /* swaps left beyond one for each of them */
};

static void note(struct finds *finds, enum kind kind, int32_t place,
                 int32_t difference, int32_t key)
{
	struct search_choice *const at = finds->choice[kind];
	int32_t i = finds->n[kind];

	if (i < widths[kind])
		finds->n[kind]++;
	else if (key < at[i - 1].key)
		i--;
	else
		return;
	for (; i > 0 && at[i - 1].key > key; i--)
		at[i] = at[i - 1];
	at[i] = (struct search_choice){place, difference, key};
}

static struct stand stand_of(const struct plan_board *board, int32_t left)
{
	struct stand s = {0, 0, 0};

	for (int32_t i = 0; i < board->n; i++) {
		s.fullest = board->excess[i] > board->excess[s.fullest]
		                    ? i
		                    : s.fullest;
		s.n_full += board->excess[i] > 0;
	}
	s.spare = left - s.n_full;
	return s;
}

static void look_at(const struct plan_board *board, struct stand stand,
                    int32_t place, struct finds *finds)
{
	const struct board_list *const giver = &board->list[stand.fullest];
	const struct board_list *const taker = &board->list[place];
	const int32_t need = board->excess[stand.fullest];
	const int32_t room = -board->excess[place];
	const struct board_near by_room = plan_board_near(giver, taker, room);
	const int32_t most = by_room.below;

	if (most >= need)
		note(finds, TIGHT, place, most, room - most);
	else if (most > 0 && stand.spare > 0)
		note(finds, PARTIAL, place, most, -most);
	if (stand.spare <= 0 && stand.n_full <= 1)
		return; /* the last swap: any will do */
	const int32_t least = plan_board_near(giver, taker, need - 1).above;
	const int32_t beyond = need <= room ? by_room.above : least;

	if (least < most)
		note(finds, LEAN, place, least, least - need);
	/* What makes the receiver as full as the giver is only a detour. */
	if (stand.spare > 0 && beyond - room < need)
		note(finds, CHAIN, place, beyond, beyond - room);
}

static void list_choices(struct search_level *level, const struct finds *finds)
{
	level->n_choices = 0;
	level->next = 0;
	for (int k = 0; k < KINDS; k++)
		for (int32_t i = 0; i < finds->n[k]; i++)
			level->choice[level->n_choices++] = finds->choice[k][i];
}

/* What may be tried from here; false: the target is reached. */
static bool open_level(struct ferry_planner *pl, int32_t *nodes)
{
	struct plan_search *const s = &pl->search;
	struct plan_board *const board = &s->board;
	struct search_level *const level = &s->level[s->depth];
	const struct stand stand =
		stand_of(board, pl->problem.max_swaps - s->depth);
	struct finds finds = {.n = {0}};

	if (stand.n_full == 0)
		return false;
	level->from = stand.fullest;
	level->n_choices = 0;
	level->next = 0;
	if (stand.spare < 0 || !board->list[stand.fullest].n || *nodes <= 0)
		return true;
	--*nodes;
	const int32_t need = board->excess[stand.fullest];
	int32_t seen = 0;

	for (int32_t i = board->n - 1; i >= 0 && seen < RECEIVERS; i--) {
		const int32_t room = -board->excess[i];

		if (room <= 0 || (room < need && stand.spare == 0) ||
		    !board->list[i].n)
			continue;
		look_at(board, stand, i, &finds);
		seen++;
	}
	list_choices(level, &finds);
	return true;
}

bool plan_search_make(struct ferry_planner *pl, int32_t from, int32_t to,
                      int32_t difference)
{
	struct plan_search *const s = &pl->search;
	const struct board_swap swap =
		plan_board_find(&s->board, from, to, difference);
	const struct plan_move move = {swap.from.slot, swap.to.slot};

	if (!plan_may_move(pl, move))
		return false;
	plan_add_swap(pl, move);
	plan_board_take(&s->board, swap);
	s->board.excess[from] -= difference;
	s->board.excess[to] += difference;
	s->level[s->depth++].swap = swap;
	return true;
}

static void take_back(struct ferry_planner *pl)
{
	struct plan_search *const s = &pl->search;
	const struct board_swap *const swap = &s->level[--s->depth].swap;
	const int32_t difference = swap->from.load - swap->to.load;

	plan_undo_swap(pl);
	plan_board_put(&s->board, *swap);
	s->board.excess[swap->from.place] += difference;
	s->board.excess[swap->to.place] -= difference;
}

void plan_search_undo(struct ferry_planner *pl)
{
	while (pl->search.depth > 0)
		take_back(pl);
}

/* Leaves the moves made where all ranks come below the target. */
static bool reach(struct ferry_planner *pl, int64_t target, int32_t *nodes)
{
	struct plan_search *const s = &pl->search;

	plan_board_aim(&s->board, pl, target);
	while (open_level(pl, nodes)) {
		for (;;) {
			struct search_level *const level = &s->level[s->depth];

			if (level->next == level->n_choices) {
				if (s->depth == 0)
					return false;
				take_back(pl);
				continue;
			}
			const struct search_choice c =
				level->choice[level->next++];

			if (plan_search_make(pl, level->from, c.place,
			                     c.difference))
				break;
		}
	}
	return true;
}

/* No plan gets below the mean, nor below the rank that is one too many. */
static int64_t least_time(const struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;
	const struct plan_board *const board = &pl->search.board;
	int64_t least = p->has_speed ? 0 : div_up(p->total, p->n_ranks);

	if (board->n > p->max_swaps) {
		const int32_t r = board->rank[p->max_swaps];

		least = max_i64(least, p->rank_load[r] * p->weight[r]);
	}
	return least;
}

void plan_search_targets(struct ferry_planner *pl)
{
	const int64_t least = least_time(pl);
	const int32_t nodes_each = NODES + pl->problem.max_swaps;
	int32_t nodes_left = TARGETS * nodes_each;
	int64_t step = pl->best_value.max_time / STEP;
	int failures = 0;

	while (failures < FAILURES && nodes_left > 0) {
		const int64_t best = pl->best_value.max_time;
		const int64_t target = max_i64(least, best - 1 - step);
		int32_t nodes = (int32_t)min_i64(nodes_each, nodes_left);

		if (best <= least)
			return;
		nodes_left -= nodes;
		const bool reached = reach(pl, target, &nodes);

		nodes_left += nodes;
		if (reached)
			plan_keep_better(pl);
		plan_search_undo(pl);
		if (pl->best_value.max_time < best)
			continue;
		failures++;
		step /= FINER;
	}
}
