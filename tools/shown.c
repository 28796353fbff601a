/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of users, in UTF-8 and in one line. */
#include "shown.h"

#include <stdint.h>
#include <string.h>

#include "alloc.h"

static const char replacement[] = "\xef\xbf\xbd";

size_t shown_character(const char *text)
{
	static const uint32_t least[] = {0, 1, 0x80, 0x800, 0x10000};
	const unsigned char *const s = (const unsigned char *)text;
	const size_t n = s[0] < 0x80             ? 1
	                 : (s[0] & 0xe0) == 0xc0 ? 2
	                 : (s[0] & 0xf0) == 0xe0 ? 3
	                 : (s[0] & 0xf8) == 0xf0 ? 4
	                                         : 0;
	uint32_t c = n > 1 ? s[0] & (0x7fu >> n) : s[0];

	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3fu);
	}
	const bool surrogate = c >= 0xd800 && c < 0xe000;

	return c < least[n] || c > 0x10ffff || surrogate ? 0 : n;
}

bool shown_is_control(const char *text, size_t n)
{
	const unsigned char *const s = (const unsigned char *)text;

	return (n == 1 && (s[0] < 0x20 || s[0] == 0x7f)) ||
	       (n == 2 && s[0] == 0xc2 && s[1] < 0xa0);
}

static char *copy(const char *text, bool controls)
{
	char *const all =
		alloc_or_exit(strlen(text) * (sizeof(replacement) - 1) + 1, 1);
	char *out = all;

	while (*text) {
		const size_t n = shown_character(text);
		const bool hidden = !controls && shown_is_control(text, n);
		const char *const from = !n ? replacement : hidden ? "?" : text;
		const size_t bytes = !n       ? sizeof(replacement) - 1
		                     : hidden ? 1
		                              : n;

		out = (char *)memcpy(out, from, bytes) + bytes;
		text += n ? n : 1;
	}
	return all;
}

char *shown_utf8(const char *text)
{
	return copy(text, true);
}

char *shown_line(const char *text)
{
	return copy(text, false);
}

void shown_cut(char *out, size_t room, const char *text)
{
	size_t n = strlen(text);

	if (n >= room) {
		n = room - 1;
		while (n > 0 && (text[n] & 0xc0) == 0x80)
			n--;
	}
	memcpy(out, text, n);
	out[n] = '\0';
}
