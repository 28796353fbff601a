/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Characters: which bytes are UTF-8, the letters by which files of byte-level
 * tokenizers write bytes, and tokens in faults.
 */
#include <string.h>

#include <utf8proc.h>

#include "lm_tokenizer_parts.h"

static bool continues(char c)
{
	return ((uint8_t)c & 0xc0) == 0x80;
}

size_t lm_text_bad_byte(struct lm_text text)
{
	const utf8proc_uint8_t *const p = (const utf8proc_uint8_t *)text.bytes;
	size_t at = 0;

	while (at < text.n) {
		int32_t point;
		const utf8proc_ssize_t length = utf8proc_iterate(
			p + at, (utf8proc_ssize_t)(text.n - at), &point);

		if (length <= 0)
			break;
		at += (size_t)length;
	}
	return at;
}

/*
 * Bytes that are visible in Latin-1 stand for themselves, the others in their
 * order for U+0100 and on.
 */
int32_t lm_text_letter(uint8_t byte, char letter[2])
{
	const int32_t point = byte <= 0x20   ? 0x100 + byte
	                      : byte < 0x7f  ? byte
	                      : byte <= 0xa0 ? 0x121 + byte - 0x7f
	                      : byte == 0xad ? 0x143
	                                     : byte;

	return (int32_t)utf8proc_encode_char(point, (utf8proc_uint8_t *)letter);
}

/* The byte of a letter; -1: it is none. */
static int32_t letter_byte(int32_t point)
{
	if (point > 0x143 || point <= 0x20 || point == 0xad)
		return -1;
	if (point >= 0x7f && point <= 0xa0)
		return -1;
	if (point == 0x143)
		return 0xad;
	if (point >= 0x121)
		return point - 0x121 + 0x7f;
	return point >= 0x100 ? point - 0x100 : point;
}

size_t lm_text_of_letters(struct lm_text name, char *bytes)
{
	const utf8proc_uint8_t *const p = (const utf8proc_uint8_t *)name.bytes;
	size_t n = 0;

	for (size_t at = 0; at < name.n;) {
		int32_t point;

		at += (size_t)utf8proc_iterate(
			p + at, (utf8proc_ssize_t)(name.n - at), &point);
		const int32_t byte = letter_byte(point);

		if (byte < 0) {
			memcpy(bytes, name.bytes, name.n);
			return name.n;
		}
		bytes[n++] = (char)byte;
	}
	return n;
}

struct lm_shown lm_shown(const char *bytes, size_t n)
{
	struct lm_shown shown = {0};
	const size_t room = sizeof(shown.text) - 4;
	size_t length = n < room ? n : room;

	while (length < n && length && continues(bytes[length]))
		length--;
	for (size_t i = 0; i < length; i++) {
		const uint8_t c = (uint8_t)bytes[i];

		shown.text[i] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
	}
	if (length < n)
		memcpy(shown.text + length, "...", 4);
	return shown;
}
