/* SPDX-License-Identifier: Apache-2.0 */
/* The name that a misspelt one was probably meant to be. */
#ifndef FERRY_NEAREST_H
#define FERRY_NEAREST_H

#include <stddef.h>

/*
 * Fewest insertions, deletions, replacements and swaps of neighbours that turn
 * a into b, without regard to case. Only the first 63 bytes count.
 */
int ferry_edit_distance(const char *a, const char *b);

/*
 * The name nearest to `word`, the first of equals; NULL when every one is
 * further away than a third of its length (at least 2).
 */
const char *ferry_nearest(const char *word, const char *const *names,
                          size_t n_names);

#endif
