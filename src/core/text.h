/* SPDX-License-Identifier: Apache-2.0 */
/* Text into a caller's buffer, counted as snprintf does; and small files. */
#ifndef FERRY_TEXT_H
#define FERRY_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* What was written so far; length goes on past the end of the buffer. */
struct ferry_text {
	char *buffer;
	size_t bytes; /* 0: buffer may be NULL */
	size_t length;
};

/* Terminated as long as there is a byte for it. */
__attribute__((format(printf, 2, 3))) void ferry_text_add(struct ferry_text *t,
                                                          const char *fmt, ...);

/*
 * The first bytes - 1 bytes of a file, terminated: what /proc and /sys hold.
 * False, and "", where it cannot be read or is empty.
 */
bool ferry_text_read(const char *path, char *text, size_t bytes);

#endif
