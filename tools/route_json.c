/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads in JSON: {"loads": [3, 1, 2]} or one array for each layer, and perhaps
 * "slot_expert": the expert in each slot, -1 for an empty one.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <ferry/plan.h>

#include "route_parts.h"

/* Another number than is allowed, or no number at all. */
static bool refuse(const char *name, const char *what, const cJSON *item,
                   int64_t min, int64_t max, struct fault *fault)
{
	char *const text = cJSON_PrintUnformatted(item);

	fault_set(fault,
	          "%s: %s is %.40s, allowed is a whole number %" PRId64
	          "..%" PRId64,
	          name, what, text ? text : "?", min, max);
	cJSON_free(text);
	return false;
}

/* A whole number min..max. */
static bool whole(const cJSON *item, double min, double max)
{
	return cJSON_IsNumber(item) && item->valuedouble >= min &&
	       item->valuedouble <= max &&
	       item->valuedouble == floor(item->valuedouble);
}

static bool read_layer(const char *name, const cJSON *array, int32_t layer,
                       struct route *route, struct fault *fault)
{
	int64_t *const loads = route_loads(route, 0, layer);
	const cJSON *item;
	char what[64];
	int32_t e = 0;

	if (!cJSON_IsArray(array) ||
	    cJSON_GetArraySize(array) != route->n_experts)
		return fault_set(fault,
		                 "%s: loads[%d] is no array of %d numbers, as "
		                 "the first is",
		                 name, layer, route->n_experts);
	cJSON_ArrayForEach(item, array)
	{
		snprintf(what, sizeof(what), "loads[%d][%d]", layer, e);
		if (!whole(item, 0, (double)FERRY_MAX_LOAD))
			return refuse(name, what, item, 0, FERRY_MAX_LOAD,
			              fault);
		loads[e++] = (int64_t)item->valuedouble;
	}
	return true;
}

static bool read_slots(const char *name, const cJSON *array,
                       struct route *route, struct fault *fault)
{
	const int n = cJSON_GetArraySize(array);
	const cJSON *item;
	char what[64];

	if (!array)
		return true;
	if (!cJSON_IsArray(array) || n < 1 || n > ROUTE_MAX_EXPERTS)
		return fault_set(fault,
		                 "%s: slot_expert is no array of 1..%d numbers",
		                 name, ROUTE_MAX_EXPERTS);
	if (!route_alloc((size_t)n, sizeof(*route->slot_expert),
	                 &route->slot_expert, fault))
		return false;
	cJSON_ArrayForEach(item, array)
	{
		snprintf(what, sizeof(what), "slot_expert[%d]", route->n_slots);
		if (!whole(item, -1, ROUTE_MAX_EXPERTS - 1))
			return refuse(name, what, item, -1,
			              ROUTE_MAX_EXPERTS - 1, fault);
		route->slot_expert[route->n_slots++] =
			(int32_t)item->valuedouble;
	}
	return true;
}

/* The layers: of a plain array there is one. */
static bool read_loads(const char *name, const cJSON *loads,
                       const struct route_ask *ask, struct route *route,
                       struct fault *fault)
{
	const bool nested = cJSON_IsArray(loads) && loads->child &&
	                    cJSON_IsArray(loads->child);
	const cJSON *layer = nested ? loads->child : loads;
	const int n_layers = nested ? cJSON_GetArraySize(loads) : 1;
	const int n_experts = cJSON_GetArraySize(layer);

	if (!cJSON_IsArray(loads) || n_experts < 1 ||
	    n_experts > ROUTE_MAX_EXPERTS || n_layers > ROUTE_MAX_LAYERS)
		return fault_set(
			fault,
			"%s: loads is to be an array of 1..%d numbers, "
			"or of up to %d such arrays",
			name, ROUTE_MAX_EXPERTS, ROUTE_MAX_LAYERS);
	route->n_steps = 1;
	route->n_layers = n_layers;
	route->n_experts = n_experts;
	if (!route_make(route, name, ask, false, fault))
		return false;
	for (int32_t l = 0; l < n_layers; l++, layer = layer->next)
		if (!read_layer(name, layer, l, route, fault))
			return false;
	return true;
}

/* A second array of a name would be left out without a word. */
static bool is_once(const char *name, const cJSON *object, const char *key,
                    struct fault *fault)
{
	const cJSON *item;
	int n = 0;

	cJSON_ArrayForEach(item, object) n +=
		item->string && !strcmp(item->string, key);
	return n < 2 ||
	       fault_set(fault, "%s: \"%s\" is there %d times, allowed is once",
	                 name, key, n);
}

static bool read_object(const struct route_bytes *in, const cJSON *object,
                        const struct route_ask *ask, struct route *route,
                        struct fault *fault)
{
	if (!cJSON_IsObject(object))
		return fault_set(fault, "%s: no JSON object with \"loads\"",
		                 in->name);
	/* Of ferry prefill --trace, or of FERRY_TRACE. */
	if (cJSON_HasObjectItem(object, "traceEvents"))
		return fault_set(fault,
		                 "%s: a timeline for Perfetto, no routing: "
		                 "ferry prefill writes that with --record",
		                 in->name);
	return is_once(in->name, object, "loads", fault) &&
	       is_once(in->name, object, "slot_expert", fault) &&
	       read_loads(in->name,
	                  cJSON_GetObjectItemCaseSensitive(object, "loads"),
	                  ask, route, fault) &&
	       read_slots(
		       in->name,
		       cJSON_GetObjectItemCaseSensitive(object, "slot_expert"),
		       route, fault);
}

bool route_read_json(const struct route_bytes *in, const struct route_ask *ask,
                     struct route *route, struct fault *fault)
{
	const char *end = in->bytes;
	cJSON *const document =
		cJSON_ParseWithLengthOpts(in->bytes, in->n, &end, false);

	if (!document)
		return fault_set(fault, "%s: no JSON from byte %td on",
		                 in->name, end - in->bytes);
	const size_t rest = strspn(end, " \t\r\n");
	const bool good = end + rest == in->bytes + in->n
	                          ? read_object(in, document, ask, route, fault)
	                          : fault_set(fault,
	                                      "%s: byte %td: the JSON has "
	                                      "ended before",
	                                      in->name, end + rest - in->bytes);

	cJSON_Delete(document);
	return good;
}
