/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The composed normal form of Unicode (NFC), as the reference makes it: by
 * Unicode 9.0. utf8proc knows later marks too, depending on its version; here
 * they are characters like any other, so that ids are the reference's and the
 * same everywhere. Time is linear but for sorting marks.
 */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "lm_tokenizer_parts.h"

/*
 * All that has got a class, a decomposition or a part in a composition after
 * Unicode 9.0, up to 18.0, and what lies between without: tokenizer_marks.py
 * prints it.
 */
static const int32_t LATER[][2] = {
	{0x05c8, 0x05c9},   {0x07fd, 0x07fd},   {0x0897, 0x08d3},
	{0x09fe, 0x09fe},   {0x0c3c, 0x0c3c},   {0x0d3b, 0x0d3c},
	{0x0eba, 0x0eba},   {0x1715, 0x1715},   {0x1abf, 0x1af0},
	{0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x105c9, 0x105e4},
	{0x10d24, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
	{0x11382, 0x113d0}, {0x1145e, 0x1145e}, {0x11839, 0x11a99},
	{0x11d42, 0x1612f}, {0x16d63, 0x16ff1}, {0x1d127, 0x1d128},
	{0x1d250, 0x1d281}, {0x1e08f, 0x1e6f5},
};

static bool is_later(int32_t point)
{
	for (size_t i = 0; i < sizeof(LATER) / sizeof(*LATER); i++)
		if (point <= LATER[i][1])
			return point >= LATER[i][0];
	return false;
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

/* Sorts, composes and appends the points. */
static bool flush(struct lm_nfc *nfc, struct fault *fault)
{
	utf8proc_uint8_t utf8[4];

	if (!nfc->n)
		return true;
	if (!sort_all(nfc, fault))
		return false;
	const utf8proc_ssize_t n =
		utf8proc_normalize_utf32(nfc->points, (utf8proc_ssize_t)nfc->n,
	                                 UTF8PROC_STABLE | UTF8PROC_COMPOSE);

	for (utf8proc_ssize_t i = 0; i < n; i++) {
		const utf8proc_ssize_t length =
			utf8proc_encode_char(nfc->points[i], utf8);

		if (!lm_buffer_add(&nfc->out, (const char *)utf8,
		                   (size_t)length, fault))
			return false;
	}
	nfc->n = 0;
	return true;
}

/* Appends the normal form of a stretch. */
static bool add_normal(struct lm_nfc *nfc, const char *bytes, size_t n,
                       struct fault *fault)
{
	size_t length;

	nfc->n = 0;
	for (size_t at = 0; at < n; at += length) {
		int32_t point;

		length = (size_t)utf8proc_iterate(
			(const utf8proc_uint8_t *)bytes + at,
			(utf8proc_ssize_t)(n - at), &point);
		if (!is_later(point)) {
			if (!decompose(nfc, point, fault))
				return false;
		} else if (!flush(nfc, fault) ||
		           !lm_buffer_add(&nfc->out, bytes + at, length,
		                          fault)) {
			return false;
		}
	}
	return flush(nfc, fault);
}

static bool continues(char c)
{
	return ((uint8_t)c & 0xc0) == 0x80;
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
