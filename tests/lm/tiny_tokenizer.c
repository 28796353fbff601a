/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small byte-level tokenizer in the form of Qwen3's: ids 0..255 are the
 * bytes, in the order of the characters that stand for them; merges follow,
 * and then <|endoftext|>.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tiny_inner.h"
#include "tiny_model.h"

/* \u0120 stands for a space. */
static const char *const merges[][2] = {
	{"\xc4\xa0", "t"},
	{"h", "e"},
	{"\xc4\xa0", "a"},
	{"i", "n"},
	{"r", "e"},
	{"o", "n"},
	{"\xc4\xa0t", "he"},
	{"e", "r"},
	{"a", "t"},
	{"\xc4\xa0", "s"},
	{"n", "d"},
	{"\xc4\xa0", "o"},
	{"e", "s"},
	{"o", "r"},
	{"\xc4\xa0", "\xc4\xa0"},
	{"in", "g"},
	{"\xc4\xa0o", "f"},
	{"\xc4\xa0t", "o"},
	{"e", "n"},
	{"t", "i"},
	{"ti", "on"},
	{"\xc3\xa4", "\xc2\xb8"},
};

enum {
	N_MERGES = sizeof(merges) / sizeof(*merges),
	END_OF_TEXT = 256 + N_MERGES,
};

static const char form[] =
	"{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
	"\"added_tokens\": [{\"id\": %d, \"content\": \"<|endoftext|>\", "
	"\"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
	"\"normalized\": false, \"special\": true}],\n"
	"\"normalizer\": {\"type\": \"NFC\"},\n"
	"\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["
	"{\"type\": \"Split\", \"pattern\": {\"Regex\": "
	"\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
	"\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
	"\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
	"\"behavior\": \"Isolated\", \"invert\": false},\n"
	"{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
	"\"trim_offsets\": false, \"use_regex\": false}]},\n"
	"\"post_processor\": {\"type\": \"ByteLevel\", "
	"\"add_prefix_space\": false, \"trim_offsets\": false, "
	"\"use_regex\": false},\n"
	"\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
	"\"trim_offsets\": false, \"use_regex\": false},\n"
	"\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": "
	"null, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": "
	"null, \"fuse_unk\": false, \"byte_fallback\": false, "
	"\"ignore_merges\": false,\n\"vocab\": %s,\n\"merges\": %s}}\n";

/* Bytes that stand for themselves, as code points. */
static int is_plain(int byte)
{
	return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

static void put_char(cJSON *vocab, int code, int id)
{
	char text[3] = {(char)code, 0, 0};

	if (code >= 0x80) {
		text[0] = (char)(0xc0 | code >> 6);
		text[1] = (char)(0x80 | (code & 0x3f));
	}
	cJSON_AddNumberToObject(vocab, text, id);
}

static cJSON *make_vocab(void)
{
	cJSON *const vocab = cJSON_CreateObject();
	int id = 0, other = 256;

	for (int byte = 0; byte < 256; byte++)
		if (is_plain(byte))
			put_char(vocab, byte, id++);
	for (; id < 256; id++)
		put_char(vocab, other++, id);
	for (int i = 0; i < N_MERGES; i++) {
		char text[32];

		snprintf(text, sizeof(text), "%s%s", merges[i][0],
		         merges[i][1]);
		cJSON_AddNumberToObject(vocab, text, id++);
	}
	return vocab;
}

static cJSON *make_merges(void)
{
	cJSON *const array = cJSON_CreateArray();

	for (int i = 0; i < N_MERGES; i++)
		cJSON_AddItemToArray(array,
		                     cJSON_CreateStringArray(merges[i], 2));
	return array;
}

void tiny_tokenizer_write(const char *directory)
{
	char *const ids = tiny_print(make_vocab());
	char *const pairs = tiny_print(make_merges());
	const size_t n = sizeof(form) + strlen(ids) + strlen(pairs) + 16;
	char *const text = tiny_alloc(n);

	snprintf(text, n, form, END_OF_TEXT, ids, pairs);
	tiny_file_write(directory, "tokenizer.json", text, strlen(text));
	free(text);
	free(pairs);
	free(ids);
}
