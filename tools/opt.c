/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing by the table. Help is in opt_help.c. */
#include "opt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"
#include "opt_help.h"

int opt_complain(const struct opt_command *command, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", command->name);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	return EXIT_USAGE;
}

/* A number at *text, which moves behind it. */
static bool take_int(const char **text, int64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoll(*text, &end, 10);
	if (end == *text || errno || strchr(" \t\n", **text))
		return false;
	const int shift = *end == 'k'   ? 10
	                  : *end == 'm' ? 20
	                  : *end == 'g' ? 30
	                                : 0;

	*text = shift ? end + 1 : end;
	return !__builtin_mul_overflow(*value, INT64_C(1) << shift, value);
}

bool opt_parse_int(const char *text, int64_t *value)
{
	return take_int(&text, value) && !*text;
}

static bool list_add(struct opt_list *list, int64_t value)
{
	if (list->n == OPT_LIST_MAX)
		return false;
	list->values[list->n++] = value;
	return true;
}

/* Behind "first:": "last:+step" or "last:xfactor". */
static bool take_range(const char **text, int64_t first, struct opt_list *list)
{
	int64_t last, step;

	if (!take_int(text, &last) || *(*text)++ != ':')
		return false;
	const char how = *(*text)++;

	if ((how != '+' && how != 'x') || !take_int(text, &step))
		return false;
	if (how == 'x' ? step < 2 || first < 1 : step < 1)
		return false;
	for (int64_t v = first; v <= last;
	     how == 'x' ? (v *= step) : (v += step))
		if (!list_add(list, v))
			return false;
	return true;
}

static bool parse_list(const char *text, struct opt_list *list)
{
	list->n = 0;
	for (;;) {
		int64_t value;

		if (!take_int(&text, &value))
			return false;
		if (*text == ':') {
			text++;
			if (!take_range(&text, value, list))
				return false;
		} else if (!list_add(list, value)) {
			return false;
		}
		if (!*text)
			return list->n > 0;
		if (*text++ != ',')
			return false;
	}
}

static int complain_range(const struct opt_command *command,
                          const struct opt *opt, int64_t value)
{
	return opt_complain(command,
	                    "--%s is %" PRId64 ", allowed is %" PRId64
	                    "..%" PRId64,
	                    opt->name, value, opt->min, opt->max);
}

static int set_int(const struct opt_command *command, const struct opt *opt,
                   const char *text, int64_t *field)
{
	if (!opt_parse_int(text, field))
		return opt_complain(command,
		                    "--%s is '%s', allowed is a whole number "
		                    "%" PRId64 "..%" PRId64 " (suffix k, m, g)",
		                    opt->name, text, opt->min, opt->max);
	if (*field < opt->min || *field > opt->max)
		return complain_range(command, opt, *field);
	return OPT_GO_ON;
}

static int set_list(const struct opt_command *command, const struct opt *opt,
                    const char *text, struct opt_list *field)
{
	if (!parse_list(text, field))
		return opt_complain(command,
		                    "--%s is '%s', allowed are up to %d "
		                    "numbers: 1,128 or 0:64:+16 or 1:4k:x2",
		                    opt->name, text, OPT_LIST_MAX);
	for (int i = 0; i < field->n; i++)
		if (field->values[i] < opt->min || field->values[i] > opt->max)
			return complain_range(command, opt, field->values[i]);
	return OPT_GO_ON;
}

static int set_choice(const struct opt_command *command, const struct opt *opt,
                      const char *text, int *field)
{
	char allowed[256] = "";
	int n = 0;

	for (; opt->choices[n]; n++) {
		if (!strcmp(opt->choices[n], text)) {
			*field = n;
			return OPT_GO_ON;
		}
		const size_t used = strlen(allowed);

		snprintf(allowed + used, sizeof(allowed) - used, "%s%s",
		         n ? ", " : "", opt->choices[n]);
	}
	return opt_complain(command, "--%s is '%s', allowed is %s", opt->name,
	                    text, allowed);
}

static int add_text(const struct opt_command *command, const struct opt *opt,
                    const char *text, struct opt_texts *field)
{
	if (field->n == OPT_LIST_MAX)
		return opt_complain(command, "--%s has more than %d values",
		                    opt->name, OPT_LIST_MAX);
	field->values[field->n++] = text;
	return OPT_GO_ON;
}

static int set(const struct opt_command *command, const struct opt *opt,
               const char *text, void *values)
{
	void *const field = (char *)values + opt->offset;

	switch (opt->type) {
	case OPT_FLAG:
		*(bool *)field = true;
		return OPT_GO_ON;
	case OPT_INT:
		return set_int(command, opt, text, field);
	case OPT_TEXT:
	case OPT_FILE:
		*(const char **)field = text;
		return OPT_GO_ON;
	case OPT_CHOICE:
		return set_choice(command, opt, text, field);
	case OPT_LIST:
		return set_list(command, opt, text, field);
	case OPT_TEXTS:
		return add_text(command, opt, text, field);
	}
	return OPT_GO_ON;
}

/* This command's name for an option that others have; NULL: none. */
static const char *name_here(const struct opt_command *command,
                             const char *there)
{
	const struct opt_elsewhere *e = command->elsewhere;

	while (e && e->there && strcmp(e->there, there) != 0)
		e++;
	return e ? e->here : NULL;
}

static int unknown(const struct opt_command *command, const char *name,
                   size_t name_bytes)
{
	const char *names[OPT_LIST_MAX] = {"help"};
	size_t n = 1;
	char word[64];

	for (const struct opt *o = command->options; o->name; o++)
		names[n++] = o->name;
	snprintf(word, sizeof(word), "%.*s", (int)name_bytes, name);
	const char *const here = name_here(command, word);
	const char *const near = here ? here : ferry_nearest(word, names, n);

	return opt_complain(command, "unknown option --%s%s%s%s", word,
	                    near ? ", did you mean --" : "", near ? near : "",
	                    near ? "?" : "; --help lists all");
}

static const struct opt *find(const struct opt_command *command,
                              const char *name, size_t name_bytes, char letter)
{
	for (const struct opt *o = command->options; o->name; o++)
		if (letter ? o->letter == letter
		           : strlen(o->name) == name_bytes &&
		                     !memcmp(o->name, name, name_bytes))
			return o;
	return NULL;
}

/* The value of an option: behind '=', or the next word, which *i moves to. */
static int take_value(const struct opt_command *command, const struct opt *opt,
                      const char *inlined, char **argv, int *i,
                      const char **value)
{
	const char *next = argv[*i + 1];

	*value = inlined;
	if (opt->type == OPT_FLAG) {
		if (inlined)
			return opt_complain(command, "--%s takes no value",
			                    opt->name);
	} else if (opt->type == OPT_FILE && !inlined) {
		const bool given = next && (next[0] != '-' || !next[1]);

		*value = given ? argv[++*i] : "-";
	} else if (!inlined) {
		if (!next)
			return opt_complain(command, "--%s needs a value: %s",
			                    opt->name, opt->arg);
		*value = argv[++*i];
	}
	return OPT_GO_ON;
}

/* Values behind the first one, up to the next option; *i moves to the last. */
static int take_more(const struct opt_command *command, const struct opt *opt,
                     char **argv, int *i, void *values)
{
	int status = OPT_GO_ON;

	while (status == OPT_GO_ON && argv[*i + 1] && argv[*i + 1][0] != '-')
		status = set(command, opt, argv[++*i], values);
	return status;
}

/* argv[*i] is an option; *i moves to its last word. */
static int parse_one(const struct opt_command *command, char **argv, int *i,
                     void *values)
{
	const char *word = argv[*i];
	const bool is_long = word[1] == '-';
	const char *name = word + (is_long ? 2 : 1);
	const size_t n = is_long ? strcspn(name, "=") : 1;
	const char *inlined = name[n] == '\0' ? NULL
	                      : is_long       ? name + n + 1
	                                      : name + n;
	const char *value;

	if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
		opt_help(command);
		return EXIT_GOOD;
	}
	const struct opt *opt = find(command, name, n, is_long ? 0 : *name);

	if (!opt && is_long)
		return unknown(command, name, n);
	if (!opt)
		return opt_complain(
			command, "unknown option -%c; --help lists all", *name);
	int status = take_value(command, opt, inlined, argv, i, &value);

	if (status == OPT_GO_ON)
		status = set(command, opt, value, values);
	if (status == OPT_GO_ON && opt->type == OPT_TEXTS)
		status = take_more(command, opt, argv, i, values);
	return status;
}

int opt_parse(const struct opt_command *command, int argc, char **argv,
              void *values, int *first)
{
	int i, status = OPT_GO_ON;

	for (const struct opt *o = command->options; o->name; o++)
		if (o->initial)
			set(command, o, o->initial, values);
	for (i = 1; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		status = parse_one(command, argv, &i, values);
		if (status != OPT_GO_ON)
			return status;
	}
	*first = i;
	if (i < argc && !command->operands)
		return opt_complain(command, "unexpected argument '%s'",
		                    argv[i]);
	return OPT_GO_ON;
}
