/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages of tokenizer.json around its model: normalizer, pre-tokenizer,
 * post-processor. The decoder plays no part in encoding; truncation and padding
 * are for batches of texts and not for whole ones: none of the three is read.
 */
#include <string.h>

#include "lm_tokenizer_parts.h"

/* What ByteLevel cuts by where it has its regex. */
static const char GPT2_PATTERN[] =
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
	"\\s+(?!\\S)|\\s+";

struct stages {
	const char *name;
	struct lm_tokenizer *tokenizer;
	struct fault *fault;
	bool byte_level; /* has been */
};

static const cJSON *get(const cJSON *object, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(object, key);
}

const char *lm_tokenizer_type(const cJSON *object)
{
	const char *const type = cJSON_GetStringValue(get(object, "type"));

	return type ? type : "";
}

bool lm_tokenizer_read_flag(const char *name, const cJSON *object,
                            const char *key, bool *value, struct fault *fault)
{
	const cJSON *const item = get(object, key);

	if (!item || cJSON_IsNull(item))
		return true;
	if (!cJSON_IsBool(item))
		return fault_set(fault, "%s: \"%s\" is neither true nor false",
		                 name, key);
	*value = cJSON_IsTrue(item);
	return true;
}

static bool refuse(const struct stages *stages, const char *what,
                   const char *is, const char *known)
{
	const struct lm_shown shown = lm_shown(is, strlen(is));

	return fault_set(stages->fault,
	                 "%s: %s \"%s\" is not supported, allowed is %s",
	                 stages->name, what, shown.text, known);
}

/* A flag that is to be false. */
static bool refuse_flag(const struct stages *stages, const cJSON *object,
                        const char *key)
{
	bool value = false;

	if (!lm_tokenizer_read_flag(stages->name, object, key, &value,
	                            stages->fault))
		return false;
	return !value ||
	       fault_set(stages->fault,
	                 "%s: %s with \"%s\": true is not supported",
	                 stages->name, lm_tokenizer_type(object), key);
}

/* An array of stages of a Sequence. */
static const cJSON *sequence(const struct stages *stages, const cJSON *object,
                             const char *key)
{
	const cJSON *const array = get(object, key);

	if (cJSON_IsArray(array))
		return array;
	fault_set(stages->fault, "%s: Sequence without an array \"%s\"",
	          stages->name, key);
	return NULL;
}

static bool normalizer(struct stages *stages, const cJSON *object)
{
	const char *const type = lm_tokenizer_type(object);
	const cJSON *item;

	if (!object || cJSON_IsNull(object))
		return true;
	if (!strcmp(type, "NFC")) {
		stages->tokenizer->nfc = true;
		return true;
	}
	if (strcmp(type, "Sequence"))
		return refuse(stages, "normalizer", type, "NFC");
	const cJSON *const array = sequence(stages, object, "normalizers");

	if (!array)
		return false;
	cJSON_ArrayForEach(item, array)
	{
		if (!normalizer(stages, item))
			return false;
	}
	return true;
}

static bool split(struct stages *stages, const cJSON *object)
{
	const char *const pattern =
		cJSON_GetStringValue(get(get(object, "pattern"), "Regex"));
	const char *const behavior =
		cJSON_GetStringValue(get(object, "behavior"));

	if (!pattern)
		return fault_set(stages->fault,
		                 "%s: Split without a pattern {\"Regex\": "
		                 "...}",
		                 stages->name);
	if (!behavior || strcmp(behavior, "Isolated"))
		return refuse(stages, "behavior of Split",
		              behavior ? behavior : "", "Isolated");
	return refuse_flag(stages, object, "invert") &&
	       lm_split_add(&stages->tokenizer->split, stages->name, pattern,
	                    stages->fault);
}

static bool byte_level(struct stages *stages, const cJSON *object)
{
	bool use_regex = true;

	stages->byte_level = true;
	return refuse_flag(stages, object, "add_prefix_space") &&
	       lm_tokenizer_read_flag(stages->name, object, "use_regex",
	                              &use_regex, stages->fault) &&
	       (!use_regex ||
	        lm_split_add(&stages->tokenizer->split, stages->name,
	                     GPT2_PATTERN, stages->fault));
}

static bool pre_tokenizer(struct stages *stages, const cJSON *object)
{
	const char *const type = lm_tokenizer_type(object);
	const cJSON *item;

	if (!strcmp(type, "Sequence")) {
		const cJSON *const array =
			sequence(stages, object, "pretokenizers");

		if (!array)
			return false;
		cJSON_ArrayForEach(item, array)
		{
			if (!pre_tokenizer(stages, item))
				return false;
		}
		return true;
	}
	/* It makes bytes letters, which patterns do not match any more. */
	if (stages->byte_level)
		return fault_set(stages->fault,
		                 "%s: pre-tokenizer \"%s\" after ByteLevel is "
		                 "not supported",
		                 stages->name,
		                 lm_shown(type, strlen(type)).text);
	if (!strcmp(type, "Split"))
		return split(stages, object);
	if (!strcmp(type, "ByteLevel"))
		return byte_level(stages, object);
	return refuse(stages, "pre-tokenizer", type, "Split or ByteLevel");
}

/* A template that puts no token before or behind the text. */
static bool template(const struct stages *stages, const cJSON *object)
{
	const cJSON *piece;

	cJSON_ArrayForEach(piece, get(object, "single"))
	{
		const char *const id = cJSON_GetStringValue(
			get(get(piece, "SpecialToken"), "id"));

		if (id)
			return refuse(stages, "TemplateProcessing that adds",
			              id, "none");
	}
	return true;
}

static bool post_processor(struct stages *stages, const cJSON *object)
{
	const char *const type = lm_tokenizer_type(object);
	const cJSON *item;

	if (!object || cJSON_IsNull(object) || !strcmp(type, "ByteLevel"))
		return true;
	if (!strcmp(type, "TemplateProcessing"))
		return template(stages, object);
	if (strcmp(type, "Sequence"))
		return refuse(stages, "post-processor", type, "ByteLevel");
	const cJSON *const array = sequence(stages, object, "processors");

	if (!array)
		return false;
	cJSON_ArrayForEach(item, array)
	{
		if (!post_processor(stages, item))
			return false;
	}
	return true;
}

bool lm_tokenizer_read_stages(const char *name, const cJSON *root,
                              struct lm_tokenizer *tokenizer,
                              struct fault *fault)
{
	struct stages stages = {name, tokenizer, fault, false};

	if (!normalizer(&stages, get(root, "normalizer")) ||
	    !pre_tokenizer(&stages, get(root, "pre_tokenizer")) ||
	    !post_processor(&stages, get(root, "post_processor")))
		return false;
	return stages.byte_level ||
	       fault_set(fault, "%s: no ByteLevel in the pre-tokenizer", name);
}
