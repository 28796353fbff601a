/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fits loads to EPLB's maps. Without replicas EPLB takes the experts by falling
 * load and gives each to the lightest rank that has room, into its next slot.
 * Where the values of the loads are known, but not whose they are, those
 * values say which rank is next, and the map says which expert it got: so a
 * curve of values gives each expert its load, and EPLB on those loads gives
 * the map again. The curve is log-normal, its sigma the one whose copies in the
 * maps with more slots differ least from the recorded ones.
 */
#include "route_maps.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "route_draw.h"

enum { MAX_MAPS = 64, MAX_RANKS = 1024, SIGMA_STEPS = 60 };

/* Where no map has copies, Moonlight's mean sigma. */
static const double DEFAULT_SIGMA = 0.8;

/* Maps of a folder with a number of experts. */
struct maps {
	int32_t n_experts;
	int32_t n;
	struct route_map maps[MAX_MAPS + 1];
};

/*
 * Numbers and task out of "NAME-SLOTS-GROUPS-NODES-RANKS-TASK.jsonl". A name
 * may have numbers, too: the last place that fits counts.
 */
static bool parse_name(const char *path, struct route_map *map)
{
	const char *const slash = strrchr(path, '/');
	const char *const name = slash ? slash + 1 : path;
	bool found = false;

	for (const char *c = strchr(name, '-'); c; c = strchr(c + 1, '-')) {
		int slots, groups, nodes, ranks, end = 0;
		char task[ROUTE_NAME_BYTES] = {0};

		if (sscanf(c, "-%6d-%6d-%6d-%6d-%90[^.].jsonl%n", &slots,
		           &groups, &nodes, &ranks, task, &end) != 5 ||
		    !end || c[end])
			continue;
		map->n_slots = slots;
		map->n_ranks = ranks;
		memcpy(map->task, task, sizeof(task));
		found = slots > 0 && ranks > 0 && ranks <= MAX_RANKS &&
		        slots % ranks == 0;
	}
	return found;
}

static bool read_layer(const struct route_bytes *in, const cJSON *array,
                       int32_t n_experts, struct route_map *map,
                       struct fault *fault)
{
	int32_t *to = map->experts + (int64_t)map->n_layers * map->n_slots;
	const cJSON *item;

	if (!cJSON_IsArray(array) || cJSON_GetArraySize(array) != map->n_slots)
		return fault_set(fault, "%s: phy2log[%d] has not %d numbers",
		                 in->name, map->n_layers, map->n_slots);
	cJSON_ArrayForEach(item, array)
	{
		if (!cJSON_IsNumber(item) || item->valueint < 0 ||
		    item->valueint >= n_experts)
			return fault_set(fault,
			                 "%s: phy2log[%d] has an expert that "
			                 "is not 0..%d",
			                 in->name, map->n_layers,
			                 n_experts - 1);
		*to++ = item->valueint;
	}
	return true;
}

static bool read_layers(const struct route_bytes *in, const cJSON *layers,
                        int32_t n_experts, struct route_map *map,
                        struct fault *fault)
{
	const int n = cJSON_GetArraySize(layers);
	const cJSON *layer;

	map->n_layers = 0;
	if (!cJSON_IsArray(layers) || n < 1 || n > ROUTE_MAX_LAYERS)
		return fault_set(fault, "%s: phy2log is no array of 1..%d",
		                 in->name, ROUTE_MAX_LAYERS);
	if (!route_alloc((size_t)n * (size_t)map->n_slots,
	                 sizeof(*map->experts), &map->experts, fault))
		return false;
	cJSON_ArrayForEach(layer, layers)
	{
		if (!read_layer(in, layer, n_experts, map, fault))
			return false;
		map->n_layers++;
	}
	return true;
}

bool route_map_read(const struct route_bytes *in, int32_t n_experts,
                    struct route_map *map, struct fault *fault)
{
	*map = (struct route_map){0};
	if (!parse_name(in->name, map))
		return fault_set(fault,
		                 "%s: the name is to end in -SLOTS-GROUPS-NODES"
		                 "-RANKS-TASK.jsonl",
		                 in->name);
	cJSON *const document = cJSON_ParseWithLength(in->bytes, in->n);
	const bool good = read_layers(
		in, cJSON_GetObjectItemCaseSensitive(document, "phy2log"),
		n_experts, map, fault);

	cJSON_Delete(document);
	if (!good) {
		free(map->experts);
		map->experts = NULL;
	}
	return good;
}

/* Values by falling size into the ranks as EPLB packs; whose each one is. */
static void assign(const struct route_map *map, int32_t layer,
                   const int64_t *values, int64_t *loads)
{
	const int32_t *const experts =
		map->experts + (int64_t)layer * map->n_slots;
	const int32_t room = map->n_slots / map->n_ranks;
	int64_t sums[MAX_RANKS] = {0};
	int32_t taken[MAX_RANKS] = {0};

	for (int32_t i = 0; i < map->n_slots; i++) {
		int32_t best = 0;

		while (taken[best] == room)
			best++;
		for (int32_t r = best + 1; r < map->n_ranks; r++)
			if (taken[r] < room && sums[r] < sums[best])
				best = r;
		loads[experts[best * room + taken[best]]] = values[i];
		taken[best]++;
		sums[best] += values[i];
	}
}

/* Copies that EPLB would make otherwise than this map has them. */
static int32_t wrong_copies(const struct route_map *map, int32_t layer,
                            const int64_t *loads, int32_t n_experts,
                            int32_t *copies)
{
	const int32_t *const slots =
		map->experts + (int64_t)layer * map->n_slots;
	int32_t wrong = 0;

	for (int32_t e = 0; e < n_experts; e++)
		copies[e] = 1;
	for (int32_t i = n_experts; i < map->n_slots; i++) {
		int32_t best = 0;

		for (int32_t e = 1; e < n_experts; e++)
			if (loads[e] * copies[best] > loads[best] * copies[e])
				best = e;
		copies[best]++;
	}
	for (int32_t s = 0; s < map->n_slots; s++)
		copies[slots[s]]--;
	for (int32_t e = 0; e < n_experts; e++)
		wrong += copies[e] > 0 ? copies[e] : 0;
	return wrong;
}

/* Room of one fit: arrays of n_experts. */
struct fit {
	const struct maps *maps;
	const struct route_map *base; /* the one without copies */
	double *quantiles, *curve;
	int64_t *values, *loads; /* the curve in tokens; those of experts */
	int32_t *copies;
	int64_t n_copies, n_wrong; /* of all layers, with the best sigma */
	double sigma_sum;
	int64_t n_layers;
};

/* Wrong copies in all maps of the task; *n of them were there. */
static int32_t try_sigma(struct fit *f, int32_t layer, double sigma, int32_t *n)
{
	const int32_t n_experts = f->maps->n_experts;
	int32_t wrong = 0;

	*n = 0;
	for (int32_t i = 0; i < n_experts; i++)
		f->curve[i] = draw_exp(sigma * f->quantiles[i]);
	draw_scale(f->curve, n_experts, f->values);
	assign(f->base, layer, f->values, f->loads);
	for (int32_t m = 0; m < f->maps->n; m++) {
		const struct route_map *const map = &f->maps->maps[m];

		if (map == f->base || strcmp(map->task, f->base->task) != 0 ||
		    layer >= map->n_layers)
			continue;
		*n += map->n_slots - n_experts;
		wrong += wrong_copies(map, layer, f->loads, n_experts,
		                      f->copies);
	}
	return wrong;
}

static void fit_layer(struct fit *f, int32_t layer, int64_t *loads)
{
	double best = DEFAULT_SIGMA;
	int32_t n, least = try_sigma(f, layer, best, &n);

	for (int32_t i = 0; n && i < SIGMA_STEPS; i++) {
		const double sigma = 0.2 + 0.05 * i;
		const int32_t wrong = try_sigma(f, layer, sigma, &n);

		if (wrong < least) {
			least = wrong;
			best = sigma;
		}
	}
	try_sigma(f, layer, best, &n);
	memcpy(loads, f->loads, (size_t)f->maps->n_experts * sizeof(*loads));
	f->n_copies += n;
	f->n_wrong += least;
	f->sigma_sum += best;
	f->n_layers++;
}

/* Keeps the maps of this number of experts: those with as many or more slots
 * whose highest expert is the last. */
static bool keep_map(const struct route_map *map, int32_t n_experts)
{
	int32_t highest = 0;

	for (int64_t i = 0; i < (int64_t)map->n_layers * map->n_slots; i++)
		if (map->experts[i] > highest)
			highest = map->experts[i];
	return highest == n_experts - 1 && map->n_slots >= n_experts;
}

static bool read_map(const char *folder, const char *name, struct maps *maps,
                     struct fault *fault)
{
	struct route_map *const map = &maps->maps[maps->n];
	struct route_bytes in;
	char path[4096];

	if (!parse_name(name, map))
		return true;
	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >=
	    (int)sizeof(path))
		return fault_set(fault, "%s: the path is too long", folder);
	if (!route_bytes_read(path, &in, fault))
		return false;
	const bool good = route_map_read(&in, ROUTE_MAX_EXPERTS, map, fault);

	/* Maps of other models have other experts. */
	if (good && keep_map(map, maps->n_experts))
		maps->n++;
	else if (good)
		free(map->experts);
	route_bytes_free(&in);
	return good;
}

static int compare_maps(const void *a, const void *b)
{
	const struct route_map *const x = a, *const y = b;
	const int order = strcmp(x->task, y->task);

	return order ? order
	             : (x->n_slots > y->n_slots) - (x->n_slots < y->n_slots);
}

static bool read_folder(const char *folder, struct maps *maps,
                        struct fault *fault)
{
	DIR *const dir = opendir(folder);
	const struct dirent *entry;
	bool good = true;

	if (!dir)
		return fault_set(fault, "%s: %s", folder, strerror(errno));
	while (good && (entry = readdir(dir))) {
		const size_t n = strlen(entry->d_name);

		if (n <= 6 || strcmp(entry->d_name + n - 6, ".jsonl") != 0)
			continue;
		good = read_map(folder, entry->d_name, maps, fault);
		if (maps->n > MAX_MAPS)
			good = fault_set(fault,
			                 "%s: more than %d maps of %d experts",
			                 folder, MAX_MAPS, maps->n_experts);
	}
	closedir(dir);
	/* A folder has no order, the steps must have one. */
	qsort(maps->maps, (size_t)maps->n, sizeof(*maps->maps), compare_maps);
	return good;
}

/* Tasks that have a map without copies, with the layers of the first. */
static int32_t count_steps(const struct maps *maps, int32_t *n_layers)
{
	int32_t n = 0;

	*n_layers = 0;
	for (int32_t m = 0; m < maps->n; m++) {
		const struct route_map *const map = &maps->maps[m];

		if (map->n_slots != maps->n_experts)
			continue;
		if (!n++ || map->n_layers < *n_layers)
			*n_layers = map->n_layers;
	}
	return n;
}

static void fit_steps(struct fit *f, struct route *route)
{
	int32_t step = 0;

	for (int32_t i = 0; i < route->n_experts; i++)
		f->quantiles[i] = draw_normal(1 - (i + 0.5) / route->n_experts);
	for (int32_t m = 0; m < f->maps->n; m++) {
		struct route_step *const at = &route->steps[step];

		f->base = &f->maps->maps[m];
		if (f->base->n_slots != route->n_experts)
			continue;
		snprintf(at->name, sizeof(at->name), "%s", f->base->task);
		at->task = at->group = step;
		for (int32_t layer = 0; layer < route->n_layers; layer++)
			fit_layer(f, layer, route_loads(route, step, layer));
		step++;
	}
}

static bool fit(const struct maps *maps, struct route *route, char *note,
                size_t n_note, struct fault *fault)
{
	struct fit f = {.maps = maps};
	const struct route_ask ask = {0};
	const size_t n = (size_t)route->n_experts;
	const bool good = route_make(route, "maps", &ask, false, fault) &&
	                  route_alloc(n, sizeof(double), &f.quantiles, fault) &&
	                  route_alloc(n, sizeof(double), &f.curve, fault) &&
	                  route_alloc(n, sizeof(int64_t), &f.values, fault) &&
	                  route_alloc(n, sizeof(int64_t), &f.loads, fault) &&
	                  route_alloc(n, sizeof(int32_t), &f.copies, fault);

	if (good) {
		fit_steps(&f, route);
		snprintf(
			note, n_note,
			"log-normal, mean sigma %.2f; %.1f %% of %lld recorded "
			"copies reproduced",
			f.sigma_sum / (double)f.n_layers,
			f.n_copies ? 100 - 100 * (double)f.n_wrong /
						     (double)f.n_copies
				   : 100.0,
			(long long)f.n_copies);
	}
	free(f.quantiles);
	free(f.curve);
	free(f.values);
	free(f.loads);
	free(f.copies);
	return good;
}

bool route_maps(const char *folder, int32_t n_experts, struct route *route,
                char *note, size_t n_note, struct fault *fault)
{
	struct maps *maps;

	if (!route_alloc(1, sizeof(*maps), &maps, fault))
		return false;
	maps->n_experts = n_experts;
	bool good = read_folder(folder, maps, fault);

	if (good) {
		route->n_steps = count_steps(maps, &route->n_layers);
		good = route->n_steps > 0
		               ? fit(maps, route, note, n_note, fault)
		               : fault_set(fault,
		                           "%s: no map of %d experts in as "
		                           "many slots",
		                           folder, n_experts);
	}
	for (int32_t m = 0; m < maps->n; m++)
		free(maps->maps[m].experts);
	free(maps);
	if (!good)
		route_close(route);
	return good;
}
