/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of a checkpoint's files. */
#include "lm_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_PATH_BYTES = 160 };

char *lm_path(const char *directory, const char *name, struct fault *fault)
{
	const size_t n = strlen(directory) + strlen(name) + 2;
	char *const path = malloc(n);

	if (path)
		snprintf(path, n, "%s/%s", directory, name);
	else
		fault_set(fault, "%s: no memory", name);
	return path;
}

const char *lm_path_shown(const char *path)
{
	const size_t n = strlen(path);

	return n > SHOWN_PATH_BYTES ? path + n - SHOWN_PATH_BYTES : path;
}
