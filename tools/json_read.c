/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of files that users bring. */
#include "json_read.h"

#include <stdint.h>
#include <string.h>

/* Does the text end within an object that it begins with? */
static bool is_cut_off(const char *text, size_t n)
{
	bool in_string = false;
	int64_t depth = 0;
	size_t i = 0;

	while (i < n && strchr(" \t\r\n", text[i]) && text[i])
		i++;
	if (i == n || text[i] != '{')
		return false;
	for (; i < n; i++) {
		if (in_string && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			in_string = !in_string;
		else if (!in_string)
			depth += (text[i] == '{' || text[i] == '[') -
			         (text[i] == '}' || text[i] == ']');
		if (!depth)
			return false;
	}
	return true;
}

cJSON *json_read_object(const char *name, size_t at, const char *text, size_t n,
                        struct fault *fault)
{
	const char *end = text;
	cJSON *const json = cJSON_ParseWithLengthOpts(text, n, &end, false);

	if (!json && is_cut_off(text, n)) {
		fault_set(fault, "%s: byte %zu: the file ends within its JSON",
		          name, at + n);
		return NULL;
	}
	if (!cJSON_IsObject(json)) {
		fault_set(fault, "%s: byte %zu: no JSON object", name,
		          at + (size_t)(end - text));
		cJSON_Delete(json);
		return NULL;
	}
	while (end < text + n && *end && strchr(" \t\r\n", *end))
		end++;
	if (end == text + n)
		return json;
	fault_set(fault, "%s: byte %zu: the JSON has ended before", name,
	          at + (size_t)(end - text));
	cJSON_Delete(json);
	return NULL;
}

bool json_read_member(const char *name, const cJSON *object, const char *key,
                      const cJSON **item, struct fault *fault)
{
	const cJSON *each;

	*item = NULL;
	cJSON_ArrayForEach(each, object)
	{
		if (strcmp(each->string, key) != 0)
			continue;
		if (*item)
			return fault_set(fault,
			                 "%s: %s is there twice, allowed is "
			                 "once",
			                 name, key);
		*item = each;
	}
	return true;
}
