/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of files that users bring: read whole, and nothing left out silently. */
#ifndef FERRY_JSON_READ_H
#define FERRY_JSON_READ_H

#include <stddef.h>

#include <cjson/cJSON.h>

#include "fault.h"

/*
 * A text that is one object and nothing else, white space apart; NULL with a
 * fault otherwise. The text begins at byte `at` of the file `name`.
 */
cJSON *json_read_object(const char *name, size_t at, const char *text, size_t n,
                        struct fault *fault);

/* A member of an object, NULL where it is absent; false where it is there more
 * than once. */
bool json_read_member(const char *name, const cJSON *object, const char *key,
                      const cJSON **item, struct fault *fault);

#endif
