/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of files that users bring. */
#include "json_read.h"

#include <string.h>

cJSON *json_read_object(const char *name, size_t at, const char *text, size_t n,
                        struct fault *fault)
{
	const char *end = text;
	cJSON *const json = cJSON_ParseWithLengthOpts(text, n, &end, false);

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
