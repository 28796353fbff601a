/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in /dev/shm. */
#include "shm_names.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TRIES = 60, TRY_MS = 50 };

void shm_names_take(struct shm_names *names)
{
	DIR *dir = opendir("/dev/shm");

	names->n = 0;
	if (dir == NULL)
		return;
	for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
		if (strstr(e->d_name, "ferry") != NULL &&
		    names->n < SHM_NAMES_MAX)
			snprintf(names->names[names->n++],
			         sizeof(names->names[0]), "%s", e->d_name);
	closedir(dir);
}

static bool contains(const struct shm_names *names, const char *name)
{
	for (int i = 0; i < names->n; i++)
		if (!strcmp(names->names[i], name))
			return true;
	return false;
}

/* Drops from `left` what is not there any more. */
static void drop_gone(struct shm_names *left)
{
	struct shm_names now;
	int n = 0;

	shm_names_take(&now);
	for (int i = 0; i < left->n; i++)
		if (contains(&now, left->names[i]))
			memmove(left->names[n++], left->names[i],
			        sizeof(left->names[i]));
	left->n = n;
}

int shm_names_left(const struct shm_names *before)
{
	struct shm_names now;
	struct shm_names left = {.n = 0};

	shm_names_take(&now);
	for (int i = 0; i < now.n; i++)
		if (!contains(before, now.names[i]))
			memcpy(left.names[left.n++], now.names[i],
			       sizeof(now.names[i]));
	for (int i = 0; i < TRIES && left.n > 0; i++) {
		nanosleep(&(struct timespec){0, TRY_MS * 1000000}, NULL);
		drop_gone(&left);
	}
	for (int i = 0; i < left.n; i++)
		fprintf(stderr, "left in /dev/shm: %s\n", left.names[i]);
	return left.n;
}
