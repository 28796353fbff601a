/* SPDX-License-Identifier: Apache-2.0 */
/* From expert ids of tokens to loads of steps, and the order of steps. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"
#include "route_parts.h"

size_t route_type_bytes(enum route_type type)
{
	static const size_t bytes[ROUTE_N_TYPES] = {1, 1, 2, 2, 4, 4, 8};

	return bytes[type];
}

#define ELEMENT(T)                                                             \
	{                                                                      \
		T x;                                                           \
		memcpy(&x, (const char *)array + (size_t)i * sizeof(x),        \
		       sizeof(x));                                             \
		return x;                                                      \
	}

int64_t route_element(const void *array, enum route_type type, int64_t i)
{
	switch (type) {
	case ROUTE_U8:
		ELEMENT(uint8_t)
	case ROUTE_I8:
		ELEMENT(int8_t)
	case ROUTE_U16:
		ELEMENT(uint16_t)
	case ROUTE_I16:
		ELEMENT(int16_t)
	case ROUTE_U32:
		ELEMENT(uint32_t)
	case ROUTE_I32:
		ELEMENT(int32_t)
	default:
		ELEMENT(int64_t)
	}
}

/* Adds the choices of one token in one layer. */
static void count_layer(const struct route_ids *in, bool predicted,
                        int64_t token, int32_t layer, int64_t *counts)
{
	const void *const ids = predicted ? in->predicted : in->ids;
	const enum route_type type = predicted ? in->predicted_type : in->type;
	const int64_t at = (token * in->n_layers + layer) * in->topk;

	for (int32_t k = 0; k < in->topk; k++) {
		const int64_t id = route_element(ids, type, at + k);

		if (id >= 0)
			counts[id]++;
	}
}

/* Every id, before any is used; the number of experts. */
static bool check_ids(const struct route_ids *in, const void *ids,
                      enum route_type type, int32_t *n_experts,
                      struct fault *fault)
{
	const int64_t limit = in->n_experts ? in->n_experts : ROUTE_MAX_EXPERTS;
	const int64_t row = (int64_t)in->n_layers * in->topk;
	int64_t highest = -1;

	for (int64_t i = 0; i < in->n_tokens * row; i++) {
		const int64_t id = route_element(ids, type, i);

		if (id < -1 || id >= limit)
			return fault_set(fault,
			                 "%s: id of token %" PRId64
			                 ", layer %" PRId64 ", choice %" PRId64
			                 " is %" PRId64
			                 ", allowed are -1..%" PRId64,
			                 in->name, i / row, i % row / in->topk,
			                 i % in->topk, id, limit - 1);
		highest = max_i64(highest, id);
	}
	if (highest >= *n_experts)
		*n_experts = (int32_t)highest + 1;
	return true;
}

static int32_t count_steps(const struct route_ids *in, int64_t step_tokens)
{
	int64_t n = 0;

	for (int32_t t = 0; t < in->n_tasks; t++)
		n += step_tokens ? div_up(in->tasks[t].n_tokens, step_tokens)
		                 : 1;
	return n < INT32_MAX ? (int32_t)n : INT32_MAX;
}

/* One step: n tokens of a task from token `first` on. */
static void fill_step(const struct route_ids *in, int64_t first, int64_t n,
                      struct route *route, int32_t step)
{
	for (int64_t token = first; token < first + n; token++)
		for (int32_t layer = 0; layer < in->n_layers; layer++) {
			count_layer(in, false, token, layer,
			            route_loads(route, step, layer));
			if (in->predicted)
				count_layer(
					in, true, token, layer,
					route_predicted(route, step, layer));
		}
}

static void fill(const struct route_ids *in, const struct route_ask *ask,
                 struct route *route)
{
	int32_t step = 0;

	for (int32_t t = 0; t < in->n_tasks; t++) {
		const struct route_task *const task = &in->tasks[t];
		const int64_t size =
			ask->step_tokens ? ask->step_tokens : task->n_tokens;

		for (int64_t done = 0; done < task->n_tokens; done += size) {
			struct route_step *const s = &route->steps[step];

			memcpy(s->name, task->name, sizeof(s->name));
			s->task = t;
			s->group = task->group;
			fill_step(in, task->first_token + done,
			          min_i64(size, task->n_tokens - done), route,
			          step++);
		}
	}
}

bool route_count(const struct route_ids *in, const struct route_ask *ask,
                 struct route *route, struct fault *fault)
{
	int32_t n_experts = 1;

	if (!check_ids(in, in->ids, in->type, &n_experts, fault) ||
	    (in->predicted && !check_ids(in, in->predicted, in->predicted_type,
	                                 &n_experts, fault)))
		return false;
	route->n_steps = count_steps(in, ask->step_tokens);
	route->n_layers = in->n_layers;
	route->n_experts = in->n_experts ? in->n_experts : n_experts;
	if ((ask->see &&
	     !ask->see(ask->see_arg, in, route->n_experts, fault)) ||
	    !route_make(route, in->name, ask, in->predicted, fault))
		return false;
	fill(in, ask, route);
	return true;
}

/* A step, and when it is its group's turn. */
struct turn {
	int32_t round, group, step;
};

static int compare_turns(const void *a, const void *b)
{
	const struct turn *const x = a, *const y = b;

	if (x->round != y->round)
		return x->round < y->round ? -1 : 1;
	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return x->step < y->step ? -1 : x->step > y->step;
}

/* Rounds by group: data sets, or tasks where steps are parts of tasks. */
static void plan_turns(const struct route *route, struct turn *turns)
{
	bool parts = false;

	for (int32_t s = 1; s < route->n_steps; s++)
		parts |= route->steps[s].task == route->steps[s - 1].task;
	for (int32_t s = 0; s < route->n_steps; s++) {
		const struct route_step *const step = &route->steps[s];
		struct turn *const t = &turns[s];

		*t = (struct turn){0, parts ? step->task : step->group, s};
		for (int32_t before = s - 1; before >= 0; before--)
			if (turns[before].group == t->group) {
				t->round = turns[before].round + 1;
				break;
			}
	}
}

static void permute(int64_t *loads, int64_t *copy, const struct turn *turns,
                    int32_t n_steps, size_t step_bytes)
{
	const size_t n = step_bytes / sizeof(*loads);

	memcpy(copy, loads, (size_t)n_steps * step_bytes);
	for (int32_t s = 0; s < n_steps; s++)
		memcpy(loads + (size_t)s * n, copy + (size_t)turns[s].step * n,
		       step_bytes);
}

bool route_mix(struct route *route, struct fault *fault)
{
	const size_t n_steps = (size_t)route->n_steps;
	const size_t step_bytes = (size_t)route->n_layers *
	                          (size_t)route->n_experts *
	                          sizeof(*route->loads);
	struct turn *turns = NULL;
	struct route_step *steps = NULL;
	int64_t *copy = NULL;
	const bool good = route_alloc(n_steps, sizeof(*turns), &turns, fault) &&
	                  route_alloc(n_steps, sizeof(*steps), &steps, fault) &&
	                  route_alloc(n_steps, step_bytes, &copy, fault);

	if (good) {
		plan_turns(route, turns);
		qsort(turns, n_steps, sizeof(*turns), compare_turns);
		permute(route->loads, copy, turns, route->n_steps, step_bytes);
		if (route->predicted)
			permute(route->predicted, copy, turns, route->n_steps,
			        step_bytes);
		for (size_t s = 0; s < n_steps; s++)
			steps[s] = route->steps[turns[s].step];
		memcpy(route->steps, steps, n_steps * sizeof(*steps));
	}
	free(turns);
	free(steps);
	free(copy);
	return good;
}
