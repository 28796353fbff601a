/* SPDX-License-Identifier: Apache-2.0 */
/* Text piece by piece. */
#include "text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

void ferry_text_add(struct ferry_text *t, const char *fmt, ...)
{
	const bool fits = t->length < t->bytes;
	va_list args;

	va_start(args, fmt);
	const int n = vsnprintf(fits ? t->buffer + t->length : NULL,
	                        fits ? t->bytes - t->length : 0, fmt, args);
	va_end(args);
	t->length += n > 0 ? (size_t)n : 0;
}
