/* SPDX-License-Identifier: Apache-2.0 */
/*
 * man_tables IN OUT: copies a manual page in Markdown and puts the library's
 * own tables where it says @env@, @status@ or @version@, so that no page can
 * differ from the code.
 */
#include <stdio.h>
#include <string.h>

#include <ferry/base.h>

/* Types of env.def in words. */
#define TYPE_INT    "integer"
#define TYPE_COUNT  "integer, 0 or more"
#define TYPE_MS     "milliseconds"
#define TYPE_STRING "string"
#define TYPE_CHOICE "choice"

static void put_env(FILE *out)
{
#define X(field, name, type, value, help)                                      \
	fprintf(out, "`FERRY_%s` (%s, default %s)\n: %s.\n\n", #name,          \
	        TYPE_##type, value[0] ? value : "empty", help);
#include "core/env.def"
#undef X
}

static void put_status(FILE *out)
{
#define X(name, value, text)                                                   \
	fprintf(out, "`FERRY_%s` (%d)\n: %s.\n\n", #name, value, text);
	FERRY_STATUS_MAP(X)
#undef X
}

static void put_version(FILE *out)
{
	fprintf(out, "%d.%d.%d\n", FERRY_VERSION_MAJOR, FERRY_VERSION_MINOR,
	        FERRY_VERSION_PATCH);
}

static void copy(FILE *in, FILE *out)
{
	char line[4096];

	while (fgets(line, sizeof(line), in)) {
		if (!strcmp(line, "@env@\n"))
			put_env(out);
		else if (!strcmp(line, "@status@\n"))
			put_status(out);
		else if (!strcmp(line, "@version@\n"))
			put_version(out);
		else
			fputs(line, out);
	}
}

int main(int argc, char **argv)
{
	FILE *in = argc == 3 ? fopen(argv[1], "r") : NULL;
	FILE *out = in ? fopen(argv[2], "w") : NULL;

	if (!out) {
		fprintf(stderr, "usage: man_tables IN OUT, both readable\n");
		return 2;
	}
	copy(in, out);
	fclose(in);
	return fclose(out) ? 1 : 0;
}
