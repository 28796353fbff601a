/* SPDX-License-Identifier: Apache-2.0 */
/* --help by the table of options. */
#include "opt_help.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { HELP_COLUMN = 26, HELP_WIDTH = 79, HELP_BYTES = 512 };

/* Prints text from HELP_COLUMN on, broken at blanks. */
static void wrap(const char *text)
{
	const size_t width = HELP_WIDTH - HELP_COLUMN;

	while (strlen(text) > width) {
		size_t n = width;

		while (n > 1 && text[n] != ' ')
			n--;
		printf("%.*s\n%*s", (int)n, text, HELP_COLUMN, "");
		text += n + 1;
	}
	puts(text);
}

__attribute__((format(printf, 2, 3))) static void add(char *text,
                                                      const char *fmt, ...)
{
	const size_t used = strlen(text);
	va_list args;

	va_start(args, fmt);
	vsnprintf(text + used, HELP_BYTES - used, fmt, args);
	va_end(args);
}

static void print_option(const struct opt *o)
{
	char left[64], text[HELP_BYTES];
	const bool optional = o->type == OPT_FILE;

	snprintf(left, sizeof(left), "  %c%c%s--%s%s%s%s",
	         o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
	         o->letter ? ", " : "  ", o->name,
	         !o->arg    ? ""
	         : optional ? " ["
	                    : " ",
	         o->arg ? o->arg : "", optional ? "]" : "");
	snprintf(text, sizeof(text), "%s", o->help);
	for (int i = 0; o->choices && o->choices[i]; i++)
		add(text, "%s%s", i ? ", " : ": ", o->choices[i]);
	if (o->initial)
		add(text, " (default %s", o->initial);
	if (o->type == OPT_INT || o->type == OPT_LIST)
		add(text, "; %" PRId64 "..%" PRId64, o->min, o->max);
	if (o->initial)
		add(text, ")");
	if (strlen(left) < HELP_COLUMN)
		printf("%-*s", HELP_COLUMN, left);
	else
		printf("%s\n%*s", left, HELP_COLUMN, "");
	wrap(text);
}

void opt_help(const struct opt_command *command)
{
	static const struct opt help = {
		.name = "help", .letter = 'h', .help = "this text"};

	printf("%s: %s\n\nUsage: %s [options]%s%s\n\n", command->name,
	       command->summary, command->name, command->operands ? " " : "",
	       command->operands ? command->operands : "");
	for (const struct opt *o = command->options; o->name; o++)
		print_option(o);
	print_option(&help);
	printf("\nExamples:\n%s", command->examples);
}
