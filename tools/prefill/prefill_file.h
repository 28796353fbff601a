/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a prefill leaves behind. Complaints go to stderr. */
#ifndef FERRY_PREFILL_FILE_H
#define FERRY_PREFILL_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* Can this file be written? Leaves none behind that was not there. */
bool prefill_file_check(const char *path);

/* Are both the same plain file, or the same name of none? */
bool prefill_file_same(const char *a, const char *b);

/* Opens for writing; NULL after a complaint. */
FILE *prefill_file_begin(const char *path);

/* Closes; false after a complaint when anything was not written. */
bool prefill_file_end(FILE *file, const char *path);

#endif
