/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small random checkpoints of the Qwen3-MoE architecture, for tests: all that a
 * real one has, and every weight known from the seed. Here nothing fails:
 * a test that cannot write ends.
 */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

#include <stddef.h>

#include "lm_model.h"

struct tiny_shape {
	uint64_t seed;
	int32_t n_layers, hidden;
	int32_t n_heads, n_kv_heads, head_dim;
	int32_t n_experts, topk, expert_hidden;
	int32_t vocab;     /* from TINY_MIN_VOCAB on there is a tokenizer */
	enum lm_type type; /* of all tensors */
	int32_t n_shards;  /* 1: model.safetensors; else with an index */
	bool tied;
	bool norm_topk;
	bool sparse; /* all weights 0, and no room on the disk */
};

/* Enough for the tokenizer: 256 bytes, some merges, <|endoftext|>. */
enum { TINY_MIN_VOCAB = 288 };

#define TINY_SHAPE_INIT                                                        \
	{                                                                      \
		.seed = 1, .n_layers = 2, .hidden = 32, .n_heads = 4,          \
		.n_kv_heads = 2, .head_dim = 8, .n_experts = 8, .topk = 2,     \
		.expert_hidden = 16, .vocab = TINY_MIN_VOCAB, .type = LM_BF16, \
		.n_shards = 1, .tied = true, .norm_topk = true                 \
	}

/* Writes a checkpoint into a new directory under $TMPDIR or /tmp; returns its
 * path, which tiny_model_remove frees. */
char *tiny_model_make(const struct tiny_shape *shape);

/* Removes the directory with all its files; NULL is good. */
void tiny_model_remove(char *directory);

/* Writes config.json, tokenizer.json, model*.safetensors into a directory. */
void tiny_model_write(const char *directory, const struct tiny_shape *shape);

/* One tensor of the checkpoint, in the order of the file. */
struct tiny_tensor {
	char name[96];
	int32_t n_dims;
	int64_t dims[2];
};

/* Number of tensors, and the one of an index. */
int32_t tiny_model_n_tensors(const struct tiny_shape *shape);
struct tiny_tensor tiny_model_tensor(const struct tiny_shape *shape,
                                     int32_t index);

/* Element i of a tensor, as the file has it: rounded to the type. */
float tiny_model_value(const struct tiny_shape *shape,
                       const struct tiny_tensor *tensor, int64_t i);

/* Writes DIRECTORY/NAME, or over it. */
void tiny_file_write(const char *directory, const char *name, const void *bytes,
                     size_t n);

/* Cuts DIRECTORY/NAME to n bytes, or lets zeros follow, without room. */
void tiny_file_resize(const char *directory, const char *name, size_t n);

/* Reads DIRECTORY/NAME; the caller frees. A 0 is behind the bytes. */
char *tiny_file_read(const char *directory, const char *name, size_t *n);

#endif
