/* SPDX-License-Identifier: Apache-2.0 */
/* ferry env: every variable that the library reads. */
#include <stdio.h>

#include <ferry/base.h>

#include "commands.h"
#include "json.h"
#include "opt.h"

struct env_options {
	bool set_only;
	bool json;
};

static const struct opt options[] = {
	{"set-only", 's', OPT_FLAG, offsetof(struct env_options, set_only),
         NULL, NULL, 0, 0, NULL, "only variables that are set"},
	{"json", 0, OPT_FLAG, offsetof(struct env_options, json), NULL, NULL, 0,
         0, NULL, "JSON instead of text"},
	{0},
};

static const struct opt_command command = {
	.name = "ferry env",
	.summary = "environment variables, defaults, values in force",
	.options = options,
	.examples = "  ferry env\n"
		    "  FERRY_SPIN_US=5 ferry env --set-only\n",
};

/* Quoted for a shell. */
static void print_assignment(const char *name, const char *value)
{
	printf("%s='", name);
	for (; *value; value++)
		if (*value == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*value);
	puts("'");
}

/* A comment and an assignment: the output can be sourced by a shell. */
static void print_text(bool set_only)
{
	struct ferry_env env = FERRY_ENV_INIT;

	for (int i = 0; ferry_env_get(i, &env); i++) {
		if (set_only && !env.value)
			continue;
		printf("# %s: %s, default '%s'. %s.\n", env.name, env.type,
		       env.default_text, env.help);
		if (!env.value)
			putchar('#');
		print_assignment(env.name, env.value ? env_shown(&env)
		                                     : env.default_text);
	}
}

static int print_json(bool set_only)
{
	cJSON *document = json_document("ferry-env-1");

	cJSON_AddItemToObject(document, "variables", json_env(set_only));
	return json_write(document, "-") ? EXIT_GOOD : EXIT_FAILED;
}

int cmd_env(int argc, char **argv)
{
	struct env_options o = {0};
	int first;
	const int status = opt_parse(&command, argc, argv, &o, &first);

	if (status != OPT_GO_ON)
		return status;
	if (o.json)
		return print_json(o.set_only);
	print_text(o.set_only);
	return EXIT_GOOD;
}
