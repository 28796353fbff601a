/* SPDX-License-Identifier: Apache-2.0 */
/* Text piece by piece, and out of small files. */
#include "text.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

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

bool ferry_text_read(const char *path, char *text, size_t bytes)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	const ssize_t n = fd < 0 ? -1 : read(fd, text, bytes - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return n > 0;
}
