/* SPDX-License-Identifier: Apache-2.0 */
/* The context of a world, and the way to fail. */
#include "ctx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <threads.h>
#include <unistd.h>

#include "log.h"

#undef ferry_fail /* macros for the analyzer */
#undef ferry_fail_errno

/* As long as ferry_error.text, so that a record holds the whole message. */
static thread_local char last_error[sizeof(((struct ferry_error *)0)->text)];

const char *ferry_last_error(void)
{
	return last_error;
}

void ferry_last_error_set(const char *text)
{
	/* The text may be the last error itself. */
	if (text != last_error)
		snprintf(last_error, sizeof(last_error), "%s", text);
}

static enum ferry_status fail(struct ferry_ctx *ctx, enum ferry_status status,
                              const char *text)
{
	ferry_last_error_set(text);
	ferry_log(ctx, FERRY_LOG_INFO, "%s", text);
	return status;
}

enum ferry_status ferry_fail(struct ferry_ctx *ctx, enum ferry_status status,
                             const char *fmt, ...)
{
	char text[sizeof(last_error)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return fail(ctx, status, text);
}

enum ferry_status ferry_fail_errno(struct ferry_ctx *ctx,
                                   enum ferry_status status, int err,
                                   const char *fmt, ...)
{
	char text[sizeof(last_error)];
	char reason[128];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	const size_t n = strlen(text);

	snprintf(text + n, sizeof(text) - n, ": %s",
	         strerror_r(err, reason, sizeof(reason)));
	return fail(ctx, status, text);
}

/* What the caller gives in code wins over the environment. */
static void config_wins(struct ferry_ctx *ctx,
                        const struct ferry_world_config *config)
{
	struct ferry_options *opt = &ctx->opt;

	if (config->timeout_ms)
		opt->timeout_ms = config->timeout_ms;
	if (config->open_timeout_ms)
		opt->open_timeout_ms = config->open_timeout_ms;
	if (config->fabric)
		snprintf(opt->fabric, sizeof(opt->fabric), "%s",
		         config->fabric);
}

enum ferry_status ferry_ctx_init(struct ferry_ctx *ctx,
                                 const struct ferry_world_config *config)
{
	static const struct ferry_world_config defaults =
		FERRY_WORLD_CONFIG_INIT;

	if (!config)
		config = &defaults;
	memset(ctx, 0, sizeof(*ctx));
	ctx->rank = config->team || config->callbacks ? config->rank : -1;
	ctx->log_level = FERRY_LOG_WARN;
	ctx->log = config->log;
	ctx->log_arg = config->log_arg;
	ctx->log_fd = -1;
	if (config->timeout_ms < 0)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "world_open: timeout_ms is %d, 0 is the "
		                  "default and 1.. a time",
		                  config->timeout_ms);
	if (config->open_timeout_ms < 0)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "world_open: open_timeout_ms is %d, 0 is the "
		                  "default and 1.. a time",
		                  config->open_timeout_ms);
	FERRY_TRY(ferry_options_read(NULL, config->options, &ctx->opt));
	config_wins(ctx, config);
	if (ctx->rank < 0)
		ctx->rank = (int32_t)ctx->opt.rank;
	ctx->log_level = ferry_log_level_named(ctx->opt.log_level);
	pthread_mutex_init(&ctx->log_lock, NULL);
	ferry_env_check(ctx);
	return FERRY_OK;
}

void ferry_ctx_destroy(struct ferry_ctx *ctx)
{
	if (ctx->log_fd > STDERR_FILENO)
		close(ctx->log_fd);
	ctx->log_fd = -1;
	pthread_mutex_destroy(&ctx->log_lock);
}
