/* SPDX-License-Identifier: Apache-2.0 */
/* Markup with its elements in order: a small pushdown reader. */
#include "html_check.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_OPEN = 64 };

struct reader {
	const char *at;
	const char *names[MOST_OPEN]; /* of elements that are open */
	size_t lengths[MOST_OPEN];
	int n_open;
};

static size_t name_length(const char *at)
{
	size_t n = 0;

	while (isalnum((unsigned char)at[n]) || at[n] == '-' || at[n] == ':')
		n++;
	return n;
}

static void skip_space(struct reader *r)
{
	while (isspace((unsigned char)*r->at))
		r->at++;
}

/* &amp; &#39; and the like. */
static bool read_entity(struct reader *r)
{
	const size_t n = strcspn(r->at, ";");

	if (n < 2 || n > 6 || r->at[n] != ';')
		return false;
	r->at += n + 1;
	return true;
}

static bool read_value(struct reader *r)
{
	if (*r->at++ != '"')
		return false;
	while (*r->at && *r->at != '"') {
		if (*r->at == '<')
			return false;
		if (*r->at == '&') {
			if (!read_entity(r))
				return false;
			continue;
		}
		r->at++;
	}
	return *r->at++ == '"';
}

static bool read_attribute(struct reader *r)
{
	const size_t n = name_length(r->at);

	if (!n || r->at[n] != '=')
		return false;
	r->at += n + 1;
	return read_value(r);
}

static bool read_open(struct reader *r)
{
	const char *const name = r->at;
	const size_t n = name_length(name);

	if (!n || r->n_open == MOST_OPEN)
		return false;
	r->at += n;
	for (skip_space(r); *r->at && *r->at != '/' && *r->at != '>';
	     skip_space(r))
		if (!read_attribute(r))
			return false;
	if (*r->at == '/')
		return *++r->at == '>' && *r->at++;
	r->names[r->n_open] = name;
	r->lengths[r->n_open++] = n;
	return *r->at++ == '>';
}

static bool read_close(struct reader *r)
{
	const size_t n = name_length(++r->at);

	if (!r->n_open || r->lengths[--r->n_open] != n ||
	    memcmp(r->names[r->n_open], r->at, n) != 0)
		return false;
	r->at += n;
	return *r->at++ == '>';
}

static bool read_one(struct reader *r)
{
	switch (*r->at) {
	case '<':
		r->at++;
		return *r->at == '/' ? read_close(r) : read_open(r);
	case '&':
		return read_entity(r);
	case '>':
		/* Only style sheets have it: CSS, after <style>. */
		r->at++;
		return r->n_open && r->lengths[r->n_open - 1] == 5 &&
		       !memcmp(r->names[r->n_open - 1], "style", 5);
	default:
		r->at++;
		return true;
	}
}

const char *html_fault(const char *text)
{
	static const char head[] = "<!DOCTYPE html>\n";
	struct reader r = {.at = text};

	if (strncmp(text, head, sizeof(head) - 1) != 0)
		return text;
	r.at += sizeof(head) - 1;
	while (*r.at) {
		const char *const here = r.at;

		if (!read_one(&r))
			return here;
	}
	return r.n_open ? r.names[r.n_open - 1] : NULL;
}

size_t html_count(const char *text, const char *part)
{
	size_t n = 0;

	for (text = strstr(text, part); text; text = strstr(text, part)) {
		text += strlen(part);
		n++;
	}
	return n;
}
