/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a prefill leaves behind. */
#include "prefill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool complain(const char *path)
{
	fprintf(stderr, "ferry prefill: cannot write %s: %s\n", path,
	        strerror(errno));
	return false;
}

/* Something is there: to open a pipe would end what its reader waits for, and
 * a link that leads nowhere stays one. */
static bool check_old(const char *path)
{
	struct stat is;

	if (stat(path, &is))
		return errno == ENOENT || complain(path);
	if (S_ISDIR(is.st_mode)) {
		errno = EISDIR;
		return complain(path);
	}
	return access(path, W_OK) == 0 || complain(path);
}

bool prefill_file_check(const char *path)
{
	const int fd =
		open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (fd < 0)
		return errno == EEXIST ? check_old(path) : complain(path);
	close(fd);
	unlink(path);
	return true;
}

bool prefill_file_same(const char *a, const char *b)
{
	struct stat of_a, of_b;
	const bool is_a = stat(a, &of_a) == 0, is_b = stat(b, &of_b) == 0;

	if (is_a && is_b)
		return S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev &&
		       of_a.st_ino == of_b.st_ino;
	return !is_a && !is_b && !strcmp(a, b);
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
