/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routing of a run as safetensors, which ferry replay reads: topk_ids and,
 * where the run foresaw them, predicted_ids, [tokens, layers, k], and the first
 * token of each step. Warm-up is in it: what counts is up to the reader.
 */
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "../alloc.h"
#include "prefill.h"
#include "prefill_file.h"

enum { ALIGNMENT = 8 };

static int64_t n_ids(const struct prefill_shape *shape)
{
	return shape->n_tokens * shape->n_layers * shape->topk;
}

/* Was anything foreseen? */
static bool has_predictions(const struct prefill_shape *shape,
                            const struct prefill_run *run)
{
	const int64_t n_cells = (int64_t)shape->n_steps * shape->n_layers;

	for (int64_t c = 0; run->predicted_ids && c < n_cells; c++)
		if (run->cells[c].predicted)
			return true;
	return false;
}

/* A tensor of the header; *at moves behind its bytes. */
static void add_tensor(cJSON *header, const char *name, const int64_t *dims,
                       int n_dims, int64_t *at)
{
	cJSON *const o = cJSON_AddObjectToObject(header, name);
	int64_t bytes = sizeof(int32_t);

	cJSON_AddStringToObject(o, "dtype", "I32");
	cJSON *const shape = cJSON_AddArrayToObject(o, "shape");

	for (int d = 0; d < n_dims; d++) {
		cJSON_AddItemToArray(shape,
		                     cJSON_CreateNumber((double)dims[d]));
		bytes *= dims[d];
	}
	cJSON *const offsets = cJSON_AddArrayToObject(o, "data_offsets");

	cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*at));
	*at += bytes;
	cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*at));
}

static void add_metadata(cJSON *header, const struct prefill_report *r,
                         const struct prefill_run *run)
{
	const struct prefill_shape *const shape = r->job->shape;
	cJSON *const o = cJSON_AddObjectToObject(header, "__metadata__");
	cJSON *const steps = cJSON_CreateArray();
	char n[16];

	snprintf(n, sizeof(n), "%d", shape->n_experts);
	cJSON_AddStringToObject(o, "n_experts", n);
	cJSON_AddStringToObject(o, "model", shape->model);
	cJSON_AddStringToObject(o, "balance", run->name);
	for (int32_t s = 0; s < shape->n_steps; s++)
		cJSON_AddItemToArray(steps,
		                     cJSON_CreateString(shape->steps[s].name));
	/* Values of metadata are texts. */
	char *const text = cJSON_PrintUnformatted(steps);

	cJSON_AddStringToObject(o, "steps", text ? text : "");
	free(text);
	cJSON_Delete(steps);
}

/* The header, padded with blanks, so that tensors are aligned. */
static char *make_header(const struct prefill_report *r,
                         const struct prefill_run *run, bool predicted)
{
	const struct prefill_shape *const shape = r->job->shape;
	const int64_t dims[] = {shape->n_tokens, shape->n_layers, shape->topk};
	const int64_t n_steps = shape->n_steps;
	cJSON *const header = cJSON_CreateObject();
	int64_t at = 0;

	add_metadata(header, r, run);
	add_tensor(header, "topk_ids", dims, 3, &at);
	if (predicted)
		add_tensor(header, "predicted_ids", dims, 3, &at);
	add_tensor(header, "step_starts", &n_steps, 1, &at);
	char *const json = cJSON_PrintUnformatted(header);

	cJSON_Delete(header);
	const size_t n = json ? strlen(json) : 0;
	const size_t padding = (ALIGNMENT - n % ALIGNMENT) % ALIGNMENT;
	char *const text = alloc_or_exit(n + padding + 1, 1);

	snprintf(text, n + padding + 1, "%s%*s", json ? json : "", (int)padding,
	         "");
	free(json);
	return text;
}

static void write_starts(FILE *f, const struct prefill_shape *shape)
{
	int32_t first = 0;

	for (int32_t s = 0; s < shape->n_steps; s++) {
		fwrite(&first, sizeof(first), 1, f);
		first += shape->steps[s].n_tokens;
	}
}

bool prefill_write_record(const struct prefill_report *report,
                          const struct prefill_run *run, const char *path)
{
	const struct prefill_shape *const shape = report->job->shape;
	const bool predicted = has_predictions(shape, run);
	const size_t n = (size_t)n_ids(shape);
	FILE *const f = prefill_file_begin(path);

	if (!f)
		return false;
	char *const header = make_header(report, run, predicted);
	const uint64_t bytes = strlen(header);

	fwrite(&bytes, sizeof(bytes), 1, f);
	fwrite(header, 1, bytes, f);
	fwrite(run->topk_ids, sizeof(*run->topk_ids), n, f);
	if (predicted)
		fwrite(run->predicted_ids, sizeof(*run->predicted_ids), n, f);
	write_starts(f, shape);
	free(header);
	return prefill_file_end(f, path);
}
