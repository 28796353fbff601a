/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the readers of traces share. Each reader takes bytes in memory, so that
 * a fuzzer can run it.
 */
#ifndef FERRY_ROUTE_PARTS_H
#define FERRY_ROUTE_PARTS_H

#include "route.h"

/* A file in memory; bytes[n] is a 0 that does not count. */
struct route_bytes {
	const char *name;
	char *bytes;
	size_t n;
};

/* Reads a whole file; route_bytes_free frees. */
bool route_bytes_read(const char *path, struct route_bytes *bytes,
                      struct fault *fault);
void route_bytes_free(struct route_bytes *bytes);

/* Zeroed memory for n things; false, with a fault, where there is none. */
bool route_alloc(size_t n, size_t size, void *memory_pointer,
                 struct fault *fault);

/* Gives the trace its arrays for the sizes that are set in it. */
bool route_make(struct route *route, const char *name,
                const struct route_ask *ask, bool predicted,
                struct fault *fault);

/* Puts the steps into the order in which groups take turns. */
bool route_mix(struct route *route, struct fault *fault);

/* Types of ids and loads in files, little endian. */
enum route_type {
	ROUTE_U8,
	ROUTE_I8,
	ROUTE_U16,
	ROUTE_I16,
	ROUTE_U32,
	ROUTE_I32,
	ROUTE_I64,
	ROUTE_N_TYPES,
};

size_t route_type_bytes(enum route_type type);

/* Element i; any alignment. */
int64_t route_element(const void *array, enum route_type type, int64_t i);

/* A run of tokens, at least one, that belong together. */
struct route_task {
	char name[ROUTE_NAME_BYTES];
	int32_t group;
	int64_t first_token, n_tokens;
};

/* Expert ids of tokens, as they lie in a file. */
struct route_ids {
	const char *name;      /* of the file, and of the array in it */
	const void *ids;       /* [n_tokens][n_layers][topk] */
	const void *predicted; /* same; NULL: none */
	enum route_type type;
	enum route_type predicted_type;
	int64_t n_tokens;
	int32_t n_layers, topk;
	int32_t n_experts; /* 0: highest id + 1 */
	const struct route_task *tasks;
	int32_t n_tasks;
};

/* Counts ids into the steps that are asked for. */
bool route_count(const struct route_ids *ids, const struct route_ask *ask,
                 struct route *route, struct fault *fault);

/* Table of loads: columns that name the task, layer, e0, e1, ... */
bool route_read_table(const struct route_bytes *in, const struct route_ask *ask,
                      struct route *route, struct fault *fault);

/* Lines of numbers: loads, one layer a line, and the slots' experts. */
bool route_read_rows(const struct route_bytes *in, const struct route_ask *ask,
                     struct route *route, struct fault *fault);

/* Whether a CSV has a header line with a column "layer". */
bool route_is_table(const struct route_bytes *in);

/* An object with "loads", one layer or several, and "slot_expert". */
bool route_read_json(const struct route_bytes *in, const struct route_ask *ask,
                     struct route *route, struct fault *fault);

/* uint8 ids [tokens][layers][k] and the index of their tasks. */
bool route_read_bin(const struct route_bytes *index,
                    const struct route_bytes *ids, const struct route_ask *ask,
                    struct route *route, struct fault *fault);

/* A safetensors file with topk_ids, or with loads. */
bool route_read_tensors(const struct route_bytes *in,
                        const struct route_ask *ask, struct route *route,
                        struct fault *fault);

#endif
