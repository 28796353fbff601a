/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The greedy part of the search: the fullest rank with whichever of the
 * emptiest gives the greatest gain, again and again. Gain is how much the
 * paper's objective (8) falls at gamma 1 / (2 * mean), times 2 * T: the maximum
 * alone stalls where lowering one rank below the next no longer pays.
 *
 * Once more with the emptiest rank only, which is FreeBalance's rule but for
 * the resolution of the board: seldom better, and cheap.
 */
#include "plan_search.h"

#include "../core/bits.h"
#include "plan_inner.h"

enum {
	RECEIVERS = 7,
	FEW = 8, /* swaps up to which the second way is tried */
};

/* The fullest places and their times. */
struct fullest {
	int32_t place;
	int32_t second_place;
	int64_t time;
	int64_t second;
	int64_t third;
};

struct greedy_choice {
	int64_t gain; /* 0: none */
	int32_t place;
	int32_t difference;
};

static int64_t time_at(const struct ferry_planner *pl, int32_t place)
{
	return plan_time(pl, pl->search.board.rank[place]);
}

static struct fullest find_fullest(const struct ferry_planner *pl)
{
	struct fullest f = {-1, -1, -1, -1, -1};

	for (int32_t i = 0; i < pl->search.board.n; i++) {
		const int64_t t = time_at(pl, i);

		if (t <= f.second) {
			f.third = max_i64(f.third, t);
			continue;
		}
		f.third = f.second;
		if (t > f.time) {
			f.second = f.time;
			f.second_place = f.place;
			f.time = t;
			f.place = i;
		} else {
			f.second = t;
			f.second_place = i;
		}
	}
	return f;
}

/* A time in units so coarse that gains fit into 64 bits. */
static int64_t coarse(const struct ferry_planner *pl, int64_t time)
{
	return time >> pl->search.time_shift;
}

static int64_t gain_of(const struct ferry_planner *pl, const struct fullest *f,
                       int32_t place, int64_t tokens)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t *const rank = pl->search.board.rank;
	const int64_t total = coarse(pl, pl->total_time);
	const int64_t from = coarse(pl, f->time);
	const int64_t to = coarse(pl, time_at(pl, place));
	const int64_t x = coarse(pl, tokens * p->weight[rank[f->place]]);
	const int64_t y = coarse(pl, tokens * p->weight[rank[place]]);
	const int64_t others =
		coarse(pl, place == f->second_place ? f->third : f->second);
	const int64_t after = max_i64(others, max_i64(from - x, to + y));

	return 2 * total * (from - after) +
	       p->n_ranks * (x * (2 * from - x) - y * (2 * to + y)) -
	       2 * total * (x - y);
}

/* The difference that comes nearest to making both equally full. */
static void weigh(const struct ferry_planner *pl, const struct fullest *f,
                  int32_t place, struct greedy_choice *best)
{
	const struct plan_board *const board = &pl->search.board;
	const int64_t *const weight = pl->problem.weight;
	const int64_t unit = (int64_t)1 << board->shift;
	const int64_t more_time = f->time - time_at(pl, place);
	/* Without speeds no division, which would take as long as a look. */
	const int64_t even =
		pl->problem.has_speed
			? more_time / (weight[board->rank[f->place]] +
	                               weight[board->rank[place]])
			: more_time / 2;
	const struct board_near near =
		plan_board_near(&board->list[f->place], &board->list[place],
	                        (int32_t)(even >> board->shift));
	const int64_t less = even - near.below * unit;
	const int64_t more = near.above * unit - even;
	const int32_t d =
		near.below > 0 && less <= more ? near.below : near.above;

	if (d <= 0 || d == BOARD_NONE)
		return;
	const int64_t gain = gain_of(pl, f, place, d * unit);

	if (gain > best->gain)
		*best = (struct greedy_choice){gain, place, d};
}

static struct greedy_choice choose(const struct ferry_planner *pl,
                                   const struct fullest *f)
{
	const struct plan_board *const board = &pl->search.board;
	struct greedy_choice best = {0, -1, 0};
	int32_t seen = 0;

	for (int32_t i = board->n - 1; i >= 0 && seen < RECEIVERS; i--) {
		if (i == f->place || !board->list[i].n ||
		    time_at(pl, i) >= f->time ||
		    !ferry_plan_may_pair(pl, board->rank[f->place],
		                         board->rank[i]))
			continue;
		weigh(pl, f, i, &best);
		seen++;
	}
	return best;
}

static int32_t emptiest_place(const struct ferry_planner *pl)
{
	int32_t best = pl->search.board.n - 1;

	for (int32_t i = best; i >= 0; i--)
		if (time_at(pl, i) < time_at(pl, best))
			best = i;
	return best;
}

/* As FreeBalance does: with the emptiest rank only. */
static struct greedy_choice choose_emptiest(const struct ferry_planner *pl,
                                            const struct fullest *f)
{
	const struct plan_board *const board = &pl->search.board;
	const int32_t emptiest = emptiest_place(pl);
	struct greedy_choice best = {0, -1, 0};

	if (emptiest != f->place && board->list[emptiest].n)
		weigh(pl, f, emptiest, &best);
	return best;
}

/* Whether it ever chose another than the emptiest rank, if it may. */
static bool descend(struct ferry_planner *pl, bool emptiest_only)
{
	struct plan_search *const s = &pl->search;
	bool others = false;

	while (s->depth < pl->problem.max_swaps) {
		const struct fullest f = find_fullest(pl);

		if (!s->board.list[f.place].n)
			break;
		const struct greedy_choice c = emptiest_only
		                                       ? choose_emptiest(pl, &f)
		                                       : choose(pl, &f);

		if (c.gain <= 0)
			break;
		others |= !emptiest_only && c.place != emptiest_place(pl);
		if (!ferry_search_make(pl, f.place, c.place, c.difference))
			break;
	}
	ferry_plan_keep_better(pl);
	ferry_search_undo(pl);
	return others;
}

void ferry_search_greedy(struct ferry_planner *pl)
{
	if (descend(pl, false) && pl->problem.max_swaps <= FEW)
		(void)descend(pl, true);
}
