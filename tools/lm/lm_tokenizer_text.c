/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Characters: which bytes are UTF-8, the composed normal form (NFC), the
 * letters by which files of byte-level tokenizers write bytes, and tokens in
 * faults.
 */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "lm_tokenizer_parts.h"

static bool continues(char c)
{
	return ((uint8_t)c & 0xc0) == 0x80;
}

/* Bytes of the character at p; 0 where there is none. */
static size_t character_bytes(const uint8_t *p, size_t n)
{
	static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
	const size_t length = p[0] < 0x80   ? 1
	                      : p[0] < 0xc0 ? 0
	                      : p[0] < 0xe0 ? 2
	                      : p[0] < 0xf0 ? 3
	                      : p[0] < 0xf8 ? 4
	                                    : 0;
	uint32_t point = p[0] & (0x7fU >> length);

	if (length < 2 || length > n)
		return length > n ? 0 : length;
	for (size_t i = 1; i < length; i++) {
		if (!continues((char)p[i]))
			return 0;
		point = point << 6 | (p[i] & 0x3f);
	}
	if (point < least[length] || point > 0x10ffff ||
	    (point >= 0xd800 && point < 0xe000))
		return 0;
	return length;
}

size_t lm_text_bad_byte(struct lm_text text)
{
	const uint8_t *const p = (const uint8_t *)text.bytes;
	size_t at = 0;

	while (at < text.n) {
		const size_t length = character_bytes(p + at, text.n - at);

		if (!length)
			return at;
		at += length;
	}
	return text.n;
}

/* Decomposes one character onto the points. */
static bool decompose(struct lm_nfc *nfc, int32_t point, struct fault *fault)
{
	enum { MOST = 8 }; /* 4 in Unicode */
	int boundary = 0;

	if (!lm_tokenizer_reserve(&nfc->points, &nfc->max_points, nfc->n + MOST,
	                          sizeof(*nfc->points), fault))
		return false;
	const utf8proc_ssize_t n = utf8proc_decompose_char(
		point, nfc->points + nfc->n, MOST,
		UTF8PROC_STABLE | UTF8PROC_COMPOSE, &boundary);

	if (n < 0 || n > MOST)
		return fault_set(fault, "U+%04X has no normal form", point);
	nfc->n += (size_t)n;
	return true;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

/* Puts marks of points[start..end) in the order of their classes, those of a
 * class as they were. The library's own way takes the square of their number.
 */
static bool sort_marks(struct lm_nfc *nfc, size_t start, size_t end,
                       struct fault *fault)
{
	const size_t n = end - start;
	int32_t *const points = nfc->points + start;

	if (n < 2)
		return true;
	if (!lm_tokenizer_reserve(&nfc->keys, &nfc->max_keys, n,
	                          sizeof(*nfc->keys), fault))
		return false;
	for (size_t i = 0; i < n; i++) {
		const utf8proc_property_t *const is =
			utf8proc_get_property(points[i]);

		nfc->keys[i] = (uint64_t)is->combining_class << 53 | i << 21 |
		               (uint32_t)points[i];
	}
	qsort(nfc->keys, n, sizeof(*nfc->keys), by_value);
	for (size_t i = 0; i < n; i++)
		points[i] = (int32_t)(nfc->keys[i] & 0x1fffff);
	return true;
}

/* The order of all marks; they stand between characters of class 0. */
static bool sort_all(struct lm_nfc *nfc, struct fault *fault)
{
	size_t start = 0;

	for (size_t i = 0; i <= nfc->n; i++) {
		if (i < nfc->n &&
		    utf8proc_get_property(nfc->points[i])->combining_class)
			continue;
		if (!sort_marks(nfc, start, i, fault))
			return false;
		start = i + 1;
	}
	return true;
}

/* Appends the normal form of a stretch. */
static bool add_normal(struct lm_nfc *nfc, const char *bytes, size_t n,
                       struct fault *fault)
{
	const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)bytes;
	utf8proc_uint8_t utf8[4];

	nfc->n = 0;
	for (size_t at = 0; at < n;) {
		int32_t point;

		at += (size_t)utf8proc_iterate(
			p + at, (utf8proc_ssize_t)(n - at), &point);
		if (!decompose(nfc, point, fault))
			return false;
	}
	if (!sort_all(nfc, fault))
		return false;
	const utf8proc_ssize_t n_points =
		utf8proc_normalize_utf32(nfc->points, (utf8proc_ssize_t)nfc->n,
	                                 UTF8PROC_STABLE | UTF8PROC_COMPOSE);

	for (utf8proc_ssize_t i = 0; i < n_points; i++) {
		const utf8proc_ssize_t length =
			utf8proc_encode_char(nfc->points[i], utf8);

		if (!lm_buffer_add(&nfc->out, (const char *)utf8,
		                   (size_t)length, fault))
			return false;
	}
	return true;
}

/*
 * Below U+0300 a character is composed as it is, has no class to be sorted by,
 * and is no second part of another: the text may be cut before it. Finds the
 * next stretch of others, with the character before it, onto which marks go.
 */
static bool next_stretch(struct lm_text text, size_t from, size_t *start,
                         size_t *end)
{
	const uint8_t other = 0xcc; /* the first byte of U+0300 */
	size_t at = from;

	while (at < text.n && (uint8_t)text.bytes[at] < other)
		at++;
	*end = at;
	while (*end < text.n && (uint8_t)text.bytes[*end] >= other)
		do
			++*end;
		while (*end < text.n && continues(text.bytes[*end]));
	if (at > from && at < text.n)
		do
			at--;
		while (at > from && continues(text.bytes[at]));
	*start = at;
	return at < text.n;
}

bool lm_text_nfc(struct lm_nfc *nfc, struct lm_text text,
                 struct lm_text *normal, struct fault *fault)
{
	size_t done = 0, start, end;

	nfc->out.n = 0;
	for (; next_stretch(text, done, &start, &end); done = end)
		if (!lm_buffer_add(&nfc->out, text.bytes + done, start - done,
		                   fault) ||
		    !add_normal(nfc, text.bytes + start, end - start, fault))
			return false;
	*normal = text;
	if (!done)
		return true;
	if (!lm_buffer_add(&nfc->out, text.bytes + done, text.n - done, fault))
		return false;
	*normal = (struct lm_text){nfc->out.bytes, nfc->out.n};
	return true;
}

void lm_nfc_close(struct lm_nfc *nfc)
{
	free(nfc->out.bytes);
	free(nfc->points);
	free(nfc->keys);
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
