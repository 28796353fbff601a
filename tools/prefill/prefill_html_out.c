/* SPDX-License-Identifier: Apache-2.0 */
/* Writing markup and text, and numbers as people read them. */
#include "prefill_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "../shown.h"

void html_put(struct html *h, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfprintf(h->file, fmt, args);
	va_end(args);
}

/* Bytes of the character at a text, which HTML may hold; 0: there is none. */
static size_t character_bytes(const char *text)
{
	const size_t n = shown_character(text);

	return shown_is_control(text, n) ? 0 : n;
}

static const char *escape(char c)
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\'':
		return "&#39;";
	case '\n':
	case '\t':
		return " ";
	default:
		return NULL;
	}
}

void html_text(struct html *h, const char *text)
{
	while (*text) {
		const char *const escaped = escape(*text);
		const size_t n = character_bytes(text);

		if (escaped)
			fputs(escaped, h->file);
		else if (n)
			fwrite(text, 1, n, h->file);
		else
			fputs("\xef\xbf\xbd", h->file);
		text += n ? n : 1;
	}
}

void html_element(struct html *h, const char *tag, const char *text)
{
	html_put(h, "<%s>", tag);
	html_text(h, text);
	html_put(h, "</%.*s>", (int)strcspn(tag, " "), tag);
}

static const struct word nothing = {DASH}, zero = {"0"};

/* Three digits that count, where there are three. */
static struct word three_digits(double value, const char *unit)
{
	struct word w;
	const double size = fabs(value);
	const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;

	snprintf(w.text, sizeof(w.text), "%.*f" THIN "%s", decimals, value,
	         unit);
	return w;
}

struct word word_ratio(double value)
{
	struct word w;

	if (!isfinite(value) || value <= 0)
		return nothing;
	snprintf(w.text, sizeof(w.text), "%.2f", value);
	return w;
}

struct word word_fixed(double value, int decimals)
{
	struct word w;

	if (!isfinite(value))
		return nothing;
	snprintf(w.text, sizeof(w.text), "%.*f", decimals, value);
	return w;
}

struct word word_percent(double share)
{
	struct word w;

	if (!isfinite(share))
		return nothing;
	snprintf(w.text, sizeof(w.text), "%.1f" THIN "%%", 100 * share);
	return w;
}

struct word word_change(double now, double was)
{
	struct word w;
	const double percent = 100 * (now / was - 1);

	if (!isfinite(percent))
		return nothing;
	snprintf(w.text, sizeof(w.text), "%s%.1f" THIN "%%",
	         percent >= 0.05    ? "+"
	         : percent <= -0.05 ? MINUS
	                            : "\xc2\xb1",
	         fabs(percent));
	return w;
}

struct word word_time(double ns)
{
	struct word w;

	if (!isfinite(ns))
		return nothing;
	if (ns == 0)
		return zero;
	if (ns >= 1e9 - 5e5)
		return three_digits(ns / 1e9, "s");
	if (ns >= 1e6 - 5e2)
		return three_digits(ns / 1e6, "ms");
	if (ns >= 1e3)
		return three_digits(ns / 1e3, "\xc2\xb5s");
	snprintf(w.text, sizeof(w.text), "%.0f" THIN "ns", ns);
	return w;
}

struct word word_bytes(double bytes)
{
	struct word w;

	if (!isfinite(bytes))
		return nothing;
	if (bytes == 0)
		return zero;
	if (bytes >= 0x1p30)
		return three_digits(bytes / 0x1p30, "GiB");
	if (bytes >= 0x1p20)
		return three_digits(bytes / 0x1p20, "MiB");
	if (bytes >= 0x1p10)
		return three_digits(bytes / 0x1p10, "KiB");
	snprintf(w.text, sizeof(w.text), "%.0f" THIN "B", bytes);
	return w;
}

struct word word_count(int64_t n)
{
	struct word w = {""};
	char digits[24];
	const int length =
		snprintf(digits, sizeof(digits), "%" PRId64, n < 0 ? 0 : n);
	size_t at = 0;

	for (int i = 0; i < length; i++) {
		if (i > 0 && length > 4 && (length - i) % 3 == 0) {
			memcpy(w.text + at, THIN, sizeof(THIN) - 1);
			at += sizeof(THIN) - 1;
		}
		w.text[at++] = digits[i];
	}
	return w;
}

struct word word_at(double value)
{
	struct word w;

	snprintf(w.text, sizeof(w.text), "%g", round(value * 10) / 10);
	return w;
}
