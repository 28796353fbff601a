/* SPDX-License-Identifier: Apache-2.0 */
/* Files into memory, traces into arrays, and the form known by the name. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ferry/plan.h>

#include "file_map.h"
#include "route_parts.h"

/* Larger files are refused: 16 GiB. */
static const int64_t MAX_FILE_BYTES = (int64_t)16 << 30;

bool route_alloc(size_t n, size_t size, void *memory_pointer,
                 struct fault *fault)
{
	void *const memory = calloc(n ? n : 1, size);

	if (!memory)
		return fault_set(fault, "no memory for %zu times %zu bytes", n,
		                 size);
	memcpy(memory_pointer, &memory, sizeof(memory));
	/* cppcheck-suppress memleak ; the caller has it now */
	return true;
}

/* To open a pipe would wait for who writes into it. */
static bool is_file(const char *path, struct fault *fault)
{
	struct stat is;

	if (stat(path, &is))
		return fault_set(fault, "%s: %s", path, strerror(errno));
	return file_is_plain(path, is.st_mode, fault);
}

static bool read_stream(FILE *f, const char *path, struct route_bytes *bytes,
                        struct fault *fault)
{
	if (fseek(f, 0, SEEK_END))
		return fault_set(fault, "%s: %s", path, strerror(errno));
	const int64_t n = ftell(f);

	if (n < 0 || n > MAX_FILE_BYTES)
		return fault_set(
			fault, "%s: %" PRId64 " bytes, allowed are 0..%" PRId64,
			path, n, MAX_FILE_BYTES);
	rewind(f);
	if (!route_alloc((size_t)n + 1, 1, &bytes->bytes, fault))
		return false;
	bytes->n = fread(bytes->bytes, 1, (size_t)n, f);
	if (bytes->n == (size_t)n)
		return true;
	return fault_set(fault, "%s: byte %zu cannot be read: %s", path,
	                 bytes->n, ferror(f) ? strerror(errno) : "it ends");
}

bool route_bytes_read(const char *path, struct route_bytes *bytes,
                      struct fault *fault)
{
	*bytes = (struct route_bytes){.name = path};
	if (!is_file(path, fault))
		return false;
	FILE *const f = fopen(path, "rb");

	if (!f)
		return fault_set(fault, "%s: %s", path, strerror(errno));
	const bool good = read_stream(f, path, bytes, fault);

	fclose(f);
	if (!good)
		route_bytes_free(bytes);
	return good;
}

void route_bytes_free(struct route_bytes *bytes)
{
	free(bytes->bytes);
	bytes->bytes = NULL;
}

void route_close(struct route *route)
{
	free(route->steps);
	free(route->loads);
	free(route->predicted);
	free(route->slot_expert);
	*route = (struct route){0};
}

bool route_make(struct route *route, const char *name,
                const struct route_ask *ask, bool predicted,
                struct fault *fault)
{
	const int64_t max = ask->max_cells ? ask->max_cells : ROUTE_MAX_CELLS;
	const int64_t layer_cells = (int64_t)route->n_layers * route->n_experts;

	if (route->n_steps > max / layer_cells)
		return fault_set(fault,
		                 "%s: %d steps of %d layers of %d experts, "
		                 "allowed are %" PRId64 " of all together",
		                 name, route->n_steps, route->n_layers,
		                 route->n_experts, max);
	const size_t n = (size_t)(route->n_steps * layer_cells);

	return route_alloc((size_t)route->n_steps, sizeof(*route->steps),
	                   &route->steps, fault) &&
	       route_alloc(n, sizeof(*route->loads), &route->loads, fault) &&
	       (!predicted || route_alloc(n, sizeof(*route->predicted),
	                                  &route->predicted, fault));
}

static bool has_end(const char *path, const char *end)
{
	const size_t n = strlen(path), n_end = strlen(end);

	return n >= n_end && !strcmp(path + n - n_end, end);
}

/* PATH.bin and PATH.idx.csv, whichever was named. */
static bool open_bin(const char *path, size_t n_stem,
                     const struct route_ask *ask, struct route *route,
                     struct fault *fault)
{
	struct route_bytes index = {0}, ids = {0};
	char *const names = malloc(2 * (n_stem + 16));

	if (!names)
		return fault_set(fault, "%s: no memory", path);
	char *const bin = names + n_stem + 16;

	sprintf(names, "%.*s.idx.csv", (int)n_stem, path);
	sprintf(bin, "%.*s.bin", (int)n_stem, path);
	const bool good = route_bytes_read(names, &index, fault) &&
	                  route_bytes_read(bin, &ids, fault) &&
	                  route_read_bin(&index, &ids, ask, route, fault);

	route_bytes_free(&index);
	route_bytes_free(&ids);
	free(names);
	return good;
}

/* A header's length, which is no text, before a JSON object. */
static bool is_tensors(const char *bytes, size_t n)
{
	uint64_t n_header;

	if (n <= sizeof(n_header) || bytes[sizeof(n_header)] != '{')
		return false;
	memcpy(&n_header, bytes, sizeof(n_header));
	return n_header <= n - sizeof(n_header);
}

static bool read_form(const struct route_bytes *in, const struct route_ask *ask,
                      struct route *route, struct fault *fault)
{
	if (has_end(in->name, ".safetensors") || is_tensors(in->bytes, in->n))
		return route_read_tensors(in, ask, route, fault);
	if (has_end(in->name, ".json"))
		return route_read_json(in, ask, route, fault);
	if (!has_end(in->name, ".csv"))
		return fault_set(
			fault,
			"%s: no safetensors, and other forms are known by "
			"the end of the name: .csv, .json, .bin with .idx.csv",
			in->name);
	return route_is_table(in) ? route_read_table(in, ask, route, fault)
	                          : route_read_rows(in, ask, route, fault);
}

static bool open_one(const char *path, const struct route_ask *ask,
                     struct route *route, struct fault *fault)
{
	struct route_bytes in;

	if (!route_bytes_read(path, &in, fault))
		return false;
	const bool good = read_form(&in, ask, route, fault);

	route_bytes_free(&in);
	return good;
}

/* Loads of a layer that no plan can be made for. */
static bool check_sums(const char *path, const struct route *route,
                       const int64_t *loads, struct fault *fault)
{
	for (int32_t step = 0; step < route->n_steps; step++)
		for (int32_t layer = 0; layer < route->n_layers; layer++) {
			int64_t sum = 0;

			for (int32_t e = 0; e < route->n_experts; e++)
				sum += *loads++;
			if (sum > FERRY_MAX_LOAD)
				return fault_set(
					fault,
					"%s: step %d, layer %d: the sum "
					"of loads is %" PRId64
					", allowed is 0..%" PRId64,
					path, step, layer, sum, FERRY_MAX_LOAD);
		}
	return true;
}

/* NAME.bin without an index that is something else by its first bytes. */
static bool is_lone_bin(const char *path)
{
	const size_t n_stem = strlen(path) - strlen(".bin");
	struct fault fault;
	char head[16] = "";
	struct stat is;
	char *const index = malloc(n_stem + 16);

	if (!index)
		return false;
	sprintf(index, "%.*s.idx.csv", (int)n_stem, path);
	const bool lone = access(index, F_OK) && is_file(path, &fault) &&
	                  !stat(path, &is);
	FILE *const f = lone ? fopen(path, "rb") : NULL;

	free(index);
	if (!f)
		return false;
	const bool all = fread(head, 1, sizeof(head), f) == sizeof(head);

	fclose(f);
	return all && is_tensors(head, (size_t)is.st_size);
}

bool route_open(const char *path, const struct route_ask *ask,
                struct route *route, struct fault *fault)
{
	const size_t n = strlen(path);
	bool good;

	*route = (struct route){0};
	if (has_end(path, ".idx.csv"))
		good = open_bin(path, n - strlen(".idx.csv"), ask, route,
		                fault);
	else if (has_end(path, ".bin") && !is_lone_bin(path))
		good = open_bin(path, n - strlen(".bin"), ask, route, fault);
	else
		good = open_one(path, ask, route, fault);
	good = good && check_sums(path, route, route->loads, fault) &&
	       (!route->predicted ||
	        check_sums(path, route, route->predicted, fault));
	if (good && ask->mixed)
		good = route_mix(route, fault);
	if (!good)
		route_close(route);
	return good;
}
