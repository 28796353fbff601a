/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of tokenizers are written for Oniguruma in Ruby's syntax, and
 * matched here by PCRE2. Most of both languages is alike; this file rewrites
 * what has another spelling (\s, \d, scripts) and refuses what means something
 * else in the other (anchors, nested classes, \w, \h, intervals with a suffix
 * ...), so that what is accepted cuts every text alike: all but characters that
 * only one of the libraries knows. PCRE2 10.42 has Unicode 14, the reference of
 * 2026 has 16, and 9392 characters have come between (tokenizer_compare.py
 * --points).
 */
#include <stdio.h>
#include <string.h>

#include "lm_tokenizer_parts.h"

/* White_Space of Unicode, which \s means there; PCRE2's own has U+180E too. */
#define SPACES                                                                 \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"       \
	"\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

struct scan {
	const char *name, *pattern, *at;
	struct lm_buffer *out;
	struct fault *fault;
};

static bool put(struct scan *scan, const char *bytes, size_t n)
{
	scan->at += n;
	return lm_buffer_add(scan->out, bytes, n, scan->fault);
}

static bool put_text(struct scan *scan, const char *text, size_t n_read)
{
	scan->at += n_read;
	return lm_buffer_add(scan->out, text, strlen(text), scan->fault);
}

/* Refuses n bytes of the pattern. */
static bool refuse(const struct scan *scan, size_t n)
{
	const struct lm_shown part = lm_shown(scan->at, n);

	return fault_set(scan->fault,
	                 "%s: pattern of the pre-tokenizer: byte %td: \"%s\" "
	                 "is not supported",
	                 scan->name, scan->at - scan->pattern, part.text);
}

/* \p{...}: general categories are alike; other names are those of scripts. */
static bool property(struct scan *scan)
{
	const char *const at = scan->at;
	const size_t skip = at[2] == '{' && at[3] == '^' ? 4 : 3;
	char text[64];

	if (at[2] != '{')
		return refuse(scan, 2);
	const size_t n = strspn(at + skip, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	                                   "abcdefghijklmnopqrstuvwxyz");
	const bool category = n <= 2 && strchr("CLMNPSZ", at[skip]);

	if (!n || n > 32 || at[skip + n] != '}')
		return refuse(scan, skip + n);
	snprintf(text, sizeof(text), "\\%c{%s%s%.*s}", at[1],
	         skip == 4 ? "^" : "", category ? "" : "sc:", (int)n,
	         at + skip);
	return put_text(scan, text, skip + n + 1);
}

static bool escape(struct scan *scan, bool in_class)
{
	const char c = scan->at[1];

	switch (c) {
	case '\0':
		return refuse(scan, 1);
	case 'r':
	case 'n':
	case 't':
	case 'f':
		return put(scan, scan->at, 2);
	case 's':
		return put_text(scan, in_class ? SPACES : "[" SPACES "]", 2);
	case 'S':
		return in_class ? refuse(scan, 2)
		                : put_text(scan, "[^" SPACES "]", 2);
	case 'd':
		return put_text(scan, "\\p{Nd}", 2);
	case 'D':
		return put_text(scan, "\\P{Nd}", 2);
	case 'p':
	case 'P':
		return property(scan);
	default:
		return strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ", c)
		               ? put(scan, scan->at, 2)
		               : refuse(scan, 2);
	}
}

/* [...]: without classes in it, intersections or an empty one. */
static bool class(struct scan *scan)
{
	const char *const start = scan->at;
	const size_t head = start[1] == '^' ? 2 : 1;

	if (start[head] == ']')
		return refuse(scan, head + 1);
	if (!put(scan, start, head))
		return false;
	while (*scan->at && *scan->at != ']') {
		bool good;

		if (*scan->at == '\\')
			good = escape(scan, true);
		else if (*scan->at == '[' || !strncmp(scan->at, "&&", 2))
			good = refuse(scan, 2);
		else
			good = put(scan, scan->at, 1);
		if (!good)
			return false;
	}
	if (*scan->at)
		return put(scan, scan->at, 1);
	scan->at = start;
	return refuse(scan, strlen(start));
}

static bool group(struct scan *scan)
{
	static const char *const known[] = {"(?:", "(?i:", "(?=", "(?!",
	                                    "(?>", "(?<=", "(?<!"};

	if (scan->at[1] == '*')
		return refuse(scan, 2);
	if (scan->at[1] != '?')
		return put(scan, scan->at, 1);
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strncmp(scan->at, known[i], strlen(known[i])))
			return put(scan, known[i], strlen(known[i]));
	return refuse(scan, 3);
}

/* {n}, {n,} and {n,m} are alike, but not with ? or + behind, nor {,m}. */
static bool interval(struct scan *scan)
{
	const char *at = scan->at + 1;
	const size_t n_digits = strspn(at, "0123456789");

	at += n_digits;
	if (*at == ',')
		at += 1 + strspn(at + 1, "0123456789");
	if (!n_digits || *at != '}' || (at[1] && strchr("?+*", at[1])))
		return refuse(scan, (size_t)(at - scan->at) + 1);
	return put(scan, scan->at, (size_t)(at - scan->at) + 1);
}

static bool item(struct scan *scan)
{
	switch (*scan->at) {
	case '\\':
		return escape(scan, false);
	case '[':
		return class(scan);
	case '(':
		return group(scan);
	case '{':
		return interval(scan);
	case '^':
	case '$':
		return refuse(scan, 1);
	default:
		return put(scan, scan->at, 1);
	}
}

bool lm_pattern_translate(const char *name, const char *pattern,
                          struct lm_buffer *out, struct fault *fault)
{
	struct scan scan = {name, pattern, pattern, out, fault};

	while (*scan.at)
		if (!item(&scan))
			return false;
	return lm_buffer_add(out, "", 1, fault);
}
