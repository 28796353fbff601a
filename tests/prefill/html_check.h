/* SPDX-License-Identifier: Apache-2.0 */
/* Reads markup as strictly as XML is read. */
#ifndef HTML_CHECK_H
#define HTML_CHECK_H

#include <stddef.h>

/*
 * Is every element closed in the right order, every attribute quoted, and no
 * < > or & left over? NULL, or where the first fault is.
 */
const char *html_fault(const char *text);

/* How often `part` is in the text. */
size_t html_count(const char *text, const char *part);

#endif
