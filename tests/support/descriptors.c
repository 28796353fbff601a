/* SPDX-License-Identifier: Apache-2.0 */
/* See descriptors.h. */
#include "descriptors.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

int descriptors_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = -2; /* "." and ".." */

	/* Twice nothing would be no leak. */
	if (!dir) {
		perror("/proc/self/fd");
		abort();
	}
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}
