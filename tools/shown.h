/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of users, such as names of files, in tables and JSON: file systems
 * allow bytes that JSON does not, and newlines, which would end a row.
 */
#ifndef FERRY_SHOWN_H
#define FERRY_SHOWN_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the UTF-8 character at a text; 0: there is none. */
size_t shown_character(const char *text);

/* Is the character of n bytes a control character: C0, DEL, C1? */
bool shown_is_control(const char *text, size_t n);

/* A copy in which U+FFFD stands for bytes that are no UTF-8; free() frees it.
 * Ends the program without memory, as the next one. */
char *shown_utf8(const char *text);

/* The same, where '?' stands for control characters, too. */
char *shown_line(const char *text);

/* As much of a text in UTF-8 as has room: it is cut between characters. */
void shown_cut(char *out, size_t room, const char *text);

#endif
