/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experts that a search may swap, laid out for it: the fullest and the
 * emptiest ranks, and of each its heaviest and lightest experts, heaviest
 * first, in units so coarse that loads fit into 14 bits. Whatever is found
 * here is weighed exactly before it becomes a plan.
 *
 * With 14 bits the difference of any two experts less any limit fits into 16,
 * so that all pairs of two ranks are looked through in eight lanes at a time:
 * some 10 ns for 16 x 16 experts, where two sorted lists and two pointers take
 * 90.
 *
 * Places are ranks by falling time, ties to the lower rank; everything below
 * is by place. What is equal here is taken in this order, so that the choice
 * does not hang on how ranks or experts are numbered.
 */
#ifndef FERRY_PLAN_BOARD_H
#define FERRY_PLAN_BOARD_H

#include <ferry/plan.h>

#include "plan_lanes.h"

struct ferry_planner;

enum {
	BOARD_BITS = 14,
	BOARD_LIST = 64, /* most experts of a place; divisible by lanes */
	BOARD_SPARE = 8, /* places beyond one for each end of a swap */
	BOARD_PLACES = 2 * FERRY_PLAN_MOVES + BOARD_SPARE + 1,
};

/* Experts of one place, by falling load; equal ones by rising slot. */
struct board_list {
	int32_t n;
	/* The last one repeated up to full lanes; room to shift those. */
	int16_t load[BOARD_LIST + 2 * LANES];
	uint8_t name[BOARD_LIST + 2 * LANES]; /* into slot */
	int32_t slot[BOARD_LIST];
};

struct plan_board {
	int32_t n; /* places */
	int32_t shift;
	int32_t *rank; /* [n] */
	/* [n] what it has above the target; below it, less than 0. Full lanes:
	 * INT16_MIN behind the last one. */
	int16_t *excess;
	struct board_list *list; /* [n] */
	int64_t *key;            /* [max_ranks or max_slots] for sorting */
	int32_t *item;
};

/* One end of a swap: an expert in the list of a place. */
struct board_end {
	int32_t place;
	int32_t index;
	int32_t slot;
	int16_t load;
	uint8_t name;
};

struct board_swap {
	struct board_end from;
	struct board_end to;
};

/* Errors: NOMEM. */
enum ferry_status ferry_board_init(struct plan_board *board, int32_t max_slots,
                                   int32_t max_ranks);
void ferry_board_destroy(struct plan_board *board);

/* Lays out the problem of the planner, before any move. */
void ferry_board_fill(struct plan_board *board, const struct ferry_planner *pl);

/* Sets the target that no rank's time shall be above, for the loads now. */
void ferry_board_aim(struct plan_board *board, const struct ferry_planner *pl,
                     int64_t max_time);

/* Neighbours of a limit among the differences of two lists. */
struct board_near {
	int32_t below; /* the largest one that is <= limit */
	int32_t above; /* the smallest one that is > limit */
};

/* Where there is none above; its negative, where there is none below. */
enum { BOARD_NONE = 1 << 20 };

/*
 * from.load[i] - to.load[j] next to a limit of -2^14..2^14. Neither list is
 * empty.
 */
static inline struct board_near plan_board_near(const struct board_list *from,
                                                const struct board_list *to,
                                                int32_t limit)
{
	lanes low = lanes_all(INT16_MAX), high = lanes_all(INT16_MIN);
	/*
	 * Both lists fall. What lies above the limit with every expert of
	 * `to` counts only in the last such row; the first row that lies below
	 * with every one is the last that counts.
	 */
	const int32_t above_all = limit + to->load[0];
	const int32_t below_all = limit + to->load[to->n - 1];
	int32_t i = 0;

	while (i + 1 < from->n && from->load[i + 1] > above_all)
		i++;
	/* limit - difference, as an unsigned number: the least one is nearest
	 * below the limit, the greatest one, beyond the wrap, nearest above.
	 * The sign bit turned over makes that a signed comparison. */
	for (bool last = false; i < from->n && !last; i++) {
		const lanes add = lanes_all(
			(int16_t)((limit - from->load[i]) ^ INT16_MIN));

		last = from->load[i] <= below_all;
		for (int32_t j = 0; j < to->n; j += LANES) {
			const lanes v =
				lanes_add(lanes_load(to->load + j), add);

			low = lanes_min(low, v);
			high = lanes_max(high, v);
		}
	}
	const int32_t least = lanes_least(low) - INT16_MIN;
	const int32_t most = lanes_most(high) - INT16_MIN;
	const struct board_near near = {
		least <= INT16_MAX ? limit - least : -BOARD_NONE,
		most > INT16_MAX ? limit + 65536 - most : BOARD_NONE,
	};

	return near;
}

/* The pair with that difference; there is one. Lowest i, then lowest j. */
struct board_swap ferry_board_find(const struct plan_board *board, int32_t from,
                                   int32_t to, int32_t difference);

/* The excess of places where that much goes from one to another. */
static inline void plan_board_shift(struct plan_board *board, int32_t from,
                                    int32_t to, int32_t difference)
{
	board->excess[from] = (int16_t)(board->excess[from] - difference);
	board->excess[to] = (int16_t)(board->excess[to] + difference);
}

/* Takes a pair off the board, and puts it back. */
void ferry_board_take(struct plan_board *board, struct board_swap swap);
void ferry_board_put(struct plan_board *board, struct board_swap swap);

#endif
