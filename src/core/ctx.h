/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every part of one world shares: options, log, the way to fail. The
 * context of a world is its first member; before there is a world, NULL.
 */
#ifndef FERRY_CTX_H
#define FERRY_CTX_H

#include <pthread.h>

#include <ferry/base.h>

#include "options.h"

/* Most ranks of a world. */
enum { FERRY_MAX_RANKS = 65536 };

struct ferry_ctx {
	struct ferry_options opt;
	int32_t rank; /* -1 until known */
	enum ferry_log_level log_level;
	ferry_log_fn *log; /* NULL: log_fd */
	void *log_arg;
	int log_fd;
	pthread_mutex_t log_lock;
};

/* Reads options and opens the log. */
enum ferry_status ferry_ctx_init(struct ferry_ctx *ctx,
                                 const struct ferry_world_config *config);
void ferry_ctx_destroy(struct ferry_ctx *ctx);

/* One log line, without newline: lower case, object, numbers, cause. */
__attribute__((format(printf, 3, 4))) void ferry_log(struct ferry_ctx *ctx,
                                                     enum ferry_log_level level,
                                                     const char *fmt, ...);

/*
 * Whoever first decides that something failed calls this: the text becomes
 * ferry_last_error of the thread and one log line (level info, since callers
 * may expect the failure), and `status` is returned. ctx may be NULL.
 */
__attribute__((format(printf, 3, 4))) enum ferry_status
ferry_fail(struct ferry_ctx *ctx, enum ferry_status status, const char *fmt,
           ...);

/* As ferry_fail, with strerror(err) behind the text. */
__attribute__((format(printf, 4, 5))) enum ferry_status
ferry_fail_errno(struct ferry_ctx *ctx, enum ferry_status status, int err,
                 const char *fmt, ...);

#ifdef __clang_analyzer__
/* The analyzer cannot see that what these return is never FERRY_OK. */
#define ferry_fail(ctx, status, ...)                                           \
	(ferry_fail(ctx, status, __VA_ARGS__), (status))
#define ferry_fail_errno(ctx, status, ...)                                     \
	(ferry_fail_errno(ctx, status, __VA_ARGS__), (status))
#endif

/* Sets ferry_last_error of this thread without logging. */
void ferry_last_error_set(const char *text);

/* Returns early with the status of a failing call. */
#define FERRY_TRY(call)                                                        \
	do {                                                                   \
		const enum ferry_status try_status_ = (call);                  \
		if (try_status_ != FERRY_OK)                                   \
			return try_status_;                                    \
	} while (0)

#endif
