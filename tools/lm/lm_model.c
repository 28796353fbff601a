/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's tensors at their places in a model: names, shapes, types. */
#include "lm_model.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lm_files.h"
#include "lm_path.h"

enum { NAME_BYTES = 128 };

struct binder {
	const struct lm_config *config;
	const struct lm_files *files;
	struct lm_model *model;
	struct fault *fault;
};

/* What a side of a matrix is as long as. */
enum side {
	VECTOR, /* no rows: one dimension */
	HIDDEN,
	QUERIES,
	KEYS,
	HEAD,
	EXPERTS,
	EXPERT_HIDDEN,
	VOCAB,
};

struct place {
	const char *name;
	size_t offset; /* of its struct lm_matrix */
	enum side rows, cols;
};

static const struct place of_model[] = {
	{"model.embed_tokens.weight", offsetof(struct lm_model, embedding),
         VOCAB, HIDDEN},
	{"model.norm.weight", offsetof(struct lm_model, norm), VECTOR, HIDDEN},
};

static const struct place of_head = {
	"lm_head.weight", offsetof(struct lm_model, head), VOCAB, HIDDEN};

#define LAYER(name, field, rows, cols)                                         \
	{                                                                      \
		name ".weight", offsetof(struct lm_layer, field), rows, cols   \
	}

static const struct place of_layer[] = {
	LAYER("input_layernorm", attention_norm, VECTOR, HIDDEN),
	LAYER("self_attn.q_proj", q, QUERIES, HIDDEN),
	LAYER("self_attn.k_proj", k, KEYS, HIDDEN),
	LAYER("self_attn.v_proj", v, KEYS, HIDDEN),
	LAYER("self_attn.o_proj", o, HIDDEN, QUERIES),
	LAYER("self_attn.q_norm", q_norm, VECTOR, HEAD),
	LAYER("self_attn.k_norm", k_norm, VECTOR, HEAD),
	LAYER("post_attention_layernorm", moe_norm, VECTOR, HIDDEN),
	LAYER("mlp.gate", router, EXPERTS, HIDDEN),
};

static const struct {
	const char *name;
	enum side rows, cols;
} of_expert[LM_EXPERT_TENSORS] = {
	[LM_GATE] = {"gate_proj", EXPERT_HIDDEN, HIDDEN},
	[LM_UP] = {"up_proj", EXPERT_HIDDEN, HIDDEN},
	[LM_DOWN] = {"down_proj", HIDDEN, EXPERT_HIDDEN},
};

static const char *const type_names[LM_N_TYPES] = {
	[LM_F32] = "F32", [LM_BF16] = "BF16", [LM_F16] = "F16"};

static int32_t length(const struct lm_config *config, enum side side)
{
	switch (side) {
	case HIDDEN:
		return config->hidden;
	case QUERIES:
		return config->n_heads * config->head_dim;
	case KEYS:
		return config->n_kv_heads * config->head_dim;
	case HEAD:
		return config->head_dim;
	case EXPERTS:
		return config->n_experts;
	case EXPERT_HIDDEN:
		return config->expert_hidden;
	case VOCAB:
		return config->vocab;
	default:
		return 1;
	}
}

static bool read_type(const struct binder *b, const struct lm_found *found,
                      enum lm_type *type)
{
	switch (found->tensor->type) {
	case TENSOR_F32:
		*type = LM_F32;
		return true;
	case TENSOR_BF16:
		*type = LM_BF16;
		return true;
	case TENSOR_F16:
		*type = LM_F16;
		return true;
	default:
		return fault_set(b->fault,
		                 "%s: tensor %s: dtype %s, expected F32, BF16 "
		                 "or F16",
		                 found->file->tensors.name, found->tensor->name,
		                 found->tensor->dtype);
	}
}

static bool check_shape(const struct binder *b, const struct lm_found *found,
                        const int64_t *dims, int32_t n_dims)
{
	const struct tensor *const t = found->tensor;
	char has[TENSOR_SHAPE_BYTES], wanted[TENSOR_SHAPE_BYTES];

	if (t->n_dims == n_dims &&
	    !memcmp(t->dims, dims, (size_t)n_dims * sizeof(*dims)))
		return true;
	return fault_set(b->fault, "%s: tensor %s: shape %s, by config.json %s",
	                 found->file->tensors.name, t->name,
	                 tensor_shape_text(t->dims, t->n_dims, has),
	                 tensor_shape_text(dims, n_dims, wanted));
}

static bool bind(const struct binder *b, const char *name, enum side rows,
                 enum side cols, struct lm_matrix *matrix)
{
	const int64_t dims[2] = {length(b->config, rows),
	                         length(b->config, cols)};
	const int32_t vector = rows == VECTOR;
	struct lm_found *const found = lm_files_find(b->files, name);
	char wanted[TENSOR_SHAPE_BYTES];

	if (!found)
		return fault_set(
			b->fault, "%s: tensor %s is missing, expected shape %s",
			b->files->name, name,
			tensor_shape_text(dims + vector, 2 - vector, wanted));
	if (!check_shape(b, found, dims + vector, 2 - vector) ||
	    !read_type(b, found, &matrix->type))
		return false;
	found->bound = true;
	matrix->data = found->tensor->bytes;
	matrix->rows = (int32_t)dims[0];
	matrix->cols = (int32_t)dims[1];
	b->model->n_parameters += dims[0] * dims[1];
	return true;
}

static bool bind_expert(const struct binder *b, int32_t layer, int32_t expert,
                        struct lm_matrix *matrices)
{
	char name[NAME_BYTES];
	struct lm_model *const model = b->model;

	for (int t = 0; t < LM_EXPERT_TENSORS; t++) {
		snprintf(name, sizeof(name),
		         "model.layers.%d.mlp.experts.%d.%s.weight", layer,
		         expert, of_expert[t].name);
		if (!bind(b, name, of_expert[t].rows, of_expert[t].cols,
		          &matrices[t]))
			return false;
		if (layer == 0 && expert == 0 && t == 0)
			model->expert_type = matrices[t].type;
		if (matrices[t].type == model->expert_type)
			continue;
		const struct lm_found *const found =
			lm_files_find(b->files, name);

		return fault_set(b->fault,
		                 "%s: tensor %s: dtype %s, expected %s as "
		                 "expert 0 of layer 0 has",
		                 found->file->tensors.name, name,
		                 found->tensor->dtype,
		                 type_names[model->expert_type]);
	}
	return true;
}

static bool bind_layer(const struct binder *b, int32_t index)
{
	struct lm_layer *const layer = &b->model->layers[index];
	const size_t n = (size_t)b->config->n_experts;
	char name[NAME_BYTES];

	for (size_t i = 0; i < sizeof(of_layer) / sizeof(*of_layer); i++) {
		const struct place *const p = &of_layer[i];

		snprintf(name, sizeof(name), "model.layers.%d.%s", index,
		         p->name);
		if (!bind(b, name, p->rows, p->cols,
		          (struct lm_matrix *)(void *)((char *)layer +
		                                       p->offset)))
			return false;
	}
	layer->experts = calloc(n, sizeof(*layer->experts));
	if (!layer->experts)
		return fault_set(b->fault, "%s: no memory for %zu experts",
		                 b->files->name, n);
	for (int32_t e = 0; e < b->config->n_experts; e++)
		if (!bind_expert(b, index, e, layer->experts[e]))
			return false;
	return true;
}

static bool bind_place(const struct binder *b, const struct place *p)
{
	return bind(b, p->name, p->rows, p->cols,
	            (struct lm_matrix *)(void *)((char *)b->model + p->offset));
}

/* Where the embedding is the head, too, the file may leave it out. */
static bool bind_head(const struct binder *b)
{
	b->model->head = b->model->embedding;
	if (b->config->tied)
		return true;
	if (!lm_files_find(b->files, of_head.name))
		return fault_set(
			b->fault,
			"%s: tensor %s is missing, which only "
			"tie_word_embeddings true in config.json allows",
			b->files->name, of_head.name);
	return bind_place(b, &of_head);
}

static bool bind_all(const struct binder *b)
{
	struct lm_model *const model = b->model;
	const size_t n = (size_t)b->config->n_layers;

	model->layers = calloc(n, sizeof(*model->layers));
	if (!model->layers)
		return fault_set(b->fault, "%s: no memory for %zu layers",
		                 b->files->name, n);
	for (size_t i = 0; i < sizeof(of_model) / sizeof(*of_model); i++)
		if (!bind_place(b, &of_model[i]))
			return false;
	if (!bind_head(b))
		return false;
	for (int32_t layer = 0; layer < b->config->n_layers; layer++)
		if (!bind_layer(b, layer))
			return false;
	return true;
}

/* Buffers that are computed, not learned. */
static bool is_computed(const char *name)
{
	return strstr(name, ".rotary_emb.inv_freq") != NULL;
}

static bool check_rest(const struct binder *b)
{
	for (int64_t i = 0; i < b->files->n_found; i++) {
		const struct lm_found *const f = &b->files->found[i];
		const char *const name = f->tensor->name;

		if (f->bound || strncmp(name, "model.", 6) != 0 ||
		    is_computed(name))
			continue;
		return fault_set(b->fault,
		                 "%s: tensor %.200s has no place in a model "
		                 "of %d layers of %d experts",
		                 f->file->tensors.name, name,
		                 b->config->n_layers, b->config->n_experts);
	}
	return true;
}

bool lm_model_bind(const struct lm_config *config, struct lm_files *files,
                   struct lm_model *model, struct fault *fault)
{
	struct lm_model bound = {.config = *config,
	                         .file_bytes = lm_files_bytes(files)};
	const struct binder b = {config, files, &bound, fault};

	if (!bind_all(&b) || !check_rest(&b)) {
		lm_model_close(&bound);
		return false;
	}
	bound.files = files;
	*model = bound;
	return true;
}

/* Who gives a name on a hub, or the file of the weights, is told what to give
 * instead. */
static bool check_directory(const char *directory, struct fault *fault)
{
	struct stat is;

	if (stat(directory, &is))
		return fault_set(fault,
		                 "%s: %s: a model is a folder of this machine; "
		                 "nothing is downloaded",
		                 lm_path_shown(directory), strerror(errno));
	return S_ISDIR(is.st_mode) ||
	       fault_set(fault,
	                 "%s: is no folder: a model is the folder with "
	                 "config.json, weights and tokenizer.json in it",
	                 lm_path_shown(directory));
}

static bool read_config(const char *directory, struct lm_config *config,
                        struct fault *fault)
{
	struct file_map map;
	char *const path = lm_path(directory, "config.json", fault);

	if (!path)
		return false;
	bool good = check_directory(directory, fault) &&
	            file_map_open(path, &map, fault);

	if (good) {
		good = lm_config_parse(lm_path_shown(path), map.bytes,
		                       (int64_t)map.n, config, fault);
		file_map_close(&map);
	}
	free(path);
	return good;
}

bool lm_model_open(const char *directory, struct lm_model *model,
                   struct fault *fault)
{
	struct lm_config config;
	struct lm_files *files;

	if (!read_config(directory, &config, fault) ||
	    !lm_files_open(directory, &files, fault))
		return false;
	if (lm_model_bind(&config, files, model, fault))
		return true;
	lm_files_close(files);
	return false;
}

const char *lm_model_file(const struct lm_model *model, int32_t i)
{
	return i < model->files->n_files ? model->files->files[i].path : NULL;
}

void lm_model_close(struct lm_model *model)
{
	if (!model)
		return;
	for (int32_t l = 0; model->layers && l < model->config.n_layers; l++)
		free(model->layers[l].experts);
	free(model->layers);
	lm_files_close(model->files);
	*model = (struct lm_model){0};
}
