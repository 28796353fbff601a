/* SPDX-License-Identifier: Apache-2.0 */
/* model.safetensors.index.json: which shards there are, and what is in them. */
#include <stdlib.h>
#include <string.h>

#include "../json_read.h"
#include "lm_files.h"

enum { MAX_INDEX_BYTES = 100 * 1000 * 1000, MAX_SHARDS = 10000 };

/* Beside the index, and nowhere else. */
static bool check_shard(const struct lm_index *index, const cJSON *item,
                        struct fault *fault)
{
	const char *const shard = cJSON_GetStringValue(item);

	if (!shard)
		return fault_set(fault,
		                 "%s: weight_map of %.200s is no text, "
		                 "expected the name of a file",
		                 index->name, item->string);
	if (shard[0] && !strchr(shard, '/') && !strstr(shard, ".."))
		return true;
	return fault_set(fault,
	                 "%s: weight_map of %.100s is '%.100s', expected the "
	                 "name of a file in the same directory",
	                 index->name, item->string, shard);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool list_shards(struct lm_index *index, struct fault *fault)
{
	const size_t n = (size_t)cJSON_GetArraySize(index->weight_map);
	const cJSON *item;
	int32_t n_all = 0;

	index->shards = calloc(n + 1, sizeof(*index->shards));
	if (!index->shards)
		return fault_set(fault, "%s: no memory for %zu tensors",
		                 index->name, n);
	const char *last = NULL;

	cJSON_ArrayForEach(item, (const cJSON *)index->weight_map)
	{
		if (!check_shard(index, item, fault))
			return false;
		/* Mostly that of the tensor before: fewer to sort. */
		if (!last || strcmp(last, item->valuestring) != 0)
			index->shards[n_all++] = item->valuestring;
		last = item->valuestring;
	}
	qsort(index->shards, (size_t)n_all, sizeof(*index->shards), by_text);
	for (int32_t i = 0; i < n_all; i++)
		if (i == 0 ||
		    by_text(&index->shards[i - 1], &index->shards[i]) != 0)
			index->shards[index->n_shards++] = index->shards[i];
	if (index->n_shards >= 1 && index->n_shards <= MAX_SHARDS)
		return true;
	return fault_set(fault, "%s: %d files in weight_map, allowed are 1..%d",
	                 index->name, index->n_shards, MAX_SHARDS);
}

static bool read_index(struct lm_index *index, const char *text, int64_t bytes,
                       struct fault *fault)
{
	const cJSON *map;

	if (bytes < 0 || bytes > MAX_INDEX_BYTES)
		return fault_set(fault, "%s: %lld bytes, allowed are 0..%d",
		                 index->name, (long long)bytes,
		                 MAX_INDEX_BYTES);
	index->json =
		json_read_object(index->name, 0, text, (size_t)bytes, fault);
	if (!index->json || !json_read_member(index->name, index->json,
	                                      "weight_map", &map, fault))
		return false;
	index->weight_map = map;
	if (!cJSON_IsObject(map))
		return fault_set(fault, "%s: no object weight_map",
		                 index->name);
	return list_shards(index, fault);
}

bool lm_index_parse(const char *name, const char *text, int64_t bytes,
                    struct lm_index *index, struct fault *fault)
{
	*index = (struct lm_index){.name = name};
	if (read_index(index, text, bytes, fault))
		return true;
	lm_index_close(index);
	return false;
}

void lm_index_close(struct lm_index *index)
{
	free(index->shards);
	cJSON_Delete(index->json);
	*index = (struct lm_index){0};
}

bool lm_index_check(const struct lm_index *index, const struct lm_files *files,
                    struct fault *fault)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, (const cJSON *)index->weight_map)
	{
		const struct lm_found *const found =
			lm_files_find(files, item->string);
		const char *const slash =
			found ? strrchr(found->file->path, '/') : NULL;

		if (slash && !strcmp(slash + 1, item->valuestring))
			continue;
		return fault_set(fault,
		                 "%s: tensor %.200s is in %.100s, expected "
		                 "%.100s",
		                 index->name, item->string,
		                 slash ? slash + 1 : "no file",
		                 item->valuestring);
	}
	return true;
}
