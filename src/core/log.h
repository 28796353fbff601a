/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the log that others need: levels by name, paths with % in them. */
#ifndef FERRY_LOG_H
#define FERRY_LOG_H

#include "ctx.h"

/* Level of a name of FERRY_LOG_LEVEL; warn for an unknown one. */
enum ferry_log_level ferry_log_level_named(const char *name);

/*
 * Copies a path, with %h, %p, %r replaced by host, process and rank ("x" while
 * unknown) and %% by %. Cut to fit; true when nothing was cut.
 */
bool ferry_path_expand(char *path, size_t bytes, const char *pattern,
                       int32_t rank);

#endif
