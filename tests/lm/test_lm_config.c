/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: its numbers, what stands for absent ones, what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "cli/cli_cmocka.h"
#include "lm_model.h"

/* As of Qwen3-30B-A3B. */
static const char real[] =
	"{\"architectures\": [\"Qwen3MoeForCausalLM\"], "
	"\"attention_bias\": false, \"attention_dropout\": 0.0, "
	"\"bos_token_id\": 151643, \"decoder_sparse_step\": 1, "
	"\"eos_token_id\": 151645, \"head_dim\": 128, \"hidden_act\": "
	"\"silu\", \"hidden_size\": 2048, \"initializer_range\": 0.02, "
	"\"intermediate_size\": 6144, \"max_position_embeddings\": 40960, "
	"\"max_window_layers\": 48, \"mlp_only_layers\": [], "
	"\"model_type\": \"qwen3_moe\", \"moe_intermediate_size\": 768, "
	"\"norm_topk_prob\": true, \"num_attention_heads\": 32, "
	"\"num_experts\": 128, \"num_experts_per_tok\": 8, "
	"\"num_hidden_layers\": 48, \"num_key_value_heads\": 4, "
	"\"output_router_logits\": false, \"rms_norm_eps\": 1e-06, "
	"\"rope_scaling\": null, \"rope_theta\": 1000000.0, "
	"\"router_aux_loss_coef\": 0.001, \"sliding_window\": null, "
	"\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", "
	"\"transformers_version\": \"4.51.0\", \"use_cache\": true, "
	"\"use_sliding_window\": false, \"vocab_size\": 151936}\n";

/* The real config with other members: those of `changes`, null for none. */
static char *changed(const char *changes)
{
	cJSON *const json = cJSON_Parse(real);
	cJSON *const other = cJSON_Parse(changes);

	assert_non_null(other);
	while (other->child) {
		cJSON *const item =
			cJSON_DetachItemViaPointer(other, other->child);

		cJSON_DeleteItemFromObjectCaseSensitive(json, item->string);
		if (cJSON_IsString(item) && !strcmp(item->valuestring, "-"))
			cJSON_Delete(item);
		else
			cJSON_AddItemToObject(json, item->string, item);
	}
	char *const text = cJSON_PrintUnformatted(json);

	cJSON_Delete(json);
	cJSON_Delete(other);
	return text;
}

static struct lm_config accept(const char *changes)
{
	char *const text = changed(changes);
	struct lm_config config;
	struct fault fault;

	if (!lm_config_parse("c", text, (int64_t)strlen(text), &config, &fault))
		fail_msg("%s: %s", changes, fault.text);
	cJSON_free(text);
	return config;
}

static void refuse_text(const char *text, const char *message)
{
	struct lm_config config = {.n_layers = 77};
	struct fault fault;

	assert_false(lm_config_parse("c", text, (int64_t)strlen(text), &config,
	                             &fault));
	assert_string_equal(fault.text, message);
	assert_int_equal(config.n_layers, 77);
}

static void refuse(const char *changes, const char *message)
{
	char *const text = changed(changes);

	refuse_text(text, message);
	cJSON_free(text);
}

static void test_real(void **state)
{
	struct lm_config c;
	struct fault fault;

	(void)state;
	assert_true(
		lm_config_parse("c", real, (int64_t)strlen(real), &c, &fault));
	assert_int_equal(c.n_layers, 48);
	assert_int_equal(c.hidden, 2048);
	assert_int_equal(c.n_heads, 32);
	assert_int_equal(c.n_kv_heads, 4);
	assert_int_equal(c.head_dim, 128);
	assert_int_equal(c.n_experts, 128);
	assert_int_equal(c.topk, 8);
	assert_int_equal(c.expert_hidden, 768);
	assert_int_equal(c.vocab, 151936);
	assert_int_equal(c.max_length, 40960);
	assert_true(c.norm_eps == 1e-6f);
	assert_true(c.rope_theta == 1e6);
	assert_true(c.norm_topk);
	assert_false(c.tied);
}

/* What Hugging Face's library takes for keys that are absent. */
static void test_absent(void **state)
{
	const struct lm_config c = accept(
		"{\"head_dim\": \"-\", \"architectures\": \"-\", "
		"\"attention_bias\": \"-\", \"decoder_sparse_step\": \"-\", "
		"\"hidden_act\": \"-\", \"max_position_embeddings\": \"-\", "
		"\"mlp_only_layers\": \"-\", \"norm_topk_prob\": \"-\", "
		"\"rms_norm_eps\": \"-\", \"rope_scaling\": \"-\", "
		"\"rope_theta\": \"-\", \"tie_word_embeddings\": \"-\", "
		"\"use_sliding_window\": \"-\", \"torch_dtype\": \"-\"}");

	(void)state;
	assert_int_equal(c.head_dim, 64);
	assert_int_equal(c.max_length, 32768);
	assert_true(c.norm_eps == 1e-6f);
	assert_true(c.rope_theta == 1e4);
	assert_false(c.norm_topk);
	assert_false(c.tied);
}

static void test_newer_keys(void **state)
{
	const struct lm_config c = accept(
		"{\"rope_theta\": \"-\", \"rope_scaling\": \"-\", "
		"\"torch_dtype\": \"-\", \"dtype\": \"bfloat16\", "
		"\"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": "
		"\"default\"}, \"layer_types\": [\"full_attention\"]}");

	(void)state;
	assert_true(c.rope_theta == 5e5);
	assert_true(accept("{\"rope_parameters\": {\"rope_theta\": 1e6}}")
	                    .rope_theta == 1e6);
	assert_true(accept("{\"rope_parameters\": {}}").rope_theta == 1e6);
	assert_true(accept("{\"rope_parameters\": null}").rope_theta == 1e6);
}

static void test_other_models(void **state)
{
	(void)state;
	refuse("{\"model_type\": \"qwen3\"}",
	       "c: model_type is \"qwen3\", allowed is \"qwen3_moe\"");
	refuse("{\"model_type\": \"-\"}",
	       "c: model_type is missing, allowed is \"qwen3_moe\"");
	refuse("{\"architectures\": [\"MixtralForCausalLM\"]}",
	       "c: architectures is [\"MixtralForCausalLM\"], allowed is "
	       "[\"Qwen3MoeForCausalLM\"]");
	refuse("{\"quantization_config\": {\"quant_method\": \"fp8\"}}",
	       "c: quantization_config is {\"quant_method\":\"fp8\"}, allowed "
	       "is null");
}

static void test_other_arithmetic(void **state)
{
	(void)state;
	refuse("{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}",
	       "c: rope_scaling is {\"type\":\"yarn\",\"factor\":4}, allowed "
	       "is null");
	refuse("{\"rope_parameters\": {\"rope_type\": \"yarn\"}}",
	       "c: rope_type is \"yarn\", allowed is \"default\"");
	refuse("{\"rope_parameters\": 3}", "c: rope_parameters is 3, allowed "
	                                   "is an object with rope_theta");
	refuse("{\"rope_parameters\": {\"rope_theta\": 5}}",
	       "c: rope_theta is 1e+06, and 5 in rope_parameters");
	refuse("{\"attention_bias\": true}",
	       "c: attention_bias is true, allowed is false");
	refuse("{\"use_sliding_window\": true}",
	       "c: use_sliding_window is true, allowed is false");
	refuse("{\"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
	       "c: one of layer_types is \"sliding_attention\", allowed is "
	       "\"full_attention\"");
	refuse("{\"hidden_act\": \"gelu\"}",
	       "c: hidden_act is \"gelu\", allowed is \"silu\"");
	refuse("{\"mlp_only_layers\": [0, 3]}",
	       "c: mlp_only_layers is [0,3], allowed is []");
	refuse("{\"decoder_sparse_step\": 2}",
	       "c: decoder_sparse_step is 2, allowed is 1");
	refuse("{\"norm_topk_prob\": 1}",
	       "c: norm_topk_prob is 1, allowed is true or false");
}

static void test_numbers(void **state)
{
	(void)state;
	refuse("{\"num_experts\": 0}",
	       "c: num_experts is 0, allowed is a whole number 1..65536");
	refuse("{\"num_experts\": 65537}",
	       "c: num_experts is 65537, allowed is a whole number 1..65536");
	refuse("{\"num_experts\": \"-\"}", "c: num_experts is missing, allowed "
	                                   "is a whole number 1..65536");
	refuse("{\"num_experts_per_tok\": 65}",
	       "c: num_experts_per_tok is 65, allowed is a whole number 1..64");
	refuse("{\"num_experts\": 4}",
	       "c: num_experts_per_tok is 8, allowed is 1..4, num_experts");
	refuse("{\"hidden_size\": 1.5}",
	       "c: hidden_size is 1.5, allowed is a whole number 1..1048576");
	refuse("{\"hidden_size\": \"wide\"}", "c: hidden_size is \"wide\", "
	                                      "allowed is a whole number "
	                                      "1..1048576");
	refuse("{\"num_hidden_layers\": -1}",
	       "c: num_hidden_layers is -1, allowed is a whole number 1..4096");
	refuse("{\"vocab_size\": 1e300}",
	       "c: vocab_size is 1e+300, allowed is a whole number "
	       "1..16777216");
	refuse("{\"max_position_embeddings\": 2147483648}",
	       "c: max_position_embeddings is 2147483648, allowed is a whole "
	       "number 1..2147483647");
}

static void test_heads(void **state)
{
	(void)state;
	refuse("{\"head_dim\": 127}",
	       "c: head_dim is 127, allowed is an even number");
	refuse("{\"head_dim\": null, \"hidden_size\": 96}",
	       "c: head_dim is 3, allowed is an even number");
	refuse("{\"head_dim\": null, \"hidden_size\": 16}",
	       "c: head_dim is null, allowed is a whole number 1..4096");
	refuse("{\"num_key_value_heads\": 5}",
	       "c: num_key_value_heads is 5, allowed is a divisor of "
	       "num_attention_heads, 32");
	refuse("{\"num_attention_heads\": 65536, \"head_dim\": 4096}",
	       "c: num_attention_heads times head_dim is 268435456, allowed is "
	       "1..16777216");
}

static void test_reals(void **state)
{
	(void)state;
	refuse("{\"rms_norm_eps\": 0}",
	       "c: rms_norm_eps is 0, allowed is a number above 0, up to 1");
	refuse("{\"rms_norm_eps\": 2}",
	       "c: rms_norm_eps is 2, allowed is a number above 0, up to 1");
	refuse("{\"rms_norm_eps\": \"1e-6\"}", "c: rms_norm_eps is \"1e-6\", "
	                                       "allowed is a number above 0, "
	                                       "up to 1");
	refuse("{\"rope_theta\": -1}",
	       "c: rope_theta is -1, allowed is a number above 0, up to 1e+30");
}

static void test_no_config(void **state)
{
	(void)state;
	refuse_text("", "c: byte 0: no JSON object");
	refuse_text("[]", "c: byte 2: no JSON object");
	refuse_text("{\"model_type\": ",
	            "c: byte 15: the file ends within its JSON");
	refuse_text("{} 1", "c: byte 3: the JSON has ended before");
	refuse_text("{\"model_type\": \"qwen3_moe\", \"model_type\": 1}",
	            "c: model_type is there twice, allowed is once");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_real),
		cmocka_unit_test(test_absent),
		cmocka_unit_test(test_newer_keys),
		cmocka_unit_test(test_other_models),
		cmocka_unit_test(test_other_arithmetic),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_heads),
		cmocka_unit_test(test_reals),
		cmocka_unit_test(test_no_config),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
