/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/plan.h: which experts to move, within a budget.
 *
 * Everything here is a pure function of its arguments, in integers, with a
 * total order on ties: ranks that plan from equal inputs get equal plans, on
 * every machine and from every compiler. Nothing is sent, nothing waits. What
 * is behind the formulas: docs/balance.md.
 */
#ifndef FERRY_PLAN_H
#define FERRY_PLAN_H

#include <ferry/placement.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	FERRY_PLAN_MOVES = 256,    /* most moves of one plan */
	FERRY_SPEED_NORMAL = 1000, /* speed of an ordinary rank */
};

/** Largest load of one expert, and largest sum of all: 2^40. */
#define FERRY_MAX_LOAD ((int64_t)1 << 40)

/**
 * What moving experts costs between ranks, all in integers, so that ranks that
 * hold equal tables plan alike. A transfer of n bytes from rank a to rank b
 * takes alpha_ns[a * n_ranks + b] + n * ps_per_byte[a * n_ranks + b] / 1000 ns
 * (rounded up) of that link, and of the outgoing side of a and the incoming
 * side of b. The two directions of a link, and of a rank, overlap.
 */
struct ferry_cost {
	size_t size;
	int32_t n_ranks;
	const int64_t *alpha_ns;     /* [n_ranks][n_ranks], >= 0 */
	const int64_t *ps_per_byte;  /* [n_ranks][n_ranks], >= 0 */
	const int64_t *expert_bytes; /* [n_experts]; NULL: all_bytes each */
	int64_t all_bytes;
	/* FreeBalance's formula (9): a swap takes alpha + the sum of both
	 * directions, on both. */
	bool half_duplex;
};
#define FERRY_COST_INIT                                                        \
	{                                                                      \
		sizeof(struct ferry_cost), 0, NULL, NULL, NULL, 0, false       \
	}

/** How moves are chosen. */
enum ferry_plan_rule {
	/** Best of a fixed set of greedy orders and a bisection. */
	FERRY_RULE_PORTFOLIO = 0,
	/**
	 * FreeBalance's text: candidates sorted once, taken in that order. All
	 * ranks above the mean meet all below: for studies, not for large
	 * worlds. 256 swaps of 8192 experts on 1024 ranks take 17 s, where
	 * PORTFOLIO takes 0.5 s (one core of a cloud machine, 2026-11).
	 */
	FERRY_RULE_SORTED = 1,
	/** FreeBalance's Algorithm 1: the best candidate, again and again. */
	FERRY_RULE_RESELECT = 2,
};

/** What to plan for. Zero means default. */
struct ferry_plan_in {
	size_t size;
	/*
	 * Where the experts are. Empty slots can take copies. The load of an
	 * expert with replicas counts by its placement's rule: EVEN equal
	 * parts (the first slots one more), QUOTA by its quotas, EXACT as
	 * ferry_split_quotas would share it.
	 */
	const struct ferry_placement *placement;
	const int64_t *loads; /* [n_experts] tokens, 0..FERRY_MAX_LOAD */
	const int32_t *speed; /* [n_ranks] 1..1000000; NULL: all equal. A
	                       * rank's load is divided by it */
	int32_t layer;        /* for ties, the hash and texts */
	int32_t max_swaps;    /* 0: FERRY_PLAN_MOVES; -1: none */
	int32_t max_copies;   /* copies into each rank's empty slots; 0: none */
	/*
	 * NULL: transfers cost nothing, and a window is INVAL. Else what the
	 * plan asks of any link or rank, per direction, fits into the window of
	 * the rank: window_ns, or rank_window_ns[r]. A window of 0 or less lets
	 * nothing move: with `cost` set and window_ns left at 0, nothing does.
	 */
	const struct ferry_cost *cost;
	int64_t window_ns;
	const int64_t *rank_window_ns; /* [n_ranks]; NULL: window_ns */
	/*
	 * A layer whose max/mean is below this many millionths is left as it
	 * is (1050000 is 1.05); 0: never.
	 */
	int64_t threshold_ppm;
	enum ferry_plan_rule rule;
	/*
	 * Weight of the variance against the maximum in the objective of
	 * SORTED and RESELECT, in thousandths of 1/mean: 500 is ours, -1 is
	 * none (the paper gives no value); 0: 500.
	 */
	int32_t gamma_milli;
	bool tight_bound; /* also the budgeted bound, some 100 us */
	/*
	 * The portfolio searches on for the last per cent, and is never worse
	 * than FreeBalance's rule with this gamma, ours or none: 0.1 ms for 64
	 * experts on 8 ranks and 4 swaps, 5 for 512 on 64 and 16.
	 */
	bool thorough;
	/*
	 * With split EXACT: after the moves that gain something, copies into
	 * all empty slots that max_copies and the windows leave, of the
	 * experts with most tokens a slot, with which the exact split repairs
	 * wrong predictions. Not where threshold_ppm leaves the layer as it
	 * is. A swapped expert is not copied.
	 */
	bool spare_copies;
};
#define FERRY_PLAN_IN_INIT                                                     \
	{                                                                      \
		sizeof(struct ferry_plan_in), NULL, NULL, NULL, 0, 0, 0, NULL, \
			0, NULL, 0, FERRY_RULE_PORTFOLIO, 0, false, false,     \
			false                                                  \
	}

enum ferry_move_kind {
	FERRY_MOVE_SWAP = 0, /* two slots exchange their experts */
	FERRY_MOVE_COPY = 1, /* an empty slot gets a replica */
};

/** One move. A swap's first expert is the one on the fuller rank. */
struct ferry_move {
	enum ferry_move_kind kind;
	int32_t expert;    /* goes from from_slot to to_slot */
	int32_t other;     /* comes back; -1 in a copy */
	int32_t from_slot; /* of the expert before the move */
	int32_t to_slot;
	int32_t from_rank;
	int32_t to_rank;
	int64_t cost_ns; /* time of the slower direction; 0: no cost known */
	int64_t gain;    /* by how much max load falls when it is made, in
	                  * order; may be 0 on the way to a gain */
};

/**
 * A plan. Loads are tokens (of equal ranks; else tokens of a rank of speed
 * FERRY_SPEED_NORMAL that take as long).
 */
struct ferry_plan {
	size_t size;
	int32_t layer;
	int32_t n_moves;
	int64_t load_before; /* of the fullest rank */
	int64_t load_after;
	/*
	 * No placement that the allowed kinds of moves reach has a fullest
	 * rank below this; with tight_bound also within the budget.
	 */
	int64_t bound;
	int64_t total; /* of all ranks; mean = total / n_ranks */
	/* Of inputs and moves: equal on all ranks, or they must not act. */
	uint64_t hash;
	struct ferry_move moves[FERRY_PLAN_MOVES];
};

/** Memory for planning. One thread at a time. */
struct ferry_planner;

/**
 * Makes a planner for up to max_experts experts (1..FERRY_MAX_EXPERTS) in
 * max_slots slots on max_ranks ranks. Planning allocates nothing.
 * Errors: INVAL, NOMEM.
 */
FERRY_API enum ferry_status
ferry_planner_create(int32_t max_experts, int32_t max_slots, int32_t max_ranks,
                     struct ferry_planner **planner) FERRY_MUST_CHECK;

/** Destroys a planner; NULL is accepted. */
FERRY_API void ferry_planner_destroy(struct ferry_planner *planner);

/**
 * Plans. Moves are disjoint: no slot changes twice, and an expert is in one
 * swap, or in copies to different ranks. The fullest rank never gets fuller,
 * the budget is kept, and made in order every prefix of the plan is a valid
 * placement. No move is a plan, too. plan->size
 * must be set; the rest is written on success.
 * Errors: INVAL, RANGE (naming array, index, value and what is allowed).
 */
FERRY_API enum ferry_status
ferry_plan_make(struct ferry_planner *planner, const struct ferry_plan_in *in,
                struct ferry_plan *plan) FERRY_MUST_CHECK;

/**
 * The placement after a plan: same slots and split; version is that of
 * placement plus one. With split QUOTA the quotas of `loads` are computed anew
 * (loads may be NULL otherwise). Moves are those of `placement`, in all that
 * they say; the hash is not looked at. Errors: INVAL, RANGE, NOMEM.
 */
FERRY_API enum ferry_status
ferry_plan_apply(const struct ferry_placement *placement,
                 const struct ferry_plan *plan, const int64_t *loads,
                 struct ferry_placement **next) FERRY_MUST_CHECK;

/**
 * Why a move was chosen, as text: which expert, from where to where, what it
 * costs, what it gains. buffer[bytes] is always terminated. Returns the length
 * of the whole text without the 0, as snprintf does; 0 for a move that is not
 * in the plan, for a plan that is not one of `in`, and for NULL. Allocates, and
 * takes about as long as counting all loads twice: some ms for 8192 experts.
 */
FERRY_API size_t ferry_plan_explain(const struct ferry_plan_in *in,
                                    const struct ferry_plan *plan, int32_t move,
                                    char *buffer, size_t bytes);

/**
 * Load of every rank, in tokens, into rank_loads[n_ranks], counted as
 * ferry_plan_make counts it, not divided by speed. Errors: INVAL, RANGE, NOMEM.
 */
FERRY_API enum ferry_status
ferry_rank_loads(const struct ferry_placement *placement, const int64_t *loads,
                 int64_t *rank_loads) FERRY_MUST_CHECK;

/**
 * Integer quotas that make the fullest rank least full (min-max, by maximum
 * flow), and beyond that the ranks as even as possible: as few of them as can
 * be on the highest load, then on the next, and so on. quota[n_slots], whose
 * sum over an expert's replicas is its load; the placement's own split does not
 * matter. Ties are settled by a fixed rule. `speed` as in ferry_plan_in;
 * *max_load, where not NULL, is the fullest rank's load as in struct
 * ferry_plan.
 * Errors: INVAL, RANGE, NOMEM.
 */
FERRY_API enum ferry_status
ferry_split_quotas(const struct ferry_placement *placement,
                   const int64_t *loads, const int32_t *speed, int64_t *quota,
                   int64_t *max_load) FERRY_MUST_CHECK;

/** A cost of experts that is not proportional to their tokens. */
struct ferry_cost_curve {
	size_t size;
	int32_t n_points; /* 2.. */
	/*
	 * Rising tokens and what they cost, which does not fall, in any unit,
	 * all in 0..FERRY_MAX_LOAD. Straight between two points; beyond the
	 * last as between the last two; before the first as between the first
	 * two, but not below 0.
	 */
	const int64_t *tokens;
	const int64_t *cost;
};
#define FERRY_COST_CURVE_INIT                                                  \
	{                                                                      \
		sizeof(struct ferry_cost_curve), 0, NULL, NULL                 \
	}

/**
 * Turns tokens of experts into loads for ferry_plan_make, rounded to nearest,
 * ties up. in and out may be the same [n]. An expert without tokens costs
 * nothing.
 * Errors: INVAL, RANGE (a point, or what costs more than FERRY_MAX_LOAD).
 */
FERRY_API enum ferry_status
ferry_cost_curve_apply(const struct ferry_cost_curve *curve, const int64_t *in,
                       int32_t n, int64_t *out) FERRY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
