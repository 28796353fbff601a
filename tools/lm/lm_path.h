/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of a checkpoint's files, and as much of them as faults show. */
#ifndef FERRY_LM_PATH_H
#define FERRY_LM_PATH_H

#include "../fault.h"

/* DIRECTORY/NAME, which the caller frees; NULL where there is no memory. */
char *lm_path(const char *directory, const char *name, struct fault *fault);

/* The end of a path, for faults: what is wrong has to fit behind it. */
const char *lm_path_shown(const char *path);

#endif
