/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer, by the first byte: tokenizer.json, a text, or a pattern with a
 * text behind it. Whatever comes is refused or encoded; the bytes of a text's
 * ids are its normal form, the pieces of a text are the text.
 */
#include "fuzz.h"

#include <string.h>

#include "lm_tokenizer_parts.h"

static const char form[] =
	"{\"normalizer\": %s, \"pre_tokenizer\": {\"type\": \"Sequence\", "
	"\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
	"\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
	"\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
	"\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": "
	"\"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
	"\"use_regex\": false}]}, \"model\": {\"type\": \"BPE\", "
	"\"ignore_merges\": %s, \"vocab\": {%s}, \"merges\": "
	"[\"a b\", \"ab a\", \"a a\", \"aba b\", \"\u0120 \u0120\", "
	"\"\u00c3 \u00a9\", \"\u0120\u0120 \u0120\u0120\"]}}";
static const char *const made[] = {
	"ab",
	"aba",
	"aa",
	"abab",
	"\u0120\u0120",
	"\u00c3\u00a9",
	"\u0120\u0120\u0120\u0120",
};

static struct lm_tokenizer *make(const char *normalizer, const char *ignore)
{
	static char vocab[8192], file[16384];
	struct lm_tokenizer *tokenizer = NULL;
	struct fault fault;
	size_t n = 0;
	int32_t id = 0;

	for (int32_t byte = 0; byte < 256; byte++, id++) {
		char letter[2];
		const int32_t length = lm_text_letter((uint8_t)byte, letter);
		const bool quoted = byte == '"' || byte == '\\';

		n += (size_t)snprintf(vocab + n, sizeof(vocab) - n,
		                      "\"%s%.*s\": %d, ", quoted ? "\\" : "",
		                      (int)length, letter, id);
	}
	for (size_t i = 0; i < sizeof(made) / sizeof(*made); i++, id++)
		n += (size_t)snprintf(vocab + n, sizeof(vocab) - n,
		                      "%s\"%s\": %d", i ? ", " : "", made[i],
		                      id);
	const int length =
		snprintf(file, sizeof(file), form, normalizer, ignore, vocab);

	FUZZ_CHECK(length > 0 && (size_t)length < sizeof(file));
	if (!lm_tokenizer_parse("own", file, length, &tokenizer, &fault)) {
		fprintf(stderr, "%s\n", fault.text);
		abort();
	}
	return tokenizer;
}

/* Whether the bytes of ids are those of a text. */
static void check_bytes(const struct lm_tokenizer *tokenizer,
                        struct lm_text text, const int32_t *ids, int64_t n)
{
	size_t at = 0;

	for (int64_t i = 0; i < n; i++) {
		const char *bytes;
		int32_t length;

		FUZZ_CHECK(
			lm_tokenizer_bytes(tokenizer, ids[i], &bytes, &length));
		FUZZ_CHECK((size_t)length <= text.n - at);
		FUZZ_CHECK(!memcmp(text.bytes + at, bytes, (size_t)length));
		at += (size_t)length;
	}
	FUZZ_CHECK(at == text.n);
}

static void encode(const struct lm_tokenizer *tokenizer, bool check,
                   struct lm_text text)
{
	struct lm_nfc nfc = {0};
	struct lm_text normal = text;
	struct fault fault;
	int32_t *ids = NULL;
	int64_t n = 0;
	const bool good =
		lm_tokenizer_encode(tokenizer, "text", text.bytes,
	                            (int64_t)text.n, &ids, &n, &fault);

	FUZZ_CHECK(!check || good == (lm_text_bad_byte(text) == text.n));
	if (!good)
		return;
	for (int64_t i = 0; i < n; i++)
		FUZZ_CHECK(ids[i] >= 0 &&
		           ids[i] < lm_tokenizer_vocab(tokenizer));
	if (tokenizer->nfc)
		FUZZ_CHECK(lm_text_nfc(&nfc, text, &normal, &fault));
	if (check)
		check_bytes(tokenizer, normal, ids, n);
	lm_nfc_close(&nfc);
	free(ids);
}

static void read_text(struct lm_text text)
{
	static struct lm_tokenizer *plain, *normal;

	if (!plain) {
		plain = make("null", "true");
		normal = make("{\"type\": \"NFC\"}", "false");
	}
	encode(plain, true, text);
	encode(normal, true, text);
}

static void read_file(struct lm_text text)
{
	static const char sample[] = "ab  ab's 12\n\n e\u0301\u0323 "
				     "\u3042\u4e00<|endoftext|>!?\t";
	struct lm_tokenizer *tokenizer = NULL;
	struct fault fault;

	if (!lm_tokenizer_parse("file", text.bytes, (int64_t)text.n, &tokenizer,
	                        &fault)) {
		FUZZ_CHECK(!tokenizer);
		FUZZ_CHECK(*fault.text);
		return;
	}
	encode(tokenizer, false, (struct lm_text){sample, sizeof(sample) - 1});
	lm_tokenizer_close(tokenizer);
}

static bool append(void *arg, struct lm_text piece, struct fault *fault)
{
	FUZZ_CHECK(piece.n);
	return lm_buffer_add(arg, piece.bytes, piece.n, fault);
}

/* A pattern, a 0, a text. */
static void read_pattern(struct lm_text all)
{
	const char *const end = memchr(all.bytes, 0, all.n);
	struct lm_split split = {0};
	struct lm_split_work work;
	struct lm_buffer out = {0};
	struct fault fault;

	if (!end || lm_text_bad_byte(all) < all.n ||
	    !lm_split_add(&split, "file", all.bytes, &fault)) {
		lm_split_close(&split);
		return;
	}
	const struct lm_text text = {end + 1,
	                             all.n - 1 - (size_t)(end - all.bytes)};

	FUZZ_CHECK(lm_split_work_open(&split, "text", &work, &fault));
	if (lm_split_text(&split, &work, text, append, &out, &fault)) {
		FUZZ_CHECK(out.n == text.n);
		FUZZ_CHECK(!out.n || !memcmp(out.bytes, text.bytes, out.n));
	}
	free(out.bytes);
	lm_split_work_close(&work);
	lm_split_close(&split);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_data)
{
	if (!n_data)
		return 0;
	const struct lm_text rest = {(const char *)data + 1, n_data - 1};

	switch (data[0] % 3) {
	case 0:
		read_file(rest);
		break;
	case 1:
		read_text(rest);
		break;
	default:
		read_pattern(rest);
		break;
	}
	return 0;
}
