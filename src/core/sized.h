/* SPDX-License-Identifier: Apache-2.0 */
/* Structs that grow: `size_t size` comes first, zero means default. */
#ifndef FERRY_SIZED_H
#define FERRY_SIZED_H

#include <ferry/base.h>

/*
 * Copies a caller's struct into the `size` bytes of *to, this library's form
 * of it. What an older, smaller struct lacks is zero; a newer, larger one is
 * accepted when its unknown tail is zero. `what` names it in the refusal.
 */
enum ferry_status ferry_sized_copy(void *to, size_t size, const void *from,
                                   const char *what);

/*
 * The way back: fills a caller's struct, as far as it reaches, from the `size`
 * bytes of *from. Its own size stays.
 */
enum ferry_status ferry_sized_give(void *to, const void *from, size_t size,
                                   const char *what);

#endif
