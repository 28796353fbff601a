/* SPDX-License-Identifier: Apache-2.0 */
/* The environment table: its parser, its check, its public face. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctx.h"
#include "nearest.h"
#include "sized.h"

enum option_type {
	OPTION_INT,
	OPTION_COUNT,
	OPTION_MS,
	OPTION_STRING,
	OPTION_CHOICE,
};

struct option {
	const char *name; /* with FERRY_ */
	enum option_type type;
	size_t offset; /* in struct ferry_options */
	const char *default_text;
	const char *help;
};

static const struct option options[] = {
#define X(field, name, type, value, help)                                      \
	{"FERRY_" #name, OPTION_##type, offsetof(struct ferry_options, field), \
	 value, help},
#include "env.def"
#undef X
};

static const char *const names[] = {
#define X(field, name, type, value, help) "FERRY_" #name,
#include "env.def"
#undef X
};

enum { N_OPTIONS = sizeof(options) / sizeof(*options) };

static const char prefix[] = "FERRY_";
enum { PREFIX_BYTES = sizeof(prefix) - 1 };

/* Decimal with suffix k, m or g; false for anything else. */
static bool parse_int(const char *text, int64_t *value)
{
	static const char suffixes[] = "kmg";
	char *end;

	if (isspace((unsigned char)*text))
		return false;
	errno = 0;
	int64_t v = strtoll(text, &end, 10);
	if (end == text || errno)
		return false;
	if (*end) {
		const char *s = strchr(suffixes, tolower((unsigned char)*end));

		if (!s || end[1])
			return false;
		const int64_t unit = INT64_C(1) << 10 * (s - suffixes + 1);
		if (__builtin_mul_overflow(v, unit, &v))
			return false;
	}
	*value = v;
	return true;
}

static enum ferry_status set_int(struct ferry_ctx *ctx, const struct option *o,
                                 const char *name, const char *text,
                                 int64_t *field)
{
	static const int64_t lowest[] = {
		[OPTION_INT] = -1, [OPTION_COUNT] = 0, [OPTION_MS] = 1};
	const int64_t low = lowest[o->type];
	const int64_t high = o->type == OPTION_INT ? INT64_MAX : INT32_MAX;
	int64_t value;

	if (!parse_int(text, &value) || value < low || value > high)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "options: %s is '%.64s', allowed is a whole "
		                  "number %" PRId64 "..%" PRId64
		                  " (suffix k, m, g): %s",
		                  name, text, low, high, o->help);
	*field = value;
	return FERRY_OK;
}

/* Is text one of the comma separated words of the list? */
static bool is_choice(const char *list, const char *text)
{
	const size_t n = strlen(text);

	for (const char *p = list; *p; p += strspn(p, ", ")) {
		const size_t word = strcspn(p, ", ");

		if (word == n && !memcmp(p, text, n))
			return true;
		p += word;
	}
	return false;
}

static enum ferry_status set_string(struct ferry_ctx *ctx,
                                    const struct option *o, const char *name,
                                    const char *text, char *field)
{
	const size_t n = strlen(text);

	if (o->type == OPTION_CHOICE) {
		const char *list = strrchr(o->help, ':') + 2;

		if (!is_choice(list, text))
			return ferry_fail(ctx, FERRY_INVAL,
			                  "options: %s is '%.64s', allowed is "
			                  "one of %s",
			                  name, text, list);
	}
	/* The text itself is not shown: it may be a secret. */
	if (n >= FERRY_OPTION_BYTES)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "options: %s has %zu bytes, allowed are %d",
		                  name, n, FERRY_OPTION_BYTES - 1);
	memcpy(field, text, n + 1);
	return FERRY_OK;
}

/* `name` is how the user wrote it, with FERRY_ or without. */
static enum ferry_status set(struct ferry_ctx *ctx, struct ferry_options *opt,
                             const struct option *o, const char *name,
                             const char *text)
{
	char *field = (char *)opt + o->offset;

	if (!*text)
		text = o->default_text;
	if (o->type < OPTION_STRING)
		return set_int(ctx, o, name, text, (int64_t *)(void *)field);
	return set_string(ctx, o, name, text, field);
}

static const struct option *find(const char *name)
{
	for (int i = 0; i < N_OPTIONS; i++)
		if (!strcmp(options[i].name, name))
			return &options[i];
	return NULL;
}

/* ", did you mean X?" or nothing; X without its first `skip` bytes. */
static void suggest(char *text, size_t bytes, const char *name, int skip)
{
	const char *nearest = ferry_nearest(name, names, N_OPTIONS);

	if (nearest)
		snprintf(text, bytes, ", did you mean %s?", nearest + skip);
	else
		text[0] = 0;
}

/* One "NAME=VALUE" of the overrides, n bytes. */
static enum ferry_status override(struct ferry_ctx *ctx,
                                  struct ferry_options *opt, const char *pair,
                                  size_t n)
{
	char name[64];
	char value[FERRY_OPTION_BYTES + 1];
	char hint[96];
	const char *equal = memchr(pair, '=', n);

	if (!equal)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "options: '%.*s' is not NAME=VALUE",
		                  (int)(n < 64 ? n : 64), pair);
	snprintf(name, sizeof(name), "%s%.*s", prefix, (int)(equal - pair),
	         pair);
	snprintf(value, sizeof(value), "%.*s",
	         (int)(n - (size_t)(equal - pair) - 1), equal + 1);
	const struct option *o = find(name);
	if (o)
		return set(ctx, opt, o, name + PREFIX_BYTES, value);
	/* With the prefix of the environment, as people will write it, too. */
	const bool prefixed =
		!strncmp(name + PREFIX_BYTES, prefix, PREFIX_BYTES);
	suggest(hint, sizeof(hint), name + (prefixed ? PREFIX_BYTES : 0),
	        PREFIX_BYTES);
	return ferry_fail(ctx, FERRY_INVAL, "options: %s is not known%s",
	                  name + PREFIX_BYTES, hint);
}

enum ferry_status ferry_options_read(struct ferry_ctx *ctx,
                                     const char *overrides,
                                     struct ferry_options *opt)
{
	struct ferry_options result;

	memset(&result, 0, sizeof(result));
	for (int i = 0; i < N_OPTIONS; i++) {
		const struct option *o = &options[i];
		const char *text = getenv(o->name);

		FERRY_TRY(set(ctx, &result, o, o->name, text ? text : ""));
	}
	for (const char *p = overrides ? overrides : ""; *p;) {
		const size_t n = strcspn(p, ";");

		if (n)
			FERRY_TRY(override(ctx, &result, p, n));
		p += n + (p[n] == ';');
	}
	*opt = result;
	return FERRY_OK;
}

void ferry_env_check(struct ferry_ctx *ctx)
{
	for (char **e = environ; e && *e; e++) {
		char name[64];
		char hint[96];

		if (strncmp(*e, prefix, PREFIX_BYTES))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
		if (find(name))
			continue;
		suggest(hint, sizeof(hint), name, 0);
		ferry_log(ctx, FERRY_LOG_WARN, "environment: %s is not known%s",
		          name, hint);
	}
}

bool ferry_env_get(int i, struct ferry_env *env)
{
	static const char *const types[] = {"int", "int", "int", "string",
	                                    "choice"};

	if (i < 0 || i >= N_OPTIONS)
		return false;
	const struct option *o = &options[i];

	struct ferry_env found = {
		.size = sizeof(found),
		.name = o->name,
		.type = types[o->type],
		.default_text = o->default_text,
		.help = o->help,
		.value = getenv(o->name),
	};

	/* A list of settings ends up in bug reports; the secret must not. */
	if (found.value && !strcmp(o->name, "FERRY_SECRET"))
		found.value = "(set)";
	return ferry_sized_give(env, &found, sizeof(found), "env") == FERRY_OK;
}
