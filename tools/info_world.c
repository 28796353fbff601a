/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry info --world: one of the ranks of a job. All tell each other their
 * host and, after a signal from each to each, whom they store and whom they
 * put to; rank 0 prints that as a table or as JSON.
 */
#include "info_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ferry/ferry.h>

#include "alloc.h"
#include "fabric/place.h"
#include "fabric/registry.h"
#include "json.h"
#include "opt.h"

enum { NAME_BYTES = 64, LIST_BYTES = 96 };

/* What a rank says of itself. */
struct member {
	char node[NAME_BYTES]; /* as the system calls it */
	char name[NAME_BYTES]; /* FERRY_HOST */
};

struct view {
	struct ferry_world *world;
	int32_t n;
	struct member *members; /* [n] */
	uint8_t *stores;        /* [n][n] does the row store to the column? */
};

static bool good(enum ferry_status status, const char *what)
{
	if (status == FERRY_OK)
		return true;
	fprintf(stderr, "ferry info: %s: %s\n", what, ferry_last_error());
	return false;
}

static enum ferry_status tell_members(struct view *v)
{
	struct member own = {{0}, {0}};

	gethostname(own.node, sizeof(own.node) - 1);
	snprintf(own.name, sizeof(own.name), "%.*s", NAME_BYTES - 1,
	         v->world->ctx.opt.host);
	return ferry_world_allgather(v->world, &own, v->members, sizeof(own));
}

/* Every rank signals every rank; in good order when all have come. */
static enum ferry_status meet(struct ferry_segment *segment, int32_t n)
{
	for (int32_t r = 0; r < n; r++)
		FERRY_TRY(ferry_segment_signal(segment, r, 0));
	FERRY_TRY(ferry_segment_kick(segment));
	return ferry_segment_wait(segment, 0, (uint64_t)n);
}

static enum ferry_status try_segment(struct view *v)
{
	const uint32_t near = FERRY_CAP_LDST | FERRY_CAP_DEVICE;
	struct ferry_segment *segment;
	uint8_t *own = alloc_or_exit((size_t)v->n, 1);
	enum ferry_status status =
		ferry_segment_open(v->world, 4096, 1, &segment);

	if (status == FERRY_OK) {
		for (int32_t r = 0; r < v->n; r++)
			own[r] = (ferry_segment_caps(segment, r) & near) != 0;
		status = meet(segment, v->n);
		if (status == FERRY_OK)
			status = ferry_world_allgather(v->world, own, v->stores,
			                               (size_t)v->n);
		ferry_segment_close(segment);
	}
	free(own);
	return status;
}

/* Hosts count from 0, in the order of their first rank. */
static int32_t host_of(const struct view *v, int32_t rank)
{
	const struct ferry_place *places = v->world->places;
	int32_t first = 0;

	while (!ferry_place_same_host(&places[first], &places[rank]))
		first++;
	return first ? ferry_place_hosts(places, first) : 0;
}

/* "0-3,6": ranks that `rank` stores to, or the others; "-": none. */
static void list_ranks(const struct view *v, int32_t rank, bool stores,
                       char text[LIST_BYTES])
{
	const uint8_t *row = v->stores + (size_t)rank * (size_t)v->n;
	size_t length = 0;

	snprintf(text, LIST_BYTES, "-");
	for (int32_t r = 0; r < v->n && length < LIST_BYTES; r++) {
		int32_t last = r;

		if (row[r] != stores)
			continue;
		while (last + 1 < v->n && row[last + 1] == stores)
			last++;
		length += (size_t)snprintf(text + length, LIST_BYTES - length,
		                           last > r ? "%s%d-%d" : "%s%d",
		                           length ? "," : "", r, last);
		r = last;
	}
	if (length >= LIST_BYTES)
		memcpy(text + LIST_BYTES - 4, "...", 4);
}

/* Why a fabric can serve this world, or not. */
static int probe(const struct view *v, const struct ferry_fabric_ops *ops,
                 char reason[FERRY_REASON_BYTES])
{
	if (ops->device == v->world->device)
		return ops->probe(v->world, reason);
	snprintf(reason, FERRY_REASON_BYTES, "is for worlds on GPUs");
	return 0;
}

static void print_ranks(const struct view *v)
{
	printf("#%5s %5s %-24s %8s %5s  %-16s %s\n", "rank", "host", "node",
	       "pid", "CPUs", "stores to", "puts to");
	for (int32_t r = 0; r < v->n; r++) {
		const struct ferry_place *place = &v->world->places[r];
		const struct member *m = &v->members[r];
		char node[2 * NAME_BYTES + 4], stores[LIST_BYTES],
			puts[LIST_BYTES];

		snprintf(node, sizeof(node), m->name[0] ? "%s (%s)" : "%s",
		         m->node, m->name);
		list_ranks(v, r, true, stores);
		list_ranks(v, r, false, puts);
		printf("%6d %5d %-24s %8d %5d  %-16s %s\n", r, host_of(v, r),
		       node, place->pid, place->n_cpus, stores, puts);
	}
}

static void print_text(const struct view *v)
{
	const int32_t machines = ferry_place_machines(v->world->places, v->n);
	char reason[FERRY_REASON_BYTES];

	printf("# world    %d rank%s, %d host%s of %d machine%s, fabric %s; "
	       "each has reached each\n",
	       v->n, v->n == 1 ? "" : "s", v->world->n_nodes,
	       v->world->n_nodes == 1 ? "" : "s", machines,
	       machines == 1 ? "" : "s", ferry_world_fabric(v->world));
	print_ranks(v);
	puts("#fabric   score  why");
	for (int i = 0; ferry_fabrics[i]; i++) {
		const int score = probe(v, ferry_fabrics[i], reason);

		printf("%-9s %6d  %s\n", ferry_fabrics[i]->name, score, reason);
	}
}

static cJSON *fabrics_json(const struct view *v)
{
	cJSON *array = cJSON_CreateArray();
	char reason[FERRY_REASON_BYTES];

	for (int i = 0; ferry_fabrics[i]; i++) {
		cJSON *o = cJSON_CreateObject();
		const int score = probe(v, ferry_fabrics[i], reason);

		cJSON_AddStringToObject(o, "name", ferry_fabrics[i]->name);
		cJSON_AddNumberToObject(o, "score", score);
		cJSON_AddStringToObject(o, "reason", reason);
		cJSON_AddItemToArray(array, o);
	}
	return array;
}

static cJSON *rank_json(const struct view *v, int32_t rank)
{
	const struct ferry_place *place = &v->world->places[rank];
	const uint8_t *row = v->stores + (size_t)rank * (size_t)v->n;
	cJSON *o = cJSON_CreateObject();
	cJSON *stores = cJSON_AddArrayToObject(o, "stores_to");

	for (int32_t r = 0; r < v->n; r++)
		if (row[r])
			cJSON_AddItemToArray(stores, cJSON_CreateNumber(r));
	cJSON_AddNumberToObject(o, "rank", rank);
	cJSON_AddNumberToObject(o, "host", host_of(v, rank));
	cJSON_AddStringToObject(o, "node", v->members[rank].node);
	cJSON_AddStringToObject(o, "name", v->members[rank].name);
	cJSON_AddNumberToObject(o, "pid", place->pid);
	cJSON_AddNumberToObject(o, "cpus", place->n_cpus);
	return o;
}

static bool print_json(const struct view *v)
{
	cJSON *document = json_document("ferry-world-1");
	cJSON *ranks = cJSON_CreateArray();

	cJSON_AddNumberToObject(document, "hosts", v->world->n_nodes);
	cJSON_AddNumberToObject(document, "machines",
	                        ferry_place_machines(v->world->places, v->n));
	cJSON_AddStringToObject(document, "fabric",
	                        ferry_world_fabric(v->world));
	for (int32_t r = 0; r < v->n; r++)
		cJSON_AddItemToArray(ranks, rank_json(v, r));
	cJSON_AddItemToObject(document, "ranks", ranks);
	cJSON_AddItemToObject(document, "fabrics", fabrics_json(v));
	return json_write(document, "-");
}

static int look(struct view *v, bool json)
{
	if (!good(tell_members(v), "telling hosts") ||
	    !good(try_segment(v), "memory of all ranks"))
		return EXIT_FAILED;
	if (ferry_world_rank(v->world) != 0)
		return EXIT_GOOD;
	if (json)
		return print_json(v) ? EXIT_GOOD : EXIT_FAILED;
	print_text(v);
	return EXIT_GOOD;
}

int info_world(const char *fabric, bool json)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct view v = {.world = NULL};

	config.fabric = fabric;
	if (!good(ferry_world_open(&config, &v.world), "opening a world"))
		return EXIT_FAILED;
	v.n = ferry_world_size(v.world);
	v.members = alloc_or_exit((size_t)v.n, sizeof(*v.members));
	v.stores = alloc_or_exit((size_t)v.n, (size_t)v.n);
	const int status = look(&v, json);

	free(v.stores);
	free(v.members);
	ferry_world_close(v.world);
	return status;
}
