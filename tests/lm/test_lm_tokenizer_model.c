/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer of the small model over its texts, against the reference's ids:
 * golden_tokens.json, made by
 *   tokenizer_golden.py models/ferry-tiny-moe models/texts/...
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

static struct lm_tokenizer *tokenizer;
static cJSON *golden;

static const cJSON *get(const cJSON *object, const char *key)
{
	const cJSON *const item = cJSON_GetObjectItemCaseSensitive(object, key);

	assert_non_null(item);
	return item;
}

static void compare_text(const cJSON *item)
{
	const char *const name = get(item, "name")->valuestring;
	const cJSON *const first = get(item, "first");
	struct fault fault;
	char hash[17];
	int32_t *ids = NULL;
	int64_t n_ids;
	size_t n;
	char *const text = tiny_file_read(FERRY_MODELS "/texts", name, &n);

	assert_int_equal(n, get(item, "bytes")->valueint);
	if (!lm_tokenizer_encode(tokenizer, name, text, (int64_t)n, &ids,
	                         &n_ids, &fault))
		fail_msg("%s", fault.text);
	for (int i = 0; i < cJSON_GetArraySize(first); i++)
		assert_int_equal(ids[i],
		                 cJSON_GetArrayItem(first, i)->valueint);
	assert_int_equal(n_ids, get(item, "n_ids")->valueint);
	snprintf(hash, sizeof(hash), "%016" PRIx64, token_hash(ids, n_ids));
	assert_string_equal(hash, get(item, "hash")->valuestring);
	free(ids);
	free(text);
}

static void texts_are_encoded_as_by_the_reference(void **state)
{
	const cJSON *item;

	(void)state;
	assert_int_equal(lm_tokenizer_vocab(tokenizer),
	                 get(golden, "vocab")->valueint);
	assert_true(cJSON_GetArraySize(get(golden, "texts")) >= 6);
	cJSON_ArrayForEach(item, get(golden, "texts")) compare_text(item);
}

static int open_all(void **state)
{
	struct fault fault;
	size_t n;
	char *const text =
		tiny_file_read(FERRY_LM_DATA, "golden_tokens.json", &n);

	(void)state;
	golden = cJSON_ParseWithLength(text, n);
	free(text);
	if (lm_tokenizer_open(FERRY_MODELS "/ferry-tiny-moe", &tokenizer,
	                      &fault))
		return golden ? 0 : -1;
	print_error("%s\n", fault.text);
	return -1;
}

static int close_all(void **state)
{
	(void)state;
	lm_tokenizer_close(tokenizer);
	cJSON_Delete(golden);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_are_encoded_as_by_the_reference),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}
