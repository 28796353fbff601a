/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens of tokenizer.json: vocabulary, added tokens, merges. Every id from
 * 0 to the highest has one token and every token one id: the reference numbers
 * added tokens by the count of those before them, and a gap would shift them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lm_tokenizer_parts.h"

static const cJSON *get(const cJSON *object, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(object, key);
}

static struct lm_text text_of(const char *string)
{
	return (struct lm_text){string, strlen(string)};
}

/* An id below n; -1 after a fault. */
static int32_t id_below(const char *name, struct lm_text token,
                        const cJSON *item, int32_t n, struct fault *fault)
{
	const double value = cJSON_IsNumber(item) ? item->valuedouble : -1;

	if (value >= 0 && value < n && (double)(int32_t)value == value)
		return (int32_t)value;
	const struct lm_shown shown = lm_shown(token.bytes, token.n);

	if (!cJSON_IsNumber(item))
		fault_set(fault, "%s: the id of token \"%s\" is no number",
		          name, shown.text);
	else
		fault_set(fault,
		          "%s: token \"%s\" has id %.15g, allowed is a whole "
		          "number 0..%d, as many as there are tokens",
		          name, shown.text, value, n - 1);
	return -1;
}

static bool put_vocabulary(const char *name, const cJSON *vocab, int32_t n,
                           struct lm_names *names, struct fault *fault)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, vocab)
	{
		const struct lm_text token = text_of(item->string);
		const struct lm_shown shown = lm_shown(token.bytes, token.n);
		const int32_t id = id_below(name, token, item, n, fault);

		if (id < 0)
			return false;
		if (lm_names_find(names, token) >= 0)
			return fault_set(fault,
			                 "%s: token \"%s\" is there twice",
			                 name, shown.text);
		if (names->names[id].bytes)
			return fault_set(
				fault,
				"%s: tokens \"%s\" and \"%s\" have id %d", name,
				lm_shown(names->names[id].bytes,
			                 names->names[id].n)
					.text,
				shown.text, id);
		lm_names_put(names, id, token, false);
	}
	names->n = n;
	return true;
}

/* What is not supported of added tokens. */
static bool check_flags(const char *name, const cJSON *item,
                        struct lm_text token, struct fault *fault)
{
	static const char *const flags[] = {"single_word", "lstrip", "rstrip"};

	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		bool value = false;

		if (!lm_tokenizer_read_flag(name, item, flags[i], &value,
		                            fault))
			return false;
		if (value)
			return fault_set(fault,
			                 "%s: added token \"%s\" with \"%s\": "
			                 "true is not supported",
			                 name,
			                 lm_shown(token.bytes, token.n).text,
			                 flags[i]);
	}
	return true;
}

/* The id that the reference gives, which is to be the file's. */
static bool number_added(const char *name, const cJSON *item,
                         struct lm_text token, struct lm_names *names,
                         int32_t *id, struct fault *fault)
{
	const int32_t known = lm_names_find(names, token);
	const int32_t is = known >= 0 ? known : names->n;

	*id = id_below(name, token, get(item, "id"), names->n + 1, fault);
	if (*id < 0)
		return false;
	if (*id != is)
		return fault_set(fault,
		                 "%s: added token \"%s\" has id %d, expected "
		                 "is %d",
		                 name, lm_shown(token.bytes, token.n).text, *id,
		                 is);
	if (known < 0)
		lm_names_put(names, names->n++, token, true);
	else
		names->bytes[known] = names->names[known];
	return true;
}

/* Into the trie of the text as it is, or of the normalized one. */
static bool find_added(const char *name, const cJSON *item,
                       struct lm_text token, int32_t id,
                       struct lm_tokenizer *tokenizer, struct fault *fault)
{
	struct lm_nfc nfc = {0};
	struct lm_text normal = token;
	bool normalized = true;
	bool good = lm_tokenizer_read_flag(name, item, "normalized",
	                                   &normalized, fault);

	if (good && normalized && tokenizer->nfc)
		good = lm_text_nfc(&nfc, token, &normal, fault);
	if (good && !lm_added_put(normalized ? &tokenizer->added_normal
	                                     : &tokenizer->added,
	                          normal, id))
		good = fault_set(fault, "%s: added token \"%s\" is there twice",
		                 name, lm_shown(token.bytes, token.n).text);
	lm_nfc_close(&nfc);
	return good;
}

static bool put_added(const char *name, const cJSON *array,
                      struct lm_tokenizer *tokenizer, struct fault *fault)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, array)
	{
		const char *const content =
			cJSON_GetStringValue(get(item, "content"));
		int32_t id = -1;

		if (!content || !*content)
			return fault_set(fault,
			                 "%s: an added token has no content",
			                 name);
		const struct lm_text token = text_of(content);

		if (!check_flags(name, item, token, fault) ||
		    !number_added(name, item, token, &tokenizer->names, &id,
		                  fault) ||
		    !find_added(name, item, token, id, tokenizer, fault))
			return false;
	}
	return true;
}

/* A piece of any bytes is letters that have ids, so that nothing is unknown:
 * unk_token, fuse_unk and byte_fallback never come to play. */
static bool find_letters(const char *name, struct lm_tokenizer *tokenizer,
                         struct fault *fault)
{
	for (int32_t byte = 0; byte < 256; byte++) {
		char letter[2];
		const size_t n = (size_t)lm_text_letter((uint8_t)byte, letter);
		const struct lm_text text = {letter, n};
		const int32_t id = lm_names_find(&tokenizer->names, text);

		if (id < 0)
			return fault_set(fault,
			                 "%s: no token for byte 0x%02x, which "
			                 "is written \"%.*s\"",
			                 name, (unsigned int)byte, (int)n,
			                 letter);
		tokenizer->byte_ids[byte] = id;
	}
	return true;
}

bool lm_tokenizer_read_tokens(const char *name, const cJSON *root,
                              struct lm_tokenizer *tokenizer,
                              struct fault *fault)
{
	const cJSON *const vocab = get(get(root, "model"), "vocab");
	const cJSON *const array = get(root, "added_tokens");
	const int32_t n = cJSON_GetArraySize(vocab);
	const int32_t n_added = cJSON_GetArraySize(array);
	size_t n_bytes = 0, n_added_bytes = 0;
	const cJSON *item;

	if (!cJSON_IsObject(vocab))
		return fault_set(fault, "%s: no object \"vocab\" in the model",
		                 name);
	cJSON_ArrayForEach(item, vocab) n_bytes += strlen(item->string);
	cJSON_ArrayForEach(item, array)
	{
		const char *const content =
			cJSON_GetStringValue(get(item, "content"));

		n_added_bytes += content ? strlen(content) : 0;
	}
	/* A normal form is at most three times as long. */
	return lm_names_open(&tokenizer->names, (size_t)n + (size_t)n_added,
	                     n_bytes + n_added_bytes, fault) &&
	       lm_added_open(&tokenizer->added, n_added_bytes, fault) &&
	       lm_added_open(&tokenizer->added_normal, 3 * n_added_bytes,
	                     fault) &&
	       put_vocabulary(name, vocab, n, &tokenizer->names, fault) &&
	       find_letters(name, tokenizer, fault) &&
	       put_added(name, array, tokenizer, fault);
}

/* "left right" or ["left", "right"]. */
static bool merge_parts(const cJSON *item, struct lm_text *left,
                        struct lm_text *right)
{
	const char *string = cJSON_GetStringValue(item);
	const char *const space = string ? strchr(string, ' ') : NULL;

	if (space) {
		*left = (struct lm_text){string, (size_t)(space - string)};
		*right = text_of(space + 1);
		return !strchr(space + 1, ' ');
	}
	if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != 2)
		return false;
	string = cJSON_GetStringValue(item->child);
	const char *const second = cJSON_GetStringValue(item->child->next);

	if (!string || !second)
		return false;
	*left = text_of(string);
	*right = text_of(second);
	return true;
}

/* Id of a token that a merge names. */
static bool merge_id(const char *name, int32_t rank,
                     const struct lm_names *names, struct lm_text token,
                     int32_t *id, struct fault *fault)
{
	*id = lm_names_find(names, token);
	return *id >= 0 ||
	       fault_set(fault,
	                 "%s: merges[%d] names \"%s\", which is no token of "
	                 "the vocabulary",
	                 name, rank, lm_shown(token.bytes, token.n).text);
}

static bool put_merge(const char *name, const cJSON *item, int32_t rank,
                      struct lm_tokenizer *tokenizer, struct lm_buffer *both,
                      struct fault *fault)
{
	const struct lm_names *const names = &tokenizer->names;
	struct lm_text left, right;
	int32_t ids[3];

	if (!merge_parts(item, &left, &right))
		return fault_set(
			fault,
			"%s: merges[%d] is neither \"a b\" nor [\"a\", "
			"\"b\"]",
			name, rank);
	both->n = 0;
	if (!lm_buffer_add(both, left.bytes, left.n, fault) ||
	    !lm_buffer_add(both, right.bytes, right.n, fault))
		return false;
	const struct lm_text made = {both->bytes, both->n};

	if (!merge_id(name, rank, names, left, &ids[0], fault) ||
	    !merge_id(name, rank, names, right, &ids[1], fault) ||
	    !merge_id(name, rank, names, made, &ids[2], fault))
		return false;
	lm_pairs_put(&tokenizer->merges, ids[0], ids[1], rank, ids[2]);
	return true;
}

bool lm_tokenizer_read_merges(const char *name, const cJSON *model,
                              struct lm_tokenizer *tokenizer,
                              struct fault *fault)
{
	const cJSON *const array = get(model, "merges");
	struct lm_buffer both = {0};
	const cJSON *item;
	int32_t rank = 0;
	bool good = true;

	if (!cJSON_IsArray(array))
		return fault_set(fault, "%s: no array \"merges\" in the model",
		                 name);
	if (!lm_pairs_open(&tokenizer->merges,
	                   (size_t)cJSON_GetArraySize(array), fault))
		return false;
	cJSON_ArrayForEach(item, array)
	{
		good = put_merge(name, item, rank++, tokenizer, &both, fault);
		if (!good)
			break;
	}
	free(both.bytes);
	return good;
}
