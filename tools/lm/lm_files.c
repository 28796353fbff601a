/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a checkpoint, and the tensors in all of them by name. */
#include "lm_files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lm_path.h"

static const char WHOLE[] = "model.safetensors";
static const char INDEX[] = "model.safetensors.index.json";

static bool read_header(struct lm_file *file, struct fault *fault)
{
	return tensor_file_open(lm_path_shown(file->path), file->map.bytes,
	                        file->map.n, &file->tensors, fault) &&
	       tensor_file_check(&file->tensors, fault);
}

static bool open_file(const char *directory, const char *name,
                      struct lm_file *file, struct fault *fault)
{
	file->path = lm_path(directory, name, fault);
	if (!file->path || !file_map_open(file->path, &file->map, fault))
		return false;
	file->mapped = true;
	return read_header(file, fault);
}

static int by_name(const void *a, const void *b)
{
	const struct lm_found *const first = a, *const second = b;

	return strcmp(first->tensor->name, second->tensor->name);
}

/* Puts the tensors of all files into one order. */
static bool list_tensors(struct lm_files *files, struct fault *fault)
{
	size_t n = 0;

	for (int32_t i = 0; i < files->n_files; i++)
		n += (size_t)files->files[i].tensors.n_tensors;
	files->found = calloc(n + 1, sizeof(*files->found));
	if (!files->found)
		return fault_set(fault, "%s: no memory for %zu tensors",
		                 files->name, n);
	for (int32_t i = 0; i < files->n_files; i++) {
		const struct lm_file *const file = &files->files[i];

		for (int32_t t = 0; t < file->tensors.n_tensors; t++)
			files->found[files->n_found++] = (struct lm_found){
				&file->tensors.tensors[t], file, false};
	}
	qsort(files->found, n, sizeof(*files->found), by_name);
	for (size_t i = 1; i < n; i++) {
		const struct lm_found *const f = &files->found[i];

		if (!by_name(f - 1, f))
			return fault_set(
				fault, "%s: tensor %.100s is in %s, too",
				f[-1].file->tensors.name, f->tensor->name,
				f->file->tensors.name);
	}
	return true;
}

static bool alloc_files(const char *name, int32_t n_files,
                        struct lm_files **files, struct fault *fault)
{
	struct lm_files *const f = calloc(1, sizeof(*f));

	*files = f;
	if (f) {
		f->n_files = n_files;
		f->files = calloc((size_t)n_files, sizeof(*f->files));
		f->name = strdup(lm_path_shown(name));
	}
	if (f && f->files && f->name)
		return true;
	lm_files_close(f);
	*files = NULL;
	return fault_set(fault, "%s: no memory", lm_path_shown(name));
}

static bool open_shards(const char *directory, const struct lm_index *index,
                        struct lm_files **files, struct fault *fault)
{
	bool good = alloc_files(index->name, index->n_shards, files, fault);

	for (int32_t i = 0; good && i < index->n_shards; i++)
		good = open_file(directory, index->shards[i],
		                 &(*files)->files[i], fault);
	return good && list_tensors(*files, fault) &&
	       lm_index_check(index, *files, fault);
}

static bool open_index(const char *directory, const char *path,
                       struct lm_files **files, struct fault *fault)
{
	struct file_map map;
	struct lm_index index = {0};

	if (!file_map_open(path, &map, fault))
		return false;
	const bool good = lm_index_parse(lm_path_shown(path), map.bytes,
	                                 (int64_t)map.n, &index, fault) &&
	                  open_shards(directory, &index, files, fault);

	lm_index_close(&index);
	file_map_close(&map);
	return good;
}

static bool open_whole(const char *directory, const char *path,
                       struct lm_files **files, struct fault *fault)
{
	return alloc_files(path, 1, files, fault) &&
	       open_file(directory, WHOLE, &(*files)->files[0], fault) &&
	       list_tensors(*files, fault);
}

bool lm_files_open(const char *directory, struct lm_files **files,
                   struct fault *fault)
{
	char *const whole = lm_path(directory, WHOLE, fault);
	char *const index = whole ? lm_path(directory, INDEX, fault) : NULL;
	bool good = index != NULL;

	*files = NULL;
	if (good && (access(whole, F_OK) == 0 || access(index, F_OK) != 0))
		good = open_whole(directory, whole, files, fault);
	else if (good)
		good = open_index(directory, index, files, fault);
	free(whole);
	free(index);
	if (!good) {
		lm_files_close(*files);
		*files = NULL;
	}
	return good;
}

bool lm_files_of_memory(const char *name, const char *bytes, size_t n,
                        struct lm_files **files, struct fault *fault)
{
	if (!alloc_files(name, 1, files, fault))
		return false;
	struct lm_file *const file = &(*files)->files[0];

	file->path = strdup(name);
	file->map = (struct file_map){bytes, n};
	if (file->path ? read_header(file, fault) && list_tensors(*files, fault)
	               : fault_set(fault, "%s: no memory", name))
		return true;
	lm_files_close(*files);
	*files = NULL;
	return false;
}

void lm_files_close(struct lm_files *files)
{
	if (!files)
		return;
	for (int32_t i = 0; files->files && i < files->n_files; i++) {
		struct lm_file *const file = &files->files[i];

		tensor_file_close(&file->tensors);
		if (file->mapped)
			file_map_close(&file->map);
		free(file->path);
	}
	free(files->files);
	free(files->found);
	free(files->name);
	free(files);
}

struct lm_found *lm_files_find(const struct lm_files *files, const char *name)
{
	const struct tensor wanted = {.name = name};
	const struct lm_found key = {.tensor = &wanted};

	return bsearch(&key, files->found, (size_t)files->n_found,
	               sizeof(*files->found), by_name);
}

int64_t lm_files_bytes(const struct lm_files *files)
{
	int64_t n = 0;

	for (int32_t i = 0; i < files->n_files; i++)
		n += (int64_t)files->files[i].map.n;
	return n;
}
