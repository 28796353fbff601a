/* SPDX-License-Identifier: Apache-2.0 */
/* Reads config structs of older and newer callers. */
#include "sized.h"

#include <string.h>

#include "ctx.h"

/* What the caller says that the struct's size is. */
static enum ferry_status size_of(const void *caller, const char *what,
                                 size_t *given)
{
	if (!caller)
		return ferry_fail(NULL, FERRY_INVAL, "%s is NULL", what);
	memcpy(given, caller, sizeof(*given));
	if (*given >= sizeof(*given) && *given <= 1 << 16)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_INVAL,
	                  "%s: size is %zu, it must be sizeof of the struct: "
	                  "use its INIT macro",
	                  what, *given);
}

enum ferry_status ferry_sized_copy(void *to, size_t size, const void *from,
                                   const char *what)
{
	size_t given = 0;

	FERRY_TRY(size_of(from, what, &given));
	const size_t known = given < size ? given : size;
	const unsigned char *bytes = from;

	for (size_t i = known; i < given; i++)
		if (bytes[i])
			return ferry_fail(NULL, FERRY_INVAL,
			                  "%s: size is %zu and byte %zu is not "
			                  "zero, this library knows %zu bytes",
			                  what, given, i, size);
	memset(to, 0, size);
	memcpy(to, from, known);
	memcpy(to, &size, sizeof(size));
	return FERRY_OK;
}

enum ferry_status ferry_sized_give(void *to, const void *from, size_t size,
                                   const char *what)
{
	const size_t skip = sizeof(size_t);
	size_t given = 0;

	FERRY_TRY(size_of(to, what, &given));
	memcpy((char *)to + skip, (const char *)from + skip,
	       (given < size ? given : size) - skip);
	return FERRY_OK;
}
