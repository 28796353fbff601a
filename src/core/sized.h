/* SPDX-License-Identifier: Apache-2.0 */
/* Config structs that grow: `size_t size` comes first, zero means default. */
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

#endif
