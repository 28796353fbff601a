/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors. */
#include "tensor_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_read.h"

enum {
	LENGTH_BYTES = 8,
	/* The limit of the safetensors library. */
	MAX_HEADER_BYTES = 100 * 1000 * 1000,
};

static const struct {
	const char *name;
	int32_t bytes;
} types[TENSOR_OTHER] = {
	[TENSOR_BOOL] = {"BOOL", 1},       [TENSOR_U8] = {"U8", 1},
	[TENSOR_I8] = {"I8", 1},           [TENSOR_F8_E4M3] = {"F8_E4M3", 1},
	[TENSOR_F8_E5M2] = {"F8_E5M2", 1}, [TENSOR_U16] = {"U16", 2},
	[TENSOR_I16] = {"I16", 2},         [TENSOR_F16] = {"F16", 2},
	[TENSOR_BF16] = {"BF16", 2},       [TENSOR_U32] = {"U32", 4},
	[TENSOR_I32] = {"I32", 4},         [TENSOR_F32] = {"F32", 4},
	[TENSOR_U64] = {"U64", 8},         [TENSOR_I64] = {"I64", 8},
	[TENSOR_F64] = {"F64", 8},
};

/* A header while it is read. */
struct header {
	struct tensor_file *file;
	cJSON *json;
	struct fault *fault;
};

/* Bytes of an element; 0 for TENSOR_OTHER. */
static int32_t type_bytes(enum tensor_type type)
{
	return type == TENSOR_OTHER ? 0 : types[type].bytes;
}

const char *tensor_shape_text(const int64_t *dims, int32_t n_dims,
                              char text[TENSOR_SHAPE_BYTES])
{
	size_t at = 1;

	strcpy(text, "[");
	for (int32_t d = 0; d < n_dims; d++)
		at += (size_t)snprintf(text + at, TENSOR_SHAPE_BYTES - at,
		                       "%s%" PRId64, d ? ", " : "", dims[d]);
	strcpy(text + at, "]");
	return text;
}

static bool parse(struct header *h)
{
	struct tensor_file *const f = h->file;
	uint64_t n;

	if (f->n < LENGTH_BYTES)
		return fault_set(h->fault, "%s: %zu bytes, a header has 8",
		                 f->name, f->n);
	const size_t behind = f->n - LENGTH_BYTES;

	memcpy(&n, f->bytes, sizeof(n));
	if (n > MAX_HEADER_BYTES || n > behind)
		return fault_set(h->fault,
		                 "%s: byte 0: the header has %" PRIu64
		                 " bytes, allowed are 0..%zu",
		                 f->name, n,
		                 behind < MAX_HEADER_BYTES
		                         ? behind
		                         : (size_t)MAX_HEADER_BYTES);
	f->data_at = LENGTH_BYTES + (size_t)n;
	h->json =
		json_read_object(f->name, LENGTH_BYTES, f->bytes + LENGTH_BYTES,
	                         (size_t)n, h->fault);
	return h->json != NULL;
}

static bool tensor_fail(const struct header *h, const struct tensor *t,
                        const char *what)
{
	return fault_set(h->fault, "%s: tensor %.200s: %s", h->file->name,
	                 t->name, what);
}

/* "KEY is VALUE, allowed is ..." */
static bool refuse(const struct header *h, const struct tensor *t,
                   const char *key, const cJSON *item, const char *allowed)
{
	char *const text = item ? cJSON_PrintUnformatted(item) : NULL;

	fault_set(h->fault, "%s: tensor %.200s: %s is %.60s, allowed %s",
	          h->file->name, t->name, key, text ? text : "missing",
	          allowed);
	cJSON_free(text);
	return false;
}

/* A whole number that fits into 2^52. */
static bool whole(const cJSON *item, int64_t *value)
{
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
	    item->valuedouble > 0x1p52 ||
	    item->valuedouble != floor(item->valuedouble))
		return false;
	*value = (int64_t)item->valuedouble;
	return true;
}

static bool read_type(const struct header *h, struct tensor *t,
                      const cJSON *item)
{
	const char *const text = cJSON_GetStringValue(item);
	int type = 0;

	if (!text)
		return refuse(h, t, "dtype", item, "is a text");
	while (type < TENSOR_OTHER && strcmp(text, types[type].name) != 0)
		type++;
	t->type = (enum tensor_type)type;
	snprintf(t->dtype, sizeof(t->dtype), "%s", text);
	return true;
}

static bool read_shape(const struct header *h, struct tensor *t,
                       const cJSON *shape)
{
	const cJSON *item;

	if (!cJSON_IsArray(shape) ||
	    cJSON_GetArraySize(shape) > TENSOR_MAX_DIMS)
		return refuse(h, t, "shape", shape, "are 0..8 numbers");
	cJSON_ArrayForEach(item, shape)
	{
		if (!whole(item, &t->dims[t->n_dims++]))
			return refuse(h, t, "shape", shape,
			              "are whole numbers");
	}
	return true;
}

static bool shape_bytes(const struct tensor *t, int64_t *n)
{
	*n = type_bytes(t->type);
	for (int32_t d = 0; d < t->n_dims; d++)
		if (__builtin_mul_overflow(*n, t->dims[d], n))
			return false;
	return true;
}

static bool read_range(const cJSON *offsets, int64_t *begin, int64_t *end)
{
	return offsets && cJSON_IsArray(offsets) &&
	       cJSON_GetArraySize(offsets) == 2 &&
	       whole(offsets->child, begin) &&
	       whole(offsets->child->next, end) && *begin <= *end;
}

static bool find_bytes(const struct header *h, struct tensor *t,
                       const cJSON *offsets)
{
	const struct tensor_file *const f = h->file;
	const size_t n_data = f->n - f->data_at;
	int64_t begin, end, n;
	char allowed[80];

	if (!read_range(offsets, &begin, &end)) {
		snprintf(allowed, sizeof(allowed),
		         "are two numbers, rising, in 0..%zu", n_data);
		return refuse(h, t, "data_offsets", offsets, allowed);
	}
	if ((uint64_t)end > n_data)
		return fault_set(h->fault,
		                 "%s: tensor %.200s: data_offsets is [%" PRId64
		                 ",%" PRId64 "], but the data end at %zu: the "
		                 "file is not whole",
		                 f->name, t->name, begin, end, n_data);
	if (!shape_bytes(t, &n))
		return tensor_fail(h, t, "shape is too large");
	if (t->type != TENSOR_OTHER && n != end - begin)
		return fault_set(h->fault,
		                 "%s: tensor %.200s: data_offsets enclose "
		                 "%" PRId64 " bytes, the shape has %" PRId64,
		                 f->name, t->name, end - begin, n);
	t->bytes = f->bytes + f->data_at + begin;
	t->n_bytes = end - begin;
	return true;
}

/* A member that is there once. */
static bool member(const struct header *h, const struct tensor *t,
                   const cJSON *object, const char *key, const cJSON **found)
{
	const cJSON *item;

	*found = NULL;
	cJSON_ArrayForEach(item, object)
	{
		if (strcmp(item->string, key) != 0)
			continue;
		if (*found)
			return refuse(h, t, key, item, "is one");
		*found = item;
	}
	return true;
}

static bool read_tensor(const struct header *h, const cJSON *o,
                        struct tensor *t)
{
	const cJSON *dtype, *shape, *offsets;

	if (!cJSON_IsObject(o))
		return tensor_fail(h, t, "no JSON object");
	return member(h, t, o, "dtype", &dtype) &&
	       member(h, t, o, "shape", &shape) &&
	       member(h, t, o, "data_offsets", &offsets) &&
	       read_type(h, t, dtype) && read_shape(h, t, shape) &&
	       find_bytes(h, t, offsets);
}

/* Memory for all tensors and their names. */
static bool alloc_tensors(const struct header *h)
{
	struct tensor_file *const f = h->file;
	size_t n_tensors = 0, n_names = 0;
	const cJSON *item;

	cJSON_ArrayForEach(item, h->json)
	{
		n_tensors++;
		n_names += strlen(item->string) + 1;
	}
	f->tensors = calloc(n_tensors + 1, sizeof(*f->tensors));
	f->names = malloc(n_names + 1);
	if (f->tensors && f->names)
		return true;
	return fault_set(h->fault, "%s: no memory for %zu tensors", f->name,
	                 n_tensors);
}

static bool read_tensors(const struct header *h)
{
	struct tensor_file *const f = h->file;
	char *name = f->names;
	const cJSON *item;

	cJSON_ArrayForEach(item, h->json)
	{
		struct tensor *const t = &f->tensors[f->n_tensors];
		const size_t n = strlen(item->string) + 1;

		t->name = memcpy(name, item->string, n);
		name += n;
		if (!read_tensor(h, item, t))
			return false;
		f->n_tensors++;
	}
	return true;
}

static int by_name(const void *a, const void *b)
{
	const struct tensor *const first = a, *const second = b;

	return strcmp(first->name, second->name);
}

static bool sort_tensors(const struct header *h)
{
	struct tensor_file *const f = h->file;

	qsort(f->tensors, (size_t)f->n_tensors, sizeof(*f->tensors), by_name);
	for (int32_t i = 1; i < f->n_tensors; i++)
		if (!by_name(&f->tensors[i - 1], &f->tensors[i]))
			return fault_set(h->fault,
			                 "%s: tensor %.200s is there twice, "
			                 "allowed is once",
			                 f->name, f->tensors[i].name);
	return true;
}

bool tensor_file_open(const char *name, const void *bytes, size_t n,
                      struct tensor_file *file, struct fault *fault)
{
	struct header h = {.file = file, .fault = fault};

	*file = (struct tensor_file){.name = name, .bytes = bytes, .n = n};
	bool good = parse(&h);

	file->metadata =
		cJSON_DetachItemFromObjectCaseSensitive(h.json, "__metadata__");
	good = good && alloc_tensors(&h) && read_tensors(&h) &&
	       sort_tensors(&h);
	cJSON_Delete(h.json);
	if (!good)
		tensor_file_close(file);
	return good;
}

void tensor_file_close(struct tensor_file *file)
{
	free(file->tensors);
	free(file->names);
	cJSON_Delete(file->metadata);
	*file = (struct tensor_file){0};
}

const struct tensor *tensor_file_find(const struct tensor_file *file,
                                      const char *name)
{
	const struct tensor key = {.name = name};

	return bsearch(&key, file->tensors, (size_t)file->n_tensors,
	               sizeof(*file->tensors), by_name);
}

const char *tensor_file_metadata(const struct tensor_file *file,
                                 const char *key)
{
	const cJSON *const item =
		cJSON_GetObjectItemCaseSensitive(file->metadata, key);

	return item && !cJSON_IsString(item) ? "" : cJSON_GetStringValue(item);
}

/* Tensors of no bytes before the one that begins where they are. */
static int by_place(const void *a, const void *b)
{
	const struct tensor *const first = *(const struct tensor *const *)a;
	const struct tensor *const second = *(const struct tensor *const *)b;

	if (first->bytes != second->bytes)
		return first->bytes < second->bytes ? -1 : 1;
	if (first->n_bytes != second->n_bytes)
		return first->n_bytes < second->n_bytes ? -1 : 1;
	return strcmp(first->name, second->name);
}

static bool check_gap(const struct tensor_file *f, size_t from, size_t to,
                      struct fault *fault)
{
	if (from >= to)
		return true;
	return fault_set(fault, "%s: bytes %zu..%zu belong to no tensor",
	                 f->name, from, to - 1);
}

static bool check_aligned(const struct tensor_file *f, const struct tensor *t,
                          size_t at, struct fault *fault)
{
	const int32_t n = type_bytes(t->type);

	if (!n || at % (size_t)n == 0)
		return true;
	return fault_set(fault,
	                 "%s: tensor %.200s begins at byte %zu, expected a "
	                 "multiple of %d for %s",
	                 f->name, t->name, at, n, t->dtype);
}

static bool check_places(const struct tensor_file *f,
                         const struct tensor *const *places,
                         struct fault *fault)
{
	size_t end = f->data_at;

	for (int32_t i = 0; i < f->n_tensors; i++) {
		const size_t at = (size_t)(places[i]->bytes - f->bytes);

		if (at < end)
			return fault_set(fault,
			                 "%s: tensors %.100s and %.100s "
			                 "overlap at byte %zu",
			                 f->name, places[i - 1]->name,
			                 places[i]->name, at);
		if (!check_gap(f, end, at, fault) ||
		    !check_aligned(f, places[i], at, fault))
			return false;
		end = at + (size_t)places[i]->n_bytes;
	}
	return check_gap(f, end, f->n, fault);
}

bool tensor_file_check(const struct tensor_file *file, struct fault *fault)
{
	const size_t n = (size_t)file->n_tensors;
	const struct tensor **const places = calloc(n + 1, sizeof(*places));

	if (!places)
		return fault_set(fault, "%s: no memory for %zu tensors",
		                 file->name, n);
	for (size_t i = 0; i < n; i++)
		places[i] = &file->tensors[i];
	qsort(places, n, sizeof(*places), by_place);
	const bool good = check_places(file, places, fault);

	free(places);
	return good;
}
