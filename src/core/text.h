/* SPDX-License-Identifier: Apache-2.0 */
/* Text into a caller's buffer, counted as snprintf does. */
#ifndef FERRY_TEXT_H
#define FERRY_TEXT_H

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

#endif
