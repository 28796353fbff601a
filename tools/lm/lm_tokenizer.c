/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer as its users see it: a file becomes tables, a text ids. A text
 * is searched for added tokens; what lies between is normalized, searched for
 * those that are to be found in normalized text, cut into pieces, and merged.
 */
#include "lm_tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../file_map.h"
#include "../json_read.h"
#include "lm_path.h"
#include "lm_tokenizer_parts.h"

/* What lies in the model besides tokens. */
static bool check_model(const char *name, const cJSON *model,
                        struct lm_tokenizer *tokenizer, struct fault *fault)
{
	static const char *const affixes[] = {"continuing_subword_prefix",
	                                      "end_of_word_suffix"};
	const char *const type = lm_tokenizer_type(model);
	const cJSON *const dropout =
		cJSON_GetObjectItemCaseSensitive(model, "dropout");

	if (strcmp(type, "BPE"))
		return fault_set(fault,
		                 "%s: model \"%s\" is not supported, allowed "
		                 "is BPE",
		                 name, lm_shown(type, strlen(type)).text);
	for (size_t i = 0; i < sizeof(affixes) / sizeof(*affixes); i++) {
		const char *const value = cJSON_GetStringValue(
			cJSON_GetObjectItemCaseSensitive(model, affixes[i]));

		if (value && *value)
			return fault_set(fault, "%s: \"%s\" is not supported",
			                 name, affixes[i]);
	}
	if (dropout && !cJSON_IsNull(dropout) &&
	    !(cJSON_IsNumber(dropout) && dropout->valuedouble == 0))
		return fault_set(fault, "%s: \"dropout\" is not supported",
		                 name);
	return lm_tokenizer_read_flag(name, model, "ignore_merges",
	                              &tokenizer->ignore_merges, fault);
}

static bool read_root(const char *name, const cJSON *root,
                      struct lm_tokenizer *tokenizer, struct fault *fault)
{
	const cJSON *const model =
		cJSON_GetObjectItemCaseSensitive(root, "model");

	if (!cJSON_IsObject(model))
		return fault_set(fault, "%s: no object \"model\"", name);
	return check_model(name, model, tokenizer, fault) &&
	       lm_tokenizer_read_stages(name, root, tokenizer, fault) &&
	       lm_tokenizer_read_tokens(name, root, tokenizer, fault) &&
	       lm_tokenizer_read_merges(name, model, tokenizer, fault);
}

/* cJSON ends strings at U+0000 and takes bytes that are no UTF-8. */
static bool check_json(const char *name, struct lm_text text,
                       struct fault *fault)
{
	const size_t bad = lm_text_bad_byte(text);
	const char *at = text.bytes;
	const char *const end = text.bytes + text.n;

	if (bad < text.n)
		return fault_set(fault, "%s: byte %zu is no UTF-8", name, bad);
	while ((at = memchr(at, '\\', (size_t)(end - at))) && end - at >= 6) {
		if (!memcmp(at, "\\u0000", 6))
			return fault_set(fault,
			                 "%s: byte %td: \\u0000 is not "
			                 "supported",
			                 name, at - text.bytes);
		at += 2;
	}
	return true;
}

static cJSON *parse_json(const char *name, struct lm_text text,
                         struct fault *fault)
{
	return check_json(name, text, fault)
	               ? json_read_object(name, 0, text.bytes, text.n, fault)
	               : NULL;
}

bool lm_tokenizer_parse(const char *name, const char *text, int64_t bytes,
                        struct lm_tokenizer **tokenizer, struct fault *fault)
{
	const struct lm_text all = {text, (size_t)bytes};

	if (bytes > LM_MAX_TEXT)
		return fault_set(fault, "%s: %" PRId64 " bytes, allowed are %d",
		                 name, bytes, LM_MAX_TEXT);
	struct lm_tokenizer *const own = calloc(1, sizeof(*own));

	if (!own)
		return fault_set(fault, "no memory for a tokenizer");
	cJSON *const root = parse_json(name, all, fault);
	const bool good = root && read_root(name, root, own, fault);

	cJSON_Delete(root);
	if (good)
		*tokenizer = own;
	else
		lm_tokenizer_close(own);
	return good;
}

bool lm_tokenizer_open(const char *directory, struct lm_tokenizer **tokenizer,
                       struct fault *fault)
{
	struct file_map map;
	char *const path = lm_path(directory, "tokenizer.json", fault);

	if (!path)
		return false;
	bool good = file_map_open(path, &map, fault);

	if (good) {
		good = lm_tokenizer_parse(lm_path_shown(path), map.bytes,
		                          (int64_t)map.n, tokenizer, fault);
		file_map_close(&map);
	}
	free(path);
	return good;
}

void lm_tokenizer_close(struct lm_tokenizer *tokenizer)
{
	if (!tokenizer)
		return;
	lm_split_close(&tokenizer->split);
	lm_names_close(&tokenizer->names);
	lm_pairs_close(&tokenizer->merges);
	lm_added_close(&tokenizer->added);
	lm_added_close(&tokenizer->added_normal);
	free(tokenizer);
}

int32_t lm_tokenizer_vocab(const struct lm_tokenizer *tokenizer)
{
	return tokenizer->names.n;
}

bool lm_tokenizer_bytes(const struct lm_tokenizer *tokenizer, int32_t id,
                        const char **bytes, int32_t *n)
{
	if (id < 0 || id >= tokenizer->names.n)
		return false;
	*bytes = tokenizer->names.bytes[id].bytes;
	*n = (int32_t)tokenizer->names.bytes[id].n;
	return true;
}

/* What a text becomes, and what for. */
struct encoder {
	const struct lm_tokenizer *tokenizer;
	struct lm_ids ids;
	struct lm_nfc nfc;
	struct lm_split_work split;
	struct lm_bpe_work bpe;
};

typedef bool encode_stage(struct encoder *encoder, struct lm_text text,
                          struct fault *fault);

/* Added tokens of the text become ids, what lies between goes to a stage. */
static bool between(struct encoder *encoder, const struct lm_added *added,
                    struct lm_text text, encode_stage *stage,
                    struct fault *fault)
{
	struct lm_added_hit hit;
	size_t done = 0;

	for (; lm_added_find(added, text, done, &hit); done = hit.end) {
		const struct lm_text before = {text.bytes + done,
		                               hit.start - done};

		if (!stage(encoder, before, fault) ||
		    !lm_ids_add(&encoder->ids, hit.id, fault))
			return false;
	}
	return stage(encoder,
	             (struct lm_text){text.bytes + done, text.n - done}, fault);
}

static bool encode_piece(void *arg, struct lm_text piece, struct fault *fault)
{
	struct encoder *const encoder = arg;

	return lm_bpe_encode(encoder->tokenizer, &encoder->bpe, piece,
	                     &encoder->ids, fault);
}

static bool encode_normal(struct encoder *encoder, struct lm_text text,
                          struct fault *fault)
{
	return lm_split_text(&encoder->tokenizer->split, &encoder->split, text,
	                     encode_piece, encoder, fault);
}

static bool encode_raw(struct encoder *encoder, struct lm_text text,
                       struct fault *fault)
{
	struct lm_text normal = text;

	if (encoder->tokenizer->nfc &&
	    !lm_text_nfc(&encoder->nfc, text, &normal, fault))
		return false;
	return between(encoder, &encoder->tokenizer->added_normal, normal,
	               encode_normal, fault);
}

static bool check_text(const char *name, struct lm_text text,
                       struct fault *fault)
{
	if (text.n > LM_MAX_TEXT)
		return fault_set(fault, "%s: %zu bytes, allowed are %d", name,
		                 text.n, LM_MAX_TEXT);
	const size_t bad = lm_text_bad_byte(text);

	return bad == text.n ||
	       fault_set(fault, "%s: byte %zu is no UTF-8 (0x%02x)", name, bad,
	                 (unsigned int)(uint8_t)text.bytes[bad]);
}

bool lm_tokenizer_encode(const struct lm_tokenizer *tokenizer, const char *name,
                         const char *text, int64_t bytes, int32_t **ids,
                         int64_t *n_ids, struct fault *fault)
{
	const struct lm_text all = {bytes ? text : "", (size_t)bytes};
	struct encoder encoder = {.tokenizer = tokenizer};
	bool good =
		check_text(name, all, fault) &&
		lm_split_work_open(&tokenizer->split, name, &encoder.split,
	                           fault) &&
		between(&encoder, &tokenizer->added, all, encode_raw, fault) &&
		lm_tokenizer_reserve(&encoder.ids.ids, &encoder.ids.max, 1,
	                             sizeof(*encoder.ids.ids), fault);

	lm_split_work_close(&encoder.split);
	lm_bpe_work_close(&encoder.bpe);
	lm_nfc_close(&encoder.nfc);
	if (!good) {
		free(encoder.ids.ids);
		return false;
	}
	*ids = encoder.ids.ids;
	*n_ids = (int64_t)encoder.ids.n;
	return true;
}
