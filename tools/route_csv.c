/* SPDX-License-Identifier: Apache-2.0 */
/* Comma-separated values, line by line, field by field. */
#include "route_csv.h"

#include <inttypes.h>
#include <string.h>

void route_csv_begin(struct route_csv *csv, const struct route_bytes *in)
{
	*csv = (struct route_csv){
		.name = in->name, .at = in->bytes, .end = in->bytes + in->n};
	/* What some editors put first: U+FEFF. */
	if (in->n >= 3 && !memcmp(in->bytes, "\xef\xbb\xbf", 3))
		csv->at += 3;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

bool route_csv_line(struct route_csv *csv)
{
	while (csv->at < csv->end) {
		const char *const line = csv->at;
		const char *const newline =
			memchr(line, '\n', (size_t)(csv->end - line));
		const char *first = line;

		csv->line_end = newline ? newline : csv->end;
		csv->at = newline ? newline + 1 : csv->end;
		csv->line++;
		while (first < csv->line_end && is_blank(*first))
			first++;
		if (first == csv->line_end || *first == '#')
			continue;
		csv->field = line;
		csv->column = 0;
		return true;
	}
	csv->field = NULL;
	return false;
}

static void trim(struct route_field *field)
{
	while (field->n && is_blank(field->text[0])) {
		field->text++;
		field->n--;
	}
	while (field->n && is_blank(field->text[field->n - 1]))
		field->n--;
	if (field->n >= 2 && field->text[0] == '"' &&
	    field->text[field->n - 1] == '"') {
		field->text++;
		field->n -= 2;
	}
}

bool route_csv_field(struct route_csv *csv, struct route_field *field)
{
	bool quoted = false;

	if (!csv->field)
		return false;
	const char *const first = csv->field;
	const char *c = first;

	for (; c < csv->line_end && (quoted || *c != ','); c++)
		quoted ^= *c == '"';
	csv->field = c < csv->line_end ? c + 1 : NULL;
	csv->column++;
	*field = (struct route_field){first, (size_t)(c - first)};
	trim(field);
	return true;
}

bool route_csv_need(struct route_csv *csv, const char *what,
                    struct route_field *field, struct fault *fault)
{
	if (route_csv_field(csv, field))
		return true;
	return fault_set(fault,
	                 "%s:%" PRId64 ": the line ends after column %d, "
	                 "column %d is to be %s",
	                 csv->name, csv->line, csv->column, csv->column + 1,
	                 what);
}

/* Digits, perhaps behind a minus; false for anything else and beyond max. */
static bool parse(const struct route_field *field, int64_t max, int64_t *value)
{
	const bool minus = field->n > 1 && field->text[0] == '-';
	int64_t sum = 0;

	for (size_t i = minus; i < field->n; i++) {
		const char c = field->text[i];

		if (c < '0' || c > '9' || sum > max)
			return false;
		sum = sum * 10 + (c - '0');
	}
	*value = minus ? -sum : sum;
	return field->n > 0 && sum <= max;
}

bool route_csv_number(const struct route_csv *csv,
                      const struct route_field *field,
                      struct route_number *number, struct fault *fault)
{
	int64_t value;

	if (parse(field, number->max, &value) && value >= number->min) {
		number->value = value;
		return true;
	}
	return fault_set(fault,
	                 "%s:%" PRId64
	                 ": column %d (%s) is '%.*s', allowed is a whole "
	                 "number %" PRId64 "..%" PRId64,
	                 csv->name, csv->line, csv->column, number->what,
	                 field->n > 40 ? 40 : (int)field->n, field->text,
	                 number->min, number->max);
}

bool route_csv_take(struct route_csv *csv, struct route_number *number,
                    struct fault *fault)
{
	struct route_field field;

	return route_csv_need(csv, number->what, &field, fault) &&
	       route_csv_number(csv, &field, number, fault);
}

bool route_csv_end(struct route_csv *csv, struct fault *fault)
{
	struct route_field field;

	if (!route_csv_field(csv, &field))
		return true;
	return fault_set(fault,
	                 "%s:%" PRId64 ": column %d is one too many: '%.*s'",
	                 csv->name, csv->line, csv->column,
	                 field.n > 40 ? 40 : (int)field.n, field.text);
}

bool route_field_is(const struct route_field *field, const char *text)
{
	return field->n == strlen(text) && !memcmp(field->text, text, field->n);
}

bool route_field_same(const struct route_field *a, const struct route_field *b)
{
	/* A field that was never read has no text. */
	return a->n == b->n && (!a->n || !memcmp(a->text, b->text, a->n));
}
