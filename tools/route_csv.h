/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comma-separated values, line by line, field by field: what the files of loads
 * need. Lines that begin with # are comments. A field may stand in double
 * quotes; it ends with its line all the same.
 */
#ifndef FERRY_ROUTE_CSV_H
#define FERRY_ROUTE_CSV_H

#include "route_parts.h"

struct route_csv {
	const char *name;
	const char *at, *end;         /* the next line begins at `at` */
	const char *field, *line_end; /* the next field; NULL: no more */
	int64_t line;                 /* number of the line at work, from 1 */
	int32_t column;               /* of the last field, from 1 */
};

/* A field, without its quotes and the blanks around it. */
struct route_field {
	const char *text;
	size_t n;
};

void route_csv_begin(struct route_csv *csv, const struct route_bytes *in);

/* Goes to the next line that is neither empty nor a comment. */
bool route_csv_line(struct route_csv *csv);

/* Takes the next field of the line; false when there is none. */
bool route_csv_field(struct route_csv *csv, struct route_field *field);

/* Takes one that must be there. */
bool route_csv_need(struct route_csv *csv, const char *what,
                    struct route_field *field, struct fault *fault);

/* A number, and what it may be. */
struct route_number {
	const char *what;
	int64_t min, max; /* min is 0 or -1 */
	int64_t value;
};

/* The number in the field that was taken last. */
bool route_csv_number(const struct route_csv *csv,
                      const struct route_field *field,
                      struct route_number *number, struct fault *fault);

/* Takes a field that must be there and must be a number. */
bool route_csv_take(struct route_csv *csv, struct route_number *number,
                    struct fault *fault);

/* Complains unless the line is at its end. */
bool route_csv_end(struct route_csv *csv, struct fault *fault);

bool route_field_is(const struct route_field *field, const char *text);
bool route_field_same(const struct route_field *a, const struct route_field *b);

#endif
