/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a prefill leaves behind. */
#include "prefill_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static bool complain(const char *path)
{
	fprintf(stderr, "ferry: cannot write %s: %s\n", path, strerror(errno));
	return false;
}

bool prefill_file_check(const char *path)
{
	const bool is_new = access(path, F_OK) != 0;
	FILE *const f = fopen(path, "ab");

	if (!f)
		return complain(path);
	fclose(f);
	if (is_new)
		unlink(path);
	return true;
}

FILE *prefill_file_begin(const char *path)
{
	FILE *const f = fopen(path, "wb");

	if (!f)
		complain(path);
	return f;
}

bool prefill_file_end(FILE *file, const char *path)
{
	const bool failed = ferror(file) != 0;

	if (fclose(file) != 0)
		return complain(path);
	if (!failed)
		return true;
	errno = EIO;
	return complain(path);
}
