/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing traces: how many tokens chose each expert, step by step and layer by
 * layer. Readers of every form that the tools take; each is bounded, refuses
 * what it does not understand with the place and what is allowed, and is run by
 * a fuzzer.
 */
#ifndef FERRY_ROUTE_H
#define FERRY_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

enum {
	ROUTE_MAX_EXPERTS = 1 << 16,
	ROUTE_MAX_LAYERS = 1 << 12,
	ROUTE_MAX_TOPK = 64,
	ROUTE_NAME_BYTES = 96,
};

/* Most steps * layers * experts of a trace: 2 GiB of counts. */
#define ROUTE_MAX_CELLS ((int64_t)1 << 28)

struct route_ids;

/* What is to be read from a trace. Zero means default. */
struct route_ask {
	int32_t n_experts;   /* 0: as the trace says, or its highest id + 1 */
	int32_t n_layers;    /* of a .bin that does not say; 0: not known */
	int64_t step_tokens; /* tokens of a step; 0: a task is a step */
	bool mixed; /* each step from another group of tasks than the last */
	int64_t max_cells; /* 0: ROUTE_MAX_CELLS */
	/*
	 * Sees the ids of every token, checked, before they are counted
	 * (route_parts.h); NULL: nobody. Not called where a trace has loads.
	 */
	bool (*see)(void *arg, const struct route_ids *ids, int32_t n_experts,
	            struct fault *fault);
	void *see_arg;
};

/* One step; its name is the task's, cut where it is long. */
struct route_step {
	char name[ROUTE_NAME_BYTES];
	int32_t task;
	int32_t group; /* data set of the task */
};

/* A trace in memory. */
struct route {
	int32_t n_steps, n_layers, n_experts;
	struct route_step *steps;
	int64_t *loads;       /* [n_steps][n_layers][n_experts] */
	int64_t *predicted;   /* same shape; NULL: the trace has none */
	int32_t *slot_expert; /* [n_slots], -1: empty; NULL: not given */
	int32_t n_slots;
};

/* Reads a trace or a file of loads; its form is known by its name,
 * that of safetensors by what is in it. */
bool route_open(const char *path, const struct route_ask *ask,
                struct route *route, struct fault *fault);

void route_close(struct route *route);

/* Loads of one layer in one step. */
static inline int64_t *route_loads(const struct route *route, int32_t step,
                                   int32_t layer)
{
	return route->loads +
	       ((int64_t)step * route->n_layers + layer) * route->n_experts;
}

/* What is predicted for them; the loads themselves where nothing is. */
static inline int64_t *route_predicted(const struct route *route, int32_t step,
                                       int32_t layer)
{
	return route->predicted
	               ? route->predicted + (route_loads(route, step, layer) -
	                                     route->loads)
	               : route_loads(route, step, layer);
}

#endif
