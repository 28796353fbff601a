/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads in CSV. A table has a header with the columns "layer", "e0", "e1" ...;
 * the columns before "layer" name the task, the first of them its data set;
 * the lines of a task follow each other, layer 0 first. Without a header: a
 * line of loads for each layer, and perhaps one that begins with "slot_expert".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/plan.h>

#include "route_csv.h"

/* What the header says. */
struct columns {
	int32_t layer; /* column of "layer", from 1 */
	int32_t n_experts;
};

static bool find_layer(struct route_csv *csv, int32_t *column)
{
	struct route_field field;

	while (route_csv_field(csv, &field))
		if (route_field_is(&field, "layer")) {
			*column = csv->column;
			return true;
		}
	return false;
}

bool route_is_table(const struct route_bytes *in)
{
	struct route_csv csv;
	int32_t column;

	route_csv_begin(&csv, in);
	return route_csv_line(&csv) && find_layer(&csv, &column);
}

static bool read_header(struct route_csv *csv, struct columns *columns,
                        struct fault *fault)
{
	struct route_field field;
	char wanted[16];

	if (!route_csv_line(csv) || !find_layer(csv, &columns->layer))
		return fault_set(fault, "%s:%" PRId64 ": no column 'layer'",
		                 csv->name, csv->line);
	columns->n_experts = 0;
	while (route_csv_field(csv, &field)) {
		snprintf(wanted, sizeof(wanted), "e%d", columns->n_experts);
		if (!route_field_is(&field, wanted) ||
		    columns->n_experts == ROUTE_MAX_EXPERTS)
			return fault_set(fault,
			                 "%s:%" PRId64 ": column %d is '%.*s', "
			                 "allowed is %s, experts are 0..%d",
			                 csv->name, csv->line, csv->column,
			                 field.n > 40 ? 40 : (int)field.n,
			                 field.text, wanted,
			                 ROUTE_MAX_EXPERTS - 1);
		columns->n_experts++;
	}
	if (columns->n_experts)
		return true;
	return fault_set(fault, "%s:%" PRId64 ": no column 'e0' after 'layer'",
	                 csv->name, csv->line);
}

/* The fields before "layer": the whole for the name, the first for the set. */
static bool read_name(struct route_csv *csv, const struct columns *columns,
                      struct route_field *whole, struct route_field *first,
                      struct fault *fault)
{
	struct route_field field = {csv->field, 0};

	*whole = *first = field;
	for (int32_t c = 1; c < columns->layer; c++) {
		if (!route_csv_need(csv, "part of the task's name", &field,
		                    fault))
			return false;
		if (c == 1)
			*first = field;
		whole->n = (size_t)(field.text + field.n - whole->text);
	}
	return true;
}

/* One pass over the lines: counts first, and writes where there is room. */
struct pass {
	struct route_csv csv;
	struct columns columns;
	struct route *route;
	int32_t step, layer; /* of the line at work */
	struct route_field name, set;
};

/* Whether this line begins a step; complains where it cannot. */
static bool place_line(struct pass *p, const struct route_field *name,
                       int64_t layer, struct fault *fault)
{
	const bool next = p->step < 0 || !route_field_same(name, &p->name) ||
	                  (layer == 0 && p->layer + 1 == p->route->n_layers);
	const int32_t n_layers = p->route->n_layers;
	const int32_t wanted = next ? 0 : p->layer + 1;

	if (next && p->step == 0 && !n_layers)
		p->route->n_layers = p->layer + 1;
	if (next && p->step >= 0 && p->layer + 1 != p->route->n_layers)
		return fault_set(fault,
		                 "%s:%" PRId64 ": the task before has layers "
		                 "0..%d, the first has 0..%d",
		                 p->csv.name, p->csv.line, p->layer,
		                 p->route->n_layers - 1);
	if (layer != wanted || (n_layers && layer >= n_layers))
		return fault_set(fault,
		                 "%s:%" PRId64 ": layer is %" PRId64
		                 ", after the line before it is to be %d",
		                 p->csv.name, p->csv.line, layer, wanted);
	p->step += next;
	p->layer = wanted;
	return true;
}

static bool read_loads(struct pass *p, int64_t *loads, struct fault *fault)
{
	struct route_number load = {"load", 0, FERRY_MAX_LOAD, 0};

	for (int32_t e = 0; e < p->columns.n_experts; e++) {
		if (!route_csv_take(&p->csv, &load, fault))
			return false;
		if (loads)
			loads[e] = load.value;
	}
	return route_csv_end(&p->csv, fault);
}

/* The step's name, task and data set. */
static void name_step(struct pass *p)
{
	struct route_step *const s = &p->route->steps[p->step];
	const struct route_step *const before = s - 1;

	s->task = p->step;
	snprintf(s->name, sizeof(s->name), "%.*s",
	         (int)(p->name.n < sizeof(s->name) ? p->name.n
	                                           : sizeof(s->name) - 1),
	         p->name.text);
	s->group = p->step == 0 ? 0 : before->group;
}

static bool read_line(struct pass *p, struct fault *fault)
{
	struct route_field name, set;
	struct route_number layer = {"layer", 0, ROUTE_MAX_LAYERS - 1, 0};
	const int32_t before = p->step;
	int64_t *loads = NULL;

	if (!read_name(&p->csv, &p->columns, &name, &set, fault) ||
	    !route_csv_take(&p->csv, &layer, fault) ||
	    !place_line(p, &name, layer.value, fault))
		return false;
	const bool other = p->step > 0 && !route_field_same(&set, &p->set);

	p->name = name;
	p->set = set;
	if (p->route->loads) {
		if (p->step != before) {
			name_step(p);
			p->route->steps[p->step].group += other;
		}
		loads = route_loads(p->route, p->step, p->layer);
	}
	return read_loads(p, loads, fault);
}

static bool run_pass(const struct route_bytes *in, struct route *route,
                     struct fault *fault)
{
	struct pass p = {.route = route, .step = -1, .layer = -1};

	route_csv_begin(&p.csv, in);
	if (!read_header(&p.csv, &p.columns, fault))
		return false;
	while (route_csv_line(&p.csv))
		if (!read_line(&p, fault))
			return false;
	if (p.step < 0)
		return fault_set(fault, "%s:%" PRId64 ": no loads", in->name,
		                 p.csv.line);
	if (!route->n_layers)
		route->n_layers = p.layer + 1;
	if (p.layer + 1 != route->n_layers)
		return fault_set(fault,
		                 "%s:%" PRId64 ": the last task has layers "
		                 "0..%d, the first has 0..%d",
		                 in->name, p.csv.line, p.layer,
		                 route->n_layers - 1);
	route->n_steps = p.step + 1;
	route->n_experts = p.columns.n_experts;
	return true;
}

bool route_read_table(const struct route_bytes *in, const struct route_ask *ask,
                      struct route *route, struct fault *fault)
{
	if (ask->step_tokens)
		return fault_set(fault,
		                 "%s: a table has loads of whole tasks, steps "
		                 "of %" PRId64 " tokens need expert ids",
		                 in->name, ask->step_tokens);
	return run_pass(in, route, fault) &&
	       route_make(route, in->name, ask, false, fault) &&
	       run_pass(in, route, fault);
}

/* Numbers of one line into array[max]; *n of them. */
static bool read_row(struct route_csv *csv, struct route_number *number,
                     int64_t *array, int32_t *n, struct fault *fault)
{
	struct route_field field;

	for (*n = 0; route_csv_field(csv, &field); (*n)++) {
		if (*n == ROUTE_MAX_EXPERTS)
			return fault_set(fault,
			                 "%s:%" PRId64 ": allowed are %d "
			                 "numbers",
			                 csv->name, csv->line,
			                 ROUTE_MAX_EXPERTS);
		if (!route_csv_number(csv, &field, number, fault))
			return false;
		array[*n] = number->value;
	}
	return true;
}

static bool read_slots(struct route_csv *csv, int64_t *row, struct route *route,
                       struct fault *fault)
{
	struct route_number slot = {"expert of a slot", -1,
	                            ROUTE_MAX_EXPERTS - 1, 0};

	free(route->slot_expert);
	route->slot_expert = NULL;
	if (!read_row(csv, &slot, row, &route->n_slots, fault) ||
	    !route_alloc((size_t)route->n_slots, sizeof(*route->slot_expert),
	                 &route->slot_expert, fault))
		return false;
	for (int32_t s = 0; s < route->n_slots; s++)
		route->slot_expert[s] = (int32_t)row[s];
	return true;
}

/* A line of loads, which may begin with the word. */
static bool read_layer(struct route_csv *csv, int64_t *row, int32_t layer,
                       struct route *route, struct fault *fault)
{
	struct route_number load = {"load", 0, FERRY_MAX_LOAD, 0};
	int32_t n;

	if (!read_row(csv, &load, row, &n, fault))
		return false;
	if (layer == 0)
		route->n_experts = n;
	if (n != route->n_experts || n == 0)
		return fault_set(fault,
		                 "%s:%" PRId64 ": %d loads, the first line has "
		                 "%d",
		                 csv->name, csv->line, n, route->n_experts);
	if (route->loads)
		memcpy(route_loads(route, 0, layer), row,
		       (size_t)n * sizeof(*row));
	return true;
}

/* Leaves out the word that a line may begin with. */
static bool takes_word(struct route_csv *csv, const char *word)
{
	struct route_csv ahead = *csv;
	struct route_field field;

	if (!route_csv_field(&ahead, &field) || !route_field_is(&field, word))
		return false;
	*csv = ahead;
	return true;
}

static bool rows_pass(const struct route_bytes *in, int64_t *row,
                      struct route *route, struct fault *fault)
{
	struct route_csv csv;
	int32_t layer = 0;

	route_csv_begin(&csv, in);
	while (route_csv_line(&csv)) {
		if (takes_word(&csv, "slot_expert")) {
			if (!read_slots(&csv, row, route, fault))
				return false;
			continue;
		}
		takes_word(&csv, "loads");
		if (layer == ROUTE_MAX_LAYERS)
			return fault_set(fault,
			                 "%s:%" PRId64 ": allowed are %d "
			                 "lines of loads",
			                 in->name, csv.line, ROUTE_MAX_LAYERS);
		if (!read_layer(&csv, row, layer++, route, fault))
			return false;
	}
	route->n_layers = layer;
	route->n_steps = 1;
	return layer > 0 ||
	       fault_set(fault, "%s:%" PRId64 ": no loads", in->name, csv.line);
}

bool route_read_rows(const struct route_bytes *in, const struct route_ask *ask,
                     struct route *route, struct fault *fault)
{
	int64_t *row;

	if (!route_alloc(ROUTE_MAX_EXPERTS, sizeof(*row), &row, fault))
		return false;
	const bool good = rows_pass(in, row, route, fault) &&
	                  route_make(route, in->name, ask, false, fault) &&
	                  rows_pass(in, row, route, fault);

	free(row);
	return good;
}
