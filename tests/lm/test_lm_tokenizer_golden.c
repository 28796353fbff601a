/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small tokenizers of several forms over thousands of strings, against hashes
 * of the reference's ids: golden_tokenizer.json, made by tokenizer_golden.py.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "cli/cli_cmocka.h"
#include "lm_tokenizer.h"
#include "tiny_model.h"
#include "token_hash.h"

static cJSON *golden;

static const cJSON *get(const cJSON *object, const char *key)
{
	const cJSON *const item = cJSON_GetObjectItemCaseSensitive(object, key);

	assert_non_null(item);
	return item;
}

static struct lm_tokenizer *open_form(const cJSON *form)
{
	char *const text = cJSON_PrintUnformatted(get(form, "file"));
	struct lm_tokenizer *tokenizer = NULL;
	struct fault fault;

	if (!lm_tokenizer_parse(get(form, "name")->valuestring, text,
	                        (int64_t)strlen(text), &tokenizer, &fault))
		fail_msg("%s", fault.text);
	cJSON_free(text);
	return tokenizer;
}

/* The string with U+0000 where U+F8FF stands for it. */
static char *string_of(const cJSON *item, int64_t *n)
{
	char *const text = strdup(item->valuestring);
	char *to = text;

	for (const char *from = text; *from;) {
		const bool zero = !strncmp(from, "\xef\xa3\xbf", 3);

		*to++ = zero ? 0 : *from;
		from += zero ? 3 : 1;
	}
	*n = to - text;
	return text;
}

/* Whether the ids of one string have the hash; counts them. */
static bool is_same(const struct lm_tokenizer *tokenizer, const cJSON *string,
                    const char *hash, int64_t *n_all)
{
	struct fault fault;
	char found[9];
	int32_t *ids = NULL;
	int64_t n, n_ids;
	char *const text = string_of(string, &n);

	if (!lm_tokenizer_encode(tokenizer, "text", text, n, &ids, &n_ids,
	                         &fault))
		fail_msg("%s", fault.text);
	token_hash_text(token_hash(ids, n_ids), found);
	*n_all += n_ids;
	free(ids);
	free(text);
	if (!strncmp(found, hash, 8))
		return true;
	print_error("ids of \"%s\" hash to %s, not to %.8s\n",
	            string->valuestring, found, hash);
	return false;
}

static void compare_form(const cJSON *form)
{
	struct lm_tokenizer *const tokenizer = open_form(form);
	const char *hash = get(form, "hashes")->valuestring;
	const cJSON *const strings = get(golden, "strings");
	const cJSON *string;
	int64_t n_ids = 0;
	int n_bad = 0;

	assert_int_equal(strlen(hash), (size_t)cJSON_GetArraySize(strings) * 8);
	cJSON_ArrayForEach(string, strings)
	{
		n_bad += !is_same(tokenizer, string, hash, &n_ids);
		hash += 8;
	}
	print_message("%s: %" PRId64 " ids, %d strings differ\n",
	              get(form, "name")->valuestring, n_ids, n_bad);
	assert_int_equal(n_bad, 0);
	assert_true((double)n_ids == get(form, "n_ids")->valuedouble);
	lm_tokenizer_close(tokenizer);
}

static void ids_are_the_references(void **state)
{
	const cJSON *form;

	(void)state;
	assert_true(cJSON_GetArraySize(get(golden, "tokenizers")) >= 7);
	assert_true(cJSON_GetArraySize(get(golden, "strings")) >= 1500);
	cJSON_ArrayForEach(form, get(golden, "tokenizers")) compare_form(form);
}

/* Bytes of all ids of a text. */
static char *joined(const struct lm_tokenizer *tokenizer, const char *text,
                    int64_t n, int64_t *n_joined)
{
	struct fault fault;
	char *const all = calloc((size_t)n + 1, 1);
	int32_t *ids = NULL;
	int64_t n_ids;

	*n_joined = 0;
	assert_true(lm_tokenizer_encode(tokenizer, "text", text, n, &ids,
	                                &n_ids, &fault));
	for (int64_t i = 0; i < n_ids; i++) {
		const char *bytes;
		int32_t n_bytes;

		assert_true(lm_tokenizer_bytes(tokenizer, ids[i], &bytes,
		                               &n_bytes));
		assert_true(*n_joined + n_bytes <= n);
		memcpy(all + *n_joined, bytes, (size_t)n_bytes);
		*n_joined += n_bytes;
	}
	free(ids);
	return all;
}

static void bytes_of_ids_are_the_text(void **state)
{
	const cJSON *form, *string;

	(void)state;
	cJSON_ArrayForEach(form, get(golden, "tokenizers"))
	{
		if (!cJSON_IsNull(get(get(form, "file"), "normalizer")))
			continue;
		struct lm_tokenizer *const tokenizer = open_form(form);

		cJSON_ArrayForEach(string, get(golden, "strings"))
		{
			int64_t n, n_joined;
			char *const text = string_of(string, &n);
			char *const all = joined(tokenizer, text, n, &n_joined);

			assert_int_equal(n_joined, n);
			assert_memory_equal(all, text, (size_t)n);
			free(all);
			free(text);
		}
		lm_tokenizer_close(tokenizer);
	}
}

static int open_golden(void **state)
{
	size_t n;
	char *const text =
		tiny_file_read(FERRY_LM_DATA, "golden_tokenizer.json", &n);

	(void)state;
	golden = cJSON_ParseWithLength(text, n);
	free(text);
	return golden ? 0 : -1;
}

static int close_golden(void **state)
{
	(void)state;
	cJSON_Delete(golden);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_are_the_references),
		cmocka_unit_test(bytes_of_ids_are_the_text),
	};

	return cmocka_run_group_tests(tests, open_golden, close_golden);
}
