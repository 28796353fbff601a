/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces in safetensors. A trace has
 *
 *   topk_ids [tokens, layers, k]       expert ids, -1: none
 *   predicted_ids, same shape          what was foreseen (may be absent)
 *   step_starts [steps]                first token of each step (may be absent)
 *
 * or, where only counts were kept,
 *
 *   loads [steps, layers, experts]     tokens of each expert; two dimensions
 *                                      are layers and experts
 *   predicted_loads, same shape        (may be absent)
 *
 * and in __metadata__ n_experts, where topk_ids alone does not tell it.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/plan.h>

#include "route_parts.h"
#include "tensor_file.h"

enum { MAX_DIMS = 3 };

struct file {
	const struct route_bytes *in;
	struct tensor_file tensors;
	struct fault *fault;
};

struct array {
	const void *bytes; /* NULL: not there */
	enum route_type type;
	int32_t n_dims;
	int64_t dims[MAX_DIMS];
};

static const char *const type_names[ROUTE_N_TYPES] = {
	"U8", "I8", "U16", "I16", "U32", "I32", "I64"};

static bool tensor_fail(const struct file *f, const char *name,
                        const char *what)
{
	return fault_set(f->fault, "%s: tensor %s: %s", f->in->name, name,
	                 what);
}

static bool read_type(const struct file *f, const struct tensor *t,
                      enum route_type *type)
{
	for (int i = 0; i < ROUTE_N_TYPES; i++)
		if (!strcmp(t->dtype, type_names[i])) {
			*type = (enum route_type)i;
			return true;
		}
	return tensor_fail(f, t->name,
	                   "dtype is not one of U8, I8, U16, I16, U32, I32, "
	                   "I64");
}

static bool read_shape(const struct file *f, const struct tensor *t,
                       struct array *array)
{
	if (t->n_dims < 1 || t->n_dims > MAX_DIMS)
		return tensor_fail(f, t->name, "shape is to have 1..3 numbers");
	array->n_dims = t->n_dims;
	for (int32_t d = 0; d < t->n_dims; d++) {
		if (t->dims[d] < 1 || t->dims[d] > INT32_MAX)
			return tensor_fail(f, t->name,
			                   "a number of shape is not 1.."
			                   "2147483647");
		array->dims[d] = t->dims[d];
	}
	return true;
}

/* A tensor; one that is absent has no bytes. */
static bool find_tensor(const struct file *f, const char *name,
                        struct array *array)
{
	const struct tensor *const t = tensor_file_find(&f->tensors, name);

	*array = (struct array){0};
	if (!t)
		return true;
	array->bytes = t->bytes;
	return read_type(f, t, &array->type) && read_shape(f, t, array);
}

static bool same_shape(const struct file *f, const char *name,
                       const struct array *a, const struct array *b)
{
	if (!b->bytes || (a->n_dims == b->n_dims &&
	                  !memcmp(a->dims, b->dims, sizeof(a->dims))))
		return true;
	return tensor_fail(f, name, "its shape differs");
}

/* n_experts of the metadata; 0: none. */
static bool read_experts(const struct file *f, int32_t *n_experts)
{
	const char *const text = tensor_file_metadata(&f->tensors, "n_experts");
	char *end;

	if (!text)
		return true;
	const long n =
		text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : 0;

	if (n < 1 || n > ROUTE_MAX_EXPERTS || *end)
		return fault_set(f->fault,
		                 "%s: n_experts of __metadata__ is '%.40s', "
		                 "allowed is a text of a number 1..%d",
		                 f->in->name, text, ROUTE_MAX_EXPERTS);
	*n_experts = (int32_t)n;
	return true;
}

/* Tasks from step_starts; one of all tokens where there are none. */
static bool make_tasks(const struct file *f, const struct array *starts,
                       struct route_ids *ids, struct route_task *tasks)
{
	const int32_t n = ids->n_tasks;

	for (int32_t t = 0; t < n; t++) {
		const int64_t least = t ? tasks[t - 1].first_token + 1 : 0;
		const int64_t first =
			starts->bytes
				? route_element(starts->bytes, starts->type, t)
				: 0;

		if (first < least || first >= ids->n_tokens || (!t && first))
			return fault_set(f->fault,
			                 "%s: step_starts[%d] is %" PRId64
			                 ", allowed are rising numbers from 0 "
			                 "below the %" PRId64 " tokens",
			                 f->in->name, t, first, ids->n_tokens);
		tasks[t].first_token = first;
		tasks[t].group = t;
		snprintf(tasks[t].name, sizeof(tasks[t].name), "step %d", t);
		if (t)
			tasks[t - 1].n_tokens = first - least + 1;
	}
	tasks[n - 1].n_tokens = ids->n_tokens - tasks[n - 1].first_token;
	ids->tasks = tasks;
	return true;
}

static bool check_ids_shape(const struct file *f, const struct array *t)
{
	if (t->n_dims == 3 && t->dims[1] <= ROUTE_MAX_LAYERS &&
	    t->dims[2] <= ROUTE_MAX_TOPK)
		return true;
	return fault_set(f->fault,
	                 "%s: tensor topk_ids: shape is to be [tokens, 1..%d "
	                 "layers, 1..%d choices]",
	                 f->in->name, ROUTE_MAX_LAYERS, ROUTE_MAX_TOPK);
}

static bool read_ids(const struct file *f, const struct array *t,
                     const struct route_ask *ask, struct route *route)
{
	struct array predicted, starts;
	struct route_task *tasks;
	struct route_ids ids = {.name = f->in->name,
	                        .ids = t->bytes,
	                        .type = t->type,
	                        .n_tokens = t->dims[0],
	                        .n_layers = (int32_t)t->dims[1],
	                        .topk = (int32_t)t->dims[2]};

	if (!check_ids_shape(f, t) ||
	    !find_tensor(f, "predicted_ids", &predicted) ||
	    !same_shape(f, "predicted_ids", t, &predicted) ||
	    !find_tensor(f, "step_starts", &starts) ||
	    !read_experts(f, &ids.n_experts))
		return false;
	if (starts.bytes && starts.n_dims != 1)
		return tensor_fail(f, "step_starts", "shape is to be [steps]");
	if (ask->n_experts)
		ids.n_experts = ask->n_experts;
	ids.predicted = predicted.bytes;
	ids.predicted_type = predicted.type;
	ids.n_tasks = starts.bytes ? (int32_t)starts.dims[0] : 1;
	if (!route_alloc((size_t)ids.n_tasks, sizeof(*tasks), &tasks, f->fault))
		return false;
	const bool good = make_tasks(f, &starts, &ids, tasks) &&
	                  route_count(&ids, ask, route, f->fault);

	free(tasks);
	return good;
}

static bool copy_loads(const struct file *f, const char *name,
                       const struct array *t, int64_t n, int64_t *to)
{
	for (int64_t i = 0; i < n; i++) {
		to[i] = route_element(t->bytes, t->type, i);
		if (to[i] < 0 || to[i] > FERRY_MAX_LOAD)
			return fault_set(
				f->fault,
				"%s: tensor %s: element %" PRId64 " is %" PRId64
				", allowed are 0..%" PRId64,
				f->in->name, name, i, to[i], FERRY_MAX_LOAD);
	}
	return true;
}

static void name_steps(struct route *route)
{
	for (int32_t s = 0; s < route->n_steps; s++) {
		struct route_step *const step = &route->steps[s];

		snprintf(step->name, sizeof(step->name), "step %d", s);
		step->task = step->group = s;
	}
}

static bool read_loads(const struct file *f, const struct array *t,
                       const struct route_ask *ask, struct route *route)
{
	struct array predicted;
	const int64_t *const dims = t->dims + t->n_dims - 2;

	if (t->n_dims < 2 || dims[0] > ROUTE_MAX_LAYERS ||
	    dims[1] > ROUTE_MAX_EXPERTS)
		return fault_set(f->fault,
		                 "%s: tensor loads: shape is to be [steps, "
		                 "1..%d layers, 1..%d experts]",
		                 f->in->name, ROUTE_MAX_LAYERS,
		                 ROUTE_MAX_EXPERTS);
	if (ask->step_tokens)
		return tensor_fail(f, "loads",
		                   "steps of a number of tokens need topk_ids");
	route->n_steps = t->n_dims == 3 ? (int32_t)t->dims[0] : 1;
	route->n_layers = (int32_t)dims[0];
	route->n_experts = (int32_t)dims[1];
	if (!find_tensor(f, "predicted_loads", &predicted) ||
	    !same_shape(f, "predicted_loads", t, &predicted) ||
	    !route_make(route, f->in->name, ask, predicted.bytes, f->fault))
		return false;
	const int64_t n =
		(int64_t)route->n_steps * route->n_layers * route->n_experts;

	name_steps(route);
	return copy_loads(f, "loads", t, n, route->loads) &&
	       (!predicted.bytes || copy_loads(f, "predicted_loads", &predicted,
	                                       n, route->predicted));
}

static bool read_trace(const struct file *f, const struct route_ask *ask,
                       struct route *route)
{
	struct array ids, loads;

	if (!find_tensor(f, "topk_ids", &ids) ||
	    !find_tensor(f, "loads", &loads))
		return false;
	if (ids.bytes)
		return read_ids(f, &ids, ask, route);
	if (loads.bytes)
		return read_loads(f, &loads, ask, route);
	return fault_set(f->fault,
	                 "%s: no tensor topk_ids, and no tensor loads",
	                 f->in->name);
}

bool route_read_tensors(const struct route_bytes *in,
                        const struct route_ask *ask, struct route *route,
                        struct fault *fault)
{
	struct file f = {.in = in, .fault = fault};
	const bool good = tensor_file_open(in->name, in->bytes, in->n,
	                                   &f.tensors, fault) &&
	                  read_trace(&f, ask, route);

	tensor_file_close(&f.tensors);
	return good;
}
