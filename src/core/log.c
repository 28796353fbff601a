/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines: "time host:pid:rank level message", to the caller's function, a
 * file, or stderr. A line is one write, so that lines of many ranks in one
 * file stay whole. The file is opened by the first line, because its name may
 * hold the rank, which is not known at once.
 */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, HOST_BYTES = 65 };

static const char *const level_names[] = {"error", "warn", "info", "debug"};

enum ferry_log_level ferry_log_level_named(const char *name)
{
	for (int i = FERRY_LOG_ERROR; i <= FERRY_LOG_DEBUG; i++)
		if (!strcmp(name, level_names[i]))
			return (enum ferry_log_level)i;
	return FERRY_LOG_WARN;
}

static void host_name(char host[HOST_BYTES])
{
	if (gethostname(host, HOST_BYTES))
		strcpy(host, "?");
	host[HOST_BYTES - 1] = 0;
	host[strcspn(host, ".")] = 0;
}

static void rank_name(char *text, size_t bytes, int32_t rank)
{
	if (rank < 0)
		snprintf(text, bytes, "x");
	else
		snprintf(text, bytes, "%d", rank);
}

bool ferry_path_expand(char *path, size_t bytes, const char *pattern,
                       int32_t rank)
{
	size_t n = 0;

	for (const char *p = pattern; *p; p++) {
		char part[HOST_BYTES] = {*p};

		if (*p == '%' && p[1]) {
			p++;
			if (*p == 'h')
				host_name(part);
			else if (*p == 'p')
				snprintf(part, sizeof(part), "%d",
				         (int)getpid());
			else if (*p == 'r')
				rank_name(part, sizeof(part), rank);
			else if (*p != '%')
				p--;
		}
		if (n + strlen(part) >= bytes) {
			path[n] = 0;
			return false;
		}
		memcpy(path + n, part, strlen(part));
		n += strlen(part);
	}
	path[n] = 0;
	return true;
}

static size_t line_head(const struct ferry_ctx *ctx, char *line,
                        enum ferry_log_level level)
{
	char host[HOST_BYTES];
	char rank[16];
	char when[32];
	struct timespec now;
	struct tm utc;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &utc);
	host_name(host);
	rank_name(rank, sizeof(rank), ctx->rank);
	return (size_t)snprintf(line, LINE_BYTES, "%s.%06ldZ %s:%d:%s %s ",
	                        when, now.tv_nsec / 1000, host, (int)getpid(),
	                        rank, level_names[level]);
}

/* A line must not split, so control characters become spaces. */
static void plain(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = ' ';
}

static void line_write(int fd, char *line)
{
	size_t left = strlen(line) + 1;
	const char *p = line;

	line[left - 1] = '\n';
	while (left) {
		const ssize_t n = write(fd, p, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break; /* a log that cannot be written has no reader */
		p += n;
		left -= (size_t)n;
	}
}

static void file_open(struct ferry_ctx *ctx)
{
	char path[4096];

	ctx->log_fd = STDERR_FILENO;
	if (!ctx->opt.log_file[0])
		return;
	ferry_path_expand(path, sizeof(path), ctx->opt.log_file, ctx->rank);
	const int fd =
		open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd >= 0) {
		ctx->log_fd = fd;
		return;
	}
	char line[LINE_BYTES];
	const int err = errno;
	const size_t n = line_head(ctx, line, FERRY_LOG_WARN);

	snprintf(line + n, sizeof(line) - n, "log: open of %s: %s", path,
	         strerror(err));
	line_write(ctx->log_fd, line);
}

void ferry_log(struct ferry_ctx *ctx, enum ferry_log_level level,
               const char *fmt, ...)
{
	if (!ctx || level > ctx->log_level)
		return;

	char line[LINE_BYTES];
	const size_t n = line_head(ctx, line, level);
	va_list args;

	va_start(args, fmt);
	vsnprintf(line + n, sizeof(line) - n, fmt, args);
	va_end(args);
	plain(line);

	pthread_mutex_lock(&ctx->log_lock);
	if (ctx->log) {
		ctx->log(ctx->log_arg, level, line);
	} else {
		if (ctx->log_fd < 0)
			file_open(ctx);
		line_write(ctx->log_fd, line);
	}
	pthread_mutex_unlock(&ctx->log_lock);
}
