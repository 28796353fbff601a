/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces and loads that users bring. The first byte says which reader. Of two
 * parts, an index and its ids, or a header and its tensors, the first ends with
 * a byte 0; the length of the header is put before it, right or as it comes.
 */
#include "fuzz.h"

#include <string.h>

#include <ferry/plan.h>

#include "route_maps.h"
#include "route_parts.h"

/* Every cell can be read, and is a load. */
static void check_route(const struct route *route)
{
	FUZZ_CHECK(route->n_steps > 0 && route->n_layers > 0);
	FUZZ_CHECK(route->n_experts > 0 &&
	           route->n_experts <= ROUTE_MAX_EXPERTS);
	for (int32_t s = 0; s < route->n_steps; s++) {
		FUZZ_CHECK(memchr(route->steps[s].name, 0, ROUTE_NAME_BYTES));
		for (int32_t l = 0; l < route->n_layers; l++)
			for (int32_t e = 0; e < route->n_experts; e++) {
				const int64_t n = route_loads(route, s, l)[e];
				const int64_t p =
					route_predicted(route, s, l)[e];

				FUZZ_CHECK(n >= 0 && n <= FERRY_MAX_LOAD);
				FUZZ_CHECK(p >= 0 && p <= FERRY_MAX_LOAD);
			}
	}
	for (int32_t s = 0; s < route->n_slots; s++)
		FUZZ_CHECK(route->slot_expert[s] >= -1 &&
		           route->slot_expert[s] < ROUTE_MAX_EXPERTS);
}

/* A reader's answer: a whole trace, or a reason. */
static void check(bool good, struct route *route, const struct fault *fault,
                  bool mix)
{
	struct fault other;

	FUZZ_CHECK(good != (fault->text[0] != 0));
	FUZZ_CHECK(memchr(fault->text, 0, sizeof(fault->text)));
	if (good) {
		check_route(route);
		if (mix && route_mix(route, &other))
			check_route(route);
	}
	route_close(route);
}

static void read_bin(const struct route_bytes *in, const struct route_ask *ask,
                     struct route *route, struct fault *fault)
{
	char *const end = memchr(in->bytes, 0, in->n);
	const size_t n = end ? (size_t)(end - in->bytes) : in->n;
	const struct route_bytes index = {"f.idx.csv", in->bytes, n};
	const struct route_bytes ids = {"f.bin", in->bytes + n + !!end,
	                                in->n - n - !!end};

	check(route_read_bin(&index, &ids, ask, route, fault), route, fault,
	      true);
}

static void read_tensors(const struct route_bytes *in,
                         const struct route_ask *ask, struct route *route,
                         struct fault *fault)
{
	const char *const end = memchr(in->bytes, 0, in->n);
	const uint64_t n = end ? (uint64_t)(end - in->bytes) : in->n;
	const size_t n_data = in->n - (size_t)n - !!end;
	const struct route_bytes file = {"f.safetensors",
	                                 malloc(8 + (size_t)n + n_data + 1),
	                                 8 + (size_t)n + n_data};

	FUZZ_CHECK(file.bytes);
	memcpy(file.bytes, &n, 8);
	memcpy(file.bytes + 8, in->bytes, (size_t)n);
	memcpy(file.bytes + 8 + n, in->bytes + n + !!end, n_data);
	file.bytes[file.n] = 0;
	check(route_read_tensors(&file, ask, route, fault), route, fault, true);
	free(file.bytes);
}

static void read_map(const struct route_bytes *in, struct fault *fault)
{
	const struct route_bytes named = {"m-8-1-1-2-all.jsonl", in->bytes,
	                                  in->n};
	struct route_map map;
	const bool good = route_map_read(&named, 8, &map, fault);

	FUZZ_CHECK(good != (fault->text[0] != 0));
	for (int32_t i = 0; good && i < map.n_layers * map.n_slots; i++)
		FUZZ_CHECK(map.experts[i] >= 0 && map.experts[i] < 8);
	free(map.experts);
}

static void read_as(uint8_t which, const struct route_bytes *in,
                    const struct route_ask *ask, struct fault *fault)
{
	struct route route = {0};

	switch (which % 7) {
	case 0:
		check(route_read_table(in, ask, &route, fault), &route, fault,
		      true);
		return;
	case 1:
		check(route_read_rows(in, ask, &route, fault), &route, fault,
		      false);
		return;
	case 2:
		check(route_read_json(in, ask, &route, fault), &route, fault,
		      false);
		return;
	case 3:
		read_bin(in, ask, &route, fault);
		return;
	case 4:
		read_tensors(in, ask, &route, fault);
		return;
	case 5:
		read_map(in, fault);
		return;
	default:
		check(route_read_tensors(in, ask, &route, fault), &route, fault,
		      false);
		return;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_data)
{
	struct fault fault = {{0}};

	if (n_data < 1 || n_data > 8192)
		return 0;
	/* Behind the text stands a 0, as route_bytes_read puts it. */
	char *const text = malloc(n_data);
	FUZZ_CHECK(text);
	memcpy(text, data + 1, n_data - 1);
	text[n_data - 1] = 0;
	const struct route_bytes in = {"f", text, n_data - 1};
	const struct route_ask ask = {.max_cells = 1 << 20,
	                              .step_tokens = data[0] & 0x80 ? 2 : 0};

	read_as(data[0] & 0x7f, &in, &ask, &fault);
	free(text);
	return 0;
}
