/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that are not whole: what is said about file, tensor, numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli_cmocka.h"
#include "tiny_model.h"

static const struct tiny_shape whole = TINY_SHAPE_INIT;

static char *make_sharded(void)
{
	struct tiny_shape s = TINY_SHAPE_INIT;

	s.n_shards = 2;
	return tiny_model_make(&s);
}

/* The directory is refused with "DIRECTORY/MESSAGE", and goes. */
static void refuse(char *directory, const char *message)
{
	struct lm_model model = {.n_parameters = 77};
	struct fault fault = {{0}};
	char wanted[sizeof(fault.text)];

	snprintf(wanted, sizeof(wanted), "%s/%s", directory, message);
	assert_false(lm_model_open(directory, &model, &fault));
	assert_string_equal(fault.text, wanted);
	assert_int_equal(model.n_parameters, 77);
	tiny_model_remove(directory);
}

/* Puts another text into the header of a safetensors file, at its first place
 * behind `after`. */
static void edit(const char *directory, const char *file, const char *after,
                 const char *from, const char *to)
{
	size_t n;
	char *const bytes = tiny_file_read(directory, file, &n);
	uint64_t n_header;

	memcpy(&n_header, bytes, 8);
	char *const data = bytes + 8 + n_header;
	char *place = memmem(bytes + 8, (size_t)n_header, after, strlen(after));

	assert_non_null(place);
	place = memmem(place, (size_t)(data - place), from, strlen(from));
	assert_non_null(place);
	char *const rest = place + strlen(from);
	const size_t n_changed =
		(size_t)n_header - strlen(from) + strlen(to) + 7;
	const uint64_t n_new = n_changed / 8 * 8;
	char *const out = calloc(n + 256, 1);

	assert_non_null(out);
	memcpy(out, &n_new, 8);
	memset(out + 8, ' ', (size_t)n_new);
	char *at = mempcpy(out + 8, bytes + 8, (size_t)(place - bytes - 8));

	at = mempcpy(at, to, strlen(to));
	memcpy(at, rest, (size_t)(data - rest));
	memcpy(out + 8 + n_new, data, (size_t)(bytes + n - data));
	tiny_file_write(directory, file, out,
	                8 + (size_t)n_new + (size_t)(bytes + n - data));
	free(out);
	free(bytes);
}

/* A model whose header is changed behind the name of a tensor. */
static void refuse_edit(const char *after, const char *from, const char *to,
                        const char *message)
{
	char *const directory = tiny_model_make(&whole);

	edit(directory, "model.safetensors", after, from, to);
	refuse(directory, message);
}

static void test_missing(void **state)
{
	(void)state;
	refuse_edit("", "layers.1.mlp.gate.", "layers.1.mlp.port.",
	            "model.safetensors: tensor model.layers.1.mlp.gate.weight "
	            "is missing, expected shape [8, 32]");
	refuse_edit("", "layers.0.self_attn.k_norm", "layers.0.self_attn.k_nor",
	            "model.safetensors: tensor "
	            "model.layers.0.self_attn.k_norm.weight is missing, "
	            "expected shape [8]");
	refuse_edit("", "experts.7.down", "experts.7.dawn",
	            "model.safetensors: tensor "
	            "model.layers.0.mlp.experts.7.down_proj.weight is missing, "
	            "expected shape [32, 16]");
	refuse_edit("", "model.norm.", "modal.norm.",
	            "model.safetensors: tensor model.norm.weight is missing, "
	            "expected shape [32]");
}

/* A head of its own, or the embedding. */
static void test_no_head(void **state)
{
	static const char tied[] = "\"tie_word_embeddings\": true";
	char *const directory = tiny_model_make(&whole);
	size_t n;
	char *const config = tiny_file_read(directory, "config.json", &n);
	char *const at = strstr(config, tied);

	(void)state;
	assert_non_null(at);
	memcpy(at + sizeof(tied) - 5, "null", 4);
	tiny_file_write(directory, "config.json", config, n);
	free(config);
	refuse(directory,
	       "model.safetensors: tensor lm_head.weight is missing, which "
	       "only tie_word_embeddings true in config.json allows");
}

/* The same bytes in another shape. */
static void test_shapes(void **state)
{
	(void)state;
	refuse_edit("layers.1.mlp.gate.weight", "[8,32]", "[4,64]",
	            "model.safetensors: tensor model.layers.1.mlp.gate.weight: "
	            "shape [4, 64], by config.json [8, 32]");
	refuse_edit("layers.1.mlp.gate.weight", "[8,32]", "[8,32,1]",
	            "model.safetensors: tensor model.layers.1.mlp.gate.weight: "
	            "shape [8, 32, 1], by config.json [8, 32]");
	refuse_edit("layers.0.input_layernorm", "[32]", "[1,32]",
	            "model.safetensors: tensor "
	            "model.layers.0.input_layernorm.weight: shape [1, 32], "
	            "by config.json [32]");
	refuse_edit("layers.0.mlp.experts.3.up_proj", "[16,32]", "[32,16]",
	            "model.safetensors: tensor "
	            "model.layers.0.mlp.experts.3.up_proj.weight: shape "
	            "[32, 16], by config.json [16, 32]");
	refuse_edit("embed_tokens", "[288,32]", "[144,64]",
	            "model.safetensors: tensor model.embed_tokens.weight: "
	            "shape [144, 64], by config.json [288, 32]");
}

static void test_types(void **state)
{
	(void)state;
	refuse_edit("layers.1.mlp.gate.weight", "BF16", "I16",
	            "model.safetensors: tensor model.layers.1.mlp.gate.weight: "
	            "dtype I16, expected F32, BF16 or F16");
	refuse_edit("layers.1.mlp.gate.weight", "BF16", "F4",
	            "model.safetensors: tensor model.layers.1.mlp.gate.weight: "
	            "dtype F4, expected F32, BF16 or F16");
	refuse_edit("layers.1.mlp.experts.5.up_proj", "BF16", "F16",
	            "model.safetensors: tensor "
	            "model.layers.1.mlp.experts.5.up_proj.weight: dtype F16, "
	            "expected BF16 as expert 0 of layer 0 has");
	refuse_edit("layers.1.mlp.gate.weight", "BF16", "F32",
	            "model.safetensors: tensor model.layers.1.mlp.gate.weight: "
	            "data_offsets enclose 512 bytes, the shape has 1024");
}

/* Only experts have to be alike. */
static void test_mixed_types(void **state)
{
	char *const directory = tiny_model_make(&whole);
	struct lm_model model;
	struct fault fault;

	(void)state;
	edit(directory, "model.safetensors", "layers.1.mlp.gate", "BF16",
	     "F16");
	assert_true(lm_model_open(directory, &model, &fault));
	assert_int_equal(model.layers[1].router.type, LM_F16);
	assert_int_equal(model.layers[0].router.type, LM_BF16);
	assert_int_equal(model.expert_type, LM_BF16);
	lm_model_close(&model);
	tiny_model_remove(directory);
}

/* What the config does not know. */
static void test_too_many(void **state)
{
	char *const directory = tiny_model_make(&whole);
	struct tiny_shape s = whole;
	struct lm_model model;
	struct fault fault;
	size_t n;

	(void)state;
	s.n_layers = 1;
	char *const other = tiny_model_make(&s);
	char *const config = tiny_file_read(other, "config.json", &n);

	tiny_model_remove(other);
	tiny_file_write(directory, "config.json", config, n);
	free(config);
	assert_false(lm_model_open(directory, &model, &fault));
	assert_non_null(strstr(fault.text,
	                       "model.safetensors: tensor model.layers.1.input_"
	                       "layernorm.weight has no place in a model of 1 "
	                       "layers of 8 experts"));
	tiny_model_remove(directory);
	refuse_edit("", "}}",
	            "},\"model.layers.0.self_attn.q_proj.bias\":{"
	            "\"dtype\":\"BF16\",\"shape\":[0],"
	            "\"data_offsets\":[0,0]}}",
	            "model.safetensors: tensor "
	            "model.layers.0.self_attn.q_proj.bias has no place in a "
	            "model of 2 layers of 8 experts");
}

static void cut(char *directory, const char *file, size_t n)
{
	size_t has;

	free(tiny_file_read(directory, file, &has));
	assert_true(n < has);
	tiny_file_resize(directory, file, n);
}

/* Where the bytes of tensors begin, and where the file ends. */
static void measure(const char *directory, size_t *data_at, size_t *n)
{
	char *const bytes = tiny_file_read(directory, "model.safetensors", n);
	uint64_t n_header;

	memcpy(&n_header, bytes, 8);
	*data_at = 8 + (size_t)n_header;
	free(bytes);
}

static void test_truncated(void **state)
{
	char *directory = tiny_model_make(&whole);
	char message[256];
	size_t n, data_at;

	(void)state;
	measure(directory, &data_at, &n);
	const size_t n_data = n - data_at;

	snprintf(message, sizeof(message),
	         "model.safetensors: tensor model.norm.weight: data_offsets is "
	         "[%zu,%zu], but the data end at %zu: the file is not whole",
	         n_data - 64, n_data, n_data - 1);
	cut(directory, "model.safetensors", n - 1);
	refuse(directory, message);
	directory = tiny_model_make(&whole);
	cut(directory, "model.safetensors", 100);
	snprintf(message, sizeof(message),
	         "model.safetensors: byte 0: the header has %zu bytes, "
	         "allowed are 0..92",
	         data_at - 8);
	refuse(directory, message);
	directory = tiny_model_make(&whole);
	cut(directory, "model.safetensors", 0);
	refuse(directory, "model.safetensors: 0 bytes, a header has 8");
	directory = tiny_model_make(&whole);
	cut(directory, "config.json", 0);
	refuse(directory, "config.json: byte 0: no JSON object");
}

/* What a clone without Git LFS has. */
static void test_pointers(void **state)
{
	static const char *const names[] = {"config.json", "model.safetensors"};
	static const char pointer[] =
		"version https://git-lfs.github.com/spec/v1\n"
		"oid sha256:0123456789abcdef\nsize 4813992\n";

	(void)state;
	for (int i = 0; i < 2; i++) {
		char *const directory = tiny_model_make(&whole);
		char message[160];

		tiny_file_write(directory, names[i], pointer, strlen(pointer));
		snprintf(message, sizeof(message),
		         "%s: is a pointer of Git LFS, not the file itself: "
		         "'git lfs pull' fetches it",
		         names[i]);
		refuse(directory, message);
	}
}

/* Bytes of no tensor, and of two. */
static void test_layout(void **state)
{
	char *directory = tiny_model_make(&whole);
	char message[256];
	size_t n, data_at;

	(void)state;
	measure(directory, &data_at, &n);
	tiny_file_resize(directory, "model.safetensors", n + 3);
	snprintf(message, sizeof(message),
	         "model.safetensors: bytes %zu..%zu belong to no tensor", n,
	         n + 2);
	refuse(directory, message);
	directory = tiny_model_make(&whole);
	edit(directory, "model.safetensors", "layers.0.input_layernorm",
	     "[18432,18496]", "[18368,18432]");
	snprintf(message, sizeof(message),
	         "model.safetensors: tensors model.embed_tokens.weight and "
	         "model.layers.0.input_layernorm.weight overlap at byte %zu",
	         data_at + 18368);
	refuse(directory, message);
}

static void test_absent_files(void **state)
{
	char *const empty = tiny_model_make(&whole);
	char *const none = tiny_model_make(&whole);
	char path[256];
	struct lm_model model;
	struct fault fault;

	(void)state;
	snprintf(path, sizeof(path), "%s/config.json", empty);
	unlink(path);
	refuse(empty, "config.json: No such file or directory");
	snprintf(path, sizeof(path), "%s/model.safetensors", none);
	unlink(path);
	refuse(none, "model.safetensors: No such file or directory");
	assert_false(lm_model_open("/dev/null", &model, &fault));
	assert_string_equal(fault.text,
	                    "/dev/null: is no folder: a model is the folder "
	                    "with config.json, weights and tokenizer.json in "
	                    "it");
	assert_false(lm_model_open("/nowhere", &model, &fault));
	assert_string_equal(fault.text,
	                    "/nowhere: No such file or directory: a model is a "
	                    "folder of this machine; nothing is downloaded");
}

/* To open a pipe that nobody writes into would wait for ever. */
static void test_no_files(void **state)
{
	static const char *const names[] = {"config.json", "model.safetensors"};
	char path[256], message[128];

	(void)state;
	for (int i = 0; i < 2; i++) {
		char *directory = tiny_model_make(&whole);

		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		unlink(path);
		assert_int_equal(mkfifo(path, 0600), 0);
		snprintf(message, sizeof(message),
		         "%s: is a pipe, allowed are plain files", names[i]);
		refuse(directory, message);
		directory = tiny_model_make(&whole);
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		unlink(path);
		assert_int_equal(symlink("/", path), 0);
		snprintf(message, sizeof(message),
		         "%s: is a directory, allowed are plain files",
		         names[i]);
		refuse(directory, message);
	}
}

#define INDEX "model.safetensors.index.json"

static void refuse_index(const char *index, const char *message)
{
	char *const directory = make_sharded();

	tiny_file_write(directory, INDEX, index, strlen(index));
	refuse(directory, message);
}

static void test_index(void **state)
{
	(void)state;
	refuse_index("", INDEX ": byte 0: no JSON object");
	refuse_index("{}", INDEX ": no object weight_map");
	refuse_index("{\"weight_map\": []}", INDEX ": no object weight_map");
	refuse_index("{\"weight_map\": {}}",
	             INDEX ": 0 files in weight_map, allowed are 1..10000");
	refuse_index("{\"weight_map\": {\"a\": 3}}",
	             INDEX ": weight_map of a is no text, expected the name of "
	                   "a file");
	refuse_index("{\"weight_map\": {}, \"weight_map\": {}}",
	             INDEX ": weight_map is there twice, allowed is once");
	refuse_index("{\"weight_map\": {\"a\": \"x.safetensors\"}}",
	             "x.safetensors: No such file or directory");
}

static void test_index_stays_inside(void **state)
{
	static const char *const names[] = {"/etc/passwd", "../x", "a/b", "..",
	                                    ""};
	char index[128], message[256];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(index, sizeof(index),
		         "{\"weight_map\": {\"a\": \"%s\"}}", names[i]);
		snprintf(message, sizeof(message),
		         INDEX ": weight_map of a is '%s', expected the name "
		               "of a file in the same directory",
		         names[i]);
		refuse_index(index, message);
	}
}

#define FIRST  "model-00001-of-00002.safetensors"
#define SECOND "model-00002-of-00002.safetensors"

static void test_shards_differ(void **state)
{
	char *directory = make_sharded();

	(void)state;
	edit(directory, SECOND, "", "model.norm.weight",
	     "model.embed_tokens.weight");
	char message[512];

	snprintf(message, sizeof(message),
	         FIRST ": tensor model.embed_tokens.weight is in %s/" SECOND
	               ", too",
	         directory);
	refuse(directory, message);
	directory = make_sharded();
	edit(directory, SECOND, "", "model.norm.weight", "model.nurm.weight");
	refuse(directory,
	       INDEX ": tensor model.norm.weight is in no file, expected "
	             "" SECOND);
	refuse_index("{\"weight_map\": {\"model.embed_tokens.weight\": "
	             "\"" SECOND "\", \"x\": \"" FIRST "\"}}",
	             INDEX ": tensor model.embed_tokens.weight is in " FIRST
	                   ", expected " SECOND);
	refuse_index("{\"weight_map\": {\"model.embed_tokens.weight\": "
	             "\"" FIRST "\"}}",
	             INDEX ": tensor model.norm.weight is "
	                   "missing, expected shape [32]");
}

/* Paths of any length leave room for what is wrong. */
static void test_long_path(void **state)
{
	char *const directory = tiny_model_make(&whole);
	const size_t n = 3000;
	char *const path = calloc(n + 256, 1);
	struct lm_model model;
	struct fault fault;

	(void)state;
	assert_non_null(path);
	strcpy(path, directory);
	while (strlen(path) < n)
		strcat(path, "/././././././.");
	assert_true(lm_model_open(path, &model, &fault));
	lm_model_close(&model);
	edit(directory, "model.safetensors", "layers.1.mlp.gate.weight",
	     "[8,32]", "[4,64]");
	assert_false(lm_model_open(path, &model, &fault));
	assert_non_null(strstr(fault.text,
	                       "/model.safetensors: tensor "
	                       "model.layers.1.mlp.gate.weight: shape [4, 64], "
	                       "by config.json [8, 32]"));
	free(path);
	tiny_model_remove(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_no_head),
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_mixed_types),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_pointers),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_absent_files),
		cmocka_unit_test(test_no_files),
		cmocka_unit_test(test_index),
		cmocka_unit_test(test_index_stays_inside),
		cmocka_unit_test(test_shards_differ),
		cmocka_unit_test(test_long_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
