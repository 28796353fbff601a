/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a balancer: what it keeps of each layer, and its parts. It
 * adds no algorithm to those of balance/ and of the experts, but decides which
 * of them speaks for a layer in a step. All decisions hang on what all ranks
 * have alike: sums, the order of calls, committed placements.
 */
#ifndef FERRY_BALANCER_INNER_H
#define FERRY_BALANCER_INNER_H

#include <pthread.h>

#include <ferry/balancer.h>
#include <ferry/eplb.h>

#include "../balance/calibration.h"
#include "../balance/margin.h"
#include "../fabric/world.h"
#include "experts_inner.h"

enum balancer_state {
	BALANCER_IDLE,
	BALANCER_SENT,    /* a prediction */
	BALANCER_STARTED, /* a plan */
};

struct balancer_layer {
	int32_t n_experts;
	int32_t n_slots;
	enum ferry_split split;
	enum balancer_state state;
	bool wants;      /* a prediction, for other threads */
	bool quiet;      /* was below the threshold */
	bool has_goal;   /* on the way to EPLB's placement */
	bool has_loads;  /* predicted is that of the last commit */
	bool in_history; /* has added to its current step */
	int32_t n_quiet; /* commits since the last with a prediction */
	int32_t since;   /* commits since EPLB's last placement */
	int32_t n_seen;  /* observations since the last prediction */
	/* [n_slots] experts by slot: */
	int32_t *base; /* as committed, without copies that come and go */
	int32_t *next; /* what base becomes with the commit */
	int32_t *goal; /* EPLB's */
	/* [n_experts] of all ranks: */
	int64_t *foreseen; /* predicted loads */
	int64_t *loads;    /* what is planned from */
	struct ferry_calibration calibration;
	/* The last plan, with a margin only; NULL: truth has come. */
	struct ferry_placement *from, *to;
	/* By how much max/mean falls on that way, as foreseen. */
	int64_t promised_ppm;
	struct ferry_margin margin;
	int32_t *seen;                 /* [n_experts] own true counts */
	struct ferry_placement *first; /* a copy of that at open */
	struct ferry_balancer_report report;
};

struct ferry_balancer {
	struct ferry_world *world;
	struct ferry_experts *experts;
	struct ferry_balancer_config config; /* its arrays are here: */
	struct ferry_cost cost;
	int64_t *alpha_ns;
	int64_t *ps_per_byte;
	int32_t *speed; /* [n_ranks] */
	struct ferry_totals *totals;
	struct ferry_planner *planner;
	struct ferry_history *history;
	struct balancer_layer *layers;
	int32_t n_ranks;
	int32_t most_experts; /* of a layer */
	int32_t most_in;      /* experts that one plan brings to a rank */
	int32_t sent;         /* layer whose prediction is under way, -1 */
	uint64_t planned;     /* hash of all targets so far */
	/* Scratch of predictions: */
	struct ferry_plan plan;
	int32_t *counts;      /* [2 * most experts + 1] what is sent */
	int64_t *sums;        /* the same of all ranks */
	int64_t *past;        /* [most experts] */
	int32_t *slots;       /* [n_ranks] of each rank */
	int32_t *coming;      /* [n_ranks] */
	int32_t *sources;     /* [2 * most slots] of two ways to go on */
	int32_t *change;      /* [most slots] */
	int64_t *quota;       /* [most slots] */
	pthread_mutex_t lock; /* layers' seen and counters, stats, broken */
	bool broken;
	char why[256]; /* then, the first failure */
	struct ferry_balancer_stats stats;
};

static inline bool balancer_plans(const struct ferry_balancer *b)
{
	return b->config.policy &
	       (FERRY_BALANCE_FREEBALANCE | FERRY_BALANCE_FERRY);
}

static inline bool balancer_has_history(const struct ferry_balancer *b)
{
	return b->config.policy & FERRY_BALANCE_EPLB;
}

static inline bool balancer_calibrates(const struct ferry_balancer *b)
{
	return b->config.calibrate && balancer_plans(b);
}

/* Errors: INVAL (balancer is NULL), RANGE (layer). */
enum ferry_status ferry_balancer_check(struct ferry_balancer *b,
                                       const char *call, int32_t layer);

/*
 * Takes in a round of sums: what was seen of the layer, into history and
 * statistics, and then what is foreseen. Errors: NOMEM.
 */
enum ferry_status ferry_balancer_learn(struct ferry_balancer *b, int32_t layer);

/* What ferry_balancer_wants answers from now on; under the lock. */
void ferry_balancer_want(const struct ferry_balancer *b,
                         struct balancer_layer *layer);

/* Copies into each rank's empty slots; 0: none. */
static inline int32_t balancer_copies(const struct ferry_balancer *b)
{
	if (!(b->config.policy & FERRY_BALANCE_FERRY) ||
	    b->config.max_copies < 0)
		return 0;
	return b->config.max_copies ? b->config.max_copies : FERRY_PLAN_MOVES;
}

/* Fills b->slots with the slots of each rank in a layer. */
void ferry_balancer_slots(struct ferry_balancer *b, int32_t layer);

/*
 * The placement that a map of slots is, with the layer's split; quotas by
 * loads. Errors: INVAL, NOMEM.
 */
enum ferry_status ferry_balancer_build(struct ferry_balancer *b, int32_t layer,
                                       const int32_t *map, const int64_t *loads,
                                       struct ferry_placement **placement);

/* Tokens of the fullest rank, in those of an ordinary one. Errors: NOMEM. */
enum ferry_status ferry_balancer_level(const struct ferry_balancer *b,
                                       const struct ferry_placement *placement,
                                       const int64_t *loads, int64_t *level);

/* Max/mean in millionths; 1000000 where there is nothing. */
int64_t ferry_balancer_ppm(const struct ferry_balancer *b, int64_t level,
                           const int64_t *loads, int32_t n_experts);

/* The content of a placement, also when that is gone; NULL: no memory. */
struct ferry_placement *
ferry_balancer_copy(const struct ferry_placement *placement);

/*
 * With a margin: keeps a plan that goes from where the layer is to another
 * placement, with the gain of the layer's report; is it to be carried out?
 * Errors: NOMEM.
 */
enum ferry_status ferry_balancer_promise(struct ferry_balancer *b,
                                         int32_t layer,
                                         const struct ferry_placement *to,
                                         bool *taken);

/* Judges the plan that was kept, if any, by what came. Errors: NOMEM. */
enum ferry_status ferry_balancer_redeem(struct ferry_balancer *b, int32_t layer,
                                        const int64_t *truth);
void ferry_balancer_forget(struct balancer_layer *layer);

/* Where a layer goes. */
struct balancer_target {
	struct ferry_placement *placement; /* NULL: it stays */
	const int32_t *sources; /* for ferry_experts_start_from; NULL: any */
};

/*
 * Where the layer goes for its predicted loads, by plans. Fills in the layer's
 * next, and its report. Errors: NOMEM.
 */
enum ferry_status ferry_balancer_plan(struct ferry_balancer *b, int32_t layer,
                                      int64_t window_ns,
                                      struct balancer_target *target);

/* Can EPLB place what each rank has slots for? Errors: INVAL, NOMEM. */
enum ferry_status ferry_balancer_fits_eplb(struct ferry_balancer *b,
                                           int32_t layer);

/*
 * Makes a goal of the layer out of its history, when it is time and there is a
 * history. Errors: NOMEM.
 */
enum ferry_status ferry_balancer_aim(struct ferry_balancer *b, int32_t layer);

/*
 * Gives a goal up that is no better for the foreseen loads than where the layer
 * is: what swaps have made of it is not undone for the past's sake. Where
 * nothing is foreseen it stays. Errors: NOMEM.
 */
enum ferry_status ferry_balancer_doubt(struct ferry_balancer *b, int32_t layer);

/*
 * Goes a step towards the goal: at most most_in experts come to a rank. As
 * ferry_balancer_plan. Where nothing can move any more, the goal is gone.
 */
enum ferry_status ferry_balancer_approach(struct ferry_balancer *b,
                                          int32_t layer,
                                          struct balancer_target *target);

#endif
