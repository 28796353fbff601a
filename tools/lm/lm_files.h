/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a checkpoint: model.safetensors, or the shards that
 * model.safetensors.index.json names, mapped; and the tensors in them, by name.
 */
#ifndef FERRY_LM_FILES_H
#define FERRY_LM_FILES_H

#include "../file_map.h"
#include "../tensor_file.h"
#include "lm_model.h"

/* One mapped file. */
struct lm_file {
	char *path;
	struct file_map map;
	struct tensor_file tensors;
	bool mapped; /* else its bytes are the caller's */
};

/* A tensor, and the file that has it. */
struct lm_found {
	const struct tensor *tensor;
	const struct lm_file *file;
	bool bound; /* it has its place in a model */
};

struct lm_files {
	char *name; /* what faults call them all */
	int32_t n_files;
	struct lm_file *files;
	int64_t n_found;
	struct lm_found *found; /* by name */
};

/* Opens a directory's checkpoint. */
bool lm_files_open(const char *directory, struct lm_files **files,
                   struct fault *fault);

/* One file in memory, which has to outlive *files. Its bytes begin at a
 * multiple of 8. */
bool lm_files_of_memory(const char *name, const char *bytes, size_t n,
                        struct lm_files **files, struct fault *fault);

void lm_files_close(struct lm_files *files);

/* The tensor of this name; NULL where there is none. */
struct lm_found *lm_files_find(const struct lm_files *files, const char *name);

/* Bytes of all files. */
int64_t lm_files_bytes(const struct lm_files *files);

/* Which file each tensor is said to be in. */
struct lm_index {
	const char *name; /* what faults call it; the caller's */
	void *json;
	const void *weight_map;
	const char **shards; /* sorted, each once */
	int32_t n_shards;
};

/* model.safetensors.index.json in memory. */
bool lm_index_parse(const char *name, const char *text, int64_t bytes,
                    struct lm_index *index, struct fault *fault);
void lm_index_close(struct lm_index *index);

/* Whether every tensor of the index is in its shard; files are the shards. */
bool lm_index_check(const struct lm_index *index, const struct lm_files *files,
                    struct fault *fault);

/*
 * The model of a config in files, which become the model's on success. Tensors
 * called model.* that have no place in it are refused: biases, layers or
 * experts that the config does not know would change the results.
 */
bool lm_model_bind(const struct lm_config *config, struct lm_files *files,
                   struct lm_model *model, struct fault *fault);

#endif
