/* SPDX-License-Identifier: Apache-2.0 */
/* The few things that every JSON of the tools has. */
#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cJSON *json_document(const char *schema)
{
	cJSON *document = cJSON_CreateObject();

	cJSON_AddStringToObject(document, "schema", schema);
	return document;
}

void json_add_rounded(cJSON *object, const char *name, double value)
{
	cJSON_AddNumberToObject(object, name, round(value * 1e3) / 1e3);
}

cJSON *json_ratio(double value)
{
	return cJSON_CreateNumber(round(value * 1e6) / 1e6);
}

void json_add_ratio(cJSON *object, const char *name, double value)
{
	cJSON_AddItemToObject(object, name, json_ratio(value));
}

const char *env_shown(const struct ferry_env *env)
{
	if (env->value && !strcmp(env->name, "FERRY_SECRET"))
		return "***"; /* this text ends in bug reports */
	return env->value;
}

cJSON *json_env(bool set_only)
{
	cJSON *array = cJSON_CreateArray();
	struct ferry_env env = FERRY_ENV_INIT;

	for (int i = 0; ferry_env_get(i, &env); i++) {
		if (set_only && !env.value)
			continue;
		cJSON *o = cJSON_CreateObject();

		cJSON_AddStringToObject(o, "name", env.name);
		cJSON_AddStringToObject(o, "type", env.type);
		cJSON_AddStringToObject(o, "default", env.default_text);
		cJSON_AddStringToObject(o, "help", env.help);
		if (env.value)
			cJSON_AddStringToObject(o, "value", env_shown(&env));
		else
			cJSON_AddNullToObject(o, "value");
		cJSON_AddItemToArray(array, o);
	}
	return array;
}

static bool write_text(const char *text, const char *path)
{
	const bool to_stdout = !strcmp(path, "-");
	FILE *f = to_stdout ? stdout : fopen(path, "w");

	if (!f)
		return false;
	const bool printed = fprintf(f, "%s\n", text) >= 0;
	const bool closed = to_stdout ? !fflush(f) : !fclose(f);

	return printed && closed;
}

bool json_write(cJSON *document, const char *path)
{
	char *text = cJSON_Print(document);

	cJSON_Delete(document);
	if (!text)
		errno = ENOMEM;
	const bool good = text && write_text(text, path);

	if (!good)
		fprintf(stderr, "ferry: cannot write %s: %s\n", path,
		        strerror(errno));
	free(text);
	return good;
}
