/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain array of uint8 ids, [tokens][layers][k], and its index: a CSV with
 * the columns "tokens" and "byte_offset"; the columns before "tokens" name the
 * task, the first of them its data set. Bytes of a token follow from the
 * offsets; a comment of the index has the layers: "[24 layers]".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "route_csv.h"

enum { MAX_TASKS = 1 << 20 };

struct index {
	struct route_task *tasks;
	int32_t n_tasks, n_room;
	int32_t tokens_column, offset_column;
	int64_t n_tokens, token_bytes;
};

/* "[24 layers]" of the comments; 0: none. */
static int32_t layers_in_comments(const struct route_bytes *in)
{
	const char *const text = in->bytes;
	int n_layers = 0, end = 0;

	for (const char *c = text; c && *c == '#'; c = strchr(c, '\n')) {
		const char *const line_end = strchr(c, '\n');
		const char *open = strchr(c, '[');

		for (; open && (!line_end || open < line_end);
		     open = strchr(open + 1, '['))
			if (sscanf(open, "[%5d layers]%n", &n_layers, &end) ==
			            1 &&
			    end && n_layers > 0)
				return n_layers;
		if (!line_end)
			break;
		c = line_end;
	}
	return 0;
}

static bool read_columns(struct route_csv *csv, struct index *index,
                         struct fault *fault)
{
	struct route_field field;

	index->tokens_column = index->offset_column = 0;
	if (route_csv_line(csv))
		while (route_csv_field(csv, &field)) {
			if (route_field_is(&field, "tokens"))
				index->tokens_column = csv->column;
			if (route_field_is(&field, "byte_offset"))
				index->offset_column = csv->column;
		}
	if (index->tokens_column && index->offset_column)
		return true;
	return fault_set(fault,
	                 "%s:%" PRId64 ": the header is to have the columns "
	                 "tokens and byte_offset",
	                 csv->name, csv->line);
}

static bool grow(struct index *index, const char *name, struct fault *fault)
{
	if (index->n_tasks < index->n_room)
		return true;
	const int32_t n_room = index->n_room ? 2 * index->n_room : 64;

	if (n_room > MAX_TASKS)
		return fault_set(fault, "%s: allowed are %d tasks", name,
		                 MAX_TASKS);
	void *const tasks =
		realloc(index->tasks, (size_t)n_room * sizeof(*index->tasks));

	if (!tasks)
		return fault_set(fault, "%s: no memory", name);
	index->tasks = tasks;
	index->n_room = n_room;
	return true;
}

/* A line; the byte offset goes to first_token until the row is known. */
static bool read_task(struct route_csv *csv, struct index *index,
                      struct route_field *set, struct fault *fault)
{
	struct route_number tokens = {"tokens", 1, INT32_MAX, 0};
	struct route_number offset = {"byte_offset", 0, INT64_MAX / 16, -1};
	struct route_field field, first = {0}, name = {csv->field, 0};
	struct route_task *const task = &index->tasks[index->n_tasks];

	while (route_csv_field(csv, &field)) {
		if (csv->column == 1)
			first = field;
		if (csv->column < index->tokens_column)
			name.n = (size_t)(field.text + field.n - name.text);
		if (csv->column == index->tokens_column &&
		    !route_csv_number(csv, &field, &tokens, fault))
			return false;
		if (csv->column == index->offset_column &&
		    !route_csv_number(csv, &field, &offset, fault))
			return false;
	}
	if (offset.value < 0 || !tokens.value)
		return fault_set(fault,
		                 "%s:%" PRId64 ": %d columns, tokens and "
		                 "byte_offset are %d and %d",
		                 csv->name, csv->line, csv->column,
		                 index->tokens_column, index->offset_column);
	*task = (struct route_task){.first_token = offset.value,
	                            .n_tokens = tokens.value};
	snprintf(task->name, sizeof(task->name), "%.*s",
	         name.n < sizeof(task->name) ? (int)name.n
	                                     : (int)sizeof(task->name) - 1,
	         name.text);
	if (index->n_tasks)
		task->group = task[-1].group + !route_field_same(&first, set);
	*set = first;
	index->n_tasks++;
	return true;
}

static bool read_index(const struct route_bytes *in, struct index *index,
                       struct fault *fault)
{
	struct route_csv csv;
	struct route_field set = {0};

	route_csv_begin(&csv, in);
	if (!read_columns(&csv, index, fault))
		return false;
	while (route_csv_line(&csv))
		if (!grow(index, in->name, fault) ||
		    !read_task(&csv, index, &set, fault))
			return false;
	return index->n_tasks > 0 ||
	       fault_set(fault, "%s:%" PRId64 ": no tasks", in->name, csv.line);
}

/* Tasks must lie one behind the other: their offsets give a token's bytes. */
static bool find_token_bytes(const struct route_bytes *in,
                             const struct route_bytes *bin, struct index *index,
                             struct fault *fault)
{
	for (int32_t t = 0; t < index->n_tasks; t++)
		index->n_tokens += index->tasks[t].n_tokens;
	index->token_bytes = (int64_t)bin->n / index->n_tokens;
	if (index->token_bytes >= 1 &&
	    index->token_bytes * index->n_tokens == (int64_t)bin->n)
		return true;
	return fault_set(fault,
	                 "%s: %zu bytes are no whole number for each of the "
	                 "%" PRId64 " tokens of %s",
	                 bin->name, bin->n, index->n_tokens, in->name);
}

static bool check_offsets(const struct route_bytes *in, struct index *index,
                          struct fault *fault)
{
	int64_t first = 0;

	for (int32_t t = 0; t < index->n_tasks; t++) {
		struct route_task *const task = &index->tasks[t];

		if (task->first_token != first * index->token_bytes)
			return fault_set(fault,
			                 "%s: byte_offset of task %d is "
			                 "%" PRId64 ", allowed is %" PRId64
			                 ": %" PRId64 " bytes a token",
			                 in->name, t, task->first_token,
			                 first * index->token_bytes,
			                 index->token_bytes);
		task->first_token = first;
		first += task->n_tokens;
	}
	return true;
}

static bool count(const struct route_bytes *bin, const struct index *index,
                  int32_t n_layers, const struct route_ask *ask,
                  struct route *route, struct fault *fault)
{
	const int64_t topk = n_layers > 0 ? index->token_bytes / n_layers : 0;

	if (n_layers < 1 || n_layers > ROUTE_MAX_LAYERS || topk < 1 ||
	    topk > ROUTE_MAX_TOPK || topk * n_layers != index->token_bytes)
		return fault_set(
			fault,
			"%s: %" PRId64 " bytes a token, %d layers; "
			"--layers, or '[N layers]' in a comment of the "
			"index, is to divide the bytes into 1..%d "
			"choices",
			bin->name, index->token_bytes, n_layers,
			ROUTE_MAX_TOPK);
	const struct route_ids ids = {
		.name = bin->name,
		.ids = bin->bytes,
		.type = ROUTE_U8,
		.n_tokens = index->n_tokens,
		.n_layers = n_layers,
		.topk = (int32_t)topk,
		.n_experts = ask->n_experts,
		.tasks = index->tasks,
		.n_tasks = index->n_tasks,
	};

	return route_count(&ids, ask, route, fault);
}

bool route_read_bin(const struct route_bytes *in, const struct route_bytes *bin,
                    const struct route_ask *ask, struct route *route,
                    struct fault *fault)
{
	struct index index = {0};
	const int32_t n_layers =
		ask->n_layers ? ask->n_layers : layers_in_comments(in);
	const bool good = read_index(in, &index, fault) &&
	                  find_token_bytes(in, bin, &index, fault) &&
	                  check_offsets(in, &index, fault) &&
	                  count(bin, &index, n_layers, ask, route, fault);

	free(index.tasks);
	return good;
}
