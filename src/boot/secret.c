/* SPDX-License-Identifier: Apache-2.0 */
/* The job secret: from an option or from a file that only its owner reads. */
#include "star.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum ferry_status check_file(struct ferry_ctx *ctx, int fd,
                                    const char *path)
{
	struct stat st;

	if (fstat(fd, &st))
		return ferry_fail_errno(ctx, FERRY_SYS, errno,
		                        "boot: secret file %s", path);
	if (!S_ISREG(st.st_mode))
		return ferry_fail(ctx, FERRY_INVAL,
		                  "boot: secret file %s is not a regular file",
		                  path);
	if (st.st_mode & 077)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "boot: secret file %s has mode %03o, others "
		                  "must not read or write it: chmod 600",
		                  path, st.st_mode & 0777u);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return ferry_fail(
			ctx, FERRY_INVAL,
			"boot: secret file %s belongs to user %u, not "
			"to %u",
			path, (unsigned)st.st_uid, (unsigned)geteuid());
	return FERRY_OK;
}

/* A newline at the end is the editor's, not the secret's. */
static size_t without_newline(const uint8_t *bytes, size_t n)
{
	while (n && (bytes[n - 1] == '\n' || bytes[n - 1] == '\r'))
		n--;
	return n;
}

static enum ferry_status read_file(struct ferry_ctx *ctx, int fd,
                                   const char *path,
                                   struct ferry_secret *secret)
{
	size_t n = 0;
	ssize_t got;

	FERRY_TRY(check_file(ctx, fd, path));
	do {
		got = read(fd, secret->bytes + n, sizeof(secret->bytes) - n);
		if (got < 0 && errno != EINTR)
			return ferry_fail_errno(ctx, FERRY_SYS, errno,
			                        "boot: secret file %s", path);
		n += got > 0 ? (size_t)got : 0;
	} while (got && n < sizeof(secret->bytes));
	if (n == sizeof(secret->bytes))
		return ferry_fail(
			ctx, FERRY_INVAL,
			"boot: secret file %s is too long, allowed are "
			"%zu bytes",
			path, sizeof(secret->bytes) - 1);
	secret->n_bytes = without_newline(secret->bytes, n);
	if (!secret->n_bytes)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "boot: secret file %s is empty", path);
	return FERRY_OK;
}

enum ferry_status ferry_secret_load(struct ferry_ctx *ctx,
                                    struct ferry_secret *secret)
{
	const char *path = ctx->opt.secret_file;

	secret->n_bytes = strlen(ctx->opt.secret);
	memcpy(secret->bytes, ctx->opt.secret, secret->n_bytes);
	if (secret->n_bytes || !*path)
		return FERRY_OK;
	/* Not blocking: the path may name a fifo. */
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return ferry_fail_errno(ctx, FERRY_SYS, errno,
		                        "boot: secret file %s", path);
	const enum ferry_status status = read_file(ctx, fd, path, secret);
	close(fd);
	return status;
}
