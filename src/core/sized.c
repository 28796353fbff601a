/* SPDX-License-Identifier: Apache-2.0 */
/* Reads config structs of older and newer callers. */
#include "sized.h"

#include <string.h>

#include "ctx.h"

enum ferry_status ferry_sized_copy(void *to, size_t size, const void *from,
                                   const char *what)
{
	if (!from)
		return ferry_fail(NULL, FERRY_INVAL, "%s is NULL", what);
	size_t given;
	memcpy(&given, from, sizeof(given));
	if (given < sizeof(given) || given > 1 << 16)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "%s: size is %zu, it must be sizeof of the "
		                  "struct: use its INIT macro",
		                  what, given);
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
