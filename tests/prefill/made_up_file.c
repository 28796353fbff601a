/* SPDX-License-Identifier: Apache-2.0 */
/* See made_up_file.h. */
#include "made_up_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "alloc.h"

struct made_up made_up;
char made_up_path[] = "/tmp/ferry-prefill-XXXXXX";

int made_up_set_up(void **state)
{
	const int fd = mkstemp(made_up_path);

	(void)state;
	made_up_open(&made_up, 8);
	if (fd >= 0)
		close(fd);
	return fd < 0;
}

int made_up_tear_down(void **state)
{
	(void)state;
	made_up_close(&made_up);
	unlink(made_up_path);
	return 0;
}

char *made_up_read(const char *path)
{
	FILE *const f = fopen(path, "rb");

	if (!f)
		return NULL;
	fseek(f, 0, SEEK_END);
	const size_t n = (size_t)ftell(f);
	char *const text = alloc_or_exit(n + 1, 1);

	rewind(f);
	const bool whole = fread(text, 1, n, f) == n;

	fclose(f);
	if (whole)
		return text;
	free(text);
	return NULL;
}
