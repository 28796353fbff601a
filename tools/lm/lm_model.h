/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A language model of the Qwen3-MoE architecture, as Hugging Face checkpoints
 * have it: config.json and model*.safetensors, mapped, not read. Weights stay
 * in the type and at the place where the file has them. So the files must not
 * change while a model is open: weights that are cut off from a file end the
 * process (SIGBUS) when they are read.
 */
#ifndef FERRY_LM_MODEL_H
#define FERRY_LM_MODEL_H

#include <stdint.h>

#include "../fault.h"

/* Tensors of one expert, in this order; they move together. */
enum lm_expert_tensor {
	LM_GATE, /* [expert_hidden, hidden] */
	LM_UP,   /* [expert_hidden, hidden] */
	LM_DOWN, /* [hidden, expert_hidden] */
	LM_EXPERT_TENSORS,
};

enum lm_type { LM_F32, LM_BF16, LM_F16, LM_N_TYPES };

/* The numbers of config.json. */
struct lm_config {
	int32_t n_layers;
	int32_t hidden;
	int32_t n_heads;    /* of queries; n_kv_heads divides it */
	int32_t n_kv_heads; /* of keys and values */
	int32_t head_dim;   /* even */
	int32_t n_experts;
	int32_t topk;
	int32_t expert_hidden; /* moe_intermediate_size */
	int32_t vocab;
	int32_t max_length; /* max_position_embeddings */
	float norm_eps;
	double rope_theta;
	bool norm_topk; /* weights of the chosen experts sum to 1 */
	bool tied;      /* the head is the embedding */
};

/* A matrix, or a vector (rows 1), of the checkpoint: row-major. */
struct lm_matrix {
	const void *data; /* aligned to its element */
	enum lm_type type;
	int32_t rows, cols; /* outputs, inputs */
};

struct lm_layer {
	struct lm_matrix attention_norm; /* input_layernorm */
	struct lm_matrix q, k, v, o;
	struct lm_matrix q_norm, k_norm; /* of each head */
	struct lm_matrix moe_norm;       /* post_attention_layernorm */
	struct lm_matrix router;         /* mlp.gate [n_experts, hidden] */
	/* [n_experts][LM_EXPERT_TENSORS] */
	struct lm_matrix (*experts)[LM_EXPERT_TENSORS];
};

struct lm_files; /* what is mapped */

struct lm_model {
	struct lm_config config;
	struct lm_matrix embedding; /* [vocab, hidden] */
	struct lm_matrix norm;
	struct lm_matrix head; /* [vocab, hidden] */
	struct lm_layer *layers;
	struct lm_files *files;
	int64_t n_parameters;
	int64_t file_bytes; /* mapped */
	/* One type for all experts of the model, so that slots are alike. */
	enum lm_type expert_type;
};

/* Bytes of an element. */
int32_t lm_type_bytes(enum lm_type type);

/* Element i as float; exact. */
float lm_element(const struct lm_matrix *matrix, int64_t i);

/* Bytes of expert tensor t; alike in all experts and layers. */
int64_t lm_expert_bytes(const struct lm_model *model, enum lm_expert_tensor t);

/*
 * Opens the checkpoint in a directory. A fault names file, tensor, what was
 * expected and what was found. *model is written on success.
 */
bool lm_model_open(const char *directory, struct lm_model *model,
                   struct fault *fault);
void lm_model_close(struct lm_model *model);

/* The i-th file with weights, 0.., as it was opened; NULL behind the last. */
const char *lm_model_file(const struct lm_model *model, int32_t i);

/* config.json in memory; `name` is what faults call it. */
bool lm_config_parse(const char *name, const char *text, int64_t bytes,
                     struct lm_config *config, struct fault *fault);

#endif
