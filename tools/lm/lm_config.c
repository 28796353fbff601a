/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of Qwen3-MoE. What would change the arithmetic and is not done
 * here is refused by name; keys that do not matter are not looked at.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../json_read.h"
#include "lm_model.h"

enum {
	MAX_CONFIG_BYTES = 1 << 24,
	MAX_HEAD_DIM = 1 << 12,
	MAX_WIDTH = 1 << 24,
};

static const double MAX_THETA = 1e30, DEFAULT_THETA = 1e4;

struct reader {
	const char *name;
	const cJSON *json;
	struct fault *fault;
};

/* Whole numbers: where they go, what is allowed, what stands for none. */
static const struct number {
	const char *key;
	size_t offset;
	int32_t max;
	int32_t missing; /* 0: it has to be there */
} numbers[] = {
#define NUMBER(key, field, max, missing)                                       \
	{                                                                      \
		key, offsetof(struct lm_config, field), max, missing           \
	}
	NUMBER("num_hidden_layers", n_layers, 1 << 12, 0),
	NUMBER("hidden_size", hidden, 1 << 20, 0),
	NUMBER("num_attention_heads", n_heads, 1 << 16, 0),
	NUMBER("num_key_value_heads", n_kv_heads, 1 << 16, 0),
	NUMBER("num_experts", n_experts, 1 << 16, 0),
	NUMBER("num_experts_per_tok", topk, 64, 0),
	NUMBER("moe_intermediate_size", expert_hidden, 1 << 20, 0),
	NUMBER("vocab_size", vocab, 1 << 24, 0),
	NUMBER("max_position_embeddings", max_length, INT32_MAX, 32768),
#undef NUMBER
};

/* Switches that change the arithmetic, and their only value here. */
static const struct fixed {
	const char *key;
	const char *value; /* as JSON */
	bool or_null;
} switches[] = {
	{"model_type", "\"qwen3_moe\"", false},
	{"architectures", "[\"Qwen3MoeForCausalLM\"]", true},
	{"hidden_act", "\"silu\"", true},
	{"attention_bias", "false", true},
	{"use_sliding_window", "false", true},
	{"decoder_sparse_step", "1", true},
	{"mlp_only_layers", "[]", true},
	{"rope_scaling", "null", true},
	{"quantization_config", "null", true},
};

static bool find(const struct reader *r, const cJSON *object, const char *key,
                 const cJSON **found)
{
	return json_read_member(r->name, object, key, found, r->fault);
}

static bool refuse(const struct reader *r, const char *key, const cJSON *item,
                   const char *allowed)
{
	char *const text = item ? cJSON_PrintUnformatted(item) : NULL;

	fault_set(r->fault, "%s: %s is %.80s, allowed is %s", r->name, key,
	          text ? text : "missing", allowed);
	cJSON_free(text);
	return false;
}

static bool read_fixed(const struct reader *r, const struct fixed *fixed)
{
	const cJSON *item;

	if (!find(r, r->json, fixed->key, &item))
		return false;
	if (fixed->or_null && (!item || cJSON_IsNull(item)))
		return true;
	char *const text = item ? cJSON_PrintUnformatted(item) : NULL;
	const bool same = text && !strcmp(text, fixed->value);

	cJSON_free(text);
	return same || refuse(r, fixed->key, item, fixed->value);
}

static bool read_whole(const struct reader *r, const char *key, int32_t max,
                       int32_t missing, int32_t *value)
{
	const cJSON *item;
	char allowed[64];

	if (!find(r, r->json, key, &item))
		return false;
	if (missing && (!item || cJSON_IsNull(item))) {
		*value = missing;
		return true;
	}
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1) ||
	    item->valuedouble > max ||
	    item->valuedouble != floor(item->valuedouble)) {
		snprintf(allowed, sizeof(allowed), "a whole number 1..%d", max);
		return refuse(r, key, item, allowed);
	}
	*value = (int32_t)item->valuedouble;
	return true;
}

static bool read_real(const struct reader *r, const cJSON *object,
                      const char *key, double max, double missing,
                      double *value)
{
	const cJSON *item;
	char allowed[64];

	*value = missing;
	if (!find(r, object, key, &item))
		return false;
	if (!item || cJSON_IsNull(item))
		return true;
	if (!cJSON_IsNumber(item) || !(item->valuedouble > 0) ||
	    item->valuedouble > max) {
		snprintf(allowed, sizeof(allowed), "a number above 0, up to %g",
		         max);
		return refuse(r, key, item, allowed);
	}
	*value = item->valuedouble;
	return true;
}

static bool read_flag(const struct reader *r, const char *key, bool *value)
{
	const cJSON *item;

	*value = false;
	if (!find(r, r->json, key, &item))
		return false;
	if (!item || cJSON_IsNull(item))
		return true;
	*value = cJSON_IsTrue(item);
	return cJSON_IsBool(item) || refuse(r, key, item, "true or false");
}

/* *theta is 0 where none is given. */
static bool read_rope_parameters(const struct reader *r, double *theta)
{
	const cJSON *parameters, *type;

	*theta = 0;
	if (!find(r, r->json, "rope_parameters", &parameters))
		return false;
	if (!parameters || cJSON_IsNull(parameters))
		return true;
	if (!cJSON_IsObject(parameters))
		return refuse(r, "rope_parameters", parameters,
		              "an object with rope_theta");
	if (!find(r, parameters, "rope_type", &type))
		return false;
	if (type && (!cJSON_IsString(type) ||
	             strcmp(type->valuestring, "default") != 0))
		return refuse(r, "rope_type", type, "\"default\"");
	return read_real(r, parameters, "rope_theta", MAX_THETA, 0, theta);
}

/* rope_theta stands alone, or, in newer files, in rope_parameters. */
static bool read_rope(const struct reader *r, double *theta)
{
	double inner;

	if (!read_real(r, r->json, "rope_theta", MAX_THETA, 0, theta) ||
	    !read_rope_parameters(r, &inner))
		return false;
	if (*theta > 0 && inner > 0 && *theta != inner)
		return fault_set(r->fault,
		                 "%s: rope_theta is %g, and %g in "
		                 "rope_parameters",
		                 r->name, *theta, inner);
	if (inner > 0)
		*theta = inner;
	else if (!(*theta > 0))
		*theta = DEFAULT_THETA;
	return true;
}

static bool read_layer_types(const struct reader *r)
{
	const cJSON *types, *item;

	if (!find(r, r->json, "layer_types", &types))
		return false;
	cJSON_ArrayForEach(item, types)
	{
		if (!cJSON_IsString(item) ||
		    strcmp(item->valuestring, "full_attention") != 0)
			return refuse(r, "one of layer_types", item,
			              "\"full_attention\"");
	}
	return true;
}

static bool read_head_dim(const struct reader *r, struct lm_config *config)
{
	const int32_t n = config->hidden / config->n_heads;

	if (!read_whole(r, "head_dim", MAX_HEAD_DIM, n, &config->head_dim))
		return false;
	if (config->head_dim % 2)
		return fault_set(r->fault,
		                 "%s: head_dim is %d, allowed is an even "
		                 "number",
		                 r->name, config->head_dim);
	return true;
}

/* Numbers that have to go together. */
static bool check_pairs(const struct reader *r, const struct lm_config *config)
{
	const int64_t width = (int64_t)config->n_heads * config->head_dim;

	if (config->n_heads % config->n_kv_heads)
		return fault_set(r->fault,
		                 "%s: num_key_value_heads is %d, allowed is a "
		                 "divisor of num_attention_heads, %d",
		                 r->name, config->n_kv_heads, config->n_heads);
	if (config->topk > config->n_experts)
		return fault_set(r->fault,
		                 "%s: num_experts_per_tok is %d, allowed is "
		                 "1..%d, num_experts",
		                 r->name, config->topk, config->n_experts);
	if (width > MAX_WIDTH)
		return fault_set(r->fault,
		                 "%s: num_attention_heads times head_dim is "
		                 "%lld, allowed is 1..%d",
		                 r->name, (long long)width, MAX_WIDTH);
	return true;
}

static bool read_config(const struct reader *r, struct lm_config *config)
{
	double norm_eps;

	for (size_t i = 0; i < sizeof(switches) / sizeof(*switches); i++)
		if (!read_fixed(r, &switches[i]))
			return false;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		const struct number *const n = &numbers[i];

		if (!read_whole(r, n->key, n->max, n->missing,
		                (int32_t *)((char *)config + n->offset)))
			return false;
	}
	if (!read_head_dim(r, config) || !check_pairs(r, config) ||
	    !read_real(r, r->json, "rms_norm_eps", 1, 1e-6, &norm_eps))
		return false;
	config->norm_eps = (float)norm_eps;
	return read_rope(r, &config->rope_theta) && read_layer_types(r) &&
	       read_flag(r, "norm_topk_prob", &config->norm_topk) &&
	       read_flag(r, "tie_word_embeddings", &config->tied);
}

bool lm_config_parse(const char *name, const char *text, int64_t bytes,
                     struct lm_config *config, struct fault *fault)
{
	struct lm_config read = {0};

	if (bytes < 0 || bytes > MAX_CONFIG_BYTES)
		return fault_set(fault, "%s: %lld bytes, allowed are 0..%d",
		                 name, (long long)bytes, MAX_CONFIG_BYTES);
	cJSON *const json =
		json_read_object(name, 0, text, (size_t)bytes, fault);
	const struct reader r = {name, json, fault};
	const bool good = json && read_config(&r, &read);

	cJSON_Delete(json);
	if (good)
		*config = read;
	return good;
}
