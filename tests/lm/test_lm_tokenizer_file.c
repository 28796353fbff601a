/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused of tokenizer.json, and in which words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli_cmocka.h"
#include "lm_tokenizer.h"
#include "tiny_model.h"

static char *model;
static char *file; /* a good one */

/* The good file with one text for another, which is there; the caller frees. */
static char *changed(const char *from, const char *to)
{
	const char *const at = strstr(file, from);
	const size_t n = strlen(file) + strlen(to) + 1;
	char *const text = malloc(n);

	if (!at)
		fail_msg("%s is not in the file", from);
	snprintf(text, n, "%.*s%s%s", (int)(at - file), file, to,
	         at + strlen(from));
	return text;
}

static void refuse_bytes(const char *text, size_t n, const char *message)
{
	struct lm_tokenizer *tokenizer = NULL;
	struct fault fault;

	assert_false(lm_tokenizer_parse("t.json", text, (int64_t)n, &tokenizer,
	                                &fault));
	assert_string_equal(fault.text, message);
	assert_null(tokenizer);
}

static void refuse(const char *from, const char *to, const char *message)
{
	char *const text = changed(from, to);

	refuse_bytes(text, strlen(text), message);
	free(text);
}

static void accept(const char *from, const char *to)
{
	char *const text = changed(from, to);
	struct lm_tokenizer *tokenizer = NULL;
	struct fault fault;

	if (!lm_tokenizer_parse("t.json", text, (int64_t)strlen(text),
	                        &tokenizer, &fault))
		fail_msg("%s", fault.text);
	lm_tokenizer_close(tokenizer);
	free(text);
}

static void no_json(void **state)
{
	char message[128];

	(void)state;
	refuse_bytes("", 0, "t.json: byte 0: no JSON object");
	refuse_bytes(file, (size_t)1 << 40,
	             "t.json: 1099511627776 bytes, allowed are 1073741823");
	refuse_bytes("hello", 5, "t.json: byte 0: no JSON object");
	refuse_bytes("[]", 2, "t.json: byte 2: no JSON object");
	refuse_bytes("{}", 2, "t.json: no object \"model\"");
	refuse_bytes("{} x", 4, "t.json: byte 3: the JSON has ended before");
	refuse_bytes("{\"\xff\"}", 5, "t.json: byte 2 is no UTF-8");
	refuse_bytes("{\"a\\u0000\": 1}", 14,
	             "t.json: byte 3: \\u0000 is not supported");
	snprintf(message, sizeof(message),
	         "t.json: byte %zu: the file ends within its JSON",
	         strlen(file) / 2);
	refuse_bytes(file, strlen(file) / 2, message);
}

static void no_file(void **state)
{
	struct lm_tokenizer *tokenizer = NULL;
	struct fault fault;
	char message[600];

	(void)state;
	assert_false(lm_tokenizer_open("/nowhere", &tokenizer, &fault));
	assert_string_equal(
		fault.text,
		"/nowhere/tokenizer.json: No such file or directory");
	tiny_file_write(model, "tokenizer.json", "", 0);
	assert_false(lm_tokenizer_open(model, &tokenizer, &fault));
	snprintf(message, sizeof(message),
	         "%s/tokenizer.json: byte 0: no JSON object", model);
	assert_string_equal(fault.text, message);
	assert_null(tokenizer);
	tiny_file_write(model, "tokenizer.json", file, strlen(file));
	assert_true(lm_tokenizer_open(model, &tokenizer, &fault));
	lm_tokenizer_close(tokenizer);
}

static void model_of_another_kind(void **state)
{
	(void)state;
	refuse("\"type\": \"BPE\"", "\"type\": \"WordPiece\"",
	       "t.json: model \"WordPiece\" is not supported, allowed is BPE");
	refuse("\"type\": \"BPE\"", "\"type\": 7",
	       "t.json: model \"\" is not supported, allowed is BPE");
	refuse("\"dropout\": null", "\"dropout\": 0.1",
	       "t.json: \"dropout\" is not supported");
	refuse("\"continuing_subword_prefix\": null",
	       "\"continuing_subword_prefix\": \"##\"",
	       "t.json: \"continuing_subword_prefix\" is not supported");
	refuse("\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"_\"",
	       "t.json: \"end_of_word_suffix\" is not supported");
	refuse("\"ignore_merges\": false", "\"ignore_merges\": \"no\"",
	       "t.json: \"ignore_merges\" is neither true nor false");
	accept("\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"\"");
	/* Nothing is unknown. */
	accept("\"unk_token\": null", "\"unk_token\": \"a\"");
}

static void vocabulary(void **state)
{
	(void)state;
	refuse("\"vocab\": {", "\"vocab\": [], \"x\": {",
	       "t.json: no object \"vocab\" in the model");
	refuse("\"a\":64", "\"a\":1e300",
	       "t.json: token \"a\" has id 1e+300, allowed is a whole "
	       "number 0..277, as many as there are tokens");
	refuse("\"a\":64", "\"a\":4294967360",
	       "t.json: token \"a\" has id 4294967360, allowed is a whole "
	       "number 0..277, as many as there are tokens");
	refuse("\"a\":64", "\"a\":-1",
	       "t.json: token \"a\" has id -1, allowed is a whole "
	       "number 0..277, as many as there are tokens");
	refuse("\"a\":64", "\"a\":64.5",
	       "t.json: token \"a\" has id 64.5, allowed is a whole "
	       "number 0..277, as many as there are tokens");
	/* A gap. */
	refuse("\"a\":64", "\"a\":278",
	       "t.json: token \"a\" has id 278, allowed is a whole "
	       "number 0..277, as many as there are tokens");
	refuse("\"a\":64", "\"a\":\"64\"",
	       "t.json: the id of token \"a\" is no number");
	refuse("\"a\":64", "\"a\":63",
	       "t.json: tokens \"`\" and \"a\" have id 63");
	refuse("\"a\":64", "\"b\":64", "t.json: token \"b\" is there twice");
	refuse("\"a\":64", "\"ab\":64",
	       "t.json: no token for byte 0x61, which is written \"a\"");
	refuse("\"\xc4\xa0\":220", "\"\xc4\xa0q\":220",
	       "t.json: no token for byte 0x20, which is written \"\xc4\xa0\"");
}

static void merges(void **state)
{
	(void)state;
	refuse("\"merges\": [", "\"merges\": 1, \"x\": [",
	       "t.json: no array \"merges\" in the model");
	refuse("[\"h\",\"e\"]", "[\"h\",\"ee\"]",
	       "t.json: merges[1] names \"ee\", which is no token of the "
	       "vocabulary");
	refuse("[\"h\",\"e\"]", "[\"hh\",\"e\"]",
	       "t.json: merges[1] names \"hh\", which is no token of the "
	       "vocabulary");
	refuse("[\"h\",\"e\"]", "\"h h\"",
	       "t.json: merges[1] names \"hh\", which is no token of the "
	       "vocabulary");
	refuse("[\"h\",\"e\"]", "[\"h\"]",
	       "t.json: merges[1] is neither \"a b\" nor [\"a\", \"b\"]");
	refuse("[\"h\",\"e\"]", "\"h e y\"",
	       "t.json: merges[1] is neither \"a b\" nor [\"a\", \"b\"]");
	refuse("[\"h\",\"e\"]", "\"he\"",
	       "t.json: merges[1] is neither \"a b\" nor [\"a\", \"b\"]");
	refuse("[\"h\",\"e\"]", "[\"h\",1]",
	       "t.json: merges[1] is neither \"a b\" nor [\"a\", \"b\"]");
	accept("[\"h\",\"e\"]", "\"h e\"");
}

static void added_tokens(void **state)
{
	(void)state;
	refuse("\"id\": 278", "\"id\": 279",
	       "t.json: token \"<|endoftext|>\" has id 279, allowed is a whole "
	       "number 0..278, as many as there are tokens");
	refuse("\"id\": 278", "\"id\": 5",
	       "t.json: added token \"<|endoftext|>\" has id 5, expected is "
	       "278");
	refuse("\"content\": \"<|endoftext|>\"", "\"content\": \"\"",
	       "t.json: an added token has no content");
	refuse("\"added_tokens\": [",
	       "\"added_tokens\": [{\"id\": 64, \"content\": \"a\"}, "
	       "{\"id\": 64, \"content\": \"a\"}, ",
	       "t.json: added token \"a\" is there twice");
	refuse("\"lstrip\": false", "\"lstrip\": true",
	       "t.json: added token \"<|endoftext|>\" with \"lstrip\": true is "
	       "not supported");
	refuse("\"rstrip\": false", "\"rstrip\": true",
	       "t.json: added token \"<|endoftext|>\" with \"rstrip\": true is "
	       "not supported");
	refuse("\"single_word\": false", "\"single_word\": true",
	       "t.json: added token \"<|endoftext|>\" with \"single_word\": "
	       "true is not supported");
	accept("\"normalized\": false", "\"normalized\": true");
	accept("\"added_tokens\": [",
	       "\"added_tokens\": [{\"id\": 64, \"content\": \"a\"}, ");
}

static void stages(void **state)
{
	(void)state;
	refuse("{\"type\": \"NFC\"}", "{\"type\": \"Lowercase\"}",
	       "t.json: normalizer \"Lowercase\" is not supported, allowed is "
	       "NFC");
	refuse("{\"type\": \"NFC\"}", "{\"type\": \"Sequence\"}",
	       "t.json: Sequence without an array \"normalizers\"");
	accept("{\"type\": \"NFC\"}",
	       "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}"
	       "]}");
	refuse("\"type\": \"Split\"", "\"type\": \"Whitespace\"",
	       "t.json: pre-tokenizer \"Whitespace\" is not supported, allowed "
	       "is Split or ByteLevel");
	refuse("\"Isolated\"", "\"Removed\"",
	       "t.json: behavior of Split \"Removed\" is not supported, "
	       "allowed is Isolated");
	refuse("\"invert\": false", "\"invert\": true",
	       "t.json: Split with \"invert\": true is not supported");
	refuse("\"Regex\"", "\"String\"",
	       "t.json: Split without a pattern {\"Regex\": ...}");
	refuse("\"add_prefix_space\": false", "\"add_prefix_space\": true",
	       "t.json: ByteLevel with \"add_prefix_space\": true is not "
	       "supported");
	refuse(",\n{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
	       "\"trim_offsets\": false, \"use_regex\": false}]}",
	       "]}", "t.json: no ByteLevel in the pre-tokenizer");
	refuse("\"use_regex\": false}]}",
	       "\"use_regex\": false}, {\"type\": \"Digits\"}]}",
	       "t.json: pre-tokenizer \"Digits\" after ByteLevel is not "
	       "supported");
}

static void post_processors(void **state)
{
	static const char own[] = "\"post_processor\": {\"type\": "
				  "\"ByteLevel\",";

	(void)state;
	refuse(own,
	       "\"post_processor\": {\"type\": \"TemplateProcessing\", "
	       "\"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
	       "{\"Sequence\": {\"id\": \"A\"}}],",
	       "t.json: TemplateProcessing that adds \"<s>\" is not supported, "
	       "allowed is none");
	refuse(own, "\"post_processor\": {\"type\": \"BertProcessing\",",
	       "t.json: post-processor \"BertProcessing\" is not supported, "
	       "allowed is ByteLevel");
	accept(own, "\"post_processor\": {\"type\": \"TemplateProcessing\", "
	            "\"single\": [{\"Sequence\": {\"id\": \"A\"}}],");
	accept(own, "\"post_processor\": null, \"x\": {");
}

/* One pattern in place of the good one, as JSON. */
static void refuse_pattern(const char *pattern, const char *message)
{
	const char *const start = strstr(file, "(?i:");
	const char *const end = strstr(start, "\"}, \"behavior\"");
	char from[512];

	snprintf(from, sizeof(from), "%.*s", (int)(end - start), start);
	refuse(from, pattern, message);
}

static void patterns(void **state)
{
	(void)state;
	refuse_pattern("a(b", "t.json: pattern of the pre-tokenizer: missing "
	                      "closing parenthesis: \"a(b\"");
	refuse_pattern("a*", "t.json: pattern of the pre-tokenizer: it matches "
	                     "the empty text: \"a*\"");
	refuse_pattern("\\\\p{Klingon}",
	               "t.json: pattern of the pre-tokenizer: unknown property "
	               "after \\P or \\p: \"\\p{Klingon}\"");
	/* What means something else in Oniguruma. */
	refuse_pattern("a|^b", "t.json: pattern of the pre-tokenizer: byte 2: "
	                       "\"^\" is not supported");
	refuse_pattern("a\\\\w",
	               "t.json: pattern of the pre-tokenizer: byte 1: "
	               "\"\\w\" is not supported");
	refuse_pattern("[a[b]]",
	               "t.json: pattern of the pre-tokenizer: byte 2: "
	               "\"[b\" is not supported");
	refuse_pattern("[a-z&&b]",
	               "t.json: pattern of the pre-tokenizer: byte 4: "
	               "\"&&\" is not supported");
	refuse_pattern("a{2}+", "t.json: pattern of the pre-tokenizer: byte 1: "
	                        "\"{2}\" is not supported");
	refuse_pattern("a{,2}", "t.json: pattern of the pre-tokenizer: byte 1: "
	                        "\"{,2}\" is not supported");
	refuse_pattern("(?i)a", "t.json: pattern of the pre-tokenizer: byte 0: "
	                        "\"(?i\" is not supported");
	refuse_pattern("[a", "t.json: pattern of the pre-tokenizer: byte 0: "
	                     "\"[a\" is not supported");
}

/* A pattern with exponentially many ways to fail. */
static void slow_patterns_give_up(void **state)
{
	const char *const start = strstr(file, "(?i:");
	const char *const end = strstr(start, "\"}, \"behavior\"");
	struct lm_tokenizer *tokenizer = NULL;
	struct fault fault;
	char from[512], text[201];
	int32_t *ids = NULL;
	int64_t n_ids;

	(void)state;
	snprintf(from, sizeof(from), "%.*s", (int)(end - start), start);
	char *const slow = changed(from, "(?:a|aa|a\\\\p{L})+[bc]");

	assert_true(lm_tokenizer_parse("t.json", slow, (int64_t)strlen(slow),
	                               &tokenizer, &fault));
	memset(text, 'a', sizeof(text));
	assert_false(lm_tokenizer_encode(tokenizer, "t.txt", text, 200, &ids,
	                                 &n_ids, &fault));
	assert_string_equal(fault.text, "t.txt: the pattern of the "
	                                "pre-tokenizer gave up: match limit "
	                                "exceeded");
	lm_tokenizer_close(tokenizer);
	free(slow);
}

static int open_model(void **state)
{
	const struct tiny_shape shape = TINY_SHAPE_INIT;
	size_t n;

	(void)state;
	model = tiny_model_make(&shape);
	file = tiny_file_read(model, "tokenizer.json", &n);
	return 0;
}

static int close_model(void **state)
{
	(void)state;
	free(file);
	tiny_model_remove(model);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_json),
		cmocka_unit_test(no_file),
		cmocka_unit_test(model_of_another_kind),
		cmocka_unit_test(vocabulary),
		cmocka_unit_test(merges),
		cmocka_unit_test(added_tokens),
		cmocka_unit_test(stages),
		cmocka_unit_test(post_processors),
		cmocka_unit_test(patterns),
		cmocka_unit_test(slow_patterns_give_up),
	};

	return cmocka_run_group_tests(tests, open_model, close_model);
}
