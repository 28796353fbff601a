/* SPDX-License-Identifier: Apache-2.0 */
/* The few things that every JSON of the tools has. */
#ifndef FERRY_JSON_H
#define FERRY_JSON_H

#include <stdbool.h>

#include <cjson/cJSON.h>
#include <ferry/base.h>

/* {"schema": schema}; every document begins so. */
cJSON *json_document(const char *schema);

/* A number with at most three decimals, for microseconds and the like. */
void json_add_rounded(cJSON *object, const char *name, double value);

/* Six decimals, for ratios, which are compared with each other. */
cJSON *json_ratio(double value);
void json_add_ratio(cJSON *object, const char *name, double value);

/* Array of the variables that the library reads, or of those that are set. */
cJSON *json_env(bool set_only);

/* The value in force; stars for a secret; NULL when unset. */
const char *env_shown(const struct ferry_env *env);

/*
 * Writes the document, with a newline, to a file, "-" for stdout, and frees
 * it. False after a complaint on stderr.
 */
bool json_write(cJSON *document, const char *path);

#endif
