/* SPDX-License-Identifier: Apache-2.0 */
/* One layer of a replay at work. */
#ifndef FERRY_REPLAY_PARTS_H
#define FERRY_REPLAY_PARTS_H

#include "replay.h"
#include "route_parts.h"

struct replay_layer {
	const struct replay_config *config;
	enum replay_policy policy;
	int32_t layer;
	int32_t n_experts, n_slots;
	struct ferry_planner *planner;
	struct ferry_history *history;
	int32_t *expert_slots; /* [n_ranks] */
	int32_t *start;        /* [n_slots] experts of the start placement */
	int32_t *now;          /* where this step begins */
	int32_t *target;       /* of EPLB */
	int64_t *predicted;    /* [n_experts] */
	int64_t *past;         /* loads that a placement from history knows */
	int64_t *quota;        /* [n_slots] */
	int64_t *rank_loads;   /* [n_ranks] */
	struct ferry_plan plan;
	struct fault *fault;
};

/* A library call as the tool's own: the fault gets the library's text. */
bool replay_check(struct replay_layer *l, enum ferry_status status);

/* What the plan is made from, into l->predicted. */
void replay_predict(struct replay_layer *l, int32_t step);

/* What history knows before this step, into l->past. */
bool replay_know(struct replay_layer *l, int32_t step);

/* History learns the step. */
bool replay_learn(struct replay_layer *l, int32_t step);

#endif
