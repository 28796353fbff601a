/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small random checkpoints: tensors and config. Weights are uniform with the
 * variance 1 / inputs, norms near 1, so that activations stay near 1.
 */
#include "tiny_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "core/bits.h"
#include "core/number.h"
#include "tiny_inner.h"

enum { TENSORS_OF_LAYER = 9 };

static const char *const type_names[LM_N_TYPES] = {
	[LM_F32] = "F32", [LM_BF16] = "BF16", [LM_F16] = "F16"};

static struct tiny_tensor name_tensor(const char *name, int64_t rows,
                                      int64_t cols)
{
	struct tiny_tensor t = {.n_dims = rows ? 2 : 1,
	                        .dims = {rows ? rows : cols, cols}};

	snprintf(t.name, sizeof(t.name), "%s", name);
	return t;
}

static struct tiny_tensor layer_tensor(const struct tiny_shape *s,
                                       int32_t layer, int32_t index)
{
	const int32_t queries = s->n_heads * s->head_dim;
	const int32_t keys = s->n_kv_heads * s->head_dim;
	const struct {
		const char *name;
		int64_t rows, cols;
	} all[TENSORS_OF_LAYER] = {
		{"input_layernorm", 0, s->hidden},
		{"self_attn.q_proj", queries, s->hidden},
		{"self_attn.k_proj", keys, s->hidden},
		{"self_attn.v_proj", keys, s->hidden},
		{"self_attn.o_proj", s->hidden, queries},
		{"self_attn.q_norm", 0, s->head_dim},
		{"self_attn.k_norm", 0, s->head_dim},
		{"post_attention_layernorm", 0, s->hidden},
		{"mlp.gate", s->n_experts, s->hidden},
	};
	char name[96];

	snprintf(name, sizeof(name), "model.layers.%d.%s.weight", layer,
	         all[index].name);
	return name_tensor(name, all[index].rows, all[index].cols);
}

static struct tiny_tensor expert_tensor(const struct tiny_shape *s,
                                        int32_t layer, int32_t index)
{
	static const char *const names[LM_EXPERT_TENSORS] = {
		[LM_GATE] = "gate", [LM_UP] = "up", [LM_DOWN] = "down"};
	const int32_t t = index % LM_EXPERT_TENSORS;
	char name[96];

	snprintf(name, sizeof(name),
	         "model.layers.%d.mlp.experts.%d.%s_proj.weight", layer,
	         index / LM_EXPERT_TENSORS, names[t]);
	if (t == LM_DOWN)
		return name_tensor(name, s->hidden, s->expert_hidden);
	return name_tensor(name, s->expert_hidden, s->hidden);
}

int32_t tiny_model_n_tensors(const struct tiny_shape *s)
{
	return 3 - s->tied +
	       s->n_layers *
	               (TENSORS_OF_LAYER + s->n_experts * LM_EXPERT_TENSORS);
}

struct tiny_tensor tiny_model_tensor(const struct tiny_shape *s, int32_t index)
{
	const int32_t of_layer =
		TENSORS_OF_LAYER + s->n_experts * LM_EXPERT_TENSORS;

	if (index == 0)
		return name_tensor("model.embed_tokens.weight", s->vocab,
		                   s->hidden);
	const int32_t layer = --index / of_layer;

	if (layer < s->n_layers) {
		index %= of_layer;
		return index < TENSORS_OF_LAYER
		               ? layer_tensor(s, layer, index)
		               : expert_tensor(s, layer,
		                               index - TENSORS_OF_LAYER);
	}
	if (index == s->n_layers * of_layer)
		return name_tensor("model.norm.weight", 0, s->hidden);
	return name_tensor("lm_head.weight", s->vocab, s->hidden);
}

/* -1..1, of the tensor's name and the place in it. */
static float draw(uint64_t hash, int64_t i)
{
	uint64_t state = hash + (uint64_t)i * 0x9e3779b97f4a7c15u;

	return (float)(int64_t)(rng_next(&state) >> 40) * 0x1p-23f - 1;
}

/* Hash and scale are the same for all elements of a tensor. */
struct draw {
	uint64_t hash;
	float middle, width;
};

static struct draw draw_open(const struct tiny_shape *s,
                             const struct tiny_tensor *t)
{
	const uint64_t hash = hash_text(s->seed, t->name);

	if (t->n_dims == 1)
		return (struct draw){hash, 1, 0.25f};
	if (!strcmp(t->name, "model.embed_tokens.weight"))
		return (struct draw){hash, 0, s->tied ? 0.25f : 1.5f};
	return (struct draw){hash, 0, sqrtf(3.0f / (float)t->dims[1])};
}

static float draw_next(const struct draw *d, int64_t i)
{
	return d->middle + d->width * draw(d->hash, i);
}

float tiny_model_value(const struct tiny_shape *s, const struct tiny_tensor *t,
                       int64_t i)
{
	const struct draw d = draw_open(s, t);
	const float x = draw_next(&d, i);

	if (s->type == LM_BF16)
		return f32_from_bf16(bf16_from_f32(x));
	return s->type == LM_F16 ? f32_from_fp16(fp16_from_f32(x)) : x;
}

static int64_t n_elements(const struct tiny_tensor *t)
{
	return t->n_dims == 2 ? t->dims[0] * t->dims[1] : t->dims[0];
}

static void put_tensor(const struct tiny_shape *s, const struct tiny_tensor *t,
                       char *to)
{
	const struct draw d = draw_open(s, t);
	const int64_t n = n_elements(t);

	for (int64_t i = 0; i < n; i++) {
		const float x = draw_next(&d, i);
		const uint16_t half =
			s->type == LM_F16 ? fp16_from_f32(x) : bf16_from_f32(x);

		if (s->type == LM_F32)
			memcpy(to + 4 * i, &x, 4);
		else
			memcpy(to + 2 * i, &half, 2);
	}
}

/* Header of tensors first..end-1, as text; *n_data is what they have. */
static char *print_header(const struct tiny_shape *s, int32_t first,
                          int32_t end, int64_t *n_data)
{
	cJSON *const header = cJSON_CreateObject();
	cJSON *const metadata = cJSON_AddObjectToObject(header, "__metadata__");

	cJSON_AddStringToObject(metadata, "format", "pt");
	*n_data = 0;
	for (int32_t i = first; i < end; i++) {
		const struct tiny_tensor t = tiny_model_tensor(s, i);
		const int64_t n = n_elements(&t) * (s->type == LM_F32 ? 4 : 2);
		cJSON *const o = cJSON_AddObjectToObject(header, t.name);
		cJSON *const shape = cJSON_CreateArray();
		cJSON *const offsets = cJSON_CreateArray();

		cJSON_AddStringToObject(o, "dtype", type_names[s->type]);
		cJSON_AddItemToObject(o, "shape", shape);
		cJSON_AddItemToObject(o, "data_offsets", offsets);
		for (int32_t d = 0; d < t.n_dims; d++)
			cJSON_AddItemToArray(
				shape, cJSON_CreateNumber((double)t.dims[d]));
		cJSON_AddItemToArray(offsets,
		                     cJSON_CreateNumber((double)*n_data));
		*n_data += n;
		cJSON_AddItemToArray(offsets,
		                     cJSON_CreateNumber((double)*n_data));
	}
	return tiny_print(header);
}

/* Length and header, padded with spaces. */
static char *frame_header(const char *header, size_t *n)
{
	const size_t n_text = strlen(header);
	const uint64_t n_header = (n_text + 7) / 8 * 8;

	*n = 8 + (size_t)n_header;
	char *const bytes = tiny_alloc(*n);

	memcpy(bytes, &n_header, 8);
	memset(bytes + 8, ' ', (size_t)n_header);
	memcpy(bytes + 8, header, n_text);
	return bytes;
}

/* Returns the bytes of the tensors. */
static int64_t write_tensors(const char *directory, const char *name,
                             const struct tiny_shape *s, int32_t first,
                             int32_t end)
{
	int64_t n_data;
	size_t at;
	char *const header = print_header(s, first, end, &n_data);
	char *bytes = frame_header(header, &at);
	const size_t n = at + (size_t)n_data;

	free(header);
	if (s->sparse) {
		tiny_file_write(directory, name, bytes, at);
		tiny_file_resize(directory, name, n);
		free(bytes);
		return n_data;
	}
	bytes = tiny_grow(bytes, n);
	for (int32_t i = first; i < end; i++) {
		const struct tiny_tensor t = tiny_model_tensor(s, i);

		put_tensor(s, &t, bytes + at);
		at += (size_t)n_elements(&t) * (s->type == LM_F32 ? 4 : 2);
	}
	tiny_file_write(directory, name, bytes, n);
	free(bytes);
	return n_data;
}

static void write_shards(const char *directory, const struct tiny_shape *s)
{
	const int32_t n = tiny_model_n_tensors(s);
	cJSON *const index = cJSON_CreateObject();
	cJSON *const map = cJSON_AddObjectToObject(index, "weight_map");
	cJSON *const metadata = cJSON_AddObjectToObject(index, "metadata");
	int64_t total = 0;
	char name[64];

	for (int32_t shard = 0; shard < s->n_shards; shard++) {
		const int32_t first = n * shard / s->n_shards;
		const int32_t end = n * (shard + 1) / s->n_shards;

		snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors",
		         shard + 1, s->n_shards);
		total += write_tensors(directory, name, s, first, end);
		for (int32_t i = first; i < end; i++)
			cJSON_AddStringToObject(
				map, tiny_model_tensor(s, i).name, name);
	}
	cJSON_AddNumberToObject(metadata, "total_size", (double)total);
	char *const text = tiny_print(index);

	tiny_file_write(directory, "model.safetensors.index.json", text,
	                strlen(text));
	free(text);
}

static void write_config(const char *directory, const struct tiny_shape *s)
{
	char text[2048];
	const int n =
		snprintf(text, sizeof(text),
	                 "{\n"
	                 "  \"architectures\": [\"Qwen3MoeForCausalLM\"],\n"
	                 "  \"attention_bias\": false,\n"
	                 "  \"decoder_sparse_step\": 1,\n"
	                 "  \"head_dim\": %d,\n"
	                 "  \"hidden_act\": \"silu\",\n"
	                 "  \"hidden_size\": %d,\n"
	                 "  \"max_position_embeddings\": 4096,\n"
	                 "  \"mlp_only_layers\": [],\n"
	                 "  \"model_type\": \"qwen3_moe\",\n"
	                 "  \"moe_intermediate_size\": %d,\n"
	                 "  \"norm_topk_prob\": %s,\n"
	                 "  \"num_attention_heads\": %d,\n"
	                 "  \"num_experts\": %d,\n"
	                 "  \"num_experts_per_tok\": %d,\n"
	                 "  \"num_hidden_layers\": %d,\n"
	                 "  \"num_key_value_heads\": %d,\n"
	                 "  \"rms_norm_eps\": 1e-06,\n"
	                 "  \"rope_scaling\": null,\n"
	                 "  \"rope_theta\": 10000.0,\n"
	                 "  \"tie_word_embeddings\": %s,\n"
	                 "  \"torch_dtype\": \"bfloat16\",\n"
	                 "  \"use_sliding_window\": false,\n"
	                 "  \"vocab_size\": %d\n"
	                 "}\n",
	                 s->head_dim, s->hidden, s->expert_hidden,
	                 s->norm_topk ? "true" : "false", s->n_heads,
	                 s->n_experts, s->topk, s->n_layers, s->n_kv_heads,
	                 s->tied ? "true" : "false", s->vocab);

	tiny_file_write(directory, "config.json", text, (size_t)n);
}

void tiny_model_write(const char *directory, const struct tiny_shape *s)
{
	write_config(directory, s);
	if (s->vocab >= TINY_MIN_VOCAB)
		tiny_tokenizer_write(directory);
	if (s->n_shards > 1)
		write_shards(directory, s);
	else
		write_tensors(directory, "model.safetensors", s, 0,
		              tiny_model_n_tensors(s));
}
